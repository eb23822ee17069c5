"""Operands that kernels of op-set 2 read along loops: homes with one stride for each axis, and elements in lanes."""

from __future__ import annotations

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.elements import encoded, load, store
from cvm.executors.native.emit.ir import Code, V
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.protocol import Planning

__all__ = ["lanes_of", "readable", "strides", "writable", "write"]


def readable(planner: Planning, name: str) -> Home:
    """Where a value lies, with one stride for each axis."""
    home = planner.home(name)
    if any(home.view.stride(axis) is None for axis in range(len(home.view.axes))):
        return planner.rearranged(home)
    return home


def writable(planner: Planning, name: str) -> Home:
    """The home of a result, which has one stride for each axis."""
    home = planner.result(name)
    assert all(home.view.stride(axis) is not None for axis in range(len(home.view.axes))), "results are no views"
    return home


def strides(home: Home, rank: int) -> list[int]:
    """The stride of every axis of a result of ``rank``, to which the value is broadcast: 0 where it repeats."""
    own = [home.view.stride(axis) or 0 for axis in range(len(home.view.axes))]
    return [0] * (rank - len(own)) + own


def lanes_of(code: Code, format_: Format, pointer: V, stride: int, count: int) -> V:
    """``count`` elements at a stride, in i32 (i64 if the format has 64 bits)."""
    if count == 1 or stride == 1:
        return load(code, format_, pointer, count)
    if stride == 0:
        return code.splat(load(code, format_, pointer, 1), count)
    apart = stride * format_.bytes
    return code.gathered([load(code, format_, code.at(pointer, k * apart), 1) for k in range(count)])


def write(code: Code, format_: Format, pointer: V, stride: int, value: V, count: int) -> None:
    """Store ``count`` elements, in i32, at a stride."""
    if count == 1 or stride == 1:
        store(code, format_, value, pointer)
        return
    raw = encoded(code, format_, value)
    for lane in range(count):
        code.store(code.extract(raw, lane), code.at(pointer, lane * stride * format_.bytes))
