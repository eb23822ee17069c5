"""The report on an error, for people and for programs: its kind, its rule, its position, and the invocations before it.

Source: the kinds are the causes of rejection of NNEF 1.0.1 chapter 6.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from types import MappingProxyType
from typing import Any

from cvm.errors import CvmError, LimitExceeded, Location, Unsupported
from cvm.frontends.nnef.faults import KINDS, RULE_SECTIONS, SECTIONS, Kind, verdict_class
from cvm.graph.shapes import RULES
from cvm.records import dataclass

__all__ = ["PROVISIONAL_SECTIONS", "Diagnosis", "diagnose", "excerpt", "explained"]

PROVISIONAL_SECTIONS: Mapping[str, str] = MappingProxyType(
    {
        **SECTIONS,
        "fragment-definition": "3.3.1",
        "invocation": "3.3.1",
        "identifier-usage": "3.3.1",
        "types": "3.3.2",
    }
)
"""For each verdict class, the section of the provisional specification."""

_WIDTH = 100
"""The most characters of a source line in an excerpt."""
_TRACE = 8
"""The most invocations of fragments that are shown to a person."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One error, with everything that is known about it.

    ``kind`` is the cause of rejection of chapter 6, and ``class_`` a narrower class: for a semantic error one of its
    four sub-kinds. ``excerpt`` is the source line with a caret below the position; ``trace`` holds the invocations of
    fragments that led there, innermost first.
    """

    kind: Kind
    class_: str
    verdict: str
    code: str
    section: str | None
    location: Location
    message: str
    expected: tuple[str, ...]
    excerpt: str | None
    trace: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """One entry of ``errors`` of ``cvm nnef check --json``."""
        return {
            "kind": self.kind,
            "class": self.class_,
            "verdict": self.verdict,
            "code": self.code,
            "section": self.section,
            "line": self.location.line,
            "column": self.location.column,
            "message": self.message,
            "expected": list(self.expected),
            "excerpt": self.excerpt,
            "trace": list(self.trace),
        }

    @property
    def rule(self) -> str:
        """The kind and the class of the error, and the section with the rule."""
        what = self.kind if self.kind == self.class_ else f"{self.kind}, {self.class_}"
        return f"{what}, section {self.section}" if self.section else what

    @property
    def context(self) -> list[str]:
        """The excerpt and the invocations that led there, line by line."""
        lines = [] if self.excerpt is None else self.excerpt.splitlines()
        lines += [f"  {step}" for step in self.trace[:_TRACE]]
        if len(self.trace) > _TRACE:
            lines.append(f"  and {len(self.trace) - _TRACE} more")
        return lines

    def __str__(self) -> str:
        position = str(self.location)
        head = f"{position}: {self.message} ({self.rule})" if position else f"{self.message} ({self.rule})"
        return "\n".join([head, *self.context])


def diagnose(error: CvmError, text: str | None = None, sections: Mapping[str, str] = SECTIONS) -> Diagnosis:
    """The diagnosis of one error; ``text`` is the contents of the file with the error."""
    class_ = verdict_class(error)
    where = error.location
    kind: Kind = KINDS.get(class_, "other")
    if isinstance(error, LimitExceeded):
        kind = "limit"
    elif isinstance(error, Unsupported):
        kind = "unsupported"
    shown = None
    if text is not None and where.line is not None and where.column is not None:
        shown = excerpt(text, where.line, where.column)
    return Diagnosis(
        kind,
        class_,
        next(base.__name__ for base in type(error).__mro__ if base.__module__ == "cvm.errors"),
        error.code,
        _section(error, class_, sections),
        where,
        error.message,
        error.expected,
        shown,
        tuple(_steps(error)),
    )


def _steps(error: CvmError) -> Iterator[str]:
    """The invocations that led to an error; a repeated invocation, as of a recursion, is listed once with a count.

    An error inside of a library definition is reported at the invocation of that definition, which is not listed again.
    """
    trace, where = error.trace, error.location
    if trace and (trace[0].line, trace[0].column) == (where.line, where.column):
        yield f"in the definition of {trace[0].op}"
        trace = trace[1:]
    for (op, line, column), run in groupby((step.op, step.line, step.column) for step in trace):
        times = len(list(run))
        repeated = f" ({times} times)" if times > 1 else ""
        yield f"in fragment {op}, invoked at {line}:{column}{repeated}"


@contextmanager
def explained(text: str, sections: Mapping[str, str] = SECTIONS) -> Iterator[None]:
    """Add a note (`BaseException.add_note`) to errors in a text: the rule, the excerpt and the invocations."""
    try:
        yield
    except CvmError as error:
        for each in error.errors:
            found = diagnose(each, text, sections)
            if found.section is not None or found.context:
                each.add_note("\n".join([f"({found.rule})", *found.context]))
        if error.others:
            more = len(error.others)
            error.add_note(f"and {more} more error{'' if more == 1 else 's'}, which `cvm nnef check` lists")
        raise


def _section(error: CvmError, class_: str, sections: Mapping[str, str]) -> str | None:
    """The section of the rule that an error cites: that of the rule, of the operation, or of the class."""
    if error.code in RULE_SECTIONS and error.location.op not in RULES:
        return RULE_SECTIONS[error.code]
    if class_ in ("argument-validity", "shapes") and error.location.op in RULES:
        return RULES[error.location.op].section
    return sections.get(class_)


def excerpt(text: str, line: int, column: int) -> str | None:
    """A line of a text with its number, and a caret below one of its columns; a long line is shortened around it."""
    begin = 0
    for _ in range(line - 1):
        begin = text.find("\n", begin) + 1
        if begin == 0:
            return None
    end = text.find("\n", begin)
    source = text[begin : len(text) if end < 0 else end].rstrip("\r")
    first = max(0, column - 1 - _WIDTH // 2) if len(source) > _WIDTH else 0
    shown = "".join(c if c.isprintable() else " " for c in source[first : first + _WIDTH])
    left, right = "…" if first else "", "…" if first + _WIDTH < len(source) else ""
    margin = f"{line:5} | "
    return f"{margin}{left}{shown}{right}\n{' ' * (len(margin) - 2)}| {' ' * (len(left) + column - 1 - first)}^"
