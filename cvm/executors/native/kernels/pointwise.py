"""Groups of elementwise ops: one kernel computes the whole group, with or without a contraction in it."""

from __future__ import annotations

from cvm.executors.native.kernels.contractions import plan_contraction
from cvm.executors.native.kernels.formulas import BUILDERS, build
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.program.model import Node

__all__ = ["PLANS", "plan_pointwise"]


def plan_pointwise(planner: Planning, node: Node) -> None:
    """Plan the kernel of a group whose last node is elementwise."""
    name = node.outputs[0].name
    if name in planner.groups.sums:
        plan_contraction(planner, node)
        return
    target = planner.result(name)
    built = build(planner, node, None)
    reads = [read.over(planner, target) for read in built.reads]
    planner.nest(
        reads, target, built.formula, name, f"{built.note}, {planner.machine.width} lanes",
        lambda kernel, reads, call: Computes(node, kernel, tuple(reads), (target,), call),
    )  # fmt: skip


PLANS = {op: OpPlan(plan_pointwise) for op in BUILDERS}
