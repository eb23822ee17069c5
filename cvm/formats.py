"""Which format a model has, by what its file begins with."""

from __future__ import annotations

import os
import stat
from typing import Literal, TypeAlias

__all__ = ["ModelFormat", "model_format"]

ModelFormat: TypeAlias = Literal["nnef", "onnx", "tflite"]

_TFLITE = slice(4, 8), b"TFL3"


def model_format(path: str | os.PathLike[str]) -> ModelFormat:
    """The format of a model: of TFLite by its identifier or ``.tflite``, of ONNX by ``.onnx``, of NNEF otherwise.

    A path that cannot be read has the format of its name; whoever reads it says what is wrong.
    """
    suffix = os.path.splitext(os.fspath(path))[1].lower()
    where, identifier = _TFLITE
    if suffix == ".tflite" or _first_bytes(path)[where] == identifier:
        return "tflite"
    return "onnx" if suffix == ".onnx" else "nnef"


def _first_bytes(path: str | os.PathLike[str]) -> bytes:
    """The first bytes of a regular file, none of anything else."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_TFLITE[0].stop)
    except (OSError, ValueError):
        return b""
