"""Tables of functions of one and two operands, of 8 and 16 bits, under several quantisers, and their digests."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from cvm.errors import Unsupported
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.graph.model import Operand
from cvm.lowering import lower
from cvm.program import Program
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.quantizer import Rounding

__all__ = ["CurveCase", "TableCase", "cases", "curve_cases", "ranged", "refusal_or_digest"]

Span = tuple[str, str]

ATTRIBUTES: Mapping[str, tuple[str, dict[str, Any]]] = {
    "gelu_sigmoid": ("gelu", {"approximate": "sigmoid"}),
    "gelu_erf": ("gelu", {"approximate": "none"}),
    "gelu_tanh": ("gelu", {"approximate": "tanh"}),
    "elu": ("elu", {"alpha": 0.7}),
    "selu": ("selu", {"alpha": 1.67326, "lambda": 1.0507}),
    "softabs": ("softabs", {"epsilon": 0.3}),
    "leaky_relu": ("leaky_relu", {"alpha": 0.1}),
}
"""The operations and attributes of names that are not operations without attributes."""

UNARY: Mapping[str, tuple[Span, Span]] = {
    "exp": (("-9.1", "4.3"), ("0", "60")),
    "log": (("0", "11.3"), ("-6.5", "2.7")),
    "log2": (("0.01", "16"), ("-6.5", "4.1")),
    "sqr": (("-3.3", "2.9"), ("0", "9.9")),
    "sqrt": (("0", "7.7"), ("0", "2.6")),
    "rsqr": (("0.2", "5.1"), ("0", "20")),
    "rsqrt": (("0.05", "9.4"), ("0", "4")),
    "rcp": (("0.11", "4.9"), ("0", "8.1")),
    "sigmoid": (("-8.3", "7.6"), ("0", "1")),
    "tanh": (("-4.1", "4.4"), ("-1", "0.9921875")),
    "softplus": (("-7", "6"), ("0", "6.01")),
    "floor": (("-5.5", "6.2"), ("-6", "6")),
    "ceil": (("-5.5", "6.2"), ("-6", "6")),
    "round": (("-5.5", "6.25"), ("-6", "6")),
    "erf": (("-3.1", "2.8"), ("-1", "1")),
    "softsign": (("-11", "10.2"), ("-1", "1")),
    "hard_swish": (("-5", "4.9"), ("-0.4", "4.9")),
    "silu": (("-8", "7.9"), ("-0.3", "7.9")),
    "sin": (("-9", "9.5"), ("-1", "1")),
    "cos": (("-9", "9.5"), ("-1", "1")),
    "tan": (("-1.4", "1.45"), ("-6", "9")),
    "asin": (("-1", "1"), ("-1.58", "1.58")),
    "acos": (("-1", "1"), ("0", "3.15")),
    "atan": (("-30", "41"), ("-1.58", "1.58")),
    "sinh": (("-4", "4.2"), ("-28", "34")),
    "cosh": (("-4", "4.2"), ("0", "34")),
    "asinh": (("-40", "42"), ("-5", "5")),
    "acosh": (("1", "12"), ("0", "3.2")),
    "atanh": (("-1", "0.99"), ("-3", "3")),
    "gelu_sigmoid": (("-6", "6.3"), ("-0.2", "6.3")),
    "gelu_erf": (("-6", "6.3"), ("-0.2", "6.3")),
    "gelu_tanh": (("-6", "6.3"), ("-0.2", "6.3")),
    "elu": (("-6", "6.3"), ("-0.7", "6.3")),
    "selu": (("-6", "6.3"), ("-1.8", "6.7")),
    "softabs": (("-6", "6.3"), ("0", "6.4")),
    "leaky_relu": (("-6", "6.3"), ("-0.6", "6.3")),
    "abs": (("-6", "6.3"), ("0", "6.3")),
    "sign": (("-6", "6.3"), ("-1", "1")),
}
"""Where each function is tried, and the range of its results, as decimals."""

BINARY: Mapping[str, tuple[Span, Span, Span]] = {
    "pow": (("0.1", "3.1"), ("-2", "2.1"), ("0", "20")),
    "div": (("-3", "3.3"), ("0.3", "2.9"), ("-9", "9")),
    "prelu": (("-3", "3.3"), ("-0.2", "0.9"), ("-2", "3.3")),
}


@dataclass(frozen=True, slots=True)
class TableCase:
    """One operation on codes of ``sources`` with codes of ``result``; `digest` is of the integers of its tables."""

    name: str
    sources: tuple[LinearQuantizer, ...]
    result: Quantizer
    shape: tuple[int, ...] = (1, 4)

    @property
    def key(self) -> str:
        """A name of the case."""
        bits = [(q.hi - q.lo).bit_length() for q in self.sources]
        if isinstance(self.result, LogarithmicQuantizer):
            return f"{self.name} {bits} logarithmic {self.result.bits}"
        width = (self.result.hi - self.result.lo).bit_length()
        axis = "" if self.result.axis is None else f" axis {self.result.axis}"
        return f"{self.name} {bits} {width} {self.result.rounding}{axis}"

    def program(self) -> Program:
        """The lowered program."""
        operator, attributes = ATTRIBUTES.get(self.name, (self.name, {}))
        names = ["x"] if len(self.sources) == 1 else ["x", "alpha" if operator == "prelu" else "y"]
        tensors = {
            name: GraphTensor(name, self.shape, "external", quantizer=quantizer)
            for name, quantizer in zip(names, self.sources, strict=True)
        }
        tensors["z"] = GraphTensor("z", self.shape, "computed", quantizer=self.result)
        operation = GraphOperation(operator, {name: name for name in names}, attributes, ("z",))
        return lower(QuantizedGraph("g", tuple(names), ("z",), tensors, (operation,)))

    def digest(self) -> str:
        """A digest of the constants of the program, or of the refusal."""
        return digest_of(self.program())


def digest_of(program: Program) -> str:
    """A digest of the constants of a program."""
    found = hashlib.sha256()
    for constant in program.constants:
        found.update(f"{constant.name} {constant.shape} ".encode() + constant.data)
    return found.hexdigest()[:20]


def ranged(span: Span, bits: int, rounding: Rounding = "half_up", low: int = 0) -> LinearQuantizer:
    """Codes from ``low`` on, evenly over a span: ties with steps of other ranges are rare."""
    first, last = (Fraction(end) for end in span)
    scale = (last - first) / (2**bits - 1)
    return LinearQuantizer((scale,), (first - scale * low,), low, low + 2**bits - 1, rounding=rounding)


def binary(span: Span, bits: int, rounding: Rounding) -> LinearQuantizer:
    """Codes with a power of two as scale and zero as a code: ties are frequent."""
    most = max(abs(Fraction(end)) for end in span)
    scale = Fraction(1)
    while scale * 2 ** (bits - 1) < most:
        scale *= 2
    while scale * 2 ** (bits - 2) >= most:
        scale /= 2
    return LinearQuantizer((scale,), (Fraction(0),), -(2 ** (bits - 1)), 2 ** (bits - 1) - 1, rounding=rounding)


def cases() -> Iterator[TableCase]:
    """All cases; those of 16-bit operands come with few results."""
    for name, (domain, values) in UNARY.items():
        for source in (ranged(domain, 8), ranged(domain, 16, low=-(2**15))):
            wide = source.hi - source.lo > 255
            yield TableCase(name, (source,), ranged(values, 16 if wide else 8, "half_even"))
            yield TableCase(name, (source,), ranged(values, 8 if wide else 16, "toward_zero", -3))
        within = LinearQuantizer(
            (Fraction(1, 16),), (Fraction(domain[0]),), 0, int((Fraction(domain[1]) - Fraction(domain[0])) * 16)
        )
        yield TableCase(name, (within,), binary(values, 8, "half_up"))
        yield TableCase(name, (within,), binary(values, 9, "half_even"))
        yield TableCase(name, (ranged(domain, 8),), LogarithmicQuantizer.of(Fraction(9), 5))
        scales = (Fraction(1, 64), Fraction(1, 100), Fraction(3, 40), Fraction(1, 7))
        yield TableCase(name, (ranged(domain, 8),), LinearQuantizer(scales, (Fraction(0),) * 4, -128, 127, 1))
    for name, (first, second, values) in BINARY.items():
        for x, y in (
            (ranged(first, 6), ranged(second, 5)),
            (binary(first, 5, "half_up"), binary(second, 5, "half_up")),
        ):
            yield TableCase(name, (x, y), ranged(values, 8, "half_even"))
            yield TableCase(name, (x, y), binary(values, 16, "half_up"))


def refusal_or_digest(case: TableCase | CurveCase) -> str:
    """The digest of a case, or its refusal."""
    try:
        return case.digest()
    except Unsupported as refusal:
        return str(refusal)


CURVES: Mapping[str, Span] = {
    "exp": ("0", "60"),
    "sigmoid": ("0", "1"),
    "tanh": ("-1", "1"),
    "softplus": ("0", "9"),
    "atan": ("-1.58", "1.58"),
    "floor": ("-9", "9"),
    "round": ("-9", "9"),
    "sqr": ("0", "70"),
    "cosh": ("0", "600"),
    "silu": ("-0.3", "8"),
    "gelu_sigmoid": ("-0.2", "8"),
    "gelu_erf": ("-0.2", "8"),
    "gelu_tanh": ("-0.2", "8"),
    "elu": ("-0.7", "8"),
    "selu": ("-1.8", "9"),
    "softabs": ("0", "9"),
    "log": ("-3", "3"),
    "sqrt": ("0", "4"),
    "rsqrt": ("0", "2"),
}
"""Functions of wide sums, and the ranges of their results."""


@dataclass(frozen=True, slots=True)
class CurveCase:
    """A function of the sum of two tensors of ``bits`` bits, in some classes of channels.

    With ``root`` the sum is normalised, by the root of a variance.
    """

    name: str
    result: Quantizer
    bits: int = 12
    root: bool = False
    classes: int = 3

    @property
    def key(self) -> str:
        """A name of the case."""
        fields = ", ".join(
            f"{part.name}={getattr(self.result, part.name)!r}" for part in dataclasses.fields(self.result)
        )
        return f"{self.name} of a sum, {self.bits} {self.root} {type(self.result).__name__}({fields})"

    def digest(self) -> str:
        """A digest of the constants of the program."""
        return digest_of(self.program())

    def program(self) -> Program:
        """The lowered program."""
        operator, attributes = ATTRIBUTES.get(self.name, (self.name, {}))
        positive = self.name in ("log", "sqrt", "rsqrt")
        first = LinearQuantizer(
            tuple(Fraction(n, 3 * 2**self.bits) for n in range(17, 17 + 3 * self.classes, 3)),
            (Fraction(1, 50 if positive else -1),) * self.classes, 0, 2**self.bits - 1, 1,
        )  # fmt: skip
        second = ranged(("0.01", "2") if positive else ("-4.3", "3.1"), self.bits)
        shape = (1, self.classes)
        tensors = {
            "x": GraphTensor("x", shape, "external", quantizer=first),
            "y": GraphTensor("y", shape, "external", quantizer=second),
            "s": GraphTensor("s", shape, "computed"),
        }
        operations: list[GraphOperation] = [GraphOperation("add", {"x": "x", "y": "y"}, {}, ("s",))]
        argument = "s"
        if self.root:
            numbers = {"mean": (0, 0, 0), "variance": (2, 2.5, 3), "offset": (0.25, 0.5, 1), "scale": (1, 1.5, 2)}
            for name, items in numbers.items():
                tensors[name] = GraphTensor(name, shape, "constant", data=TensorData(np.array([items], np.float32)))
            parameters: dict[str, Operand] = {"input": "s", **{name: name for name in numbers}}
            operations.append(GraphOperation("batch_normalization", parameters, {"epsilon": Fraction("0.001")}, ("n",)))
            argument = "n"
            tensors["n"] = GraphTensor("n", shape, "computed")
        operations.append(GraphOperation(operator, {"x": argument}, attributes, ("z",)))
        tensors["z"] = GraphTensor("z", shape, "computed", quantizer=self.result)
        return lower(QuantizedGraph("g", ("x", "y"), ("z",), tensors, tuple(operations)))


def curve_cases() -> Iterator[CurveCase]:
    """Functions of wide sums, with and without a root under them."""
    for name, values in CURVES.items():
        yield CurveCase(name, ranged(values, 8, "half_even"))
        yield CurveCase(name, ranged((str(Fraction(values[0]) / 2), str(Fraction(values[1]) / 2)), 5))
        yield CurveCase(name, binary(values, 7, "half_even"))
        if name not in ("log", "sqrt", "rsqrt"):
            yield CurveCase(name, ranged(values, 7, low=-5), root=True)
        scales = (Fraction(1, 64), Fraction(1, 100), Fraction(3, 40))
        yield CurveCase(name, LinearQuantizer(scales, (Fraction(1, 3),) * 3, -30, 33, 1))
    yield CurveCase("sigmoid", LogarithmicQuantizer.of(Fraction(1), 4))
    yield CurveCase("sigmoid", ranged(("0", "1"), 11), bits=10)
    yield CurveCase("gelu_tanh", ranged(("-0.2", "8"), 11), bits=10)
    yield CurveCase("relu", ranged(("0", "8"), 9), root=True)
    yield CurveCase("round", ranged(("-9", "9"), 14), bits=10)
