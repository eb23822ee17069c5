"""The plans of `sum` and `max` over axes."""

from __future__ import annotations

import math
from typing import Literal

from cvm.executors.native.descriptions.loops import Loop, Reduction
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.executors.native.plan.view import refined
from cvm.program.model import Node

__all__ = ["PLANS"]


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
    kind: Literal["sum", "max"] = "sum" if node.op == "sum" else "max"
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


PLANS = {"sum": OpPlan(plan_reduction), "max": OpPlan(plan_reduction)}
