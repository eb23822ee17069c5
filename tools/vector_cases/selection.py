"""Cases of the transform ops from take to where."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from tools.vector_cases.case import Cases, arange, filled, tensor
from tools.vector_cases.shapes import RANKS
from tools.vector_cases.stream import MAX, Stream

__all__ = ["FAMILY"]

TAKES = (
    # X, indices, axis
    ((4,), (3,), None), ((4,), (3,), 0), ((4,), (3,), -1), ((4,), (1,), 0), ((1,), (3,), 0), ((2, 3), (4,), None),
    ((2, 3), (2, 2), None), ((2, 3), (4,), 0), ((2, 3), (4,), 1), ((2, 3), (4,), -1), ((2, 3), (4,), -2),
    ((2, 3), (2, 2), 0), ((2, 3), (2, 2), 1), ((2, 3), (1, 3), -1), ((2, 3, 4), (5,), None), ((2, 3, 4), (3,), 0),
    ((2, 3, 4), (3,), 1), ((2, 3, 4), (3,), 2), ((2, 3, 4), (2, 1), 1), ((2, 3, 4), (2, 1, 2), -1),
    ((2, 3, 4), (2, 2), -3), ((1, 1), (1, 1, 1), 0), ((3, 1, 2), (2, 2), 1), ((2, 2, 2, 2), (3,), 2),
    ((2, 2, 2, 2), (2, 2), -4), ((3,), (1, 2, 1, 2, 1, 2, 1, 1), None), ((3,), (1, 2, 1, 2, 1, 2, 1, 1), 0),
    ((2, 1, 2, 1, 2, 1, 2, 1), (3,), 4), ((2, 1, 2, 1, 2, 1, 2, 1), (3,), None),
    ((1, 2, 1, 2), (2, 1, 2, 1, 2), 1),
)  # fmt: skip
"""Shapes and axes of take."""


def take(op: str) -> Cases:
    """Every axis; indices inside, at both ends, and far outside."""
    c = Cases(op)
    for index, (shape, at, axis) in enumerate(TAKES):
        attributes = {} if axis is None else {"axis": axis}
        extent = prod(shape) if axis is None else shape[axis]
        s = Stream(f"{op}/table_{index}")
        aim = f"{list(at)} positions of {list(shape)}, axis {axis}"
        x = s.spread(shape)
        c.value(f"inside_{index:02}", aim, x, s.spread(at, 0, extent - 1), **attributes)
        c.value(f"outside_{index:02}", f"{aim}, beyond both ends", x, s.spread(at, -2, extent + 1), **attributes)
    ends = tensor((8,), [-MAX, -5, -1, 0, 4, 5, 6, MAX])
    c.value("clamped", "indices clamped to both ends, never counted from the end", arange((5,), 100), ends)
    c.value("clamped_axis", "the same along an axis", arange((5, 2), 100), ends, axis=0)
    c.value("extremes", "the table holds the extremes", tensor((2,), [MAX, -MAX]), tensor((3,), [1, 0, 1]), axis=0)
    x, i = arange((2, 3)), arange((2,))
    c.refused("C1", "axis 2 of rank 2", x, i, axis=2)
    c.refused("C1", "axis -3 of rank 2", x, i, axis=-3)
    c.refused("C2", "a result of rank 9", arange((1, 1, 1, 1, 1)), arange((1, 1, 1, 1, 1)), axis=0)
    c.refused("attribute.axis", "a tuple is no axis", x, i, axis=(0,))
    c.refused("attribute.axis", "a boolean is no axis", x, i, axis=True)
    c.refused("attribute.mode", "an attribute that the op has not", x, i, axis=0, mode="wrap")
    c.refused("arity", "one input", x, axis=0)
    c.refused("arity", "three inputs", x, i, i)
    return c


def cvm_lut(op: str) -> Cases:
    """Tables of every rank, indices of every rank, beyond both ends."""
    c = Cases(op)
    for rank, shape in RANKS.items():
        s = Stream(f"{op}/table_rank_{rank}")
        aim = f"a table of rank {rank}"
        c.value(f"table_rank_{rank}", aim, s.spread(shape), s.spread((3, 2), 0, prod(shape) - 1))
        s = Stream(f"{op}/indices_rank_{rank}")
        c.value(f"indices_rank_{rank}", f"indices of rank {rank}", s.spread((9,)), s.spread(shape, -1, 9))
    for extent in (1, 2, 3, 5, 8, 16, 64, 255, 256):
        s = Stream(f"{op}/extent_{extent}")
        c.value(f"extent_{extent}", f"{extent} entries", s.spread((extent,)), s.spread((12,), -3, extent + 2))
        at = tensor((6,), [-MAX, -1, 0, extent - 1, extent, MAX])
        c.value(f"ends_{extent}", f"both ends of {extent} entries", s.spread((extent,)), at)
    for index in range(6):
        s = Stream(f"{op}/drawn_{index}")
        table = s.shape(s.between(2, 4))
        given = s.shape(s.between(1, 4))
        c.value(f"drawn_{index}", f"{list(given)} of {list(table)}", s.spread(table), s.spread(given, -1, prod(table)))
    c.value("square", "the table comes first, the indices second", tensor((3,), [2, 0, 1]), tensor((3,), [1, 2, 0]))
    x = arange((4,))
    c.refused("attribute.in_dim", "an attribute that the op has not", x, x, in_dim=4)
    c.refused("attribute.axis", "an attribute that the op has not", x, x, axis=0)
    c.refused("arity", "one input", x)
    c.refused("arity", "three inputs", x, x, x)
    return c


def expand_dims(op: str) -> Cases:
    """All indices of several shapes, from both ends."""
    c = Cases(op)
    for shape in ((3,), (2, 3), (2, 1, 3), (2, 3, 1, 2)):
        for axis in range(-len(shape) - 1, len(shape) + 1):
            count = (axis + len(shape) + 1) % 3 + 1
            x = Stream(f"{op}/{len(shape)}").spread(shape)
            aim = f"{count} new dimensions at {axis} of {list(shape)}"
            c.value(f"rank_{len(shape)}_at_{axis}".replace("-", "m"), aim, x, axis=axis, num_newaxis=count)
    for rank in (5, 6, 7):
        for axis in (0, -1, 2, rank, -rank - 1):
            x = Stream(f"{op}/{rank}").spread(RANKS[rank])
            name = f"rank_{rank}_at_{axis}".replace("-", "m")
            c.value(name, f"up to rank 8 at {axis}", x, axis=axis, num_newaxis=8 - rank)
    c.value("seven", "seven new dimensions", arange((3,)), axis=0, num_newaxis=7)
    x = arange((2, 3))
    c.refused("C1", "axis 3 of rank 2", x, axis=3, num_newaxis=1)
    c.refused("C1", "axis -4 of rank 2", x, axis=-4, num_newaxis=1)
    c.refused("C2", "a result of rank 9", x, axis=0, num_newaxis=7)
    for bad in (-1, 4097, True):
        c.refused("attribute.num_newaxis", f"num_newaxis = {bad}", x, axis=0, num_newaxis=bad)
    c.refused("attribute.axis", "axis is missing", x, num_newaxis=1)
    c.refused("attribute.axes", "an attribute that the op has not", x, axis=0, num_newaxis=1, axes=(0,))
    c.refused("arity", "no input", axis=0, num_newaxis=1)
    return c


def reshape(op: str) -> Cases:
    """Reshapes between shapes of equal size, of every rank."""
    c = Cases(op)
    groups = (
        ((12,), (3, 4), (4, 3), (2, 6), (2, 2, 3), (3, 1, 2, 2), (1, 12), (12, 1), (1, 2, 1, 3, 1, 2, 1, 1)),
        ((6,), (2, 3), (3, 2), (1, 6, 1), (1, 2, 3), (2, 1, 3, 1, 1)),
    )
    for shapes in groups:
        for index, shape in enumerate(shapes):
            for step in range(1, 4):
                target = shapes[(index + step) % len(shapes)]
                name = "_".join(map(str, shape)) + "_to_" + "_".join(map(str, target))
                c.value(
                    name, f"{list(shape)} to {list(target)}", Stream(f"{op}/{name}").spread(shape), target_shape=target
                )
    c.value("same", "the same shape", arange((2, 3)), target_shape=(2, 3))
    c.value("one", "one element", tensor((1,), [-MAX]), target_shape=(1, 1, 1, 1, 1, 1, 1, 1))
    x = arange((2, 3))
    c.refused("C1", "fewer elements", x, target_shape=(5,))
    c.refused("C1", "more elements", x, target_shape=(2, 2, 2))
    c.refused("C1", "a product that is 6 modulo 2^32 only", x, target_shape=(2**31 - 1, 2**31 - 1, 2**31 - 1, 3))
    for bad in ((), (0, 6), (-1, 3), (6, -1), (1,) * 9, 6):
        c.refused("attribute.target_shape", f"target_shape = {bad}", x, target_shape=bad)
    c.refused("attribute.target_shape", "target_shape is missing", x)
    c.refused("attribute.shape", "an attribute that the op has not", x, target_shape=(6,), shape=(6,))
    c.refused("arity", "no input", target_shape=(1,))
    return c


def squeeze(op: str) -> Cases:
    """No axes, all axes, some axes from both ends; nothing left; nothing to remove."""
    c = Cases(op)
    table: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
        ((3,), ()), ((1,), ()), ((1,), (0,)), ((1,), (-1,)), ((1, 1), ()), ((1, 1), (0,)), ((1, 1), (0, 1)),
        ((1, 1), (-1, 0)), ((2, 3), ()), ((1, 3), ()), ((1, 3), (0,)), ((1, 3), (-2,)), ((3, 1), ()), ((3, 1), (1,)),
        ((3, 1), (-1,)), ((2, 1, 3), ()), ((2, 1, 3), (1,)), ((2, 1, 3), (-2,)), ((1, 2, 1, 3), ()),
        ((1, 2, 1, 3), (0,)), ((1, 2, 1, 3), (2,)), ((1, 2, 1, 3), (0, 2)), ((1, 2, 1, 3), (2, 0)),
        ((1, 2, 1, 3), (-2, -4)), ((1, 2, 1, 3), (-2, 0)), ((1, 1, 2, 1), (1,)), ((1, 1, 2, 1), (3, 0)),
        ((1, 1, 1, 1), (1, 2)), ((1, 1, 1, 1), (0, 1, 2, 3)), ((2, 1, 2, 1, 2), ()), ((2, 1, 2, 1, 2), (3,)),
        ((2, 1, 2, 1, 2), (-4, 3)), ((1, 2, 1, 2, 1, 2), (4,)), ((1, 2, 1, 2, 1, 2), (4, 0)),
        ((2, 1, 1, 3, 1, 1, 2), (1, 5)), ((2, 1, 1, 3, 1, 1, 2), ()), ((1, 2, 1, 2, 1, 2, 1, 2), (0, 2, 4, 6)),
        ((1, 2, 1, 2, 1, 2, 1, 2), (-2, 2)), ((1, 1, 1, 1, 1, 1, 1, 1), ()), ((1, 1, 1, 1, 1, 1, 1, 2), (0, 1, 2, 3)),
        ((1, 1, 1, 1, 1, 1, 1, 1), (7, 0)), ((4, 1, 1), (2, 1)), ((4, 1, 1), (2,)),
    ]  # fmt: skip
    for index, (shape, axes) in enumerate(table):
        x = Stream(f"{op}/table_{index}").spread(shape)
        c.value(f"table_{index:02}", f"{list(shape)}, axes {list(axes)}", x, axes=axes)
    x = arange((1, 3))
    c.refused("C1", "axis 2 of rank 2", x, axes=(2,))
    c.refused("C1", "axis -3 of rank 2", x, axes=(0, -3))
    c.refused("C2", "an axis named twice", x, axes=(0, 0))
    c.refused("C2", "an axis named from both ends", x, axes=(0, -2))
    c.refused("C3", "an axis of extent 3", x, axes=(1,))
    c.refused("C3", "one of the axes has extent 3", x, axes=(0, -1))
    c.refused("attribute.axes", "an integer is no tuple", x, axes=0)
    c.refused("attribute.axis", "an attribute that the op has not", x, axes=(), axis=0)
    c.refused("arity", "two inputs", x, x, axes=())
    return c


def where(op: str) -> Cases:
    """Conditions of the same shape and of one dimension; conditions other than 0 and 1."""
    c = Cases(op)
    for rank, shape in RANKS.items():
        for label, cond in (("same", shape), ("rows", shape[:1])):
            if rank == 1 and label == "rows":
                continue
            s = Stream(f"{op}/{label}_{rank}")
            c.value(
                f"{label}_{rank}",
                f"{list(cond)} for {list(shape)}",
                s.tensor(cond, -1, 1),
                s.spread(shape),
                s.spread(shape),
            )
    for index in range(16):
        s = Stream(f"{op}/drawn_{index}")
        shape = tuple(s.between(1, 4) for _ in range(s.between(1, 4)))
        cond = s.choice((shape, shape[:1]))
        c.value(
            f"drawn_{index:02}",
            f"{list(cond)} for {list(shape)}",
            s.tensor(cond, -2, 2),
            s.spread(shape),
            s.spread(shape),
        )
    a, b = arange((2, 3), 1), arange((2, 3), -9)
    for index, x in enumerate((0, 1, -1, 2, MAX, -MAX, 2**30, 256, 2**24)):
        c.value(f"condition_{index}", f"{x} everywhere", filled((2, 3), x), a, b)
    c.value("square_rows", "rows, not columns", tensor((2,), [0, 1]), arange((2, 2)), arange((2, 2), -9))
    c.value("extremes", "extremes on both sides", tensor((2,), [1, 0]), filled((2,), MAX), filled((2,), -MAX))
    c.refused("C1", "A and B differ", tensor((2,), [0, 1]), a, arange((2, 2)))
    c.refused("C1", "A and B of equal size", a, a, arange((3, 2)))
    c.refused("C2", "a condition for columns", tensor((3,), [0, 1, 0]), a, b)
    c.refused("C2", "a condition that only broadcasts", tensor((2, 1), [0, 1]), a, b)
    c.refused("C2", "a scalar condition", tensor((1,), [1]), a, b)
    c.refused("attribute.axis", "an attribute that the op has not", a, a, b, axis=0)
    c.refused("arity", "two inputs", a, b)
    c.refused("arity", "four inputs", a, a, b, b)
    return c


FAMILY: dict[str, Callable[[str], Cases]] = {
    "take": take,
    "cvm_lut": cvm_lut,
    "expand_dims": expand_dims,
    "reshape": reshape,
    "squeeze": squeeze,
    "where": where,
}
"""For each op, the function that makes its cases."""
