"""Construction of the errors of this front end.

The code of an error is ``nnef.<class>.<rule>``; the class is one of the verdict classes below, each of which belongs
to a section of NNEF 1.0.1 and to one of the kinds of chapter 6. Rules about arguments belong to the sections of their
operations.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Literal, Protocol

from cvm.errors import CvmError, Invalid, LimitExceeded, Location, Malformed, Unsupported

__all__ = [
    "KINDS",
    "MAX_ERRORS",
    "RULE_SECTIONS",
    "SECTIONS",
    "Kind",
    "collected",
    "exhaustion",
    "invalid",
    "location_of",
    "malformed",
    "too_large",
    "unsupported",
    "verdict_class",
]

SECTIONS = MappingProxyType(
    {
        "lexical": "3.1",
        "syntax": "3.2",
        "extension": "3.2",
        "fragment-definition": "3.3.2",
        "invocation": "3.3.2",
        "identifier-usage": "3.3.2",
        "types": "3.3.1",
        "argument-validity": "4",
        "shapes": "4",
        "container": "5.1",
        "tensor-file": "5.2",
        "quantization": "5.3",
    }
)
"""For each verdict class, the section of NNEF 1.0.1 that it belongs to."""

Kind = Literal["syntax", "semantic", "argument", "data", "limit", "unsupported", "other"]

KINDS: MappingProxyType[str, Kind] = MappingProxyType(
    {
        "lexical": "syntax",
        "syntax": "syntax",
        "extension": "syntax",
        "fragment-definition": "semantic",
        "invocation": "semantic",
        "types": "semantic",
        "identifier-usage": "semantic",
        "argument-validity": "argument",
        "shapes": "argument",
        "container": "data",
        "tensor-file": "data",
        "quantization": "data",
    }
)
"""For each verdict class, one of the four causes of rejection of chapter 6; "semantic" has four
classes as sub-kinds.
"""

MAX_ERRORS = 20
"""The most independent errors of one document that are reported together."""

_EXPRESSIONS = {
    "types": (
        "array-items",
        "branches",
        "builtin",
        "condition",
        "iterable",
        "operator",
        "subscript",
        "tuple-subscript",
    ),
    "argument-validity": ("cast", "division", "irrational", "lengths", "power", "repetition", "subscript"),
}

RULE_SECTIONS = MappingProxyType(
    {f"nnef.{name}.{rule}": "3.3.3" for name, rules in _EXPRESSIONS.items() for rule in rules}
    | {"nnef.shapes.count": "3.3.2"}
)
"""The sections of rules that differ from the section of their class, by code."""


class Placed(Protocol):
    """An object with a line and a column: a token, or a node of the syntax tree."""

    @property
    def line(self) -> int | None: ...
    @property
    def column(self) -> int | None: ...


def location_of(at: Placed | None, op: str | None = None, tensor: str | None = None) -> Location:
    """The location of a node; the caller that knows the file fills it in."""
    if at is None:
        return Location(op=op, tensor=tensor)
    return Location(line=at.line, column=at.column, op=op, tensor=tensor)


def malformed(rule: str, message: str, at: Placed | None = None, expected: Sequence[str] = ()) -> Malformed:
    """A `Malformed` error with code ``nnef.<rule>``; ``expected`` lists what the grammar admits at this position."""
    error = Malformed(f"nnef.{rule}", message, location_of(at))
    error.expected = tuple(expected)
    return error


def invalid(rule: str, message: str, at: Placed | None = None, op: str | None = None) -> Invalid:
    """An `Invalid` error with code ``nnef.<rule>``."""
    return Invalid(f"nnef.{rule}", message, location_of(at, op))


def unsupported(rule: str, message: str, at: Placed | None = None, op: str | None = None) -> Unsupported:
    """An `Unsupported` error with code ``nnef.<rule>``."""
    return Unsupported(f"nnef.{rule}", message, location_of(at, op))


def too_large(limit: str, message: str, at: Placed | None = None) -> LimitExceeded:
    """A `LimitExceeded` error with code ``limit.<limit>``."""
    return LimitExceeded(f"limit.{limit}", message, location_of(at))


def collected(errors: Sequence[CvmError]) -> CvmError:
    """Several independent errors as one: the first error, which carries the others."""
    first, *others = errors
    first.others = tuple(others)
    return first


def verdict_class(error: CvmError) -> str:
    """The verdict class of an error: a key of `SECTIONS`, or ``limit``, ``unsupported`` or ``other``."""
    parts = error.code.split(".")
    if parts[0] == "nnef" and parts[1] in SECTIONS:
        return parts[1]
    if isinstance(error, LimitExceeded):
        return "limit"
    return "unsupported" if isinstance(error, Unsupported) else "other"


@contextmanager
def exhaustion(file: str) -> Iterator[None]:
    """Convert the exhaustion of memory or stack to errors of cvm, and name the file in every error that names none.

    All sizes are checked before; this is for machines smaller than the limits, and for callers deep in their own stack.
    """
    try:
        yield
    except CvmError as error:
        raise error.at(file=file) from error.__cause__
    except RecursionError:
        raise LimitExceeded("limit.stack", "the call stack is exhausted", Location(file)) from None
    except MemoryError:
        raise LimitExceeded("limit.memory", "memory is exhausted", Location(file)) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("nnef.container.unreadable", message, Location(file)) from None
