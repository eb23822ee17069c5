"""Ed25519 signatures (RFC 8032) of receipts: they cover a tag and the claim's id, never what the host says of itself.

Signing needs the package `cryptography` (``pip install 'cvm[sign]'``), verifying does not. A signature says who vouches
for a claim, not that the claim is true.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from typing import TYPE_CHECKING

from cvm.audit.ed25519 import D, L, P, genuine
from cvm.audit.receipt import Claim, Receipt, Signature
from cvm.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["is_genuine", "message", "public_key", "sign"]


def message(claim: Claim) -> bytes:
    """The bytes that are signed."""
    return b"cvm1:signature\0" + claim.id()


def sign(receipt: Receipt, private_pem: bytes) -> Receipt:
    """The receipt with a signature by a private key in PEM (PKCS #8, not encrypted); it replaces one by the same key.

    Raises `Invalid` (``sign.key``) for anything but an Ed25519 key, and `Unsupported` (``sign.package``).
    """
    key = _private_key(private_pem)
    made = Signature(key.public_key().public_bytes_raw(), key.sign(message(receipt.claim)))
    others = [item for item in receipt.signatures if item.key != made.key]
    return replace(receipt, signatures=tuple(sorted([*others, made], key=lambda item: item.key)))


def is_genuine(claim: Claim, signature: Signature) -> bool:
    """Whether the holder of the key signed this claim, checked with the package `cryptography` if it is installed.

    Without the package the answer is the same, and a signature takes some 15 ms.
    """
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        return genuine(signature.key, message(claim), signature.signature)
    if not _is_proper_key(signature.key) or not _is_canonical(signature.signature[:32]):
        return False
    if int.from_bytes(signature.signature[32:], "little") >= L:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.signature, message(claim))
    except (InvalidSignature, ValueError):
        return False
    return True


# RFC 8032 leaves these points open, and libraries decide them differently, so they are decided here.


def _is_canonical(data: bytes) -> bool:
    """Whether a point is encoded as RFC 8032, section 5.1.3, demands; libraries accept other encodings of some points.

    The field element must be below 2^255 - 19, and where x is 0, its sign must be 0.
    """
    y, odd = int.from_bytes(data, "little") % 2**255, data[31] >> 7
    return y < P and not (odd and y in (1, P - 1))


def _is_proper_key(key: bytes) -> bool:
    """Whether a public key is canonical and not one of the eight points whose order divides 8.

    Nobody has a private key for such a point, and signatures under it are easily found for every message. The points of
    order 1 and 2 have y = 1 and y = -1, those of order 4 have y = 0. A point of order 8 doubles to one with y = 0, and
    doubling gives y = (y^2 + x^2) / (1 - D x^2 y^2): so x^2 = -y^2, and on the curve D y^4 + 2 y^2 = 1.
    """
    y = int.from_bytes(key, "little") % 2**255
    small = y * (y * y - 1) * (D * y**4 + 2 * y * y - 1) % P == 0
    return _is_canonical(key) and not small


_KEY_BEGINS = bytes.fromhex("302a300506032b6570032100")
"""The bytes of an Ed25519 SubjectPublicKeyInfo (RFC 8410, section 4) before the 32 bytes of the key."""


def public_key(text: str) -> bytes:
    """The 32 bytes of a public key: in hexadecimal, or in PEM. Raises `Invalid` (``sign.key``)."""
    words = text.strip()
    if re.fullmatch("[0-9a-fA-F]{64}", words):
        return bytes.fromhex(words)
    match = re.fullmatch(r"-----BEGIN PUBLIC KEY-----\s([A-Za-z0-9+/=\s]{1,200})-----END PUBLIC KEY-----", words)
    try:
        data = b"" if match is None else b64decode("".join(match[1].split()), validate=True)
    except ValueError:
        data = b""
    if not data.startswith(_KEY_BEGINS) or len(data) != len(_KEY_BEGINS) + 32:
        raise Invalid(
            "sign.key", "expected an Ed25519 public key: 64 hexadecimal digits, or PEM (openssl pkey -pubout)"
        )
    return data[len(_KEY_BEGINS) :]


def _private_key(pem: bytes) -> Ed25519PrivateKey:
    _require_package()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Invalid("sign.key", "expected an Ed25519 private key in PEM, not encrypted") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise Invalid("sign.key", "expected an Ed25519 private key, found one of another kind")
    return key


def _require_package() -> None:
    try:
        import cryptography  # noqa: F401
    except ImportError:
        message = "to sign takes the package 'cryptography': pip install 'cvm[sign]'"
        raise Unsupported("sign.package", message) from None
