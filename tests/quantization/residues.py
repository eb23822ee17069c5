"""The greatest item of an arithmetic progression modulo an integer, by the least one."""

from __future__ import annotations

import numpy as np

from cvm.quantization.modular import Integers, least_residue


def greatest_residue(count: int, modulus: int, step: int, start: Integers) -> Integers:
    """Max over 0 <= i < count of (start + step * i) mod modulus, for each item of ``start``."""
    return np.asarray(modulus - 1 - least_residue(count, modulus, -step, -1 - start))
