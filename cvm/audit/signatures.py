"""Ed25519 signatures (RFC 8032) of receipts: over a tag and the claim's id, never over what the host says of itself.

They need the package `cryptography` (``pip install 'cvm[sign]'``). A signature says who vouches for a claim, not that
the claim is true.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from cvm.audit.receipt import Claim, Receipt, Signature
from cvm.errors import Invalid, Unsupported

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

__all__ = ["is_genuine", "message", "public_key", "sign"]


def message(claim: Claim) -> bytes:
    """The bytes that are signed."""
    return b"cvm1:signature\0" + claim.id()


def sign(receipt: Receipt, private_pem: bytes) -> Receipt:
    """The receipt with a signature by a private key in PEM (PKCS #8, not encrypted); one per key, the newest.

    Raises `Invalid` (``sign.key``) for anything but an Ed25519 key, and `Unsupported` (``sign.package``).
    """
    key = _private_key(private_pem)
    made = Signature(key.public_key().public_bytes_raw(), key.sign(message(receipt.claim)))
    others = [item for item in receipt.signatures if item.key != made.key]
    return replace(receipt, signatures=tuple(sorted([*others, made], key=lambda item: item.key)))


def is_genuine(claim: Claim, signature: Signature) -> bool:
    """Whether the holder of the key signed this claim. Raises `Unsupported` (``sign.package``)."""
    _require_package()
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if not _is_proper_key(signature.key) or not _is_canonical(signature.signature[:32]):
        return False
    if int.from_bytes(signature.signature[32:], "little") >= _ORDER:
        return False
    try:
        Ed25519PublicKey.from_public_bytes(signature.key).verify(signature.signature, message(claim))
    except (InvalidSignature, ValueError):
        return False
    return True


# RFC 8032 leaves these points open and libraries decide them differently, so they are decided here.

_FIELD = 2**255 - 19
_ORDER = 2**252 + 27742317777372353535851937790883648493
_D = -121665 * pow(121666, -1, _FIELD) % _FIELD
"""The curve is -x^2 + y^2 = 1 + D x^2 y^2 modulo `_FIELD`."""


def _is_canonical(point: bytes) -> bool:
    """Whether a point is written as RFC 8032, section 5.1.3, demands; libraries accept other forms of some points.

    The field element is below 2^255 - 19, and where x is 0, its sign is.
    """
    y, odd = int.from_bytes(point, "little") % 2**255, point[31] >> 7
    return y < _FIELD and not (odd and y in (1, _FIELD - 1))


def _is_proper_key(key: bytes) -> bool:
    """Whether a public key is canonical and not one of the eight points whose order divides 8.

    Of such a point nobody has the private key, and signatures by it are easily found for every message. The points of
    order 1 and 2 have y = 1 and y = -1, those of order 4 have y = 0. A point of order 8 doubles to one with y = 0, and
    doubling gives y = (y^2 + x^2) / (1 - D x^2 y^2): so x^2 = -y^2, and on the curve D y^4 + 2 y^2 = 1.
    """
    y = int.from_bytes(key, "little") % 2**255
    small = y * (y * y - 1) * (_D * y**4 + 2 * y * y - 1) % _FIELD == 0
    return _is_canonical(key) and not small


def public_key(pem: bytes) -> bytes:
    """The 32 bytes of a public key in PEM. Raises `Invalid` (``sign.key``) and `Unsupported` (``sign.package``)."""
    _require_package()
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(pem)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise Invalid("sign.key", "expected an Ed25519 public key in PEM") from None
    if not isinstance(key, Ed25519PublicKey):
        raise Invalid("sign.key", "expected an Ed25519 public key, found one of another kind")
    return bytes(key.public_bytes_raw())


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
        message = "signatures need the package 'cryptography': pip install 'cvm[sign]'"
        raise Unsupported("sign.package", message) from None
