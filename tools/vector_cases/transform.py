"""Cases of the transform ops, up to slice_like; the others are in `vector_cases.selection`."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

from tools.vector_cases.case import Cases, Tensor, arange, tensor
from tools.vector_cases.selection import FAMILY as SELECTION
from tools.vector_cases.shapes import RANKS
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

SHAPES = ((1,), (5,), (2, 3), (3, 1), (1, 4), (2, 1, 3), (1, 1, 1), (2, 3, 2), (1, 2, 1, 2), (2, 2, 1, 3))


def _text(items: tuple[int, ...]) -> str:
    """Integers, as a part of a name."""
    return "_".join(str(item).replace("-", "m") for item in items) or "none"


def repeat(op: str) -> Cases:
    """All axes of several shapes, from both ends."""
    c = Cases(op)
    for shape in (*SHAPES, RANKS[5], RANKS[6], RANKS[7], RANKS[8]):
        for axis in range(-len(shape), len(shape)):
            if len(shape) > 4 and axis not in (0, -1, len(shape) // 2, -len(shape)):
                continue
            repeats = (axis + len(shape)) % 4 + 1
            x = Stream(f"{op}/{_text(shape)}").spread(shape)
            name = f"{_text(shape)}_axis_{_text((axis,))}"
            c.value(name, f"{repeats} times along axis {axis} of {list(shape)}", x, axis=axis, repeats=repeats)
    c.value("many", "50 times", tensor((2,), [MAX, -MAX]), axis=0, repeats=50)
    x = arange((2, 3))
    c.refused("C1", "axis 2 of rank 2", x, axis=2, repeats=2)
    c.refused("C1", "axis -3 of rank 2", x, axis=-3, repeats=2)
    for bad in (0, -1, 2**31, True):
        c.refused("attribute.repeats", f"repeats = {bad}", x, axis=0, repeats=bad)
    c.refused("attribute.repeats", "repeats is missing", x, axis=0)
    c.refused("attribute.axis", "a tuple is no axis", x, axis=(0,), repeats=1)
    c.refused("attribute.axes", "an attribute that the op has not", x, axis=0, repeats=1, axes=(0,))
    c.refused("arity", "two inputs", x, x, axis=0, repeats=1)
    c.refused("limit.elements", "3 * 2^28 elements", arange((3,)), axis=0, repeats=2**28)
    c.refused("limit.extent", "an extent beyond 2^31 - 1", arange((3,)), axis=0, repeats=2**31 - 1)
    return c


def tile(op: str) -> Cases:
    """Reps that are as many as the dimensions, more, and fewer."""
    c = Cases(op)
    table = [
        ((3,), (1,)), ((3,), (4,)), ((1,), (5,)), ((3,), (2, 2)), ((3,), (3, 1)), ((2,), (2, 1, 3)), ((2, 3), (2,)),
        ((2, 3), (1,)), ((2, 3), (3, 1)), ((2, 3), (1, 2)), ((2, 3), (2, 3)), ((2, 3), (2, 1, 2)), ((1, 1), (2, 3)),
        ((3, 1), (2, 2)), ((1, 4), (3, 1)), ((2, 1, 3), (2,)), ((2, 1, 3), (2, 2)), ((2, 1, 3), (2, 3, 2)),
        ((2, 2, 2), (1, 1, 1)), ((2, 2, 2), (3, 1, 1)), ((2, 2, 2), (1, 3, 1)), ((2, 2, 2), (1, 1, 3)),
        ((2, 1), (2, 1, 1, 1, 2)), ((2, 1), (1, 2, 1, 1, 1, 1, 1, 2)), ((1,), (2, 1, 2, 1, 2, 1, 2, 1)),
        (RANKS[4], (2, 1)), (RANKS[4], (1, 2, 3, 1)), (RANKS[5], (3,)), (RANKS[5], (2, 1, 1, 2, 1)),
        (RANKS[6], (1, 2)), (RANKS[7], (2, 1, 1)), (RANKS[8], (3, 1)), (RANKS[8], (1, 1, 2, 1, 1, 3, 1, 1)),
    ]  # fmt: skip
    for index in range(14):
        s = Stream(f"{op}/drawn_{index}")
        table.append((s.shape(s.between(1, 4)), tuple(s.between(1, 3) for _ in range(s.between(1, 4)))))
    for index, (shape, reps) in enumerate(table):
        x = Stream(f"{op}/table_{index}").spread(shape)
        c.value(f"table_{index:02}", f"{list(shape)} by {list(reps)}", x, reps=reps)
    x = arange((2, 3))
    for bad in ((), (0,), (2, 0), (-1,), (4097,), (1,) * 9, 2):
        c.refused("attribute.reps", f"reps = {bad}", x, reps=bad)
    c.refused("attribute.reps", "reps is missing", x)
    c.refused("attribute.axis", "an attribute that the op has not", x, reps=(1,), axis=0)
    c.refused("arity", "no input", reps=(1,))
    c.refused("limit.elements", "2^36 elements", arange((1, 1)), reps=(4096, 4096, 4096))
    return c


def _every_shape(s: Stream, count: int) -> list[tuple[int, ...]]:
    """All ranks, the table, and drawn shapes; no shape twice."""
    shapes = [*RANKS.values(), *SHAPES]
    while len(shapes) < count:
        shape = s.shape(s.between(1, 8))
        if shape not in shapes:
            shapes.append(shape)
    return list(dict.fromkeys(shapes))


def flatten(op: str) -> Cases:
    """Shapes of every rank."""
    c = Cases(op)
    for shape in _every_shape(Stream(f"{op}/shapes"), 46):
        name = _text(shape)
        c.value(name, f"{list(shape)} in row-major order", Stream(f"{op}/{name}").spread(shape))
    x = arange((2, 3))
    c.refused("attribute.axis", "an attribute that the op has not", x, axis=1)
    c.refused("arity", "no input")
    c.refused("arity", "two inputs", x, x)
    return c


def concatenate(op: str) -> Cases:
    """One to five tensors along every axis, from both ends."""
    c = Cases(op)
    for shape in ((3,), (2, 3), (1, 2), (2, 1, 2), (2, 2, 1, 2), RANKS[5], RANKS[8]):
        for axis in range(-len(shape), len(shape)):
            if len(shape) > 4 and axis not in (0, -1, 3, -len(shape)):
                continue
            name = f"{_text(shape)}_axis_{_text((axis,))}"
            s = Stream(f"{op}/{name}")
            real = axis % len(shape)
            parts = [
                s.spread((*shape[:real], s.between(1, 3), *shape[real + 1 :]), -(10**9), 10**9)
                for _ in range(s.between(2, 5))
            ]
            c.value(name, f"{len(parts)} tensors along axis {axis}", *parts, axis=axis)
    for count in (1, 2, 3, 5, 8, 17):
        s = Stream(f"{op}/count_{count}")
        c.value(f"count_{count}", f"{count} tensors", *(s.spread((s.between(1, 3),)) for _ in range(count)), axis=0)
    x = arange((2, 3))
    c.value("same_twice", "one tensor twice", x, x, axis=1)
    c.refused("C1", "ranks differ", x, arange((2, 3, 1)), axis=0)
    c.refused("C2", "axis 2 of rank 2", x, x, axis=2)
    c.refused("C2", "axis -3 of rank 2", x, x, axis=-3)
    c.refused("C3", "another extent beside the axis", x, arange((2, 2)), axis=0)
    c.refused("C3", "the third input differs", x, x, arange((3, 3)), axis=1)
    c.refused("attribute.axis", "axis is missing", x, x)
    c.refused("attribute.axis", "a boolean is no axis", x, x, axis=True)
    c.refused("attribute.axes", "an attribute that the op has not", x, x, axis=0, axes=(0,))
    c.refused("arity", "no input", axis=0)
    return c


def transpose(op: str) -> Cases:
    """All permutations of three axes, many of four, negative axes, no axes."""
    c = Cases(op)
    for rank, shape in RANKS.items():
        c.value(f"reverse_{rank}", "no axes: the reverse order", Stream(f"{op}/reverse_{rank}").spread(shape), axes=())
    c.value("reverse_asymmetric", "no axes: the reverse order", arange((2, 3, 4)), axes=())
    for axes in permutations(range(3)):
        c.value(f"axes_{_text(axes)}", f"axes {list(axes)}", arange((2, 3, 4)), axes=axes)
    for axes in list(permutations(range(4)))[1::2]:
        c.value(f"axes_{_text(axes)}", f"axes {list(axes)}", arange((2, 3, 1, 4)), axes=axes)
    for index in range(16):
        s = Stream(f"{op}/drawn_{index}")
        rank = s.between(2, 8)
        axes = tuple(axis - rank * s.between(0, 1) for axis in s.shuffled(range(rank)))
        c.value(f"drawn_{index:02}", f"axes {list(axes)}", s.spread(s.shape(rank)), axes=axes)
    x = arange((2, 3, 4))
    c.refused("C1", "two axes of rank 3", x, axes=(0, 1))
    c.refused("C1", "four axes of rank 3", x, axes=(0, 1, 2, 0))
    c.refused("C2", "axis 3 of rank 3", x, axes=(0, 1, 3))
    c.refused("C2", "axis -4 of rank 3", x, axes=(-4, 1, 2))
    c.refused("C3", "an axis named twice", x, axes=(0, 1, 1))
    c.refused("C3", "an axis named from both ends", x, axes=(0, 2, -1))
    c.refused("attribute.axes", "nine axes", x, axes=tuple(range(9)))
    c.refused("attribute.axes", "an integer is no tuple", x, axes=0)
    c.refused("attribute.axis", "an attribute that the op has not", x, axes=(), axis=0)
    c.refused("arity", "no input", axes=())
    return c


def _selected(n: int, begin: int, end: int, stride: int) -> int:
    """How many of n elements a slice with explicit entries selects, counted one by one."""
    low, high = (0, n) if stride > 0 else (-1, n - 1)
    first, last = (max(low, min(bound + n if bound < 0 else bound, high)) for bound in (begin, end))
    return len(range(first, last, stride))


def slice_(op: str) -> Cases:
    """Begins, ends and strides of all kinds on one axis; missing entries; several axes."""
    c = Cases(op)

    def add(name: str, aim: str, x: Tensor, begin: Any = (), end: Any = (), strides: Any = ()) -> None:
        c.value(name, aim, x, begin=begin, end=end, strides=strides)

    x = arange((5,), 10)
    add("all_missing", "no entries: everything", x)
    add("empty_strides", "no strides", x, (1,), (4,))
    add("empty_begin", "no begin", x, (), (3,), (2,))
    add("empty_end", "no end", x, (2,), (), (2,))
    for begin, end, stride in (
        (0, 5, 1), (0, 6, 1), (0, 2**31 - 1, 1), (-5, 5, 1), (-6, 5, 1), (-(2**31), 5, 1), (1, -1, 1), (-3, -1, 1),
        (4, 5, 1), (-1, 5, 1), (0, 5, 2), (0, 4, 2), (1, 5, 2), (0, 5, 3), (0, 5, 4), (0, 5, 5), (0, 5, 6),
        (0, 5, 2**31 - 1), (4, -6, -1), (4, -7, -1), (4, -(2**31), -1), (5, -6, -1), (9, -6, -1), (-1, -6, -1),
        (4, 0, -1), (4, -5, -1), (3, -4, -1), (2, 1, -1), (4, -6, -2), (3, -6, -2), (4, -6, -3), (4, -6, -4),
        (4, -6, -5), (4, -6, -6), (4, 1, -2), (-1, -5, -3), (0, -6, -1), (4, -6, -(2**31)), (0, -4, 1), (-2, 7, 3),
    ):  # fmt: skip
        name = f"{_text((begin, end, stride))}"
        add(name, f"{begin} up to {end} by {stride} of 5", x, (begin,), (end,), (stride,))
    for index in range(24):
        s = Stream(f"{op}/drawn_{index}")
        shape = tuple(s.between(1, 5) for _ in range(s.between(1, 4)))
        entries = []
        for n in shape:
            options = [
                (begin, end, stride)
                for begin in range(-n - 1, n + 2)
                for end in range(-n - 2, n + 2)
                for stride in (-3, -2, -1, 1, 2, 3)
                if _selected(n, begin, end, stride) > 0
            ]
            entries.append(s.choice(options))
        begins, ends, strides = zip(*entries, strict=True)
        add(f"drawn_{index:02}", f"{list(shape)}", s.spread(shape), begins, ends, strides)
    add("backwards_without_begin", "a missing begin is 0, backwards too", x, (), (-6,), (-1,))
    y = arange((2, 3, 4))
    add("fewer_entries", "entries for the first axis only", y, (1,), (2,), (1,))
    add("lengths_differ", "B, E and S differ", y, (0, 1), (2,), (1, 1, 2))
    add("strides_alone", "strides without begin and end", y, (), (), (2, 1, 3))
    add("ends_alone", "ends only", y, (), (1, 2, -1), ())
    add("rank_8", "rank 8", Stream(f"{op}/rank_8").spread(RANKS[8]), (0, -1), (1, 3), (1, 2))
    none: dict[str, Any] = {"begin": (), "end": (), "strides": ()}
    c.refused("C1", "two begins of rank 1", x, **{**none, "begin": (0, 0)})
    c.refused("C1", "two ends of rank 1", x, **{**none, "end": (5, 1)})
    c.refused("C1", "two strides of rank 1", x, **{**none, "strides": (1, 1)})
    c.refused("C2", "stride 0", x, **{**none, "strides": (0,)})
    c.refused("C3", "begin = end", x, **{**none, "begin": (2,), "end": (2,)})
    c.refused("C3", "begin beyond the end", x, **{**none, "begin": (5,)})
    c.refused("C3", "backwards without begin and end", x, **{**none, "strides": (-1,)})
    c.refused("C3", "an end of -1 is the last element", x, begin=(4,), end=(-1,), strides=(-1,))
    c.refused("C3", "the second axis is empty", y, **{**none, "begin": (0, 2), "end": (2, 1)})
    c.refused("attribute.begin", "nine entries", x, **{**none, "begin": (0,) * 9})
    c.refused("attribute.end", "an integer is no tuple", x, **{**none, "end": 3})
    c.refused("attribute.strides", "beyond 32 bits", x, **{**none, "strides": (2**31,)})
    c.refused("attribute.stride", "an attribute that the op has not", x, **none, stride=(1,))
    c.refused("arity", "two inputs", x, x, **none)
    return c


def slice_like(op: str) -> Cases:
    """Without axes, with axes from both ends, other ranks, extents that stay."""
    c = Cases(op)
    table: list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]] = [
        ((5,), (3,), ()), ((5,), (5,), ()), ((5,), (1,), (0,)), ((3, 4), (2, 3), ()), ((3, 4), (3, 4), ()),
        ((3, 4), (1, 1), ()), ((3, 4), (2, 9), (0,)), ((3, 4), (9, 2), (1,)), ((3, 4), (9, 2), (-1,)),
        ((3, 4), (2, 9), (-2,)), ((3, 4), (2, 3), (0, 1)), ((3, 4), (2, 3), (1, 0)), ((3, 4), (2, 3), (-1, 0)),
        ((3, 4), (2,), (0,)), ((3, 4), (2, 3, 7), (0, 1)), ((3, 4), (2, 3, 7), (1,)), ((3, 4), (9, 3, 1), (-1,)),
        ((2, 3, 4), (1, 2, 3), ()), ((2, 3, 4), (9, 2, 9), (1,)), ((2, 3, 4), (1, 9, 2), (2, 0)),
        ((2, 3, 4), (2,), (0,)), ((2, 3, 4), (1, 2), (1,)), ((2, 3, 4), (1, 2), (0, 1)), ((2, 3, 4), (1, 2), (-3, -2)),
        (RANKS[4], (1, 2, 1, 1), ()), (RANKS[4], (9, 2), (1,)), (RANKS[5], (1, 1, 2, 1, 2), (-1, 1)),
        (RANKS[6], RANKS[8], (0,)), (RANKS[7], (1, 1, 1, 1, 2, 1, 1), ()), (RANKS[8], (1, 1), (1,)),
    ]  # fmt: skip
    for index in range(14):
        s = Stream(f"{op}/drawn_{index}")
        shape = s.shape(s.between(1, 4), 4)
        like = tuple(s.between(1, n) for n in shape)
        sliced = [axis - len(shape) * s.between(0, 1) for axis in range(len(shape)) if s.between(0, 1)]
        table.append((shape, like, tuple(s.shuffled(sliced))))
    for index, (shape, like, axes) in enumerate(table):
        s = Stream(f"{op}/table_{index}")
        aim = f"{list(shape)} like {list(like)}, axes {list(axes)}"
        c.value(f"table_{index:02}", aim, s.spread(shape), s.tensor(like, -MAX, MAX), axes=axes)
    x = arange((3, 4))
    c.refused("C1", "fewer dimensions without axes", x, arange((2,)), axes=())
    c.refused("C1", "more dimensions without axes", x, arange((2, 3, 1)), axes=())
    c.refused("C2", "axis 2 of rank 2", x, arange((1, 1, 1)), axes=(2,))
    c.refused("C2", "axis -3 of rank 2", x, arange((1, 1, 1)), axes=(-3,))
    c.refused("C3", "an axis named twice", x, arange((1, 1)), axes=(1, -1))
    c.refused("C4", "an axis that shape_like has not", x, arange((3,)), axes=(1,))
    c.refused("C5", "a larger extent", x, arange((3, 5)), axes=())
    c.refused("C5", "a larger extent on a cut axis", x, arange((4, 1)), axes=(0,))
    c.refused("attribute.axes", "an integer is no tuple", x, x, axes=0)
    c.refused("attribute.axis", "an attribute that the op has not", x, x, axes=(), axis=0)
    c.refused("arity", "one input", x, axes=())
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "repeat": repeat,
    "tile": tile,
    "flatten": flatten,
    "concatenate": concatenate,
    "transpose": transpose,
    "slice": slice_,
    "slice_like": slice_like,
    **SELECTION,
}
"""For each op, the function that makes its cases."""
