"""One use of every op at the shapes that real networks have, for `tools.bench.ops`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CASES", "Case", "Tensor"]

Shape = tuple[int, ...]
BYTE, WORD, WIDE = (-128, 127), (-30000, 30000), (-(2**31) + 1, 2**31 - 1)


@dataclass(frozen=True)
class Tensor:
    """A tensor that the run computes, with codes in ``span``."""

    shape: Shape
    span: tuple[int, int] = BYTE


@dataclass(frozen=True)
class Case:
    """One use of an op: tensors, then constants (``constants``) and parameters, then attributes.

    ``moves`` says that the op only moves elements. Then its result is stored as a part of a concatenation, since
    otherwise no kernel would move anything. ``binds`` says what keeps the op below half of the limit.
    """

    name: str
    op: str
    tensors: Sequence[Tensor]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: Sequence[npt.NDArray[Any]] = ()
    parameters: Sequence[npt.NDArray[Any]] = ()
    moves: bool = False
    first: bool = False
    """Whether the constants stand before the tensors."""
    times: int = 1
    """How often the tensors stand among the inputs of the op."""
    binds: str = ""


MAP = (1, 64, 56, 56)
PLANE = (56, 56, 64)
ROWS = (128, 768)
_RANDOM = np.random.default_rng(7)


def _ints(lo: int, hi: int, *shape: int) -> npt.NDArray[np.int64]:
    return _RANDOM.integers(lo, hi, shape, np.int64, endpoint=True)


def _scaled(terms: int, channels: int, multiplier: int, shift: int) -> tuple[npt.NDArray[np.int64], ...]:
    """Parameters of a requantize of one multiplier per channel."""
    shape = (1, channels, 1, 1)
    return (*(_ints(multiplier // 2, multiplier, *shape) for _ in range(terms)), np.zeros(shape, np.int64),
            np.full(shape, shift, np.int64))  # fmt: skip


_CODES = {"rounding": "half_up", "lo": -128, "hi": 127}
_NEAREST = np.arange(112) // 2


def _elementwise() -> list[Case]:
    cases = []
    for bits, span in ((8, BYTE), (16, WORD)):
        x = Tensor(PLANE, span)
        cases += [Case(f"{op}, {bits} bits", op, [x]) for op in ("abs", "negative", "relu")]
        zeros = "leading zeros are counted in lanes of 32 bits" if bits == 16 else ""
        cases += [Case(f"cvm_precision, {bits} bits", "cvm_precision", [x], binds=zeros)]
        cases += [
            Case(f"clip, {bits} bits", "clip", [x], {"a_min": -100, "a_max": 100}),
            Case(f"cvm_clip, {bits} bits", "cvm_clip", [x], {"precision": 7}),
            Case(f"cvm_right_shift, {bits} bits", "cvm_right_shift", [x], {"precision": 7, "shift_bit": 3}),
            Case(f"cvm_left_shift, {bits} bits", "cvm_left_shift", [x], {"precision": 15, "shift_bit": 3}),
            *(Case(f"{op}, {bits} bits", op, [x, x]) for op in ("elemwise_add", "elemwise_sub", "broadcast_max")),
            *(
                Case(f"{op} of a row, {bits} bits", op, [x, Tensor((64,), span)])
                for op in ("broadcast_add", "broadcast_sub", "broadcast_mul")
            ),
            Case(f"broadcast_greater, {bits} bits", "broadcast_greater", [x, x]),
            Case(f"where, {bits} bits", "where", [Tensor(PLANE, (0, 1)), x, x]),
            Case(f"broadcast_div, {bits} bits", "broadcast_div", [x, Tensor(PLANE, (1, span[1]))], binds=_DIVISION),
        ]
    cases += [
        Case("clip, 32 to 8 bits", "clip", [Tensor(PLANE, WIDE)], {"a_min": -128, "a_max": 127}),
        Case("elemwise_add, 32 bits", "elemwise_add", [Tensor(PLANE, (-(2**29), 2**29))] * 2),
        Case("broadcast_div, 32 bits", "broadcast_div", [Tensor(PLANE, WIDE)] * 2, binds=_DIVISION),
        Case("requantize, 8 to 8 bits", "requantize", [Tensor(MAP)], _CODES,
             parameters=_scaled(1, 64, 2**30, 30)),
        Case("requantize, 16 to 8 bits", "requantize", [Tensor(MAP, WORD)], _CODES,
             parameters=_scaled(1, 64, 2**30, 38), binds=_PRODUCTS),
        Case("requantize, 32 to 8 bits", "requantize", [Tensor(MAP, (-(2**24), 2**24))], _CODES,
             parameters=_scaled(1, 64, 2**30, 47)),
        Case("requantize of two, 8 bits", "requantize", [Tensor(MAP)] * 2, _CODES,
             parameters=_scaled(2, 1, 2**30, 31), binds=_PRODUCTS),
        Case("requantize half even, 32 to 8 bits", "requantize", [Tensor(MAP, (-(2**24), 2**24))],
             _CODES | {"rounding": "half_even"}, parameters=_scaled(1, 64, 2**30, 47), binds=_PRODUCTS),
        Case("cvm_lut of 256 bytes", "cvm_lut", [Tensor(PLANE, (0, 255))], constants=[_ints(-128, 127, 256)],
             first=True),
        Case("cvm_lut of 256 integers", "cvm_lut", [Tensor(PLANE, (0, 255))],
             constants=[_ints(-(2**24), 2**24, 256)], first=True),
        Case("cvm_lut of 65536 words", "cvm_lut", [Tensor(PLANE, (0, 65535))], constants=[_ints(*WORD, 65536)],
             first=True, binds="one load for each element: the table has 128 KiB"),
    ]  # fmt: skip
    return cases


_DIVISION = "division in floating point: there is no division of vectors of integers"
_PRODUCTS = "32- and 64-bit arithmetic: a product, a sum, a shift and a clip for every code of one byte"
_ESTIMATES = "float64 arithmetic: 8 estimates in a vector, and a test which of them are in doubt"


def _moves() -> list[Case]:
    cases = []
    for bits, span in ((8, BYTE), (16, WORD), (32, WIDE)):
        x, rows = Tensor(PLANE, span), Tensor(ROWS, span)
        small = Tensor((1, 64, 28, 28), span)

        def case(name: str, op: str, tensor: Tensor, bits: int = bits, **attributes: Any) -> Case:
            binds = "stores of 16 bytes, two in a cycle, and lines of the source that are far apart"
            exchanges = op == "transpose" and attributes["axes"] != (1, 0, 2)
            return Case(f"{name}, {bits} bits", op, [tensor], attributes, moves=True, binds=binds if exchanges else "")

        cases += [
            case("transpose, channels first", "transpose", x, axes=(2, 0, 1)),
            case("transpose, channels last", "transpose", Tensor((64, 56, 56), span), axes=(1, 2, 0)),
            case("transpose of a matrix", "transpose", rows, axes=(1, 0)),
            case("transpose of heads", "transpose", Tensor((128, 12, 64), span), axes=(1, 0, 2)),
            case("slice", "slice", x, begin=(4, 4, 0), end=(52, 52, 64), strides=(1, 1, 1)),
            case("slice, every second column", "slice", x, begin=(0, 0, 0), end=(56, 56, 64), strides=(1, 2, 1)),
            case("slice, every second channel", "slice", x, begin=(0, 0, 0), end=(56, 56, 64), strides=(1, 1, 2)),
            case("tile", "tile", rows, reps=(1, 3)),
            case("repeat of rows", "repeat", rows, axis=0, repeats=2),
            case("repeat of elements", "repeat", rows, axis=1, repeats=2),
            case("upsampling", "upsampling", small, scale=2),
            Case(f"concatenate, {bits} bits", "concatenate", [Tensor((128, 256), span)], {"axis": 1},
                 times=3),
            Case(f"take of rows, {bits} bits", "take", [Tensor((1000, 768), span), Tensor((128,), (0, 999))],
                 {"axis": 0}),
            Case(f"take of columns (nearest resize), {bits} bits", "take", [Tensor((56, 56, 64), span)], {"axis": 1},
                 constants=[_NEAREST]),
        ]  # fmt: skip
    return cases


def _reduced() -> list[Case]:
    cases = []
    for bits, span in ((8, BYTE), (16, WORD)):
        for op in ("sum", "max"):
            cases += [
                Case(f"{op} of rows, {bits} bits", op, [Tensor(ROWS, span)], {"axes": (1,)}),
                Case(f"{op} of columns, {bits} bits", op, [Tensor(ROWS, span)], {"axes": (0,)}),
                Case(f"{op} over maps, {bits} bits", op, [Tensor(PLANE, span)], {"axes": (0, 1)}),
                Case(f"{op} over channels, {bits} bits", op, [Tensor(PLANE, span)], {"axes": (2,)}),
            ]
    pool = {"pool_size": (2, 2), "strides": (2, 2), "padding": (0, 0)}
    three = {"pool_size": (3, 3), "strides": (2, 2), "padding": (1, 1)}
    five = {"pool_size": (5, 5), "strides": (1, 1), "padding": (2, 2)}
    cases += [
        Case("max_pool2d 2x2, 8 bits", "max_pool2d", [Tensor(MAP)], pool),
        Case("max_pool2d 3x3/2, 8 bits", "max_pool2d", [Tensor(MAP)], three),
        Case(
            "max_pool2d 5x5, 8 bits",
            "max_pool2d",
            [Tensor((1, 256, 20, 20))],
            five,
            binds="five loads and eight maxima for each result",
        ),
    ]
    return cases


def _computed() -> list[Case]:
    one = np.ones(1, np.int64)
    softmax = (255 * one, one, 0 * one, 0 * one)
    norm = (_ints(2**10, 2**12, 768), 0 * one, 2**16 * one, one, one)
    return [
        Case("matmul 128x768x768, bytes", "matmul", [Tensor(ROWS), Tensor((768, 768))]),
        Case("matmul 12 x 128x64x128, bytes", "matmul", [Tensor((12, 128, 64)), Tensor((12, 128, 64))],
             {"transpose_b": True}),
        Case("matmul 12 x 128x128x64, bytes", "matmul", [Tensor((12, 128, 128), (0, 255)), Tensor((12, 128, 64))]),
        Case("matmul 12 x 1x64x128, bytes", "matmul", [Tensor((12, 1, 64)), Tensor((12, 128, 64))],
             {"transpose_b": True}),
        Case("matmul 128x64x128, words", "matmul", [Tensor((128, 64), WORD), Tensor((64, 128), BYTE)]),
        Case("dense 128x768x768, bytes", "dense", [Tensor(ROWS)], constants=[_ints(-127, 127, 768, 768)]),
        Case("conv2d 1x1, bytes", "conv2d", [Tensor(MAP)],
             {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1},
             constants=[_ints(-127, 127, 64, 64, 1, 1)]),
        Case("quotient (softmax), 12 x 128 rows of 128", "quotient", [Tensor((12, 128, 128), (0, 2**20)),
             Tensor((12, 128, 1), (1, 2**27))], {"terms": 1, "rounding": "half_up", "lo": 0, "hi": 255},
             parameters=softmax, binds=_ESTIMATES),
        Case("normalize, 128 rows of 768", "normalize", [Tensor(ROWS)],
             {"axes": (1,), "statistic": "variance", "rounding": "half_up", "lo": -128, "hi": 127}, parameters=norm,
             binds=_ESTIMATES),
        Case("update_slice, one of 128 rows", "update_slice",
             [Tensor(ROWS), Tensor((1, 768)), Tensor((1,), (0, 127))], {"axis": 0}),
        Case("get_valid_count, 8192 rows of 6", "get_valid_count", [Tensor((4, 2048, 6), WIDE)],
             {"score_threshold": 0}, binds="rows are kept one by one, at a place that depends on those before"),
    ]  # fmt: skip


CASES: Sequence[Case] = (*_elementwise(), *_moves(), *_reduced(), *_computed())
