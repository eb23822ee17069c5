"""Updated slices: a copy of a tensor with a slice of it replaced."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.executors.native.descriptions.computed import Update
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.loops import Loop
from cvm.executors.native.emit.elements import load, store
from cvm.executors.native.emit.ir import Code, Module, Scalar, V
from cvm.executors.native.emit.nest import along, loops_in_order, moved
from cvm.executors.native.kernels.strided import readable, strides, writable
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node

__all__ = ["PLANS", "emit_update"]


def plan_update(planner: Planning, node: Node) -> None:
    """A copy of X, then of U over it; without the first copy if X is a state that nothing else reads any more."""
    name = node.outputs[0].name
    reads = [readable(planner, source) for source in node.inputs]
    place = planner.in_place(node)
    if place is not None:
        reads[0] = place
    target = place or writable(planner, name)
    rank = len(target.view.axes)
    axis = planner.call_of(node).attributes.axis % rank
    written = strides(target, rank)
    kept, replaced = (loops_in_order([Loop(n, apart) for n, apart in _paired(home, written)]) for home in reads[:2])
    last = reads[0].view.shape[axis] - reads[1].view.shape[axis]
    formats = tuple(home.format for home in (*reads, target))
    kernel = Update(() if place else kept, replaced, formats, last, written[axis])
    function = planner.kernel(kernel, "update")
    planner.claim(Computes(node, kernel, tuple(reads), (target,), planner.next_call))
    cost = 0.2 * math.prod((reads[1] if place else target).view.shape)
    note = "the slice, in the state's own storage" if place else "a copy, then the slice"
    planner.call(function, [home.at() for home in (*reads, target)], 1, name, note, cost)


def _paired(home: Home, written: Sequence[int]) -> list[tuple[int, tuple[int, int]]]:
    shape = home.view.shape
    return [(n, (stride, to)) for n, stride, to in zip(shape, strides(home, len(shape)), written, strict=True)]


def emit_update(module: Module, name: str, kernel: Update, width: int) -> None:
    """The function: (X, U, I, target, first unit, end of units)."""
    names = [V("ptr", f"%a{number}") for number in range(4)]
    lo, hi = V("i64", "%lo"), V("i64", "%hi")
    code = Code(module, name, [*names, lo, hi])
    target = kernel.formats[-1]

    def copied(loops: tuple[Loop, ...], source: V, format_: Format, to: V) -> None:
        *outer, inner = loops
        sizes = [format_.bytes, target.bytes]
        beside = inner.strides == (1, 1)

        def innermost(at: list[V]) -> None:
            def some(index: Scalar, count: int) -> None:
                read, write = moved(code, at, inner.strides, sizes, index)
                store(code, target, load(code, format_, read, count), write)

            code.strips(inner.extent, width if beside else 1, some)

        along(code, outer, [source, to], sizes, innermost)

    def whole() -> None:
        if kernel.kept:
            copied(kernel.kept, names[0], kernel.formats[0], names[3])
        given = code.cast("sext", load(code, kernel.formats[2], names[2], 1), 64)
        start = code.intrinsic("smin", code.intrinsic("smax", given, 0), kernel.last)
        place = code.at(names[3], code.mul(start, kernel.stride * target.bytes))
        copied(kernel.replaced, names[1], kernel.formats[1], place)

    code.when(code.compare("slt", lo, hi), whole)
    code.finish()


PLANS = {"update_slice": OpPlan(plan_update)}
