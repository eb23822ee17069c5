"""A self-test of executors on this machine: cases in which inexact arithmetic would show, judged by FORMAL."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.agreement import compare
from cvm.executors import create
from cvm.limits import INT32_MAX
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.verifier import VerifiedProgram, verify
from cvm.records import dataclass

__all__ = ["Verdict", "run_selftest"]

Array = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether an executor gave every integer that FORMAL gives, on one case."""

    executor: str
    op: str
    what: str
    agrees: bool


@dataclass(frozen=True, eq=False, slots=True)
class _Case:
    """One op on an input (the first array) and constants."""

    op: str
    what: str
    arrays: Sequence[Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def program(self) -> VerifiedProgram:
        builder = ProgramBuilder()
        first, *others = self.arrays
        names = [builder.input("x", first.shape, int(first.min()), int(first.max()))]
        add = builder.parameter if self.op == "requantize" else builder.constant
        names += [add(array) for array in others]
        (result,) = builder.add(self.op, names, self.attributes, "y")
        return verify(builder.build([Output("y", result)]))


def run_selftest(executors: Sequence[str]) -> list[Verdict]:
    """All cases on all ``executors``."""
    results = []
    for case in _cases():
        verified = case.program()
        feed = {"x": case.arrays[0].astype(np.int32)}
        for name in executors:
            made = [create("formal", verified), create(name, verified)]
            agreement = compare(verified.program, made, [[feed]])
            results.append(Verdict(name, case.op, case.what, agreement.difference is None))
    return results


def _pattern(*shape: int, lo: int = -127, hi: int = 127) -> Array:
    """Integers in [lo, hi] without a short period."""
    count = int(np.prod(shape))
    items = (np.arange(count, dtype=np.int64) * 7919 + (np.arange(count) ** 2) % 1009) % (hi - lo + 1) + lo
    items[0], items[-1] = lo, hi
    return items.reshape(shape)


def _all(value: int, *shape: int) -> Array:
    return np.full(shape, value, np.int64)


@cache
def _cases() -> tuple[_Case, ...]:
    edge = np.array([-INT32_MAX, -(2**30), -7, -2, -1, 0, 1, 2, 7, 2**30, INT32_MAX], np.int64)
    halves = np.arange(-20, 21, dtype=np.int64)
    rounding = {"lo": -100, "hi": 100}
    return (
        _Case("dense", "sums up to 2^24: float32 is just exact", (_all(127, 1, 1040), _all(127, 2, 1040))),
        _Case("dense", "sums beyond 2^24: float32 is not exact", (_pattern(2, 1041), _all(127, 2, 1041))),
        _Case("dense", "sums up to 2^31", (_all(32767, 1, 2), _all(32767, 3, 2))),
        _Case("conv2d", "8 bits, padding and stride", (_pattern(1, 3, 7, 7), _pattern(4, 3, 3, 3)),
              {"padding": (1, 1), "stride": (2, 2)}),
        _Case("conv2d", "groups and dilation", (_pattern(1, 4, 7, 7), _pattern(4, 2, 3, 3)),
              {"groups": 2, "dilation": (2, 2)}),
        _Case("broadcast_div", "toward zero, and by zero", (edge, np.array([-3], np.int64))),
        _Case("broadcast_div", "a divisor of zero", (edge, np.array([0], np.int64))),
        _Case("cvm_right_shift", "ties and large shifts", (edge,), {"precision": 32, "shift_bit": 31}),
        _Case("requantize", "ties, half up", (halves, _all(1, 1), _all(0, 1), _all(1, 1)),
              {"rounding": "half_up", **rounding}),
        _Case("requantize", "ties, half even", (halves, _all(1, 1), _all(0, 1), _all(1, 1)),
              {"rounding": "half_even", **rounding}),
        _Case("requantize", "a 31-bit multiplier", (edge, _all(INT32_MAX, 1), _all(2**40 + 1, 1), _all(50, 1)),
              {"rounding": "toward_zero", **rounding}),
        _Case("max_pool2d", "a border of padding", (_pattern(1, 2, 5, 5, lo=-100, hi=-1),),
              {"pool_size": (3, 3), "padding": (1, 1), "strides": (2, 2)}),
        _Case("sum", "all elements", (_pattern(3, 50, 7, lo=-(2**20), hi=2**20),), {"axes": ()}),
    )  # fmt: skip
