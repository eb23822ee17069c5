"""Axes as attributes: a negative axis counts from the end."""

from __future__ import annotations

from collections.abc import Iterable

from cvm.ops.declaration import Call, Constraint

__all__ = ["axis_rule", "axis_rules", "inside", "normal"]


def inside(axes: Iterable[int], rank: int) -> bool:
    """Whether every axis is in [-rank, rank)."""
    return all(-rank <= axis < rank for axis in axes)


def normal(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """Axes in [-rank, rank) as numbers in [0, rank), in the given order."""
    return tuple(axis % rank for axis in axes)


def axis_rule(label: str) -> Constraint:
    """The rule on the attribute ``axis``."""
    return Constraint(label, "axis in [-N, N)", lambda c: inside((c.attributes.axis,), len(c.shapes[0])))


def _distinct(call: Call) -> bool:
    axes = normal(call.attributes.axes, len(call.shapes[0]))
    return len(set(axes)) == len(axes)


def axis_rules(first: str, second: str) -> tuple[Constraint, Constraint]:
    """The two rules on the attribute ``axes``."""
    return (
        Constraint(first, "every axis in [-N, N)", lambda c: inside(c.attributes.axes, len(c.shapes[0]))),
        Constraint(second, "no axis named twice", _distinct),
    )
