"""NNEF documents with wide inputs and narrow results: one operation, with quantisers of 1 to 16 bits on both sides.

Random programs hardly ever have codes of 9 to 16 bits, signed and unsigned, in front of a convolution. All
forms of quantisers are drawn, symmetric and not, and lists for the channels of weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

import cvm
from cvm.frontends import nnef
from cvm.program import Program

__all__ = ["OPERATIONS", "Document", "compiled", "document"]

WIDE = (8, 9, 10, 12, 15, 16, 16, 16, 16)
NARROW = (1, 2, 3, 4, 7, 8, 8, 8, 8, 9, 16)


@dataclass(frozen=True, slots=True)
class Document:
    """The text of graph.nnef, the text of graph.quant, and the numbers of the variables by label."""

    text: str
    quantisation: str
    stored: Mapping[str, npt.NDArray[np.float32]]

    def write(self, folder: Path) -> None:
        """Write the document as a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "graph.nnef").write_text(self.text)
        (folder / "graph.quant").write_text(self.quantisation)
        for label, items in self.stored.items():
            (folder / f"{label}.dat").write_bytes(nnef.write_tensor(items))


@dataclass(slots=True)
class _Writer:
    """A document that grows, and the largest magnitude of each tensor's numbers."""

    random: Random
    lines: list[str] = field(default_factory=list)
    quantisers: dict[str, str] = field(default_factory=dict)
    stored: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)

    def quantiser(self, magnitude: float, bits: int, channels: int = 1) -> str:
        """A quantiser of any form for numbers up to about ``magnitude``."""
        random = self.random
        low, high = random.choice(((-1.0, 1.0), (0.0, 1.0), (-1.0, 0.0), (-0.1, 1.0), (0.1, 1.0)))
        low, high = (round(end * magnitude * random.uniform(0.8, 1.2), 6) for end in (low, high))
        high = max(high, low + magnitude * 0.05)
        form = random.choice(("linear", "zero_point", "zero_point", "min_max"))
        if form == "linear":
            return f"linear_quantize(min = {low!r}, max = {high!r}, bits = {bits})"
        signed, symmetric = random.random() < 0.5, random.random() < 0.3
        flags = f"bits = {bits}, signed = {str(signed).lower()}, symmetric = {str(symmetric).lower()}"
        factors = [random.uniform(0.7, 1.0) for _ in range(channels)]
        if form == "min_max":
            lows, highs = [low * one for one in factors], [high * one for one in factors]
            return f"min_max_linear_quantize(min = {_listed(lows)}, max = {_listed(highs)}, {flags})"
        least = -(2 ** (bits - 1)) if signed else 0
        usual = 0 if signed or low >= 0 else 2 ** (bits - 1)
        zero = random.choice((usual, usual, 0, random.randrange(least, least + 2**bits)))
        scales = [random.choice(((high - low) / 2**bits * one, 1.0 * one, 0.5)) for one in factors]
        return f"zero_point_linear_quantize(zero_point = {zero}, scale = {_listed(scales)}, {flags})"

    def external(self, shape: tuple[int, ...], magnitude: float = 1.0) -> str:
        """A wide input."""
        name = f"x{len(self.inputs)}"
        self.lines.append(f"{name} = external(shape = {list(shape)});")
        self.inputs.append(name)
        self.quantisers[name] = self.quantiser(magnitude, self.random.choice(WIDE))
        return name

    def variable(self, shape: tuple[int, ...], magnitude: float) -> str:
        """A variable: a few steps of a coarse quantiser, or many."""
        name = f"w{len(self.stored)}"
        self.lines.append(f"{name} = variable(shape = {list(shape)}, label = '{name}');")
        items = [self.random.uniform(-magnitude, magnitude) for _ in range(int(np.prod(shape)))]
        sign = self.random.choice((0, 0, 1, -1))
        whole = np.array(items, np.float32).reshape(shape)
        self.stored[name] = whole if sign == 0 else sign * np.abs(whole)
        listed = shape[0] if len(shape) == 4 and shape.count(shape[0]) == 1 and self.random.random() < 0.4 else 1
        bits = self.random.choice((2, 3, 4, 4, 5, 8, 8))
        scales = [round(magnitude / 2 ** (bits - 1) * self.random.uniform(0.8, 1.2), 7) for _ in range(listed)]
        self.quantisers[name] = (
            f"zero_point_linear_quantize(zero_point = 0, scale = {_listed(scales)}, bits = {bits}, "
            "signed = true, symmetric = true)"
        )
        return name

    def result(self, call: str, magnitude: float) -> str:
        """A narrow result."""
        name = f"t{len(self.lines)}"
        self.lines.append(f"{name} = {call};")
        near = magnitude * self.random.choice((1.0, 1.0, 0.3, 0.05))
        self.quantisers[name] = self.quantiser(near, self.random.choice(NARROW))
        return name


def _listed(items: list[float]) -> str:
    numbers = [repr(round(item, 9) or 1e-6) for item in items]
    return numbers[0] if len(numbers) == 1 else f"[{', '.join(numbers)}]"


CHANNELS = (1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 33)


def _window(random: Random) -> tuple[tuple[int, int], str]:
    size = random.choice((1, 1, 2, 3)), random.choice((1, 1, 2, 3))
    pads = [(random.randint(0, n - 1), random.randint(0, n - 1)) for n in size]
    strides, dilations = [random.randint(1, 2) for _ in size], [random.randint(1, 2) for _ in size]
    return size, f"padding = {pads}, stride = {strides}, dilation = {dilations}"


def _conv(w: _Writer, operation: str) -> str:
    """Dense, depthwise and grouped convolutions, and separable ones."""
    random = w.random
    channels = random.choice(CHANNELS)
    groups = {"conv": 1, "depthwise": channels, "grouped": random.choice((2, 3))}[operation]
    IC = channels if operation != "grouped" else groups * random.choice((1, 2, 4))
    OC = IC if operation == "depthwise" else groups * random.choice(CHANNELS)
    size, geometry = _window(random)
    x = w.external((random.choice((1, 1, 2)), IC, random.randint(5, 7), random.randint(5, 9)))
    weights = w.variable((OC, IC // groups, *size), random.choice((0.1, 1.0)))
    bias = random.choice(("0.0", "0.375", "-0.5"))
    sums = IC // groups * size[0] * size[1] * float(np.abs(w.stored[weights]).max()) / 2
    declared = 0 if operation == "depthwise" else groups
    call = f"conv({x}, {weights}, {bias}, border = 'constant', {geometry}, groups = {declared})"
    return w.result(call, sums + 0.5)


def _separable(w: _Writer, operation: str) -> str:
    random = w.random
    IC, OC = random.choice(CHANNELS), random.choice(CHANNELS)
    x = w.external((1, IC, 6, 6))
    plane, point = w.variable((IC, 1, 3, 3), 1.0), w.variable((OC, IC, 1, 1), 1.0)
    call = f"separable_conv({x}, {plane}, {point}, 0.0, border = 'constant', padding = [(1, 1), (1, 1)])"
    return w.result(call, IC * 2.0)


def _matmul(w: _Writer, operation: str) -> str:
    random = w.random
    rows, summed, columns = random.randint(1, 5), random.choice(CHANNELS), random.choice(CHANNELS)
    x = w.external((rows, summed))
    weights = w.variable((summed, columns), random.choice((0.1, 1.0)))
    return w.result(f"matmul({x}, {weights})", summed / 2 * float(np.abs(w.stored[weights]).max()))


def _binary(w: _Writer, operation: str) -> str:
    shape = (1, w.random.choice(CHANNELS), w.random.randint(1, 5), w.random.randint(1, 9))
    x = w.external(shape)
    y = w.external(shape) if w.random.random() < 0.7 else w.variable((1, shape[1]), 1.0)
    return w.result(f"{operation}({x}, {y})", 2.0 if operation == "add" else 1.0)


def _pool(w: _Writer, operation: str) -> str:
    x = w.external((1, w.random.choice(CHANNELS), w.random.randint(4, 6), w.random.randint(4, 9)))
    border = "'ignore'" if operation == "max_pool" else w.random.choice(("'constant'", "'ignore'"))
    return w.result(f"{operation}({x}, size = [1, 1, 2, {w.random.randint(1, 3)}], border = {border})", 1.0)


def _activation(w: _Writer, operation: str) -> str:
    x = w.external((1, w.random.choice(CHANNELS), w.random.randint(1, 5)), 2.0)
    call = f"leaky_relu({x}, alpha = 0.1)" if operation == "leaky_relu" else f"{operation}({x})"
    return w.result(call, 2.0)


OPERATIONS: dict[str, Callable[[_Writer, str], str]] = {
    "conv": _conv, "depthwise": _conv, "grouped": _conv, "separable": _separable, "matmul": _matmul, "add": _binary,
    "mul": _binary, "avg_pool": _pool, "max_pool": _pool, "relu": _activation, "leaky_relu": _activation,
    "abs": _activation,
}  # fmt: skip
"""The operations of documents; convolutions and products are drawn more often than the others."""


def document(random: Random, operation: str | None = None) -> Document:
    """A document of one operation, or of a random one."""
    often = ("conv", "conv", "depthwise", "grouped", "matmul", *OPERATIONS)
    operation = operation or random.choice(often)
    writer = _Writer(random)
    output = OPERATIONS[operation](writer, operation)
    body = "\n".join(f"    {line}" for line in writer.lines)
    text = f"version 1.0;\n\ngraph net( {', '.join(writer.inputs)} ) -> ( {output} )\n{{\n{body}\n}}\n"
    quantisation = "".join(f'"{name}": {text};\n' for name, text in writer.quantisers.items())
    return Document(text, quantisation, writer.stored)


def compiled(found: Document) -> Program:
    """The program of a document. Raises `CvmError` if the compiler refuses it."""
    with TemporaryDirectory() as folder:
        found.write(Path(folder))
        return cvm.compile(folder)
