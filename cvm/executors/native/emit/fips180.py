"""The constants of SHA-256. Source: FIPS 180-4, sections 4.2.2 and 5.3.3."""

from __future__ import annotations

__all__ = ["ROUNDS", "A", "B", "C", "D", "E", "F", "G", "H", "K"]

ROUNDS = 64


def _fraction_of_root(prime: int, power: int) -> int:
    """The first 32 bits of the fractional part of a root of a prime: floor(2^32 * p^(1/power)) mod 2^32."""
    scaled, low, high = prime << (32 * power), 0, 1 << 40
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**power <= scaled else (low, middle)
    return low % 2**32


PRIMES = [n for n in range(2, 312) if all(n % d for d in range(2, n))]
K = [_fraction_of_root(prime, 3) for prime in PRIMES[:ROUNDS]]
A, B, C, D, E, F, G, H = (_fraction_of_root(prime, 2) for prime in PRIMES[:8])
