"""Cases of a conformance statement: one operator, its tensors, its attributes, and why its numbers are hard.

A `Layer` says what is computed, in no format. `cvm.conformance.onnx_files` and `cvm.conformance.tflite_files` write it.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.records import dataclass

__all__ = ["RANGES", "Case", "Layer", "Sums", "Tensor", "codes", "ends", "sums", "unary"]

Array = npt.NDArray[Any]
RANGES: Mapping[str, tuple[int, int]] = {
    "int4": (-8, 7),
    "int8": (-128, 127),
    "uint8": (0, 255),
    "int16": (-32768, 32767),
    "uint16": (0, 65535),
    "int32": (-(2**31) + 1, 2**31 - 1),
}
"""The codes of each data type."""


@dataclass(frozen=True, eq=False, slots=True)
class Tensor:
    """An operand. Scales are float32 numbers: one, one for each index along ``axis``, or none for plain integers."""

    values: Array
    """The codes, or the plain values."""
    data_type: str
    scales: tuple[float, ...] = ()
    zero: int = 0
    axis: int = 0
    stored: bool = True
    """Whether the file holds the values. Otherwise the tensor is an input."""


@dataclass(frozen=True, eq=False, slots=True)
class Layer:
    """One operator with its operands and the quantiser of its result."""

    op: str
    inputs: tuple[Tensor, ...]
    data_type: str
    """The data type of the result."""
    scale: float
    zero: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    shape: tuple[int, ...] = ()
    """The shape of the result, for files that state it."""


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """A model of one operator, and the codes of its inputs."""

    op: str
    form: str
    """How the operator is written: "QDQ", "QOperator", "TFLite"."""
    types: str
    attributes: str
    numbers: str
    """What is hard about the numbers."""
    kind: str
    """The format: "onnx" or "tflite"."""
    model: bytes
    inputs: Mapping[str, Array]
    """The codes of each input of the file."""
    layer: Layer
    """What the model computes."""

    @property
    def name(self) -> str:
        """A name that no other case has."""
        return ", ".join(filter(None, (f"{self.op} ({self.form})", self.types, self.attributes, self.numbers)))


def codes(seed: str, shape: Sequence[int], data_type: str, few: int | None = None) -> Array:
    """Drawn codes of a data type, with both ends of its range among them. ``few``: only codes from -few to few."""
    lo, hi = RANGES[data_type]
    if few is not None:
        lo, hi = max(lo, -few), min(hi, few)
    drawn = np.random.default_rng(zlib.crc32(seed.encode())).integers(lo, hi + 1, tuple(shape))
    if few is None and drawn.size > 2:
        drawn.flat[0], drawn.flat[-1] = lo, hi
    return drawn


def ends(seed: str, shape: Sequence[int], data_type: str) -> Array:
    """Codes of the ends of the range, three of four the upper one: so their sums grow as far as they can."""
    lo, hi = RANGES[data_type]
    drawn = np.random.default_rng(zlib.crc32(seed.encode())).integers(0, 4, tuple(shape))
    return np.where(drawn == 0, lo, hi)


@dataclass(frozen=True, slots=True)
class Sums:
    """The numbers of a sum of products: scales of both operands and of the result, zero points, and kinds of codes."""

    numbers: str
    scales: tuple[float, float]
    scale: float
    zeros: tuple[int, int]
    """Zero points of the data operand and of the result."""
    few: int | None = None
    """Weights are codes from -few to few."""
    wide: bool = False


_SIMPLE = ("scales that are not powers of two", "ties", "near ties")


def sums(count: int, data_type: str, result_type: str, weight_type: str, all_numbers: bool = True) -> Iterator[Sums]:
    """Hard numbers for sums of ``count`` products. ``all_numbers`` False: only two of them."""
    (lo, hi), (low, high) = RANGES[data_type], RANGES[result_type]
    middle, centre = (lo + hi + 1) // 2, (low + high + 1) // 2
    reach = (high - low) / 2
    spread = (hi - lo) / 3.5
    heavy = (RANGES[weight_type][1] - RANGES[weight_type][0]) / 3.5
    ratio = reach / (spread * heavy * count**0.5 * 2)
    step = 2.0 ** np.floor(np.log2(reach / (spread * 1.2 * count**0.5 * 2)))
    step = float(min(step, 0.5))
    x, w = 0.0173, 0.0041
    yield Sums(_SIMPLE[0], (x, w), x * w / ratio, (middle + 3, centre - 5))
    near = float(np.float32(0.1)) * float(np.float32(0.3))
    yield Sums(_SIMPLE[2], (0.1, 0.3), near / step, (middle + 1, centre), few=2)
    if not all_numbers:
        return
    yield Sums(_SIMPLE[1], (0.5, 0.25), 0.125 / step, (middle, centre), few=2)
    yield Sums("saturation", (x, w), x * w / (40 * ratio), (middle + 3, centre - 5))
    yield Sums("scale ratio above 1", (0.3, 0.7), 0.21 / 2.7, (middle, centre), few=1)
    yield Sums("tiny scales", (1.3e-15, 1.7e-16), 2.21e-31 / ratio, (middle + 3, centre - 5))
    yield Sums("subnormal product of scales", (1.3e-20, 1.7e-19), 2.21e-39 / ratio, (middle + 3, centre))
    yield Sums("huge scales", (1.3e15, 1.7e14), 2.21e29 / ratio, (middle + 3, centre - 5))
    yield Sums("results near zero", (x, w), x * w * 2**18, (middle, centre))
    yield Sums("zero points at the lower ends", (x, w), x * w / ratio, (lo, low))
    yield Sums("zero points at the upper ends", (x, w), x * w / ratio, (hi, high))


def unary(data_type: str, result_type: str) -> Iterator[tuple[str, float, float, int, int]]:
    """Hard numbers of operators on one tensor: a word, the scales of operand and result, and their zero points.

    Only for int8 all of them, since the other types go through the same arithmetic.
    """
    (lo, hi), (low, high) = RANGES[data_type], RANGES[result_type]
    middle, centre = (lo + hi + 1) // 2, (low + high + 1) // 2
    width, height = (hi - lo) / 255, (high - low) / 255
    yield "scales that are not powers of two", 0.0473 / width, 0.0517 / height, middle + 3, centre - 5
    yield "ties", 0.25 / width, 0.5 / width, middle, centre
    yield "near ties", 0.1 / width, 0.2 / width, middle + 1, centre
    if data_type != "int8":
        return
    yield "saturation", 0.09 / width, 0.004 / height, middle, centre
    yield "tiny scales", 1.7e-30, 2.3e-30, middle + 3, centre
    yield "huge scales", 1.7e30, 2.3e30, middle + 3, centre
    yield "zero points at the lower ends", 0.0473 / width, 0.0517 / height, lo, low
    yield "zero points at the upper ends", 0.0473 / width, 0.0517 / height, hi, high
