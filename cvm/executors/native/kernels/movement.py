"""Ops that only move elements: their result is another view of the same home, or parts are copied into it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from cvm.executors.native.plan.claims import Joins
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import OpPlan, Planning
from cvm.executors.native.plan.view import View
from cvm.ops.axes import normal
from cvm.program.model import Node

__all__ = ["PLANS"]


def _view(change: Callable[[Planning, Node, View], View | None]) -> OpPlan:
    """The plan of an op whose result is another view of its input.

    ``change`` makes the view. Where it returns None, the input is copied row-major first.
    """

    def plan(planner: Planning, node: Node) -> None:
        home = planner.home(node.inputs[0])
        view = change(planner, node, home.view)
        if view is None:
            home = planner.rearranged(home)
            view = change(planner, node, home.view)
        assert view is not None
        target = replace(home, view=view, border=(0, 0))
        planner.view(node, home, target)

    return OpPlan(plan, placeable=False)


def _reshape(planner: Planning, node: Node, view: View) -> View | None:
    return view.reshaped(node.outputs[0].shape)


def _transpose(planner: Planning, node: Node, view: View) -> View | None:
    axes = planner.call_of(node).attributes.axes or tuple(reversed(range(len(view.axes))))
    return view.transposed(normal(axes, len(view.axes)))


def _slice(planner: Planning, node: Node, view: View) -> View | None:
    a = planner.call_of(node).attributes
    current: View | None = view
    for axis, extent in enumerate(view.shape):
        begin, end, step = (given[axis] if axis < len(given) else None for given in (a.begin, a.end, a.strides))
        start, count, step = _range(extent, begin, end, step)
        if current is not None:
            current = current.sliced(axis, start, step, count)
    return current


def _range(extent: int, begin: int | None, end: int | None, stride: int | None) -> tuple[int, int, int]:
    """The first index, the number of indices and the step of a slice.

    The extent is added once to a negative bound; then both bounds are clipped to the axis.
    """
    stride = 1 if stride is None else stride
    lowest, highest = (0, extent) if stride > 0 else (-1, extent - 1)

    def clamped(bound: int) -> int:
        return min(max(bound + extent if bound < 0 else bound, lowest), highest)

    start, stop = clamped(0 if begin is None else begin), clamped(extent if end is None else end)
    return start, -((start - stop) // stride), stride


def _slice_like(planner: Planning, node: Node, view: View) -> View | None:
    like = planner.shape(node.inputs[1])
    axes = {axis % len(view.axes) for axis in planner.call_of(node).attributes.axes} or set(range(len(like)))
    current: View | None = view
    for axis in sorted(axes):
        if current is not None:
            current = current.sliced(axis, 0, 1, like[axis])
    return current


def _repeat(planner: Planning, node: Node, view: View) -> View | None:
    a = planner.call_of(node).attributes
    return view.repeated(a.axis % len(view.axes), a.repeats, each=True)


def _tile(planner: Planning, node: Node, view: View) -> View | None:
    reps = planner.call_of(node).attributes.reps
    rank = max(len(reps), len(view.axes))
    current = View(view.offset, ((),) * (rank - len(view.axes)) + view.axes)
    for axis, times in enumerate((1,) * (rank - len(reps)) + tuple(reps)):
        current = current.repeated(axis, times, each=False)
    return current


def _upsampling(planner: Planning, node: Node, view: View) -> View | None:
    scale = planner.call_of(node).attributes.scale
    return view.repeated(2, scale, each=True).repeated(3, scale, each=True)


def concatenate(planner: Planning, node: Node) -> None:
    """Copy the parts that were not computed inside the concatenation."""
    name = node.outputs[0].name
    axis = planner.call_of(node).attributes.axis % len(node.outputs[0].shape)
    target = planner.result(name)
    start = 0
    for part in node.inputs:
        extent = planner.shape(part)[axis]
        view = target.view.sliced(axis, start, 1, extent)
        assert view is not None
        part_home = Home(target.buffer, view, target.format)
        values = planner.constant(part)
        if planner.destination(part) == (name, axis, start):
            pass
        elif values is not None and bool((values == values.flat[0]).all()):
            planner.fill(part_home, int(values.flat[0]), name)
        else:
            planner.copy(planner.home(part), part_home, name)
        start += extent
    planner.claim(Joins(node, target))


PLANS = {
    "reshape": _view(_reshape),
    "flatten": _view(_reshape),
    "squeeze": _view(_reshape),
    "expand_dims": _view(_reshape),
    "transpose": _view(_transpose),
    "slice": _view(_slice),
    "slice_like": _view(_slice_like),
    "repeat": _view(_repeat),
    "tile": _view(_tile),
    "upsampling": _view(_upsampling),
    "concatenate": OpPlan(concatenate),
}
