"""The elements of pointwise ops as statements of C inside a loop, with the ops that they are fused with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Any

from cvm.export.c.indices import Affine, Index, Nest, counters, flat, sliced
from cvm.export.c.plan import FOLDS, VIEWS, Plan, tensor_operands
from cvm.export.c.storage import Place, integer
from cvm.ops.axes import normal
from cvm.program.model import Node, Shape
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Body", "Source"]


@dataclass(slots=True)
class Source:
    """A program, its plan, and the places of its tensors."""

    verified: VerifiedProgram
    plan: Plan
    places: dict[str, Place]
    dots: bool = False
    """Whether sums of products of bytes are calls of functions that machines have instructions for."""
    producers: dict[str, int] = field(default_factory=dict)
    """The number of the node that makes a value."""

    def __post_init__(self) -> None:
        nodes = self.verified.program.nodes
        self.producers = {value.name: number for number, node in enumerate(nodes) for value in node.outputs}

    def node(self, name: str) -> Node:
        """The node that makes a value."""
        return self.verified.program.nodes[self.producers[name]]

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        return self.verified.shapes[name]

    def attributes(self, node: Node) -> Any:
        """The attributes of a node, by the declaration of its op."""
        return self.verified.calls[self.producers[node.outputs[0].name]].attributes

    def place(self, name: str) -> Place:
        """Where the elements of a value are."""
        return self.places[self.plan.stored(name)]

    def hull(self, name: str) -> tuple[int, int]:
        """The proven interval of a value."""
        return self.verified.ranges[name].hull()

    def index(self, root: Node) -> Index:
        """The index of ``root``'s element in the loops of the fold that its chain begins with.

        The loops run over the shape of the fold; where the chain transposes, the axes of ``root`` have another order.
        """
        if root.op not in FOLDS:
            for name in tensor_operands(root):
                if name in self.plan.inlined and name in self.plan.heads:
                    inner = self.index(self.node(name))
                    return tuple(inner[axis] for axis in self.order(root)) if root.op == "transpose" else inner
        return counters(self.shape(root.outputs[0].name))

    def order(self, node: Node) -> tuple[int, ...]:
        """For each axis of a transpose's result, the axis of its operand."""
        rank = len(self.shape(node.inputs[0]))
        return normal(self.attributes(node).axes, rank) or tuple(range(rank - 1, -1, -1))

    def magnitude(self, name: str) -> int:
        """The largest absolute value of an element."""
        return self.verified.ranges[name].magnitude()


class Body:
    """The statements that compute one element, at an index that is affine in the counters of loops.

    Without ``nest`` nothing is written: ``accesses`` are collected, which decide what the loops are. ``fold`` is the
    expression of the element that a sum or maximum has just given, if the chain begins with one.
    """

    def __init__(self, source: Source, nest: Nest | None, fold: str = "") -> None:
        self.source, self.nest, self.fold = source, nest, fold
        self.accesses: list[Affine] = []
        self.lines: list[str] = []

    def element(self, name: str, index: Index, wide: bool = False) -> str:
        """The element of a value at an index, as an expression of type int32_t (int64_t if ``wide``)."""
        source = self.source
        if name in source.plan.inlined:
            node = source.node(name)
            if node.op in FOLDS:
                return f"(int64_t){self.fold}" if wide else self.fold
            computed = self._viewed(node, index) if node.op in VIEWS else self.computed(node, index)
            return f"(int64_t){computed}" if wide else computed
        place = source.place(name)
        return place.load("" if place.only is not None else self.position(flat(index, source.shape(name))), wide)

    def position(self, affine: Affine) -> str:
        """A flat index as C; it is noted as an access."""
        self.accesses.append(affine)
        return "" if self.nest is None else self.nest.words(affine)

    def computed(self, node: Node, index: Index) -> str:
        """The variable that holds the element of a pointwise node, after the statement that computes it."""
        words = _EXPRESSIONS[node.op](self, node, index)
        name = f"t{self.source.producers[node.outputs[0].name]}"
        self.lines.append(f"const int32_t {name} = {words};")
        return name

    def _viewed(self, node: Node, index: Index) -> str:
        return self.element(node.inputs[0], self.seen_through(node, index))

    def root(self, node: Node, index: Index) -> str:
        """The element of the node whose result the loops store."""
        if node.op in FOLDS:
            return self.fold
        return self._viewed(node, index) if node.op in VIEWS else self.computed(node, index)

    def seen_through(self, node: Node, index: Index) -> Index:
        """The index of a view's operand at an index of its result."""
        attributes, shape = self.source.attributes(node), self.source.shape(node.inputs[0])
        if node.op == "slice_like":
            return index
        if node.op == "transpose":
            order = self.source.order(node)
            return tuple(index[order.index(axis)] for axis in range(len(shape)))
        begins, steps = sliced(shape, attributes)
        return tuple(axis.scaled(step, begin) for axis, step, begin in zip(index, steps, begins, strict=True))

    def operand(self, node: Node, position: int, index: Index, wide: bool = False) -> str:
        """The element of an operand that is broadcast to the result of a node, at an index of the result."""
        name = node.inputs[position]
        shape = self.source.shape(name)
        aligned = index[len(index) - len(shape) :]
        none = Affine((0,) * len(index[0].factors))
        at = tuple(axis if extent > 1 else none for axis, extent in zip(aligned, shape, strict=True))
        return self.element(name, at, wide)


Expression = Callable[[Body, Node, Index], str]


def _unary(words: str) -> Expression:
    return lambda body, node, index: words.format(x=body.operand(node, 0, index))


def _binary(words: str) -> Expression:
    return lambda body, node, index: words.format(a=body.operand(node, 0, index), b=body.operand(node, 1, index))


def _named(body: Body, words: str) -> str:
    """A variable with the value of an expression, so that it may be written several times."""
    name = f"v{len(body.lines)}"
    body.lines.append(f"const int32_t {name} = {words};")
    return name


def _absolute(body: Body, node: Node, index: Index) -> str:
    x = _named(body, body.operand(node, 0, index))
    return f"{x} >= 0 ? {x} : -{x}"


def _relu(body: Body, node: Node, index: Index) -> str:
    x = _named(body, body.operand(node, 0, index))
    return f"{x} > 0 ? {x} : 0"


def _largest(body: Body, node: Node, index: Index) -> str:
    a, b = (_named(body, body.operand(node, position, index)) for position in range(2))
    return f"{a} > {b} ? {a} : {b}"


def _greater(body: Body, node: Node, index: Index) -> str:
    a, b = (_named(body, body.operand(node, position, index)) for position in range(2))
    return f"{a} > {b} ? 1 : 0"


def _quotient_toward_zero(body: Body, node: Node, index: Index) -> str:
    a, b = (_named(body, body.operand(node, position, index)) for position in range(2))
    return f"{b} == 0 ? 0 : {a} / {b}"


def _clipped(body: Body, words: str, lo: int, hi: int) -> str:
    return f"clip({words}, {integer(lo)}, {integer(hi)})"


def _clip(body: Body, node: Node, index: Index) -> str:
    lo, hi = body.source.attributes(node).a_min, body.source.attributes(node).a_max
    x = _named(body, body.operand(node, 0, index))
    return f"{x} < {integer(lo)} ? {integer(lo)} : {x} > {integer(hi)} ? {integer(hi)} : {x}"


def _clipped_to_precision(body: Body, node: Node, words: str) -> str:
    alpha: int = 2 ** (body.source.attributes(node).precision - 1) - 1
    return _clipped(body, words, -alpha, alpha)


def _cvm_clip(body: Body, node: Node, index: Index) -> str:
    return _clipped_to_precision(body, node, body.operand(node, 0, index, wide=True))


def _left_shift(body: Body, node: Node, index: Index) -> str:
    power = integer(2 ** body.source.attributes(node).shift_bit, wide=True)
    return _clipped_to_precision(body, node, f"{body.operand(node, 0, index, wide=True)} * {power}")


def _right_shift(body: Body, node: Node, index: Index) -> str:
    shift = body.source.attributes(node).shift_bit
    words = f"floor_shift(floor_shift({body.operand(node, 0, index, wide=True)}, {shift - 1}) + 1, 1)"
    return _clipped_to_precision(body, node, words)


def _where(body: Body, node: Node, index: Index) -> str:
    condition, first = node.inputs[0], node.inputs[1]
    whole = body.source.shape(condition) == body.source.shape(first)
    chosen = body.element(condition, index if whole else index[:1])
    return f"{chosen} != 0 ? {body.operand(node, 1, index)} : {body.operand(node, 2, index)}"


def _looked_up(body: Body, node: Node, index: Index) -> str:
    table = body.source.place(node.inputs[0])
    lo, hi = body.source.hull(node.inputs[1])
    at = body.element(node.inputs[1], index)
    if table.only is not None:
        return integer(table.only)
    if lo < 0 or hi >= table.size:
        at = _clipped(body, f"(int64_t){at}", 0, table.size - 1)
    return table.element(at)


def _linear(body: Body, node: Node, index: Index, positions: Mapping[int, int], offset: int) -> str:
    """The sum of products of operands, each with the factor at another position, and of an offset."""
    terms = []
    for tensor, factor in positions.items():
        place = body.source.place(node.inputs[factor])
        x = body.operand(node, tensor, index, wide=True)
        if place.only == 1:
            terms.append(x)
        elif place.only != 0:
            terms.append(f"{body.operand(node, factor, index, wide=True)} * {x}")
    if body.source.place(node.inputs[offset]).only != 0 or not terms:
        terms.append(body.operand(node, offset, index, wide=True))
    return " + ".join(terms)


def _requantize(body: Body, node: Node, index: Index) -> str:
    count = (len(node.inputs) - 2) // 2
    words = _linear(body, node, index, {i: count + i for i in range(count)}, 2 * count)
    place = body.source.place(node.inputs[-1])
    shift = body.operand(node, len(node.inputs) - 1, index)
    attributes = body.source.attributes(node)
    if place.only != 0:
        if attributes.rounding == "half_up":
            half = f"half_of({shift})"
            if place.only is not None:
                half = integer(2 ** (place.only - 1), wide=True)
            words = f"floor_shift({words} + {half}, {shift})"
        else:
            words = f"{attributes.rounding}({words}, {shift})"
    return _clipped(body, words, attributes.lo, attributes.hi)


def _quotient(body: Body, node: Node, index: Index) -> str:
    source, attributes = body.source, body.source.attributes(node)
    count, terms = (len(node.inputs) - 2) // 2, attributes.terms
    above = {i: count + i for i in range(terms)}
    below = {i: count + i for i in range(terms, count)}
    rounding = ("half_up", "half_even", "toward_zero").index(attributes.rounding)
    lo, hi = attributes.lo, attributes.hi
    n, d = (
        sum(source.magnitude(node.inputs[t]) * source.magnitude(node.inputs[f]) for t, f in part.items())
        + source.magnitude(node.inputs[offset])
        for part, offset in ((above, -2), (below, -1))
    )
    if 2 * (n + d) >= 2**63:
        numerator, divisor = (
            _wide_linear(body, node, index, part, offset)
            for part, offset in ((above, 2 * count), (below, 2 * count + 1))
        )
        return f"wide_quotient({numerator}, {divisor}, {rounding}, {integer(lo)}, {integer(hi)})"
    number = source.producers[node.outputs[0].name]
    body.lines.append(f"const int64_t n{number} = {_linear(body, node, index, above, 2 * count)};")
    body.lines.append(f"const int64_t d{number} = {_linear(body, node, index, below, 2 * count + 1)};")
    words = {
        0: f"floor_quotient(2 * n{number} + d{number}, 2 * d{number})" if rounding == 0 else "",
        1: f"even_quotient(n{number}, d{number})" if rounding == 1 else "",
        2: f"n{number} / d{number}",
    }[rounding]
    return _clipped(body, words, lo, hi)


def _wide_linear(body: Body, node: Node, index: Index, positions: Mapping[int, int], offset: int) -> str:
    words = f"wide_of({body.operand(node, offset, index, wide=True)})"
    for tensor, factor in positions.items():
        m, x = (body.operand(node, position, index, wide=True) for position in (factor, tensor))
        words = f"wide_sum({words}, wide_product(wide_of({m}), wide_of({x})))"
    return words


_EXPRESSIONS: Mapping[str, Expression] = {
    "abs": _absolute,
    "broadcast_add": _binary("{a} + {b}"),
    "broadcast_div": _quotient_toward_zero,
    "broadcast_greater": _greater,
    "broadcast_max": _largest,
    "broadcast_mul": _binary("{a} * {b}"),
    "broadcast_sub": _binary("{a} - {b}"),
    "clip": _clip,
    "cvm_clip": _cvm_clip,
    "cvm_left_shift": _left_shift,
    "cvm_lut": _looked_up,
    "cvm_precision": lambda body, node, index: f"digits({body.operand(node, 0, index)})",
    "cvm_right_shift": _right_shift,
    "elemwise_add": _binary("{a} + {b}"),
    "elemwise_sub": _binary("{a} - {b}"),
    "negative": _unary("-({x})"),
    "quotient": _quotient,
    "relu": _relu,
    "requantize": _requantize,
    "take": _looked_up,
    "where": _where,
}
