"""Maxima of windows: borders, strides and formats, with channels side by side, against the NumPy executor."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.kernels.windows import Pool
from cvm.program import Output, Program, ProgramBuilder, verify
from tests.executors.native.comparison import MACHINES, compare
from tests.selection import mostly_long

pytestmark = pytest.mark.usefixtures("ways")

SPANS = ((-128, 127), (0, 255), (-90, 165), (-32768, 32767), (0, 65535), (-(2**17), 2**17))
WINDOWS = (
    # extents of the window, strides, pads
    ((3, 3), (2, 2), (1, 1)), ((3, 3), (1, 1), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((5, 5), (1, 1), (2, 2)),
    ((1, 4), (1, 3), (0, 3)), ((5, 2), (3, 1), (4, 1)), ((2, 3), (4, 5), (1, 0)), ((6, 3), (2, 1), (5, 2)),
    ((3, 7), (1, 2), (0, 6)),
)  # fmt: skip
"""The last two have more taps than are written one by one."""


def pooled(shape: tuple[int, ...], span: tuple[int, int]) -> Program:
    """Every window that fits a map, with and without windows that begin at its last element."""
    builder, outputs = ProgramBuilder(), []
    x = builder.input("x", shape, *span)
    (stored,) = builder.add("clip", [x], {"a_min": span[0], "a_max": span[1]})
    for extents, strides, padding in WINDOWS:
        for ceil_mode in (False, True):
            attributes = {"pool_size": extents, "strides": strides, "padding": padding, "ceil_mode": ceil_mode}
            begins = [
                (-(-room // step) if ceil_mode else room // step) * step - pad < extent
                for extent, size, step, pad in zip(shape[2:], extents, strides, padding, strict=True)
                for room in [extent + 2 * pad - size]
            ]
            fits = all(e <= n + 2 * p for e, n, p in zip(extents, shape[2:], padding, strict=True))
            if fits and all(begins):
                outputs.append(Output(f"y{len(outputs)}", *builder.add("max_pool2d", [stored], attributes)))
    return builder.build(outputs)


@pytest.mark.parametrize("span", mostly_long(SPANS, [(-90, 165), (-32768, 32767)]))
@pytest.mark.parametrize("shape", mostly_long(
    [(1, 64, 8, 8), (2, 19, 9, 7), (1, 3, 2, 3), (1, 131, 5, 12), (1, 8, 1, 40), (1, 300, 13, 4)],
    [(2, 19, 9, 7), (1, 131, 5, 12)],
))  # fmt: skip
def test_maxima_of_windows_of_every_kind(shape: tuple[int, ...], span: tuple[int, int]) -> None:
    """Random numbers, and maps that fall along both axes, whose first or last tap in the map is the largest."""
    random = np.random.default_rng(shape[1])
    falling = np.linspace(span[1], span[0], shape[2] * shape[3]).astype(np.int32).reshape(shape[2:])
    feeds = [{"x": random.integers(*span, shape, np.int32, endpoint=True)}]
    feeds += [{"x": np.broadcast_to(one, shape).astype(np.int32)} for one in (falling, falling[::-1, ::-1])]
    program = pooled(shape, span)
    assert len(program.outputs) >= 4
    compare(program, feeds)


def test_windows_of_few_taps_share_columns() -> None:
    verified = verify(pooled((1, 64, 8, 8), (-128, 127)))
    made = plan(verified, MACHINES[0], frozenset(output.value for output in verified.program.outputs))
    pools = {(kernel.rows.taps, kernel.columns.taps): kernel.shares
             for kernel in made.functions.values() if isinstance(kernel, Pool)}  # fmt: skip
    assert pools == {(e[0], e[1]): max(e) <= 5 for e, *_ in WINDOWS}
