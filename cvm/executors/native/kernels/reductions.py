"""Kernels of `sum` and `max` over axes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit.elements import encoded, load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V, typed, vector
from cvm.executors.native.emit.nest import walked
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.executors.native.plan.view import refined
from cvm.program.model import Node

__all__ = ["PLANS", "Reduction", "emit_reduction"]

Kind = Literal["sum", "max"]


@dataclass(frozen=True, slots=True)
class Reduction:
    """A reduction: loops over the results (``kept``), and over the source elements of each result (``taken``).

    Each loop has the stride in the source, then the stride in the target.
    """

    kind: Kind
    kept: tuple[Loop, ...]
    taken: tuple[Loop, ...]
    source: Format
    target: Format

    @property
    def units(self) -> int:
        """The number of parts that may run at the same time."""
        return self.outer[0].extent if self.outer else 1

    @property
    def beside(self) -> bool:
        """Whether neighbouring results read neighbouring elements of the source, so that vectors of results can be
        computed.
        """
        most = self.kept[-1:]
        return bool(most) and most[0].strides[0] == 1 and (len(self.kept) > 1 or most[0].extent >= 4)

    @property
    def outer(self) -> tuple[Loop, ...]:
        """The loops over results, without the loop that vectors run along."""
        return self.kept[:-1] if self.beside else self.kept


def plan_reduction(planner: Planning, node: Node) -> None:
    """Plan `sum` and `max` over axes."""
    name, source = node.outputs[0].name, planner.home(node.inputs[0])
    shape = source.view.shape
    a = planner.call_of(node).attributes
    listed = {axis % len(shape) for axis in a.axes}
    reduced = {axis for axis in range(len(shape)) if (axis in listed) != a.exclude}
    if not listed:
        reduced = set(range(len(shape)))
    target = planner.result(name)
    kept_shape = tuple(1 if axis in reduced else n for axis, n in enumerate(shape))
    view = target.view.reshaped(kept_shape)
    assert view is not None, "a reduction only inserts or removes axes of extent 1"
    kept: list[Loop] = []
    taken: list[Loop] = []
    for axis in range(len(shape)):
        if axis in reduced:
            taken += [Loop(n, (stride, 0)) for n, stride in source.view.axes[axis]]
            continue
        found = refined([source.view.axes[axis], view.axes[axis]])
        if found is None:
            planner.read_from(node.inputs[0], planner.rearranged(source))
            plan_reduction(planner, node)
            return
        kept += [Loop(extent, strides) for extent, strides in found]
    kept.sort(key=lambda loop: -abs(loop.strides[1]))
    taken.sort(key=lambda loop: -abs(loop.strides[0]))
    kind: Kind = "sum" if node.op == "sum" else "max"
    reduction = Reduction(kind, tuple(kept), tuple(taken), source.format, target.format)
    width = planner.machine.width
    function = planner.kernel(reduction, kind)
    result = Home(target.buffer, view, target.format)
    planner.claim(Computes(node, reduction, (source,), (target,), planner.next_call))
    planner.call(
        function,
        [source.at(), result.at()],
        reduction.units,
        name,
        f"{kind}, modulo 2^32, {width} lanes",
        0.2 * math.prod(shape),
    )


def emit_reduction(module: Module, name: str, reduction: Reduction, width: int) -> None:
    """Write the function of a reduction: (source, target, first unit, end of units)."""
    source, target, lo, hi = V("ptr", "%source"), V("ptr", "%target"), V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [source, target, lo, hi])

    def result(pointers: list[V]) -> None:
        read, write = pointers
        if reduction.beside:
            _neighbouring_results(code, reduction, reduction.kept[-1], read, write, width)
        else:
            store(code, reduction.target, _taken(code, reduction, read, width), write)

    sizes = reduction.source.bytes, reduction.target.bytes
    walked(code, reduction.outer, (lo, hi), [source, target], sizes, result)
    code.finish()


def _neighbouring_results(code: Code, reduction: Reduction, loop: Loop, read: V, write: V, width: int) -> None:
    """Write vectors of neighbouring results, whose elements lie side by side in the source."""

    def at(index: Scalar, count: int) -> None:
        start = code.at(read, code.mul(index, reduction.source.bytes))
        first = typed(vector(32, count), _neutral(reduction.kind))
        total = _loops(code, reduction, list(reduction.taken), start, first, count)
        address = code.at(write, code.mul(index, loop.strides[1] * reduction.target.bytes))
        if loop.strides[1] == 1 or count == 1:
            store(code, reduction.target, total, address)
            return
        raw = encoded(code, reduction.target, total)
        for lane in range(count):
            code.store(code.extract(raw, lane), code.at(address, lane * loop.strides[1] * reduction.target.bytes))

    code.strips(loop.extent, width, at)


def _taken(code: Code, reduction: Reduction, read: V, width: int) -> V:
    """Compute one result. Where its elements lie side by side, a vector of partial results is reduced at the end."""
    taken = list(reduction.taken)
    neutral = _neutral(reduction.kind)
    if not taken or taken[-1].strides[0] != 1 or taken[-1].extent < width:
        return _loops(code, reduction, taken, read, typed("i32", neutral), 1)
    inner = taken.pop()
    whole, rest = divmod(inner.extent, width)
    parts = [*taken, Loop(whole, (width, 0))]
    partial = _loops(code, reduction, parts, read, typed(vector(32, width), neutral), width)
    fold = "add" if reduction.kind == "sum" else "smax"
    total = code.call("i32", f"llvm.vector.reduce.{fold}.v{width}i32", partial)
    if rest:
        start = code.at(read, whole * width * reduction.source.bytes)
        total = _loops(code, reduction, [*taken, Loop(rest, (1, 0))], start, total, 1)
    return total


def _loops(code: Code, reduction: Reduction, loops: Sequence[Loop], read: V, total: V, count: int) -> V:
    """Reduce all elements that the loops reach into ``total``."""
    if not loops:
        return _folded(code, reduction.kind, total, load(code, reduction.source, read, count))
    loop, rest = loops[0], loops[1:]

    def body(index: V, values: list[V]) -> list[V]:
        at = code.at(read, code.mul(index, loop.strides[0] * reduction.source.bytes))
        return [_loops(code, reduction, rest, at, values[0], count)]

    return code.loop(0, loop.extent, 1, body, [total])[0]


def _folded(code: Code, kind: Kind, total: V, value: V) -> V:
    return code.binary("add", total, value) if kind == "sum" else code.intrinsic("smax", total, value)


def _neutral(kind: Kind) -> int:
    return 0 if kind == "sum" else -(2**31)


PLANS = {"sum": OpPlan(plan_reduction), "max": OpPlan(plan_reduction)}
