"""Verdicts on documents: NNEF 1.0.1 chapter 6."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from cvm.errors import CvmError
from cvm.frontends.nnef.container import open_container
from cvm.frontends.nnef.faults import RULE_SECTIONS, SECTIONS, exhaustion, verdict_class
from cvm.frontends.nnef.loader import Quantization, read_flat, read_headers, read_quantizers
from cvm.frontends.nnef.shapes import RULES
from cvm.limits import Limits

__all__ = ["CheckReport", "check_container"]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """What `cvm.frontends.nnef.check` found.

    When ``valid`` is false, ``class_`` names the kind of violation, ``section`` the section of NNEF 1.0.1 that has the
    rule, and ``error`` is the whole error. ``shapes`` has the tensors of the graph body whose shapes are known.
    """

    path: str
    valid: bool
    class_: str | None = None
    section: str | None = None
    line: int | None = None
    column: int | None = None
    message: str | None = None
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    error: CvmError | None = field(default=None, compare=False)

    def to_json(self) -> dict[str, Any]:
        """One entry of ``results`` of ``cvm nnef check --json``."""
        return {
            "path": self.path,
            "valid": self.valid,
            "class": self.class_,
            "section": self.section,
            "line": self.line,
            "column": self.column,
            "message": self.message,
            "shapes": {name: list(shape) for name, shape in self.shapes.items()},
        }


def check_container(path: str | os.PathLike[str], quant: Quantization, limits: Limits) -> CheckReport:
    """See `cvm.frontends.nnef.check`."""
    shapes: dict[str, tuple[int, ...]] = {}
    try:
        with exhaustion(str(path)):
            container = open_container(path, limits, weights=False)
            flat, _ = read_flat(container, limits)
            for name, tensor in flat.exported.items():
                if tensor.shape is not None:
                    shapes[name] = tensor.shape
            read_quantizers(container, quant, flat, limits)
            read_headers(container, flat, limits)
    except CvmError as error:
        where = error.location
        return CheckReport(
            str(path), False, verdict_class(error), _section(error), where.line, where.column, str(error), shapes, error
        )
    return CheckReport(str(path), True, shapes=shapes)


def _section(error: CvmError) -> str | None:
    """The section of the rule that an error cites: the rule's own, its operation's, or that of its class."""
    if error.code in RULE_SECTIONS and error.location.op is None:
        return RULE_SECTIONS[error.code]
    name = verdict_class(error)
    if name in ("argument-validity", "shapes") and error.location.op in RULES:
        return RULES[error.location.op].section
    return SECTIONS.get(name)
