"""Formulas of elementwise nodes, including the nodes that joined their kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import SINGLE, TABLE, Formula, FormulaStep, Requantization, Static
from cvm.executors.native.descriptions.formats import INT32, INT64, SHORT, Format
from cvm.executors.native.emit.digits import digit_parameters
from cvm.executors.native.emit.fused import fused_parameters
from cvm.executors.native.emit.requantize import Terms, biased, half, terms
from cvm.executors.native.emit.words import word_parameters
from cvm.executors.native.exact import Exact, exact
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning
from cvm.executors.native.plan.view import View
from cvm.limits import INT32_MAX
from cvm.program.model import Node
from cvm.records import dataclass

__all__ = ["BUILDERS", "Build", "Operand", "Sums", "build"]

Array: TypeAlias = npt.NDArray[Any]
BYTES = Format(8, signed=False)
WORDS = Format(16, signed=False)
POSITIONS = 1024
"""Parameters of at least this many elements are stored in as few bytes as hold them."""
ROW = 128
"""The most bytes among which one instruction picks."""


@dataclass(frozen=True, eq=False, slots=True)
class Operand:
    """A tensor that a formula reads: a ``home`` or a constant ``array``. Its shape broadcasts to the result's."""

    home: Home | None
    array: Array | None
    format: Format

    def over(self, planner: Planning, target: Home) -> Home:
        """The operand's home, broadcast to the shape of the target."""
        home = self.home
        if home is None:
            assert self.array is not None
            home = planner.constants.home(self.array, self.format)
        return replace(home, view=home.view.broadcast(target.view.shape))


@dataclass(frozen=True, slots=True)
class Build:
    """A formula and the tensors that it reads. If the group has a contraction, value 0 is its sums.

    With ``clamp``, the formula yields stored integers, which include the bias of the format, and the store must clip
    them to ``clamp``. ``start`` is the number that the sums of each channel start with; None means zero.
    """

    formula: Formula
    reads: tuple[Operand, ...]
    note: str
    clamp: tuple[int, int] | None = None
    start: Exact | None = None


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a contraction: the number that those of each channel start with, and the bounds of the products that
    are added to it.

    A kernel whose weights are all less by one number leaves a multiple of the sum of each window out. ``windows`` is
    the home of these multiples, which the formula adds first.
    """

    node: Node
    start: Exact
    least: Exact
    most: Exact
    windows: Home | None = None

    @property
    def magnitude(self) -> int:
        """A bound of the magnitude of what is added in any channel."""
        return max(-self.least.hull[0], self.most.hull[1])


def build(planner: Planning, root: Node, sums: Sums | None) -> Build:
    """Build the formula of a group, with or without a contraction.

    With a contraction, the last requantize leaves its clip and that of a clip after it to the store, and the first one
    adds the start of the sums, each where its arithmetic allows that.
    """
    builder = _Builder(planner, sums, root, start=sums.start if sums else None)
    if sums is not None and sums.windows is not None:
        windows = builder.read(Operand(sums.windows, None, sums.windows.format))
        builder.done[sums.node.outputs[0].name] = builder.step("add", (("sum", 0), windows))
    builder.node(root)
    first = 1 if sums is not None else 0
    count = first + len(builder.reads)

    def number(reference: tuple[str, int]) -> int:
        kind, which = reference
        return which + {"sum": 0, "read": first, "step": count}[kind]

    steps = tuple(FormulaStep(op, tuple(map(number, arguments)), static) for op, arguments, static in builder.steps)
    last = number(builder.node(root))
    if last != count + len(steps) - 1:  # the result is one of the tensors read, or the value of an earlier step
        steps = (*steps, FormulaStep("same", (last,)))
    note = " + ".join(builder.ops) or "sums"
    return Build(Formula(count, steps), tuple(builder.reads), note, builder.clamp, builder.start)


Reference: TypeAlias = "tuple[str, int]"


@dataclass(slots=True)
class _Builder:
    planner: Planning
    sums: Sums | None
    root: Node
    clamp: tuple[int, int] | None = None
    start: Exact | None = None
    reads: list[Operand] = field(default_factory=list)
    steps: list[tuple[str, tuple[Reference, ...], tuple[Static, ...]]] = field(default_factory=list)
    ops: list[str] = field(default_factory=list)
    done: dict[str, Reference] = field(default_factory=dict)

    def node(self, node: Node) -> Reference:
        """Append the steps of a node, and return its value."""
        name = node.outputs[0].name
        if name not in self.done:
            if self.sums is not None and node is self.sums.node:
                self.done[name] = ("sum", 0)
            else:
                self.done[name] = BUILDERS[node.op](self, node)
                self.ops.append(node.op)
        return self.done[name]

    def value(self, name: str) -> Reference:
        """The value of a tensor: the result of a joined node, or a tensor that the formula reads."""
        if name in self.planner.groups.joined:
            return self.node(self.planner.groups.producer[name])
        array = self.planner.constant(name)
        if array is not None:
            return self.array(array, Format.of(int(array.min()), int(array.max())))
        home = self.planner.home(name)
        return self.read(Operand(home, None, home.format))

    def read(self, read: Operand) -> Reference:
        """Let the formula read a tensor, and return its value."""
        for index, known in enumerate(self.reads):
            if read.home is not None and known.home == read.home:
                return ("read", index)
        self.reads.append(read)
        return ("read", len(self.reads) - 1)

    def array(self, array: Array, format_: Format) -> Reference:
        """The value of a constant: an immediate number if all elements are equal, else a tensor that is read."""
        first = int(array.flat[0])
        if bool((array == first).all()):
            return self.step("immediate", (), (first,))
        return self.read(Operand(None, array, format_))

    def step(self, op: str, arguments: tuple[Reference, ...], static: tuple[Static, ...] = ()) -> Reference:
        """Append one step to the formula, and return its value."""
        self.steps.append((op, arguments, static))
        return ("step", len(self.steps) - 1)

    def operands(self, node: Node) -> tuple[Reference, ...]:
        """The values of all inputs of a node."""
        return tuple(self.value(name) for name in node.inputs)

    def attribute(self, node: Node, name: str) -> int:
        """An integer attribute of a node."""
        value = node.attributes[name]
        assert isinstance(value, int)
        return value


def _plain(op: str) -> Callable[[_Builder, Node], Reference]:
    return lambda builder, node: builder.step(op, builder.operands(node))


CLIPS = frozenset({"relu", "clip", "cvm_clip"})


def _clip(builder: _Builder, node: Node) -> Reference:
    return _clipped(builder, builder.value(node.inputs[0]), node, *_bounds(node))


def _bounds(node: Node) -> tuple[int, int]:
    """The interval to which a node clips."""
    if node.op == "relu":
        return 0, INT32_MAX
    names = ("a_min", "a_max") if node.op == "clip" else ("precision", "precision")
    lo, hi = (node.attributes[name] for name in names)
    assert isinstance(lo, int)
    assert isinstance(hi, int)
    return (lo, hi) if node.op == "clip" else (1 - 2 ** (lo - 1), 2 ** (hi - 1) - 1)


def _clipped(builder: _Builder, value: Reference, node: Node, lo: int, hi: int) -> Reference:
    """The value clipped to [lo, hi]. There is no step where the value is proven to lie in this interval, or where the
    store clips it.
    """
    least, largest = builder.planner.hull(node.inputs[0])
    if (node is builder.root and builder.clamp is not None) or (lo <= least and largest <= hi):
        return value
    return builder.step("clip", (value,), (lo, hi))


def _div(builder: _Builder, node: Node) -> Reference:
    """`broadcast_div`, in float32 where the proven intervals of both operands allow it."""
    ends = [abs(end) for name in node.inputs for end in builder.planner.hull(name)]
    single = max(ends) < 2**SINGLE and node.outputs[0].name not in builder.planner.plain
    return builder.step("div", builder.operands(node), (SINGLE,) if single else ())


def _right_shift(builder: _Builder, node: Node) -> Reference:
    shift, alpha = builder.attribute(node, "shift_bit"), 2 ** (builder.attribute(node, "precision") - 1) - 1
    shifted = builder.step("right_shift", (builder.value(node.inputs[0]),), (shift,))
    return builder.step("clip", (shifted,), (-alpha, alpha))


def _left_shift(builder: _Builder, node: Node) -> Reference:
    shift, alpha = builder.attribute(node, "shift_bit"), 2 ** (builder.attribute(node, "precision") - 1) - 1
    return builder.step("left_shift", (builder.value(node.inputs[0]),), (shift, alpha))


def _where(builder: _Builder, node: Node) -> Reference:
    """`where`: a condition of rank 1 chooses whole slices along axis 0."""
    name, a, b = node.inputs
    rank = len(builder.planner.shape(a))
    if len(builder.planner.shape(name)) == rank:
        condition = builder.value(name)
    else:
        home = builder.planner.home(name)
        view = View(home.view.offset, (home.view.axes[0], *((),) * (rank - 1)))
        condition = builder.read(Operand(replace(home, view=view), None, home.format))
    return builder.step("where", (condition, builder.value(a), builder.value(b)))


def _requantize(builder: _Builder, node: Node) -> Reference:
    call = builder.planner.call_of(node)
    count = (len(node.inputs) - 2) // 2
    arrays = []
    for name in node.inputs[count:]:
        array = builder.planner.constant(name)
        assert array is not None, "a parameter is a constant"
        arrays.append(array)
    *multipliers, offset, shift = arrays
    magnitudes = [interval.magnitude() for interval in call.ranges[:count]]
    rounding = str(node.attributes["rounding"])
    bounds = builder.attribute(node, "lo"), builder.attribute(node, "hi")
    plain = node.outputs[0].name in builder.planner.plain
    if not plain and count == 1 and rounding == "half_up":
        words = _in_words(builder, node, multipliers[0], offset, shift, bounds)
        if words is not None:
            return words
    level = builder.planner.machine.one_shift
    chosen = terms(magnitudes, multipliers, offset, shift, rounding, *bounds, plain, level)
    begun = (
        _offset_with_start(builder, node, multipliers, offset, shift) if chosen.rule.arithmetic != "narrow" else None
    )
    if begun is not None and builder.sums is not None:
        magnitudes = [builder.sums.magnitude]
        chosen = terms(magnitudes, multipliers, begun, shift, rounding, *bounds, level=level)
        builder.start = None
        for possible, found in ((builder.planner.machine.fuses, _fused), (level, _in_digits)):
            if possible and rounding == "half_up":
                chosen = found(builder, builder.sums, multipliers[0], begun, shift, bounds) or chosen
    if builder.sums is not None and not plain:
        chosen = _folded(builder, node, chosen, magnitudes)
    xs = [builder.value(name) for name in node.inputs[:count]]
    return builder.step("requantize", (*xs, *_parameters(builder, chosen)), (chosen.rule,))


def _parameters(builder: _Builder, chosen: Terms) -> list[Reference]:
    """The parameters of a requantization as values of the formula."""
    rule = chosen.rule
    if rule.arithmetic == "digits":
        half = exact(1 << rule.bits - 1)
        upper = exact(chosen.multipliers[0]) + half >> rule.bits
        lower = exact(chosen.multipliers[0]) - (upper << rule.bits)
        whole = exact(chosen.offset) >> rule.bits
        digits = upper, lower, whole, exact(chosen.offset) - (whole << rule.bits), exact(chosen.shift)
        return [builder.array(digit.int64(), INT32) for digit in digits]
    wide = INT32 if rule.arithmetic == "narrow" else INT64
    high = rule.arithmetic in ("high", "scaled") and rule.short and builder.planner.machine.one_shift
    factors = INT32 if high else wide
    ms = [builder.array(m, _stored(builder, m, factors)) for m in chosen.multipliers]
    added = builder.array(chosen.offset, _stored(builder, chosen.offset, wide))
    return [*ms, added, builder.array(chosen.shift, INT64 if rule.arithmetic == "wide" else INT32)]


def _stored(builder: _Builder, parameter: Array, wide: Format) -> Format:
    """The format in which a nest reads a parameter: where there is one for each of many positions, the narrowest."""
    if builder.sums is not None or wide != INT32 or parameter.size < POSITIONS:
        return wide
    return Format.of(int(parameter.min()), int(parameter.max()))


def _fused(
    builder: _Builder, sums: Sums, multiplier: Array, begun: Exact, shift: Array, bounds: tuple[int, int]
) -> Terms | None:
    """The fused form of a requantize, or None if there is none.

    The sums start with a number that makes all of them at least 0; the offset subtracts it again.
    """
    m, s = exact(multiplier), exact(shift)
    shape = np.broadcast_shapes(begun.shape, s.shape, m.shape)
    least, most = (_by_channel(array, len(shape)) for array in (sums.least, sums.most))
    moved = begun + m * least + half(s)
    m, moved, s, span = (array.broadcast(shape).reshape(-1) for array in (m, moved, s, most - least))
    found = fused_parameters(m, moved, s, span, *bounds)
    if found is None:
        return None
    builder.start = -sums.least
    wide, addend = (array.reshape(shape) for array in found[:2])
    rule = Requantization("fused", 1, "half_up", *bounds, bits=found[2])
    return Terms(rule, (wide,), addend, np.zeros(1, np.int64))


def _in_digits(
    builder: _Builder, sums: Sums, multiplier: Array, begun: Exact, shift: Array, bounds: tuple[int, int]
) -> Terms | None:
    """A requantize with a multiplier of two digits, or None if there is none."""
    m, s = exact(multiplier), exact(shift)
    shape = np.broadcast_shapes(begun.shape, s.shape, m.shape)
    ends = (_by_channel(array, len(shape)) for array in (sums.least, sums.most))
    arrays = (array.broadcast(shape).reshape(-1) for array in (m, begun + half(s), s, *ends))
    m, moved, s, least, most = arrays
    found = digit_parameters(m, moved, s, (least, most), bounds)
    if found is None:
        return None
    rule = Requantization("digits", 1, "half_up", *bounds, bits=found.bits)
    digits = found.multiplier.reshape(shape), found.offset.reshape(shape)
    return Terms(rule, (digits[0],), digits[1], np.array([found.shift], np.int64))


def _in_words(
    builder: _Builder, node: Node, multiplier: Array, offset: Array, shift: Array, bounds: tuple[int, int]
) -> Reference | None:
    """The step of a requantize from bytes to bytes in 16-bit lanes, or None if there is none."""
    planner, name = builder.planner, node.inputs[0]
    alone = builder.sums is None and node is builder.root and name not in planner.groups.joined
    if not alone or not planner.machine.packs or planner.constant(name) is not None:
        return None
    source, target = planner.home(name).format, planner.result(node.outputs[0].name).format
    if (source.bits, target.bits) != (8, 8):
        return None
    c, s = exact(offset) + half(exact(shift)), exact(shift)
    shape = np.broadcast_shapes(multiplier.shape, c.shape, s.shape)
    m, c, s = (array.broadcast(shape).reshape(-1) for array in (exact(multiplier), c, s))
    least, most = source.hull[0], planner.hull(name)[1]
    found = word_parameters(m, c, s, (least, most - least), bounds)
    if found is None:
        return None
    rule = Requantization("words", 1, "half_up", *bounds, bits=found.shift, least=least)
    parameters = [builder.array(array.reshape(shape), WORDS) for array in found.parameters]
    return builder.step("requantize", (builder.value(name), *parameters), (rule,))


def _offset_with_start(
    builder: _Builder, node: Node, multipliers: Sequence[Array], offset: Array, shift: Array
) -> Exact | None:
    """The offset that includes the start of the sums: m (x + start) + c = m x + (m start + c).

    None if x is not the sums of the contraction, if another node reads the sums, or if 64 bits might not suffice.
    """
    sums = builder.sums
    if sums is None or node.inputs[0] != sums.node.outputs[0].name or len(multipliers) != 1:
        return None
    name = node.inputs[0]
    m, c = exact(multipliers[0]), exact(offset)
    largest = sums.start.magnitude + sums.magnitude
    bound = m.magnitude * largest + c.magnitude + half(exact(shift)).magnitude
    if (
        name not in builder.planner.groups.joined
        or builder.planner.uses(name) != 1
        or sums.magnitude >= 2**31
        or bound >= 2**63
    ):
        return None
    return m * _by_channel(sums.start, len(builder.planner.shape(name))) + c


def _by_channel(array: Exact, rank: int) -> Exact:
    """One element per channel, reshaped so that it broadcasts to a result of this rank with channels on axis 1."""
    return array.reshape(1, -1, *(1,) * (rank - 2))


def _folded(builder: _Builder, node: Node, chosen: Terms, magnitudes: Sequence[int]) -> Terms:
    """Add the bias of the result's format to the offset, and leave the clip to the store, if the arithmetic allows.

    That is so for the requantize that ends a group, and for one that only a clip follows.
    """
    root, lo, hi = builder.root, chosen.rule.lo, chosen.rule.hi
    plain = root.outputs[0].name in builder.planner.plain
    if root.op in CLIPS and node.outputs[0].name == root.inputs[0] and not plain:
        least, most = _bounds(root)
        lo, hi = max(lo, least), min(hi, most)
    elif node is not root:
        return chosen
    format_ = builder.planner.result(root.outputs[0].name).format
    bytes_ = format_.bits == 8 and not format_.signed
    if lo > hi or not (bytes_ or (format_ == SHORT and builder.planner.machine.words)):
        return chosen
    moved = biased(chosen, magnitudes, format_.bias)
    if moved is None:
        return chosen
    # The bounds of the requantize may lie far outside the proven interval of the result, and outside its format.
    least, most = format_.hull
    builder.clamp = (max(lo, least) + format_.bias, min(hi, most) + format_.bias)
    return moved


def _take(builder: _Builder, node: Node) -> Reference:
    """`take` and `cvm_lut`: elements, or slices along an axis, at clipped indices."""
    source, indices = node.inputs
    axis = node.attributes.get("axis")
    home = builder.planner.home(source)
    if axis is None or node.op == "cvm_lut":
        flat = home.view.reshaped((math.prod(home.view.shape),))
        if flat is None or flat.stride(0) is None:
            home = builder.planner.rearranged(home)
            flat = home.view.reshaped((math.prod(home.view.shape),))
        assert flat is not None
        home, axis = replace(home, view=flat), 0
        op = _permutes(builder, node, home)
        if op is not None:
            return _permuted(builder, op, home, source, indices)
    assert isinstance(axis, int)
    axis %= len(home.view.axes)
    if home.view.stride(axis) is None:
        home = builder.planner.rearranged(home)
    stride, extent = home.view.stride(axis), home.view.shape[axis]
    assert stride is not None
    rank = len(builder.planner.shape(indices))
    before, after = home.view.axes[:axis], home.view.axes[axis + 1 :]
    base = View(home.view.offset, (*before, *((),) * rank, *after))
    elements = builder.read(Operand(replace(home, view=base), None, home.format))
    if before or after:
        where = builder.planner.home(indices)
        spread = View(where.view.offset, (*((),) * len(before), *where.view.axes, *((),) * len(after)))
        index = builder.read(Operand(replace(where, view=spread), None, where.format))
    else:
        index = builder.value(indices)
    picks = builder.planner.machine.permutes and (stride, home.format.bits, extent <= ROW) == (1, 8, True)
    picks = picks and home.buffer.kind != "array" and node.outputs[0].name not in builder.planner.plain
    return builder.step("pick" if picks else "gather", (elements, index), (extent, stride, home.format))


def _permutes(builder: _Builder, node: Node, home: Home) -> str | None:
    """The step that looks a table up by permuting bytes, if it is a constant and has hardly more entries than a byte.

    Instructions that pick among few bytes take 31 steps for each byte of an entry, as many as 8 loads of an entry take.
    So they serve entries of one or two bytes, and vectors that are filled with elements.
    """
    planner, size = builder.planner, home.format.bits
    known = planner.constant(node.inputs[0]) is not None and size <= 32 and home.view.shape[0] <= TABLE + 1
    if not known or node.outputs[0].name in planner.plain:
        return None
    few = planner.machine.shuffles and size <= 16 and builder.sums is None
    return "permute" if planner.machine.permutes else "shuffle" if few else None


def _permuted(builder: _Builder, op: str, home: Home, source: str, indices: str) -> Reference:
    """A table whose stored entries are split into bytes: all lowest ones, then all second ones, and so on."""
    planner, size = builder.planner, home.format.bytes
    values = planner.constant(source)
    assert values is not None
    stored = home.format.stored(values.ravel())
    last = int(stored[TABLE]) if stored.size > TABLE else None
    planes = np.zeros((size, TABLE), np.uint8)
    planes[:, : stored.size] = stored[:TABLE].astype(f"<{home.format.dtype.str[1:]}").view(np.uint8).reshape(-1, size).T
    packed = planner.constants.home(planes.ravel(), BYTES)
    view = View(packed.view.offset, ((),) * len(planner.shape(indices)))
    table = builder.read(Operand(replace(packed, view=view), None, BYTES))
    static = (stored.size, home.format) if last is None else (stored.size, home.format, last)
    return builder.step(op, (table, builder.value(indices)), static)


BUILDERS: dict[str, Callable[[_Builder, Node], Reference]] = {
    "broadcast_add": _plain("add"),
    "broadcast_sub": _plain("sub"),
    "broadcast_mul": _plain("mul"),
    "broadcast_div": _div,
    "broadcast_max": _plain("max"),
    "broadcast_greater": _plain("greater"),
    "elemwise_add": _plain("add"),
    "elemwise_sub": _plain("sub"),
    "negative": _plain("negative"),
    "abs": _plain("abs"),
    "cvm_precision": _plain("precision"),
    "relu": _clip,
    "clip": _clip,
    "cvm_clip": _clip,
    "cvm_right_shift": _right_shift,
    "cvm_left_shift": _left_shift,
    "where": _where,
    "requantize": _requantize,
    "take": _take,
    "cvm_lut": _take,
}
