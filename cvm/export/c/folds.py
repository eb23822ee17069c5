"""Sums of products, sums and maxima as loops of C, each followed by the chain of ops that reads its elements.

A sum is formed in int32_t if all its partial sums are proven to fit. Otherwise it is formed in uint32_t, in which C
defines sums modulo 2^32; the whole sum is proven to fit, so it is what the sum is modulo 2^32.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from cvm.export.c.elements import Body, Source
from cvm.export.c.indices import Nest, flat, row_major
from cvm.export.c.storage import Place, integer
from cvm.export.c.text import Text
from cvm.ops.axes import normal
from cvm.program.model import Node, Shape

__all__ = ["fold", "stored"]

ROW = 1024
"""The most sums of a row that are formed at the same time; they take 4 bytes each on the stack."""
SHORT = 4
"""Rows of fewer sums are formed one by one."""

_LEAST = "-INT32_C(2147483647)"
"""Less than or equal to every element: none is -2^31."""

Ending = Callable[[Nest, str], list[str]]
"""The statements that store the element of a fold, given the loops and the expression of the element."""


def fold(source: Source, text: Text, head: Node, root: Node) -> None:
    """Write the loops of a fold and of the chain from it to ``root``, whose result is stored."""
    _WRITERS[head.op](source, text, head, lambda nest, element: stored(source, root, nest, element))


def stored(source: Source, root: Node, nest: Nest, element: str = "") -> list[str]:
    """The statements that compute one element of ``root`` and store it.

    ``element`` is the expression of the sum or maximum that the chain begins with, if it begins with one.
    """
    name = root.outputs[0].name
    shape, place = source.shape(name), source.place(name)
    body = Body(source, nest, element)
    index = source.index(root)
    words = body.root(root, index)
    target = place.element(body.position(flat(index, shape)))
    cast = words if place.type.size == 4 else f"({place.type.name})({words})"
    return _needed([*body.lines, f"{target} = {cast};"])


def _needed(lines: Sequence[str]) -> list[str]:
    """The statements without variables that no later one reads: a factor may be 0."""
    kept: list[str] = []
    for line in reversed(lines):
        variable = re.fullmatch(r"const int(?:32|64)_t (\w+) = .*", line)
        if variable is None or any(re.search(rf"\b{variable[1]}\b", later) for later in kept):
            kept.insert(0, line)
    return kept


def nest_of(names: Sequence[str], shape: Shape) -> Nest:
    """Loops over the axes of a shape with these counters; those of axes of extent 1 are 0 and appear in no index."""
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    return Nest(tuple(names[axis] for axis in axes), tuple(shape[axis] for axis in axes), tuple((a,) for a in axes))


@dataclass(frozen=True, slots=True)
class _Sum:
    """How a sum is formed: in the type of its parts, which are signed if no partial sum can leave 32 bits."""

    signed: bool

    @staticmethod
    def of(bound: int) -> _Sum:
        """The way for sums whose parts have absolute values that add up to at most ``bound``."""
        return _Sum(bound < 2**31)

    @property
    def type(self) -> str:
        return "int32_t" if self.signed else "uint32_t"

    def part(self, words: str) -> str:
        """A part of the sum, or a factor of one."""
        return words if self.signed else f"(uint32_t)({words})"

    def whole(self, source: Source, words: str) -> str:
        """The sum as a signed integer."""
        return words if self.signed else f"wrapped({words})"


def _product_bound(source: Source, node: Node, count: int) -> int:
    """A bound on the absolute values of the products of one element, and of its bias, added up."""
    around = source.plan.borders.get(node.outputs[0].name)
    if around is not None and around.bias is not None:
        return 0  # no partial sum can leave 32 bits, or there would be no such bias
    bound = count * source.magnitude(node.inputs[0]) * source.magnitude(node.inputs[1])
    return bound + (source.magnitude(node.inputs[2]) if len(node.inputs) > 2 else 0)


def _bias(source: Source, node: Node, channel: str, kind: _Sum) -> str:
    around = source.plan.borders.get(node.outputs[0].name)
    if around is not None and around.bias is not None:
        return source.places[f"{node.outputs[0].name}\nbias"].load(channel)
    if len(node.inputs) < 3:
        return "0"
    return kind.part(source.place(node.inputs[2]).load(channel))


def _dense(source: Source, text: Text, node: Node, ending: Ending) -> None:
    x, w = (source.place(name) for name in node.inputs[:2])
    shape = source.shape(node.outputs[0].name)
    inner = source.shape(node.inputs[0])[1]
    kind = _Sum.of(_product_bound(source, node, inner))
    with text.loops(("m", "n"), shape):
        text.line(f"{kind.type} sum = {_bias(source, node, 'n', kind)};")
        with text.loop("k", inner):
            a, b = (place.load(f"{row} * {inner} + k") for place, row in ((x, "m"), (w, "n")))
            text.line(f"sum += {kind.part(a)} * {kind.part(b)};")
        text.all(ending(nest_of(("m", "n"), shape), kind.whole(source, "sum")))


def _matmul(source: Source, text: Text, node: Node, ending: Ending) -> None:
    a, b = (source.place(name) for name in node.inputs)
    (*p, _, _), (*q, rows, columns) = (source.shape(name) for name in node.inputs)
    shape = source.shape(node.outputs[0].name)
    left, right = source.attributes(node).transpose_a, source.attributes(node).transpose_b
    inner = columns if right else rows
    kind = _Sum.of(_product_bound(source, node, inner))
    batch = [f"b{axis}" for axis in range(len(p))]
    names = (*batch, "m", "n")
    of_a, of_b = "0", "0"
    for axis, name in enumerate(batch):
        of_a = f"({of_a} * {p[axis]} + {name})"
        of_b = f"({of_b} * {q[axis]} + {name} / {p[axis] // q[axis]})"
    m, n = shape[-2:]
    at_a = f"({of_a} * {inner} + k) * {m} + m" if left else f"({of_a} * {m} + m) * {inner} + k"
    at_b = f"({of_b} * {n} + n) * {inner} + k" if right else f"({of_b} * {inner} + k) * {n} + n"
    with text.loops(names, shape):
        text.line(f"{kind.type} sum = 0;")
        with text.loop("k", inner):
            text.line(f"sum += {kind.part(a.load(at_a))} * {kind.part(b.load(at_b))};")
        text.all(ending(nest_of(names, shape), kind.whole(source, "sum")))


def _max_pool2d(source: Source, text: Text, node: Node, ending: Ending) -> None:
    x = source.place(node.inputs[0])
    _, channels, *extents = source.shape(node.inputs[0])
    shape = source.shape(node.outputs[0].name)
    a = source.attributes(node)
    sizes, paddings, strides = a.pool_size, a.padding, a.strides
    with text.loops(("n", "c", "p", "q"), shape):
        text.line(f"int32_t most = {_LEAST};")
        for counter, first, last, axis in (("p", "top", "bottom", 0), ("q", "left", "right", 1)):
            begin = f"{counter} * {strides[axis]} - {paddings[axis]}"
            text.line(f"const int32_t {first} = {begin} < 0 ? 0 : {begin};")
            end = f"{begin} + {sizes[axis]}"
            text.line(f"const int32_t {last} = {end} > {extents[axis]} ? {extents[axis]} : {end};")
        with text.loop("r", "bottom", "top"), text.loop("s", "right", "left"):
            text.line(f"const int32_t x = {x.load(f'((n * {channels} + c) * {extents[0]} + r) * {extents[1]} + s')};")
            text.line("most = x > most ? x : most;")
        text.all(ending(nest_of(("n", "c", "p", "q"), shape), "most"))


def _reduction(source: Source, text: Text, node: Node, ending: Ending) -> None:
    """`sum` and `max` over axes; the kept axes are those of the result, but for those of extent 1."""
    x, shape = source.place(node.inputs[0]), source.shape(node.inputs[0])
    result = source.shape(node.outputs[0].name)
    attributes = source.attributes(node)
    reduced = _reduced(attributes, len(shape))
    names = [f"r{axis}" if axis in reduced else f"k{axis}" for axis in range(len(shape))]
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    of_result = _result_counters(attributes, kept, len(shape), len(result))
    at = row_major(names, shape)
    kind = _Sum.of(math.prod(shape[axis] for axis in reduced) * source.magnitude(node.inputs[0]))
    with text.loops([names[axis] for axis in kept], [shape[axis] for axis in kept]):
        text.line(f"{kind.type} sum = 0;" if node.op == "sum" else f"int32_t most = {_LEAST};")
        with text.loops([names[axis] for axis in reduced], [shape[axis] for axis in reduced]):
            if node.op == "sum":
                text.line(f"sum += {kind.part(x.load(at))};")
            else:
                text.line(f"const int32_t x = {x.load(at)};")
                text.line("most = x > most ? x : most;")
        element = kind.whole(source, "sum") if node.op == "sum" else "most"
        text.all(ending(nest_of(of_result, result), element))


def _reduced(attributes: Any, rank: int) -> list[int]:
    """The axes that are reduced (R of the document)."""
    axes = normal(attributes.axes, rank)
    if attributes.exclude:
        return [axis for axis in range(rank) if axis not in axes]
    return [axis for axis in range(rank) if axis in axes or not axes]


def _result_counters(attributes: Any, kept: list[int], rank: int, result: int) -> list[str]:
    """The counters of the axes of the result; an axis that was reduced has extent 1 and no counter."""
    if attributes.keepdims and result == rank:
        return [f"k{axis}" if axis in kept else "" for axis in range(rank)]
    return [f"k{axis}" for axis in kept] or [""] * result


@dataclass(frozen=True, slots=True)
class _Convolution:
    """The numbers of a conv2d, under the document's names."""

    H: int
    WD: int
    IC: int
    KH: int
    KW: int
    channels: int
    per_group: int
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    shape: Shape
    x: Place
    subtracted: int

    @staticmethod
    def of(source: Source, node: Node) -> _Convolution:
        around = source.plan.borders.get(node.outputs[0].name)
        x = around.inside if around is not None else node.inputs[0]
        _, channels, height, width = source.shape(x)
        _, inner, kernel_height, kernel_width = source.shape(node.inputs[1])
        shape = source.shape(node.outputs[0].name)
        a = source.attributes(node)
        return _Convolution(
            height, width, inner, kernel_height, kernel_width, channels, shape[1] // a.groups,
            around.before if around is not None else a.padding, a.stride, a.dilation, shape,
            source.place(x), around.subtracted if around is not None else 0,
        )  # fmt: skip

    def factor(self, at: str) -> str:
        """The element of X that a weight is multiplied with, less what is subtracted from it."""
        if not self.subtracted:
            return self.x.load(at)
        sign = "-" if self.subtracted > 0 else "+"
        return f"({self.x.load(at)} {sign} {integer(abs(self.subtracted))})"

    def column(self, counter: str) -> str:
        """The first channel of X that the output channel ``counter`` reads."""
        return f"{counter} / {self.per_group} * {self.IC}" if self.shape[1] != self.per_group else "0"


def _conv2d(source: Source, text: Text, node: Node, ending: Ending) -> None:
    c = _Convolution.of(source, node)
    kind = _Sum.of(_product_bound(source, node, c.IC * c.KH * c.KW))
    columns = c.shape[3]
    if SHORT <= columns <= ROW:
        _conv2d_rows(source, text, node, ending, kind)
    else:
        _conv2d_elements(source, text, node, ending, kind)


def _conv2d_rows(source: Source, text: Text, node: Node, ending: Ending, kind: _Sum) -> None:
    """One row of an output channel at a time: every weight is multiplied with a whole row of X."""
    c = _Convolution.of(source, node)
    w = source.place(node.inputs[1])
    columns = c.shape[3]
    step = "q" if c.stride[1] == 1 else f"q * {c.stride[1]}"
    names = ("n", "c", "p", "q")
    with text.loops(names[:3], c.shape[:3]):
        text.line(f"{kind.type} sums[{columns}];")
        with text.loop("q", columns):
            text.line(f"sums[q] = {_bias(source, node, 'c', kind)};")
        with text.loop("i", c.KH):
            text.line(f"const int32_t row = p * {c.stride[0]} - {c.padding[0]} + i * {c.dilation[0]};")
            with text.block(f"if (row >= 0 && row < {c.H})"), text.loop("j", c.KW):
                begin, end = _columns_inside(text, c)
                with text.loop("k", c.IC):
                    channel = f"n * {c.channels} + {c.column('c')} + k"
                    text.line(f"const int32_t from = (({channel}) * {c.H} + row) * {c.WD} + left;")
                    weight = w.load(f"((c * {c.IC} + k) * {c.KH} + i) * {c.KW} + j")
                    text.line(f"const {kind.type} weight = {kind.part(weight)};")
                    with text.loop("q", end, begin):
                        text.line(f"sums[q] += weight * {kind.part(c.factor(f'from + {step}'))};")
        with text.loop("q", columns):
            text.all(ending(nest_of(names, c.shape), kind.whole(source, "sums[q]")))


def _columns_inside(text: Text, c: _Convolution) -> tuple[int | str, int | str]:
    """Write which columns of the row have their column of X inside X, for column j of the kernel."""
    columns, stride = c.shape[3], c.stride[1]
    text.line(f"const int32_t left = j * {c.dilation[1]} - {c.padding[1]};")
    rightmost = (c.KW - 1) * c.dilation[1] - c.padding[1] + (columns - 1) * stride
    begin: int | str = 0
    end: int | str = columns
    if c.padding[1] > 0:
        text.line(f"const int32_t begin = left >= 0 ? 0 : ({stride - 1} - left) / {stride};")
        begin = "begin"
    if rightmost >= c.WD:
        text.line(f"const int32_t inside = left < {c.WD} ? ({c.WD - 1} - left) / {stride} + 1 : 0;")
        text.line(f"const int32_t end = inside < {columns} ? inside : {columns};")
        end = "end"
    return begin, end


def _conv2d_elements(source: Source, text: Text, node: Node, ending: Ending, kind: _Sum) -> None:
    """One element at a time."""
    c = _Convolution.of(source, node)
    w = source.place(node.inputs[1])
    names = ("n", "c", "p", "q")
    with text.loops(names, c.shape):
        text.line(f"{kind.type} sum = {_bias(source, node, 'c', kind)};")
        with text.loop("k", c.IC), text.loop("i", c.KH), text.loop("j", c.KW):
            text.line(f"const int32_t row = p * {c.stride[0]} - {c.padding[0]} + i * {c.dilation[0]};")
            text.line(f"const int32_t column = q * {c.stride[1]} - {c.padding[1]} + j * {c.dilation[1]};")
            with text.block(f"if (row >= 0 && row < {c.H} && column >= 0 && column < {c.WD})"):
                at = f"((n * {c.channels} + {c.column('c')} + k) * {c.H} + row) * {c.WD} + column"
                weight = w.load(f"((c * {c.IC} + k) * {c.KH} + i) * {c.KW} + j")
                text.line(f"sum += {kind.part(weight)} * {kind.part(c.factor(at))};")
        text.all(ending(nest_of(names, c.shape), kind.whole(source, "sum")))


_WRITERS: dict[str, Callable[[Source, Text, Node, Ending], None]] = {
    "conv2d": _conv2d,
    "dense": _dense,
    "matmul": _matmul,
    "max": _reduction,
    "max_pool2d": _max_pool2d,
    "sum": _reduction,
}
