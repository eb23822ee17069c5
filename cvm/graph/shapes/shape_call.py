"""The arguments and the results of shape rules, and the table of all rules.

Source: NNEF 1.0.1 chapter 4. A rule checks the arguments of one operation ("Argument validity") and gives the shapes of
its results ("Result semantics"); the modules of this package mirror the sections of the chapter.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from cvm.errors import Invalid
from cvm.limits import DEFAULT, MAX_RANK, Limits, require
from cvm.records import dataclass

__all__ = ["RULES", "Results", "Rule", "Shape", "ShapeCall", "rule"]

Shape: TypeAlias = tuple[int, ...]
Results: TypeAlias = "tuple[Shape | list[Shape], ...]"
"""One entry per declared result: its shape, or a list of shapes where the result is an array of tensors."""


@dataclass(frozen=True, slots=True)
class ShapeCall:
    """One invocation: shapes of tensor arguments (``()`` for a literal) and concrete attributes, by parameter name."""

    name: str
    shapes: Mapping[str, Any]
    attributes: Mapping[str, Any]
    limits: Limits = DEFAULT
    wide_bias: bool = False
    """Whether a convolution may have a bias for each element of a result. Graphs allow it; NNEF
    text cannot express it.
    """

    def shape(self, parameter: str) -> Shape:
        """The shape of a tensor argument."""
        shape: Shape = self.shapes[parameter]
        return shape

    def array(self, parameter: str) -> Sequence[Shape]:
        """The shapes of an array of tensors."""
        shapes: Sequence[Shape] = self.shapes[parameter]
        return shapes

    def integers(self, parameter: str) -> tuple[int, ...]:
        """The value of an attribute of type ``integer[]``."""
        value: tuple[int, ...] = self.attributes[parameter]
        return value

    def integer(self, parameter: str) -> int:
        """The value of an attribute of type ``integer``."""
        value: int = self.attributes[parameter]
        return value

    def invalid(self, rule: str, message: str) -> Invalid:
        """The error for an argument that the operation does not admit."""
        return Invalid(f"nnef.argument-validity.{rule}", message)

    def conflict(self, rule: str, message: str) -> Invalid:
        """The error for shapes that do not agree, or that give no valid result."""
        return Invalid(f"nnef.shapes.{rule}", message)

    def one_of(self, parameter: str, *allowed: str) -> str:
        """The value of a string attribute, which must be one of ``allowed``. Raises `Invalid` for any other."""
        value: str = self.attributes[parameter]
        if value not in allowed:
            wanted = ", ".join(repr(word) for word in allowed)
            raise self.invalid(parameter, f"{parameter} must be one of {wanted}, found {value!r}")
        return value

    def accuracy(self) -> None:
        """Check the attribute ``accuracy`` where it is given: graphs have it, NNEF does not."""
        if "accuracy" in self.attributes:
            self.one_of("accuracy", "default", "fine")

    def axes(self, rank: int, parameter: str = "axes") -> tuple[int, ...]:
        """A list of distinct axes of a tensor of ``rank``. Raises `Invalid`."""
        axes = self.integers(parameter)
        for axis in axes:
            if not 0 <= axis < rank:
                raise self.invalid(parameter, f"{parameter}: {axis} is not an axis of a tensor of rank {rank}")
        if len(set(axes)) != len(axes):
            raise self.invalid(parameter, f"{parameter}: an axis is listed twice in {list(axes)}")
        return axes

    def axis(self, rank: int) -> int:
        """The attribute ``axis``, an axis of a tensor of ``rank``. Raises `Invalid`."""
        axis = self.integer("axis")
        if not 0 <= axis < rank:
            raise self.invalid("axis", f"axis {axis} is outside of rank {rank}")
        return axis

    def positive(self, parameter: str, count: int | None = None) -> tuple[int, ...]:
        """A list of positive integers, with ``count`` items where ``count`` is given. Raises `Invalid`."""
        items = self.integers(parameter)
        if count is not None and len(items) != count:
            raise self.invalid(parameter, f"{parameter} must have {count} items, found {len(items)}")
        if any(item <= 0 for item in items):
            raise self.invalid(parameter, f"items of {parameter} must be positive, found {list(items)}")
        return items

    def new_shape(self) -> Shape:
        """The attribute ``shape`` of an operation that introduces a tensor."""
        require("rank", len(self.integers("shape")), MAX_RANK, "rank")
        return self.positive("shape")

    def repeat(self, shape: Shape, times: int) -> list[Shape]:
        """The shapes of an array of ``times`` equal results. Raises `LimitExceeded` above the limit on results."""
        require("expansion", times, self.limits.expansion, "results")
        return [shape] * times

    def broadcast(self, *shapes: Shape) -> Shape:
        """The shape that operands broadcast to: axes are aligned from axis 0 on, missing trailing ones have extent 1
        (4.2.2).
        """
        rank = max(map(len, shapes), default=0)
        padded = [shape + (1,) * (rank - len(shape)) for shape in shapes]
        return tuple(self._extent(axis, [shape[axis] for shape in padded]) for axis in range(rank))

    def _extent(self, axis: int, extents: Sequence[int]) -> int:
        wide = sorted({extent for extent in extents if extent != 1})
        if len(wide) > 1:
            raise self.conflict("broadcast", f"extents {wide[0]} and {wide[1]} in dimension {axis} do not broadcast")
        return wide[0] if wide else 1


@dataclass(frozen=True, slots=True)
class Rule:
    """The shape function of one operation and the section that defines it."""

    section: str
    function: Callable[[ShapeCall], Results]


RULES: dict[str, Rule] = {}
"""All shape rules by operation, filled when the modules of this package are imported."""


def rule(section: str, *names: str) -> Callable[[Callable[[ShapeCall], Results]], Callable[[ShapeCall], Results]]:
    """Register a function as the shape rule of the named operations of a section."""

    def register(function: Callable[[ShapeCall], Results]) -> Callable[[ShapeCall], Results]:
        for name in names:
            if name in RULES:
                raise AssertionError(f"two shape rules for {name}")
            RULES[name] = Rule(section, function)
        return function

    return register
