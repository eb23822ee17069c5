"""Small random NNEF documents with quantisers of every kind of range, and both readings of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from cvm.executors import create
from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.lowering import lower
from cvm.passes.optimize import optimize
from cvm.program import Output, Program, verify
from cvm.program.model import Exactness
from tests.lowering.styles import Drawn, Style, current
from tests.oracle.exact import Model, model
from tests.oracle.reader import parse_quantisation

__all__ = ["Document", "assert_exact"]


@dataclass
class Document:
    """A document under construction: body lines, quantisers as text, stored variables, shapes of tensors."""

    random: Random
    lines: list[str] = field(default_factory=list)
    quantisers: dict[str, str] = field(default_factory=dict)
    stored: dict[str, npt.NDArray[np.float32]] = field(default_factory=dict)
    inputs: list[str] = field(default_factory=list)
    shapes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """The integers of inputs without quantisers; codes of 8 bits where there are none."""
    drawn: dict[str, tuple[str, float, float, int]] = field(default_factory=dict)
    """The quantisers that were not chosen by a test: text, range and bits."""
    fixed: set[str] = field(default_factory=set)
    """Tensors whose quantisers are part of the case (`tests.lowering.quantisers`)."""
    op_set: int = 1
    """The latest version of the op-set that the program may use."""
    most_bits: dict[str, int] = field(default_factory=dict)
    """Where an operation has a table, the widest codes that the case can afford."""
    cycles: int = 1

    def quantise(self, name: str, low: float = -1.0, high: float = 1.0, bits: int = 8) -> None:
        """Give a tensor a range near [low, high] whose zero is, at random, a code, no code, or outside."""
        kind = self.random.choice(["zero", "between", "between", "positive"])
        if kind == "zero":
            low = 0.0
            high = abs(high)
        elif kind == "positive":
            low, high = 0.1 * abs(high), abs(high)
        low, high = (round(bound * self.random.uniform(0.7, 1.3), self.random.randint(2, 8)) for bound in (low, high))
        high = max(high, low + 0.25)
        self.quantisers[name] = f"linear_quantize(min = {low!r}, max = {high!r}, bits = {bits})"
        self.drawn[name] = self.quantisers[name], low, high, bits

    def quantise_within(self, name: str, low: float, high: float, bits: int = 8) -> None:
        """Give a tensor a range inside of [low, high], for functions of a limited domain; codes of at most ``bits``."""
        extent = high - low
        least, most = low + extent * self.random.uniform(0, 0.2), high - extent * self.random.uniform(0, 0.2)
        if low < 0 < high and self.random.random() < 0.4:
            least, most = 0.0, max(most, high / 2)
        text = (round(bound, self.random.randint(4, 8)) for bound in (least, most))
        self.quantisers[name] = "linear_quantize(min = {!r}, max = {!r}, bits = {})".format(*text, min(bits, 8))
        self.most_bits[name] = bits

    def external(self, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0) -> str:
        """Add an input."""
        name = f"input{len(self.inputs)}"
        self.lines.append(f"{name} = external(shape = {list(shape)});")
        self.inputs.append(name)
        self.shapes[name] = shape
        self.quantise(name, low, high)
        return name

    def integers(self, shape: tuple[int, ...], low: int, high: int, kind: str = "integer") -> str:
        """Add an input of integers or logical values."""
        name = f"input{len(self.inputs)}"
        self.lines.append(f"{name} = external<{kind}>(shape = {list(shape)});")
        self.inputs.append(name)
        self.shapes[name] = shape
        self.ranges[name] = low, high
        return name

    def variable(self, shape: tuple[int, ...], low: float = -1.0, high: float = 1.0, quantised: bool = True) -> str:
        """Add a variable with random contents."""
        name = f"variable{len(self.stored)}"
        self.lines.append(f"{name} = variable(shape = {list(shape)}, label = '{name}');")
        items = [self.random.uniform(low, high) for _ in range(int(np.prod(shape)))]
        self.stored[name] = np.array(items, np.float32).reshape(shape)
        if quantised:
            self.quantise(name, low, high, self.random.choice([4, 8, 8]))
        return name

    def apply(self, call: str, low: float = -2.0, high: float = 2.0, quantised: bool = True) -> str:
        """Add an operation."""
        name = f"tensor{len(self.lines)}"
        self.lines.append(f"{name} = {call};")
        if quantised:
            self.quantise(name, low, high)
        return name

    def text(self, output: str) -> str:
        """graph.nnef."""
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"version 1.0;\n\ngraph net( {', '.join(self.inputs)} ) -> ( {output} )\n{{\n{body}\n}}\n"

    def quantisation(self) -> str:
        """graph.quant."""
        return "".join(f'"{name}": {text};\n' for name, text in self.quantisers.items())

    def write(self, folder: Path, output: str) -> None:
        """The document as a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "graph.nnef").write_text(self.text(output))
        (folder / "graph.quant").write_text(self.quantisation())
        for label, items in self.stored.items():
            (folder / f"{label}.dat").write_bytes(nnef.write_tensor(items))

    def oracle(self, output: str) -> Model:
        """The independent reading."""
        return model(self.text(output), self.quantisation(), lambda label: self.stored[label])

    def restyle(self, folder: Path, output: str, style: Style) -> None:
        """Give the tensors whose quantisers were drawn others of a style."""
        shapes = {name: tensor.shape for name, tensor in self._plain(folder, output).tensors.items()}
        for name, (text, low, high, bits) in self.drawn.items():
            if self.quantisers.get(name) == text:
                self.quantisers[name] = style(Drawn(self.random, low, high, bits, shapes[name]))

    def _plain(self, folder: Path, output: str) -> QuantizedGraph:
        """The graph without its quantisers."""
        self.write(folder, output)
        (folder / "graph.quant").unlink()
        return nnef.load(folder)

    def feeds(self, count: int = 3) -> list[dict[str, npt.NDArray[np.int32]]]:
        """Codes of all inputs: the two extremes, then random ones."""
        quantisers = parse_quantisation(self.quantisation())
        bounds = {name: self.ranges.get(name, (0, 255)) for name in self.inputs}
        for name in self.inputs:
            if name in quantisers:
                channel = quantisers[name].channels[0]
                bounds[name] = channel.lo, channel.hi
        feeds = [
            {name: np.full(self.shapes[name], bounds[name][side], np.int32) for name in self.inputs} for side in (0, 1)
        ]
        for _ in range(count):
            generator = np.random.default_rng(self.random.getrandbits(32))
            feeds.append(
                {
                    name: generator.integers(low, high, self.shapes[name], np.int32, endpoint=True)
                    for name, (low, high) in bounds.items()
                }
            )
        return feeds


def assert_exact(document: Document, output: str, folder: Path, count: int = 3) -> Program:
    """Every quantised tensor of the lowered document has the codes of the oracle, within its stated bound.

    So has every output of integers or logical values. ``output`` may name several tensors, with commas.
    """
    style = current()
    if style is not None:
        document.restyle(folder, output, style)
    document.write(folder, output)
    graph: QuantizedGraph = nnef.load(folder)
    program = lower(graph, op_set=document.op_set)
    executor = create("numpy", verify(program))
    optimised = _Optimised(program)
    oracle = document.oracle(output)
    # A tensor whose code is the same for every input is a constant of the program.
    constants = {constant.name: constant.array() for constant in program.constants}
    compared = [item for item in program.provenance.exactness if item.value]
    reported = {item.tensor for item in compared}
    compared += [
        Exactness(found.name, found.value, Fraction(0)) for found in program.outputs if found.name not in reported
    ]
    assert {item.tensor for item in compared} >= {*output.split(", "), *document.inputs}
    for feed in document.feeds(count):
        values = constants | executor.run(feed, {}, "all").values
        expected = oracle.run(feed)
        for item in compared:
            if item.tensor in expected.codes:
                exact = expected.codes[item.tensor]
            else:
                exact = expected.values[item.tensor].integers()
            found = values[item.value].reshape(exact.shape)
            difference = np.abs(found.astype(np.int64) - exact)
            assert Fraction(int(difference.max())) <= item.bound, (item, document.text(output))
        optimised.assert_same(feed, values)
    return program


def _values(items: Sequence[Exactness] | Sequence[Output]) -> list[str]:
    return [item.value for item in items]


class _Optimised:
    """The optimised program, which gives the same codes for every output and for every tensor that it still has."""

    def __init__(self, program: Program) -> None:
        after = optimize(program)
        self.executor = create("numpy", verify(after))
        reports = zip(_values(program.provenance.exactness), _values(after.provenance.exactness), strict=True)
        outputs = zip(_values(program.outputs), _values(after.outputs), strict=True)
        self.pairs = {(old, new) for old, new in (*reports, *outputs) if new}

    def assert_same(self, feed: dict[str, npt.NDArray[np.int32]], values: Mapping[str, npt.NDArray[np.int32]]) -> None:
        """Compare with the values of the program as it was. (Constants are captured as outputs only.)"""
        found = self.executor.run(feed, {}, "all").values
        for old, new in self.pairs:
            if new in found:
                np.testing.assert_array_equal(found[new], values[old], err_msg=old, strict=True)
