"""Ops that move, select, sort or normalise elements as loops of C; each reads and writes stored tensors."""

from __future__ import annotations

import math
from collections.abc import Callable

from cvm.export.c.elements import Source
from cvm.export.c.indices import row_major
from cvm.export.c.plan import SAME_ORDER
from cvm.export.c.storage import Place, integer
from cvm.export.c.text import Text
from cvm.ops.axes import normal
from cvm.program.model import Node

__all__ = ["WRITERS", "copy", "scratch"]


def _assigned(target: Place, at: str, source: Place, index: str) -> str:
    """The statement that copies one element."""
    same = target.type == source.type or target.type.size == 4 or source.only is not None
    cast = "" if same else f"({target.type.name})"
    return f"{target.element(at)} = {cast}{source.read(index)};"


def copy(text: Text, target: Place, source: Place, count: int) -> None:
    """Write a loop that copies all elements in order."""
    with text.loop("i", count):
        text.line(_assigned(target, "i", source, "i"))


def _same_order(source: Source, text: Text, node: Node) -> None:
    x, y = source.place(node.inputs[0]), source.place(node.outputs[0].name)
    copy(text, y, x, y.size)


def _axis(source: Source, node: Node, rank: int) -> int:
    (axis,) = normal((source.attributes(node).axis,), rank)
    return axis


def _parts(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    """How many elements are before an axis, along it, and after it."""
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


def _repeat(source: Source, text: Text, node: Node) -> None:
    x, y = source.place(node.inputs[0]), source.place(node.outputs[0].name)
    shape = source.shape(node.inputs[0])
    outer, extent, inner = _parts(shape, _axis(source, node, len(shape)))
    times = source.attributes(node).repeats
    with text.loops(("o", "e", "r", "i"), (outer, extent, times, inner)):
        at = f"((o * {extent} + e) * {times} + r) * {inner} + i"
        text.line(_assigned(y, at, x, f"(o * {extent} + e) * {inner} + i"))


def _tile(source: Source, text: Text, node: Node) -> None:
    x, y = source.place(node.inputs[0]), source.place(node.outputs[0].name)
    shape, result = source.shape(node.inputs[0]), source.shape(node.outputs[0].name)
    names = [f"k{axis}" for axis in range(len(result))]
    inner = [f"{name} % {extent}" for name, extent in zip(names[len(result) - len(shape) :], shape, strict=True)]
    with text.loops(names, result):
        text.line(_assigned(y, row_major(names, result), x, row_major(inner, shape)))


def _concatenate(source: Source, text: Text, node: Node) -> None:
    y, result = source.place(node.outputs[0].name), source.shape(node.outputs[0].name)
    axis = _axis(source, node, len(result))
    outer, total, inner = _parts(result, axis)
    start = 0
    for name in node.inputs:
        x, length = source.place(name), source.shape(name)[axis] * inner
        with text.loops(("o", "i"), (outer, length)):
            text.line(_assigned(y, f"o * {total * inner} + {start} + i", x, f"o * {length} + i"))
        start += length


def _take(source: Source, text: Text, node: Node) -> None:
    x, indices, y = (source.place(name) for name in (*node.inputs, node.outputs[0].name))
    shape = source.shape(node.inputs[0])
    outer, extent, inner = _parts(shape, _axis(source, node, len(shape)))
    count = indices.size
    if x.only is not None:
        copy(text, y, x, y.size)
        return
    with text.loops(("o", "k"), (outer, count)):
        text.line(f"const int32_t given = {indices.read('k')};")
        text.line(f"const int32_t e = given < 0 ? 0 : given > {extent - 1} ? {extent - 1} : given;")
        with text.loop("i", inner):
            text.line(_assigned(y, f"(o * {count} + k) * {inner} + i", x, f"(o * {extent} + e) * {inner} + i"))


def _upsampling(source: Source, text: Text, node: Node) -> None:
    x, y = source.place(node.inputs[0]), source.place(node.outputs[0].name)
    batch, channels, height, width = source.shape(node.inputs[0])
    scale = source.attributes(node).scale
    with text.loops(("c", "h", "w"), (batch * channels, height * scale, width * scale)):
        at = f"(c * {height * scale} + h) * {width * scale} + w"
        text.line(_assigned(y, at, x, f"(c * {height} + h / {scale}) * {width} + w / {scale}"))


def _update_slice(source: Source, text: Text, node: Node) -> None:
    x, u, begin, y = (source.place(name) for name in (*node.inputs, node.outputs[0].name))
    shape = source.shape(node.inputs[0])
    axis = _axis(source, node, len(shape))
    outer, extent, inner = _parts(shape, axis)
    length = source.shape(node.inputs[1])[axis]
    copy(text, y, x, x.size)
    text.line(f"const int32_t given = {begin.read('0')};")
    last = extent - length
    text.line(f"const int32_t start = given < 0 ? 0 : given > {last} ? {last} : given;")
    with text.loops(("o", "e", "i"), (outer, length, inner)):
        at = f"(o * {extent} + start + e) * {inner} + i"
        text.line(_assigned(y, at, u, f"(o * {length} + e) * {inner} + i"))


def _get_valid_count(source: Source, text: Text, node: Node) -> None:
    x, count, y = (source.place(name) for name in (node.inputs[0], *(value.name for value in node.outputs)))
    batches, rows, width = source.shape(node.inputs[0])
    threshold = source.attributes(node).score_threshold
    lo, hi = source.hull(node.inputs[0])
    with text.loop("b", batches):
        text.line("int32_t valid = 0;")
        if threshold < hi:  # otherwise no row is valid
            test = f"if ({x.read(f'(b * {rows} + n) * {width} + 1')} > {integer(threshold)})" if threshold >= lo else ""
            with text.loop("n", rows), text.block(test):
                with text.loop("k", width):
                    at, index = (f"(b * {rows} + {row}) * {width} + k" for row in ("valid", "n"))
                    text.line(_assigned(y, at, x, index))
                text.line("valid++;")
        text.line(f"{count.element('b')} = ({count.type.name})valid;")
        with text.loop("n", rows, "valid"), text.loop("k", width):
            text.line(f"{y.element(f'(b * {rows} + n) * {width} + k')} = -1;")


def scratch(source: Source, node: Node) -> int:
    """How many integers of working memory the code of a node needs: two for each row of non_max_suppression."""
    return 2 * source.shape(node.inputs[0])[1] if node.op == "non_max_suppression" else 0


def _non_max_suppression(source: Source, text: Text, node: Node) -> None:
    x, valid, y = (source.place(name) for name in (*node.inputs, node.outputs[0].name))
    batches, rows, width = source.shape(node.inputs[0])
    order = source.places[f"{node.outputs[0].name}\nscratch"]
    attributes = source.attributes(node)
    most = rows if attributes.max_output_size < 0 else min(rows, attributes.max_output_size)
    considered = rows if attributes.top_k < 0 else min(rows, attributes.top_k)

    def cell(row: str, column: int) -> str:
        return x.read(f"(b * {rows} + {row}) * {width} + {column}")

    with text.loop("b", batches):
        text.line(f"const int32_t given = {valid.read('b')};")
        text.line(f"const int32_t count = given < 0 ? 0 : given > {rows} ? {rows} : given;")
        text.line("int32_t kept = 0;")
        text.line("/* the rows by falling scores; rows with equal scores stay in their order */")
        with text.loop("n", "count"):
            text.line("int32_t place = n;")
            before = order.element("place - 1")
            with text.block(f"while (place > 0 && {cell(before, 1)} < {cell('n', 1)})"):
                text.line(f"{order.element('place')} = {before};")
                text.line("place--;")
            text.line(f"{order.element('place')} = n;")
        with text.loop("n", f"(count < {considered} ? count : {considered})"):
            _suppress(source, text, node, cell, order)
        with text.loop("n", rows):
            chosen = order.element(f"{rows} + n")
            with text.loop("k", width):
                at = f"(b * {rows} + n) * {width} + k"
                cast = "" if y.type.size == 4 else f"({y.type.name})"
                taken = x.read(f"(b * {rows} + {chosen}) * {width} + k")
                with text.block(f"if (n < kept && n < {most})"):
                    text.line(f"{y.element(at)} = {cast}{taken};")
                with text.block("else"):
                    text.line(f"{y.element(at)} = -1;")


def _suppress(source: Source, text: Text, node: Node, cell: Callable[[str, int], str], order: Place) -> None:
    """The body of the loop over rows by falling scores: keep row n unless a kept one overlaps it."""
    rows = source.shape(node.inputs[0])[1]
    text.line(f"const int32_t row = {order.element('n')};")
    text.line(f"const int32_t box[4] = {{{', '.join(cell('row', column) for column in range(2, 6))}}};")
    always = source.hull(node.inputs[0])[0] >= 0
    text.line("int32_t keep = 1;" if always else f"int32_t keep = {cell('row', 0)} >= 0 ? 1 : 0;")
    with text.loop("k", "kept"):
        text.line(f"const int32_t rival = {order.element(f'{rows} + k')};")
        text.line(f"const int32_t other[4] = {{{', '.join(cell('rival', column) for column in range(2, 6))}}};")
        same = "" if source.attributes(node).force_suppress else f"{cell('row', 0)} == {cell('rival', 0)} && "
        threshold = integer(source.attributes(node).iou_threshold)
        with text.block(f"if ({same}overlaps(box, other, {threshold}) == 1)"):
            text.line("keep = 0;")
    with text.block("if (keep == 1)"):
        text.line(f"{order.element(f'{rows} + kept')} = row;")
        text.line("kept++;")


def _normalize(source: Source, text: Text, node: Node) -> None:
    x, y = source.place(node.inputs[0]), source.place(node.outputs[0].name)
    shape, attributes = source.shape(node.inputs[0]), source.attributes(node)
    reduced = sorted(normal(attributes.axes, len(shape)))
    names = [f"d{axis}" for axis in range(len(shape))]
    kept = [axis for axis in range(len(shape)) if axis not in reduced]
    inner = [names[axis] for axis in reduced], [shape[axis] for axis in reduced]
    at = row_major(names, shape)
    row = math.prod(shape[axis] for axis in reduced)
    m, c, k, r, e = (_parameter(source, name, names) for name in node.inputs[1:])
    even = int(attributes.rounding == "half_even")
    t, q = {
        "variance": (f"{row} * element - sum", f"{row} * squares - sum * sum"),
        "mean_square": (f"{row} * element", f"{row} * squares"),
        "square_sum": ("element", "squares"),
    }[attributes.statistic]
    with text.loops([names[axis] for axis in kept], [shape[axis] for axis in kept]):
        text.line("int64_t sum = 0;" if "sum" in t + q else "")
        text.line("int64_t squares = 0;")
        with text.loops(*inner):
            text.line(f"const int64_t element = {x.read(at)};")
            if "sum" in t + q:
                text.line("sum += element;")
            text.line("squares += element * element;")
        text.line(f"const wide root = wide_of({r});")
        power = f"wide_of((int64_t)1 << {attributes.shift})"
        text.line(f"const wide added = wide_product(wide_of({e}), {power});")
        text.line(f"const wide v = wide_sum(wide_product(wide_product(root, root), wide_of({q})), added);")
        with text.loops(*inner):
            text.line(f"const int64_t element = {x.read(at)};")
            lo, hi = integer(attributes.lo), integer(attributes.hi)
            cast = "" if y.type.size == 4 else f"({y.type.name})"
            text.line(f"{y.element(at)} = {cast}normalized({t}, {m}, {c}, {k}, {r}, v, {even}, {lo}, {hi});")


def _parameter(source: Source, name: str, names: list[str]) -> str:
    """The element of a parameter that is broadcast to the index of the loops, as int64_t."""
    place, shape = source.place(name), source.shape(name)
    if place.only is not None:
        return integer(place.only, wide=True)
    aligned = names[len(names) - len(shape) :]
    used = [(counter, extent) for counter, extent in zip(aligned, shape, strict=True) if extent > 1]
    return f"(int64_t){place.element(row_major([counter for counter, _ in used], [extent for _, extent in used]))}"


WRITERS: dict[str, Callable[[Source, Text, Node], None]] = {
    **dict.fromkeys(SAME_ORDER, _same_order),
    "concatenate": _concatenate,
    "get_valid_count": _get_valid_count,
    "non_max_suppression": _non_max_suppression,
    "normalize": _normalize,
    "repeat": _repeat,
    "take": _take,
    "tile": _tile,
    "update_slice": _update_slice,
    "upsampling": _upsampling,
}
