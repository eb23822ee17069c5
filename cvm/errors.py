"""The errors of cvm: one class per verdict, each with a stable code and a location.

A caller distinguishes verdicts by class, a program by ``code`` (which never changes once released), a person by the
message: what was found, what was expected, and where.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from cvm.records import dataclass

__all__ = ["ClampWarning", "CvmError", "Invalid", "LimitExceeded", "Location", "Malformed", "Mismatch", "Unsupported"]


@dataclass(frozen=True, slots=True)
class Location:
    """Where an error was found; every part is optional. Lines and columns count from 1."""

    file: str | None = None
    line: int | None = None
    column: int | None = None
    tensor: str | None = None
    op: str | None = None

    def __str__(self) -> str:
        where = ":".join(str(part) for part in (self.file, self.line, self.column) if part is not None)
        what = [f"op {self.op}"] if self.op is not None else []
        if self.tensor is not None:
            what.append(f"tensor {self.tensor!r}")
        return ": ".join(part for part in (where, ", ".join(what)) if part)


class CvmError(ValueError):
    """Base of all errors that a user of cvm can cause.

    ``code`` is a dotted lower-case name, e.g. ``"ops.conv2d.C3"`` or ``"program.truncated"``.
    """

    exit_code = 3

    def __init__(self, code: str, message: str, location: Location | None = None) -> None:
        super().__init__(code, message, location)
        self.code = code
        self.message = message
        self.location = location or Location()
        self.expected: tuple[str, ...] = ()
        """The names that would be valid there, if they are known."""
        self.trace: tuple[Location, ...] = ()
        """The invocations that led to the error, innermost first: ``op`` is what was invoked there."""
        self.others: tuple[CvmError, ...] = ()
        """Independent errors that were found with this one."""

    @property
    def errors(self) -> tuple[CvmError, ...]:
        """All independent errors that were found together, this one first."""
        return (self, *self.others)

    def __str__(self) -> str:
        where = str(self.location)
        return f"{where}: {self.message} [{self.code}]" if where else f"{self.message} [{self.code}]"

    def at(self, **parts: Any) -> CvmError:
        """The same error with the missing parts of its location filled in from ``parts``."""
        known = asdict(self.location)
        self.location = replace(self.location, **{k: v for k, v in parts.items() if known[k] is None})
        for error in self.others:
            error.at(file=parts.get("file"))
        return self

    def to_json(self) -> dict[str, Any]:
        """The error as the JSON object that every command prints under ``--json``."""
        where = {key: value for key, value in asdict(self.location).items() if value is not None}
        return {"class": type(self).__name__, "code": self.code, "message": self.message, "location": where}


class Malformed(CvmError):
    """Bytes or text that do not have the format."""


class Invalid(CvmError):
    """Well-formed, but breaks a rule; the code ends in the label of the rule."""


class Unsupported(CvmError):
    """Valid, but not supported by this version."""


class LimitExceeded(CvmError):
    """Within the rules, but larger than the limits profile allows; detected before anything is allocated."""

    exit_code = 4


class Mismatch(CvmError):
    """Two results that must be equal are not."""

    exit_code = 1


class ClampWarning(UserWarning):
    """Real numbers for an input were outside the range of its quantiser and were clipped to it."""
