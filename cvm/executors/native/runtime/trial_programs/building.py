"""The parts of the programs of the trial: extreme weights, inputs in every format, a program of given ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
from cvm.program.program import Program

__all__ = ["SPANS", "Applied", "extreme_weights", "program_of", "stored_inputs"]

Applied = tuple[str, list[str], dict[str, Any]]
"""An op: its name, its inputs and its attributes."""


SPANS = ((-128, 127), (0, 255), (-30_000, 30_000), (0, 65_535), (-(2**17), 2**17))
"""Intervals of all formats in which elements are stored."""


def extreme_weights(*shape: int, least: int, largest: int) -> npt.NDArray[np.int64]:
    """Weights that contain runs of either extreme, and a pattern."""
    k = np.arange(int(np.prod(shape)))
    pattern = least + (k * 6007 + k * k % 911) % (largest - least + 1)
    return np.where(k % 7 < 3, largest, np.where(k % 7 < 5, least, pattern)).reshape(shape)


def stored_inputs(builder: ProgramBuilder, shape: tuple[int, ...], spans: Sequence[tuple[int, int]]) -> list[str]:
    """Tensors of several intervals that lie in the formats of these: copies of inputs, which lie in 32 bits."""
    given = [builder.input(f"x{number}", shape, *span) for number, span in enumerate(spans)]
    limits = ({"a_min": lo, "a_max": hi} for lo, hi in spans)
    return [builder.add("clip", [x], limit)[0] for x, limit in zip(given, limits, strict=True)]


def program_of(builder: ProgramBuilder, applied: Sequence[Applied]) -> Program:
    """A program that returns the result of every op: its name, inputs and attributes."""
    outputs: list[Output] = []
    for number, (op, inputs, attributes) in enumerate(applied):
        (result,) = builder.add(op, inputs, attributes)
        outputs.append(Output(f"{op}_{number}", result))
    return builder.build(outputs)
