"""Errors for arguments of the wrong type; each says what to pass instead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from cvm.errors import Invalid

__all__ = ["checked_arrays", "checked_path", "expected"]


def expected(name: str, what: str, found: object) -> Invalid:
    """The error for an argument of the wrong type: `Invalid` (``argument.<name>``)."""
    return Invalid(f"argument.{name}", f"expected {what}, found {_said(found)}")


def checked_path(path: object, what: str) -> str:
    """The path as text. Raises `Invalid` (``argument.path``) for an object that is no path."""
    if not isinstance(path, str | os.PathLike):
        raise expected("path", f"the path of {what}", path)
    return os.fsdecode(path)


def checked_arrays(arrays: object, names: list[str]) -> Mapping[str, Any]:
    """Arrays by the names of the inputs. Raises `Invalid` (``argument.inputs``) for anything but a mapping."""
    if not isinstance(arrays, Mapping):
        example = ", ".join(f"{name!r}: array" for name in names)
        raise expected("inputs", f"arrays by the names of the inputs, {{{example}}}", arrays)
    return arrays


def _said(found: object) -> str:
    """An object in words: its type, and its value if that is short."""
    kind = type(found)
    name = kind.__name__ if kind.__module__ in ("builtins", "numpy") else f"{kind.__module__}.{kind.__name__}"
    short = found is None or isinstance(found, bool | int | float) or (isinstance(found, str) and len(found) < 40)
    return f"{found!r}" if short else f"an object of type {name}"
