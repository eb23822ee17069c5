"""Sums of windows: the part of a contraction that all output channels have in common.

With weights w = v + c, a contraction is sum v x + c * sum x. One call computes c * sum x for every pixel; the
contraction's own call multiplies by v and adds it. The proof says that the first call adds up exactly the elements
that the contraction reads for the same pixel. Then the checker compares v with w - c.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cvm.executors.native.checker.addresses import Array, loops_of, offsets_of, require
from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.sums import WindowSums
from cvm.executors.native.plan.claims import Prepares
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.steps import Plan

__all__ = ["require_windows", "summed"]


def summed(formula: Formula, reads: Sequence[Home | None]) -> Home | None:
    """The home that the first step of a formula adds to the sums, or None if it is another step."""
    step = formula.steps[0] if formula.steps else None
    if step is None or step.op != "add" or step.arguments[0] != 0 or not 0 < step.arguments[1] <= len(reads):
        return None
    return reads[step.arguments[1] - 1]


def require_windows(
    plan: Plan,
    made: Prepares,
    call: int,
    home: Home,
    source: Home,
    window: Array,
    pixels: Sequence[tuple[int, int, int]],
) -> None:
    """Prove that ``home`` holds the sums of the windows of a contraction, all times one number, when ``call`` reads it.

    ``window`` lists the addresses of the first pixel's elements in ``source``. ``pixels`` has, for each loop over the
    output's pixels, its extent and the distances from one pixel to the next in ``source`` and in ``home``. Raises
    `Unproven`.
    """
    kernel = made.kernel
    require(isinstance(kernel, WindowSums), "no sums of windows are added")
    assert isinstance(kernel, WindowSums)
    using = [n for n, one in enumerate(plan.calls) if any(buffer is home.buffer for buffer, _ in one.arguments)]
    require(using == [made.call, call], "other calls use the sums of windows")
    (buffer, first), _, target = plan.calls[made.call].arguments
    bytes_ = (source.format.bits, source.format.signed) == (8, False)
    require(buffer is source.buffer and bytes_, "windows of another tensor")
    require(target == home.at() and home.format == INT32, "the sums of windows lie elsewhere")
    at = offsets_of(first, (*kernel.taps, (kernel.run, 1)))
    require(np.array_equal(np.sort(at), np.sort(window)), "the windows hold other elements")
    found = [
        (kernel.images, (kernel.source.image, kernel.rows * kernel.columns)),
        (kernel.rows, (kernel.source.row, kernel.columns)),
        (kernel.columns, (kernel.source.column, 1)),
    ]
    require(loops_of(found, 1) == loops_of([(n, (a, b)) for n, a, b in pixels], 1), "the windows of other pixels")
