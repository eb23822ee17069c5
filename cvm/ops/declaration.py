"""The parts of an op declaration, and the registry of all declarations.

An op is declared once, as a subclass of `Op` in the module of its family: name, inputs, outputs, attributes (with
ranges and defaults), labelled constraints C1.., shape rule, range rule, gas. All other code that must know
about an op - verifier, executors, catalogue, vectors, command line - reads the declaration. The kernels of an op are in
the executors, in modules of the same family.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

from cvm.errors import Invalid, Location
from cvm.limits import MAX_RANK
from cvm.ops.attributes import TypedAttributes, WrongAttribute
from cvm.ops.ranges import Range, Shape

__all__ = ["REGISTRY", "Call", "Constraint", "Input", "InputKind", "Op", "get", "op_set", "register"]

InputKind = Literal["tensor", "parameter"]


@dataclass(frozen=True, slots=True)
class Call:
    """One use of an op, as its rules see it: input shapes, typed attributes and, when proven, input ranges."""

    shapes: tuple[Shape, ...]
    attributes: Any
    ranges: tuple[Range, ...] = ()


@dataclass(frozen=True, slots=True)
class Input:
    """One input of an op. ``many`` stands for one or more tensors; a ``parameter`` is an int64 parameter constant."""

    name: str
    what: str
    kind: InputKind = "tensor"
    optional: bool = False
    many: bool = False


@dataclass(frozen=True, slots=True)
class Constraint:
    """A labelled rule on input shapes and attributes, or (``on`` = "ranges") on proven input ranges.

    The rules of an op are checked in order; a rule may rely on the earlier ones.
    """

    label: str
    text: str
    holds: Callable[[Call], bool]
    on: Literal["shapes", "ranges"] = "shapes"


class Op(ABC):
    """An op on int32 tensors. The docstring of the subclass says what it computes; see also the module's docstring."""

    name: ClassVar[str]
    family: ClassVar[str]
    source: ClassVar[str]
    """The text that defines the op: a section of the document, or this project's own definition."""
    op_set: ClassVar[int] = 1
    """The version of the op-set in which the op was added."""
    inputs: ClassVar[tuple[Input, ...]]
    outputs: ClassVar[tuple[str, ...]] = ("Y",)
    Attributes: ClassVar[type[TypedAttributes]] = TypedAttributes
    constraints: ClassVar[tuple[Constraint, ...]] = ()

    @property
    def extension(self) -> bool:
        """Whether the document has no such op."""
        return self.family in ("extension", "computed")

    @abstractmethod
    def shape(self, call: Call) -> tuple[Shape, ...]:
        """The output shapes of a call that satisfies the constraints on shapes."""

    @abstractmethod
    def range(self, call: Call) -> tuple[Range, ...]:
        """Proven ranges of the outputs of a call that satisfies all constraints; they may exceed int32."""

    def work(self, call: Call) -> int:
        """The largest number of elementary steps, for any data, besides reading each input and writing each output."""
        return 0

    def gas(self, call: Call) -> int:
        """The metered cost of one execution: 1, elements read, elements written, and work.

        It depends on shapes and attributes alone. It is a part of the op-set and never changes for a version of it.
        """
        moved = sum(math.prod(shape) for shape in (*call.shapes, *self.shape(call)))
        return 1 + moved + self.work(call)

    def arity(self) -> tuple[int, int | None]:
        """The least and the largest number of inputs (None: any number)."""
        least = sum(not spec.optional for spec in self.inputs)
        return least, None if any(spec.many for spec in self.inputs) else len(self.inputs)

    def input_kinds(self, count: int) -> tuple[InputKind, ...]:
        """The kind of each of ``count`` inputs."""
        if any(spec.many for spec in self.inputs):
            kind: InputKind = "tensor"
            return (kind,) * count
        return tuple(spec.kind for spec in self.inputs[:count])

    def parse(self, attributes: Mapping[str, Any], location: Location | None = None) -> TypedAttributes:
        """Typed attributes from plain values. Raises `Invalid` with code ``ops.<op>.attribute.<name>``."""
        given = dict(attributes)
        try:
            return self.Attributes(given)
        except WrongAttribute as wrong:
            found = f", found {given[wrong.name]!r}" if wrong.name in given else ""
            code = f"ops.{self.name}.attribute.{wrong.name}"
            raise Invalid(code, f"{self.name}: attribute {wrong.name}: {wrong.what}{found}", location) from None

    def check_arity(self, count: int, location: Location | None = None) -> None:
        """Require that the op can have ``count`` inputs. Raises `Invalid` with code ``ops.<op>.arity``."""
        least, largest = self.arity()
        if count < least or (largest is not None and count > largest):
            expected = f"{least}" if largest == least else f"{least} to {largest or 'any number'}"
            raise Invalid(f"ops.{self.name}.arity", f"{self.name} takes {expected} inputs, found {count}", location)

    def infer(self, call: Call, location: Location | None = None) -> tuple[Shape, ...]:
        """Output shapes, for input shapes of any rank and extents and attributes that `parse` gave.

        Raises `Invalid` with code ``ops.<op>.arity``, ``ops.<op>.shape`` (an input that no tensor can be) or
        ``ops.<op>.C<n>``, the violated rule; nothing else.
        """
        self.check_arity(len(call.shapes), location)
        for index, shape in enumerate(call.shapes):
            if not 1 <= len(shape) <= MAX_RANK or min(shape) < 1:
                raise Invalid(
                    f"ops.{self.name}.shape",
                    f"{self.name}: input {index} has shape {list(shape)}; a tensor has 1 to {MAX_RANK} dimensions, "
                    "each of extent 1 or more",
                    location,
                )
        self._check("shapes", call, location)
        return self.shape(call)

    def prove(self, call: Call, location: Location | None = None) -> tuple[Range, ...]:
        """Output ranges from proven input ranges. Raises `Invalid` with the label of a violated rule on ranges."""
        self._check("ranges", call, location)
        return self.range(call)

    def _check(self, on: Literal["shapes", "ranges"], call: Call, location: Location | None) -> None:
        for rule in self.constraints:
            if rule.on == on and not rule.holds(call):
                found = ", ".join(str(list(shape)) for shape in call.shapes)
                if on == "ranges":
                    found += "; intervals " + ", ".join(str(list(bounds.hull())) for bounds in call.ranges)
                values = "".join(f"; {key} = {value}" for key, value in call.attributes)
                raise Invalid(
                    f"ops.{self.name}.{rule.label}",
                    f"{self.name} requires ({rule.label}) {rule.text}; found shapes {found}{values}",
                    location,
                )


REGISTRY: dict[str, Op] = {}
"""All ops by name, in the order of the document."""

_O = TypeVar("_O", bound=type[Op])


def register(declaration: _O) -> _O:
    """A class decorator that enters an op into the registry."""
    op = declaration()
    if op.name in REGISTRY:
        raise ValueError(f"op {op.name} is declared twice")
    REGISTRY[op.name] = op
    return declaration


def op_set(names: Iterable[str]) -> int:
    """The least version of the op-set that has these ops, at least 1. Names that are no ops are ignored."""
    return max((REGISTRY[name].op_set for name in names if name in REGISTRY), default=1)


def get(name: str, location: Location | None = None) -> Op:
    """The op called ``name``. Raises `Invalid` (code ``ops.unknown``)."""
    if name not in REGISTRY:
        raise Invalid("ops.unknown", f"there is no op {name!r}", location)
    return REGISTRY[name]
