"""Inputs for programs, from seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.program import Program

__all__ = ["Feed", "feeds", "random_feed"]

Feed: TypeAlias = Mapping[str, npt.NDArray[np.int32]]
"""Codes by the names of the inputs."""


def random_feed(program: Program, seed: int = 1) -> Feed:
    """Codes at random from the whole range of every input."""
    random = np.random.default_rng(seed)
    values = [item.value for item in program.inputs]
    return {one.name: random.integers(one.lo, one.hi, one.shape, np.int32, endpoint=True) for one in values}


def feeds(program: Program, count: int, seed: int = 0) -> list[Feed]:
    """Inputs: all at one end of the interval, all at the other, both ends in random order, then any numbers."""
    random = np.random.default_rng(seed)

    def values(lo: int, hi: int, shape: tuple[int, ...], kind: int) -> npt.NDArray[np.int32]:
        if kind < 2:
            return np.full(shape, (hi, lo)[kind], np.int32)
        if kind == 2:
            return random.choice(np.array([lo, hi], np.int32), shape)
        return random.integers(lo, hi, shape, np.int32, endpoint=True)

    return [
        {one.value.name: values(one.value.lo, one.value.hi, one.value.shape, kind) for one in program.inputs}
        for kind in range(count)
    ]
