"""The next step after an error, if its message does not name one: one line for people, below the message."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

from cvm.errors import CvmError, Malformed

__all__ = ["next_step"]


def next_step(error: CvmError) -> str | None:
    """The next step after an error; None if the message names it, or if there is only the obvious one."""
    found = _BY_CODE.get(error.code)
    if found is not None:
        return found(error) if callable(found) else found
    kind, _, rule = error.code.partition(".")
    if (
        isinstance(error, Malformed)
        and kind in _FILES
        and rule not in _OTHER_FILES
        and "expected a " not in error.message
    ):
        return f"The {kind} is damaged or cut off: copy the file again, or make it again."
    return None


_FILES = frozenset({"program", "receipt", "trace"})
_OTHER_FILES = frozenset({"file", "version"})
"""Beginnings of codes that do not mean a damaged file."""


def _document(error: CvmError) -> str | None:
    if (error.location.line, error.location.column) != (1, 1):
        return None
    return (
        "It was read as a document of NNEF, since it begins as no other model does: look whether it is the right file."
    )


def _empty(error: CvmError) -> str | None:
    if (error.location.line, error.location.column) != (1, 1):
        return None
    return "There is nothing in it: copy the file again, or export the model again."


def _kind(error: CvmError) -> str | None:
    if "begins with" not in error.message:  # else the file is of a known format, and the message has the next step
        return None
    return "Save the numbers as an array: numpy.save('x.npy', array); numpy.loadtxt reads them from text."


def _unreadable(error: CvmError) -> str | None:
    if not os.path.isdir(error.location.file or ""):
        return None
    return "Name a file in this folder; for each file in it as one item there is `cvm map PROGRAM FOLDER -o OUT`."


def _unwritable(error: CvmError) -> str | None:
    path = error.location.file or ""
    folder = os.path.dirname(path)
    if os.path.isdir(path):
        return "Name a file in this folder."
    if os.path.isfile(path) and "made a folder" in error.message:
        return "There is a file of this name: name another folder."
    return f"There is no folder {folder}: make it, or name another." if folder and not os.path.isdir(folder) else None


def _usage(error: CvmError) -> str | None:
    extra = re.search(r"unexpected extra arguments? ?\(?s?\)? ?\((.*)\)", error.message)
    if extra is None or not extra[1].endswith((".npy", ".npz", ".dat")):
        return None
    return f"Arrays are given with -i: -i {extra[1].split()[-1]}"


def _real(error: CvmError) -> str | None:
    if re.search("found -?(nan|NaN|inf)", error.message) is None:  # else an input that takes integers only got floats
        return None
    return "Look where it comes from; numpy.nan_to_num replaces NaN and infinities."


def _key(error: CvmError) -> str | None:
    return "`openssl genpkey -algorithm ed25519 -out key.pem` makes one." if "private" in error.message else None


_CONVERT = "Convert it before it is saved: array.astype('float32')."
_EXPORTED = "The model is damaged or cut off: copy the file again, or export it again."
_SAVED = "The file is damaged or cut off: copy it again, or save the arrays again with numpy.save or numpy.savez."
_BY_CODE: dict[str, str | Callable[[CvmError], str | None]] = {
    "array.archive": _SAVED,
    "array.dtype": _CONVERT,
    "array.kind": _kind,
    "array.length": _SAVED,
    "array.unreadable": _unreadable,
    "executors.capture": "`cvm inspect PROGRAM` lists the tensors.",
    "input.real": _real,
    "input.type": _CONVERT,
    "nnef.container.document": "A folder is a model with a graph.nnef in it; of ONNX and TFLite give the file itself.",
    "nnef.syntax.end": _empty,
    "nnef.syntax.token": _document,
    "onnx.bytes": _EXPORTED,
    "output.unwritable": _unwritable,
    "program.interval": "The program was changed after it was made: copy the file again, or make it again.",
    "sign.key": _key,
    "tflite.structure": _EXPORTED,
    "usage": _usage,
}
