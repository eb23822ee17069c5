"""Small programs with state, for tests of executors that hold it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from cvm.program import Output, Program, ProgramBuilder

__all__ = ["PROGRAMS", "cache"]

ROWS, WIDTH, HEADS = 6, 5, 2


def _cache(builder: ProgramBuilder, lo: int = -100, hi: int = 100) -> tuple[str, str, str]:
    """A cache, what is written into it (an input), and the position."""
    x = builder.input("x", (HEADS, 1, WIDTH), lo, hi)
    state = builder.state("cache", builder.constant(np.zeros((HEADS, ROWS, WIDTH), np.int8), "empty"), lo, hi)
    position = builder.state("position", builder.constant([0], "begin"), 0, ROWS)
    (after,) = builder.add("broadcast_add", [position, builder.constant([1], "one")])
    (after,) = builder.add("clip", [after], {"a_min": 0, "a_max": ROWS})
    builder.update("position", after)
    return state, x, position


def cache(lo: int = -100, hi: int = 100) -> Program:
    """Rows are appended, and the new cache is summed."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder, lo, hi)
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (total,) = builder.add("sum", [new], {"axes": (2,)}, "total")
    builder.update("cache", new)
    return builder.build([Output("total", total)])


def read_before() -> Program:
    """The old cache is read before the row is written."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    (old,) = builder.add("sum", [state], {"axes": (1,)}, "old")
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (total,) = builder.add("sum", [new], {"axes": (1,)}, "total")
    builder.update("cache", new)
    return builder.build([Output("old", old), Output("total", total)])


def read_after() -> Program:
    """The old cache is read when the new one exists."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (difference,) = builder.add("elemwise_sub", [new, state], None, "difference")
    builder.update("cache", new)
    return builder.build([Output("difference", difference)])


def view_after() -> Program:
    """Another view of the old cache, made before, is read afterwards; a fused op reads another."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    (view,) = builder.add("transpose", [state], {"axes": (1, 0, 2)}, "view")
    (negative,) = builder.add("negative", [state], None, "negative")
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (turned,) = builder.add("transpose", [new], {"axes": (1, 0, 2)}, "turned")
    (difference,) = builder.add("elemwise_sub", [turned, view], None, "difference")
    (other,) = builder.add("elemwise_add", [new, negative], None, "other")
    builder.update("cache", new)
    return builder.build([Output("difference", difference), Output("other", other)])


def old_returned() -> Program:
    """The old cache, the new one and a view of the old one are outputs."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    (view,) = builder.add("reshape", [state], {"target_shape": (HEADS * ROWS, WIDTH)}, "view")
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    builder.update("cache", new)
    return builder.build([Output("old", state), Output("new", new), Output("view", view)])


def from_itself() -> Program:
    """The slice that is written is a part of the state, and the index is its element."""
    builder = ProgramBuilder()
    x = builder.input("x", (1,), 0, ROWS)
    state = builder.state("cache", builder.constant(np.arange(ROWS), "empty"), 0, ROWS)
    (part,) = builder.add("slice", [state], {"begin": (1,), "end": (4,)}, "part")
    (index,) = builder.add("slice", [state], {"begin": (0,), "end": (1,)}, "index")
    (new,) = builder.add("update_slice", [state, part, index], {"axis": 0}, "new")
    (y,) = builder.add("broadcast_add", [new, x], None, "y")
    builder.update("cache", new)
    return builder.build([Output("y", y)])


def shifted() -> Program:
    """States take the old values of others: a swap, a shift, an input, a constant, themselves."""
    builder = ProgramBuilder()
    x = builder.input("x", (3,), -9, 9)
    names = ["a", "b", "c", "d", "e", "f"]
    for index, name in enumerate(names):
        builder.state(name, builder.constant(np.arange(3) + index, f"{name}.initial"), -9, 9)
    constant = builder.constant([7, -7, 0], "constant")
    (view,) = builder.add("slice", ["b"], {"begin": (2,), "end": (-4,), "strides": (-1,)}, "turned")
    updates = {"a": "b", "b": "a", "c": x, "d": "c", "e": constant, "f": "f"}
    for name, update in updates.items():
        builder.update(name, update)
    (y,) = builder.add("elemwise_add", [view, "f"], None, "y")
    return builder.build([Output("y", y), *(Output(name, name) for name in names)])


def twice() -> Program:
    """One updated slice is the next value of two states."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    other = builder.state("other", "empty", -100, 100)
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (both,) = builder.add("elemwise_add", [new, other], None, "both")
    builder.update("cache", new)
    builder.update("other", new)
    return builder.build([Output("both", both)])


def joined() -> Program:
    """The new cache is a part of a concatenation."""
    builder = ProgramBuilder()
    state, x, position = _cache(builder)
    (new,) = builder.add("update_slice", [state, x, position], {"axis": 1}, "new")
    (whole,) = builder.add("concatenate", [new, x], {"axis": 1}, "whole")
    builder.update("cache", new)
    return builder.build([Output("whole", whole)])


def wide() -> Program:
    """Codes of 16 and of 32 bits, and several rows at once at a computed index."""
    builder = ProgramBuilder()
    x = builder.input("x", (2, 3), -30000, 30000)
    at = builder.input("at", (1,), -2, 9)
    medium = builder.state("medium", builder.constant(np.zeros((7, 3), np.int8), "empty"), -30000, 30000)
    large = builder.state("large", "empty", -(10**6), 10**6)
    (index,) = builder.add("broadcast_sub", [at, builder.constant([1], "one")], None, "index")
    (first,) = builder.add("update_slice", [medium, x, index], {"axis": 0}, "first")
    (second,) = builder.add("update_slice", [large, x, at], {"axis": 0}, "second")
    (y,) = builder.add("elemwise_add", [first, second], None, "y")
    builder.update("medium", first)
    builder.update("large", second)
    return builder.build([Output("y", y)])


PROGRAMS: dict[str, Callable[[], Program]] = {
    made.__name__: made
    for made in (cache, read_before, read_after, view_after, old_returned, from_itself, shifted, twice, joined, wide)
}
