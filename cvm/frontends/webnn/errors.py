"""The exceptions of the builder: they have the specification's names, and each is a cvm error with code and location.

Where JavaScript throws a TypeError, Python raises `MLTypeError`, which can be caught as TypeError or as ValueError.
"""

from __future__ import annotations

from cvm.errors import Invalid, Location, Unsupported

__all__ = ["InvalidStateError", "MLError", "MLTypeError", "NotSupportedError", "OperationError", "type_error"]


class MLError(RuntimeError):
    """Base class of the errors for which the specification does not throw a TypeError."""


class MLTypeError(Invalid, TypeError):
    """An argument breaks a rule of the specification: wrong type, data type, rank, shape or value."""


class InvalidStateError(Invalid, MLError):
    """The object can no longer be used: a builder that has built, or a graph or tensor that was destroyed."""


class NotSupportedError(Unsupported, MLError):
    """The graph is valid, but the integer machine does not run it; the message says what to do instead."""


class OperationError(Unsupported, MLError):
    """The graph is valid, but could not be built."""


def type_error(op: str, rule: str, message: str, label: str = "", operand: str | None = None) -> MLTypeError:
    """The error for a broken rule: ``[label] op: operand: message (WebNN section)``. ``rule`` ends its code."""
    from cvm.frontends.webnn.declarations import section

    prefix = f"[{label}] " if label else ""
    what = f"{operand}: " if operand else ""
    text = f"{prefix}{op}: {what}{message} (WebNN {section(op)})"
    return MLTypeError(f"webnn.{op}.{rule}", text, Location(tensor=operand, op=op))
