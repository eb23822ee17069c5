"""Sums of products, sums and maxima as loops of C, each followed by the chain of ops that reads its elements."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from cvm.export.c.convolutions import conv2d
from cvm.export.c.elements import Source
from cvm.export.c.indices import row_major
from cvm.export.c.sums import Ending, Sum, bias, bytes_kind, nest_of, product_bound
from cvm.export.c.text import Text
from cvm.ops.axes import normal
from cvm.program.model import Node

__all__ = ["fold"]

_LEAST = "-INT32_C(2147483647)"
"""Less than or equal to every element: none is -2^31."""


def fold(source: Source, text: Text, head: Node, root: Node) -> None:
    """Write the loops of a fold and of the chain from it to ``root``, whose result is stored."""
    _WRITERS[head.op](source, text, head, Ending(source, root))


def _dense(source: Source, text: Text, node: Node, ending: Ending) -> None:
    x, w = (source.place(name) for name in node.inputs[:2])
    shape = source.shape(node.outputs[0].name)
    inner = source.shape(node.inputs[0])[1]
    kind = Sum.of(product_bound(source, node, inner))
    with text.loops(("m", "n"), shape):
        text.line(f"{kind.type} sum = {bias(source, node, 'n', kind)};")
        if end := bytes_kind(source, x, w, kind):
            a, b = (place.element(f"{row} * {inner}") for place, row in ((x, "m"), (w, "n")))
            text.line(f"sum += dot_{end}(&{a}, &{b}, {inner});")
        else:
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
    kind = Sum.of(product_bound(source, node, inner))
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
    kind = Sum.of(math.prod(shape[axis] for axis in reduced) * source.magnitude(node.inputs[0]))
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


_WRITERS: dict[str, Callable[[Source, Text, Node, Ending], None]] = {
    "conv2d": conv2d,
    "dense": _dense,
    "matmul": _matmul,
    "max": _reduction,
    "max_pool2d": _max_pool2d,
    "sum": _reduction,
}
