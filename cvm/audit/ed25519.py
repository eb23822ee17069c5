"""Ed25519 signatures verified in plain Python: RFC 8032, section 5.1.

A point is (x, y) on -x^2 + y^2 = 1 + D x^2 y^2, modulo P. ``cvm/standalone/verify_receipt.py``, which imports nothing,
repeats these functions without their types; a test compares the two texts.
"""

from __future__ import annotations

from hashlib import sha512
from typing import TypeAlias

__all__ = ["D", "L", "P", "genuine", "point"]

Point: TypeAlias = tuple[int, int]

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P


def point(data: bytes) -> Point | None:
    """The point of 32 bytes: y, and the lowest bit of x above it. None if there is no such point."""
    y, odd = int.from_bytes(data, "little") % 2**255, data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != square or (x == 0 and odd):
        return None
    return (x if x % 2 == odd else P - x, y)


def plus(a: Point, b: Point) -> Point:
    """The sum of two points."""
    (p, q), (r, s) = a, b
    e = D * p * r * q * s % P
    both = pow(1 - e * e, -1, P)
    return (p * s + q * r) * (1 - e) * both % P, (q * s + p * r) * (1 + e) * both % P


def times(n: int, a: Point) -> Point:
    """The sum of n times the same point."""
    total = (0, 1)
    for bit in f"{n:b}":
        total = plus(total, total)
        total = plus(total, a) if bit == "1" else total
    return total


BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little")) or (0, 1)


def genuine(key: bytes, message: bytes, signature: bytes) -> bool:
    """Whether S B = R + k A, for the key A, the signature (R, S), and k the hash of R, A and the message.

    If a key is one of the eight points with 8 A = 0, anybody can make its signatures, so they prove nothing.
    """
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if a is None or times(8, a) == (0, 1) or s >= L:
        return False
    k = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
    x, y = plus(times(s, BASE), times(k, (P - a[0], a[1])))
    return (y | x % 2 << 255).to_bytes(32, "little") == signature[:32]
