"""Shapes of tensor introducing operations and variable updates: NNEF 1.0.1 sections 4.1 and 4.8."""

from __future__ import annotations

import math
import re

from cvm.graph.shapes.shape_call import Results, ShapeCall, rule

__all__ = ["label_path"]

_LABEL = re.compile(r"[A-Za-z0-9_\-./\\]+")


def label_path(label: str) -> tuple[str, ...] | None:
    r"""The folders and the file name that a label stands for, or None where the label cannot name a file.

    Section 4.1.3 admits ``/`` and ``\``; both separate folders. A part that is empty, ``.`` or ``..`` names no file.
    """
    if not _LABEL.fullmatch(label):
        return None
    parts = tuple(label.replace("\\", "/").split("/"))
    return None if any(part in ("", ".", "..") for part in parts) else parts


@rule("4.1.1", "external")
def external(call: ShapeCall) -> Results:
    """The given shape, all extents positive."""
    return (call.new_shape(),)


@rule("4.1.2", "constant")
def constant(call: ShapeCall) -> Results:
    """The given shape; there is one value for each element, or one for all."""
    shape = call.new_shape()
    count = len(call.attributes["value"])
    if count != 1 and count != math.prod(shape):
        raise call.invalid("value", f"expected 1 value or {math.prod(shape)}, one per element; found {count}")
    return (shape,)


@rule("4.1.3", "variable")
def variable(call: ShapeCall) -> Results:
    """The given shape; the label names a file."""
    label = call.attributes["label"]
    if label_path(label) is None:
        message = "must consist of letters, digits, '_', '-' and '.', in parts separated by '/' or '\\'"
        raise call.invalid("label", f"the label {label[:80]!r} {message}")
    return (call.new_shape(),)


@rule("4.8", "update")
def update(call: ShapeCall) -> Results:
    """The shape of the variable, which the value must have."""
    shape, value = call.shape("variable"), call.shape("value")
    if shape != value:
        raise call.conflict("update", f"a value of shape {list(value)} cannot update a variable of shape {list(shape)}")
    return (shape,)
