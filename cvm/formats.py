"""The format of a file, recognised by its first bytes: models, files of cvm, and files given to cvm by mistake."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from typing import Literal, TypeAlias, cast

from cvm.errors import CvmError, Invalid, Location, Malformed
from cvm.records import dataclass

__all__ = ["FileFormat", "ModelFormat", "diagnosed", "mistaken", "model_format", "recognised", "refuse_folder"]

ModelFormat: TypeAlias = Literal["nnef", "onnx", "tflite"]

_SAMPLE = 512
"""How many bytes of a file are read."""


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A format: its key, the words for a file of it, and what to do with such a file."""

    key: str
    words: str
    next_step: str


_EXPORT = (
    'export the network from PyTorch, torch.onnx.export(model, (sample,), "model.onnx"), '
    "then `cvm quantize model.onnx -i DATA -o model.cvm`"
)
_CONVERT = (
    "convert it, tf.lite.TFLiteConverter.from_keras_model(model).convert(), and write the bytes to model.tflite, "
    "then `cvm quantize model.tflite -i DATA -o model.cvm`"
)
_MODEL = (
    "`cvm compile` makes a program of it, or `cvm quantize` where it has no quantisation "
    "(in Python cvm.compile, cvm.quantize_program)"
)
_CONVERT_SAVED = _CONVERT.replace("keras_model(model)", "saved_model(folder)")

_FORMATS = {
    found.key: found
    for found in (
        FileFormat("nnef", "a model of NNEF", _MODEL),
        FileFormat("onnx", "a model of ONNX", _MODEL),
        FileFormat("tflite", "a model of TFLite", _MODEL),
        FileFormat("cvm_runtime", "a JSON document", "`cvm compile GRAPH --params PARAMS` reads models of cvm-runtime"),
        FileFormat("program", "a program of cvm", "`cvm run`, `cvm inspect` and `cvm check` take it (cvm.load)"),
        FileFormat("language_model", "a language model of cvm", "`cvm generate` takes it"),
        FileFormat("receipt", "a receipt", "`cvm receipt verify` and `cvm receipt show` take it"),
        FileFormat("trace", "a trace of a run", "`cvm dispute` takes it"),
        FileFormat("step", "a proof of one step", "`cvm dispute verify-step` takes it"),
        FileFormat("vectors", "a file of vectors", "`cvm vectors check` takes its folder"),
        FileFormat("npy", "an array of NumPy", "give it to a command with -i"),
        FileFormat("npz", "an archive of arrays of NumPy", "give it to a command with -i"),
        FileFormat("parquet", "a Parquet file", "`cvm map` takes it as a data set"),
        FileFormat("tensor", "a tensor file of NNEF", "`cvm compile` takes the folder that it belongs to"),
        FileFormat("archive", "an archive", "a model of NNEF in a .tar or .tgz has its graph.nnef at the top"),
        FileFormat("torch", "a PyTorch file", _EXPORT),
        FileFormat("pickle", "a Python pickle, as old PyTorch files are", f"it is never opened here; {_EXPORT}"),
        FileFormat("keras", "a Keras model", _CONVERT),
        FileFormat("hdf5", "an HDF5 file, as Keras writes them", _CONVERT),
        FileFormat("saved_model", "a SavedModel of TensorFlow", _CONVERT_SAVED),
        FileFormat("tensorflow", "a graph of TensorFlow", _CONVERT_SAVED),
        FileFormat("safetensors", "weights without a network (safetensors)", _EXPORT),
        FileFormat("gguf", "weights of a language model (GGUF)", "cvm needs the network too: an ONNX or TFLite export"),
        FileFormat("ort", "a model in ONNX Runtime's own format", "use the .onnx file that it was made from"),
        FileFormat("openvino", "a network of OpenVINO", "use the ONNX or TFLite file that it was made from"),
        FileFormat("core_ml", "a Core ML model", "use the network that it was made from, as ONNX or TFLite"),
        FileFormat("picture", "a picture", "save its pixels as an array: numpy.save('image.npy', pixels)"),
        FileFormat("web_page", "a web page", "the download gave a page, not the file: look at the link"),
        FileFormat("lfs", "a pointer of Git LFS, not the file itself", "fetch the file: git lfs pull"),
        FileFormat("zip", "a zip archive", "unpack it and give the model in it"),
    )
}

_MAGIC = (
    (0, b"\x93\xabcvm-program", "program"),
    (0, b"\x93\xa9cvm-model", "language_model"),
    (0, b"\x93\xabcvm-receipt", "receipt"),
    (0, b"\x93\xa9cvm-trace", "trace"),
    (0, b"cvm1:step-proof\0", "step"),
    (0, b"\x94\xabcvm-vectors", "vectors"),
    (0, b"\x93NUMPY", "npy"),
    (0, b"N\xef", "tensor"),
    (4, b"TFL3", "tflite"),
    (4, b"ORTM", "ort"),
    (0, b"GGUF", "gguf"),
    (0, b"PAR1", "parquet"),
    (0, b"\x89HDF\r\n\x1a\n", "hdf5"),
    (0, b"\x1f\x8b", "archive"),
    (257, b"ustar", "archive"),
    (0, b"\x89PNG\r\n\x1a\n", "picture"),
    (0, b"\xff\xd8\xff", "picture"),
    (0, b"GIF8", "picture"),
    (0, b"BM", "picture"),
    (8, b"WEBP", "picture"),
    (0, b"version https://git-lfs", "lfs"),
)
"""An offset in a file, the bytes there, and the key of the format that has them."""

_ZIPS = (
    (b".npy", "npz"),
    (b"data.pkl", "torch"),
    (b"/byteorder", "torch"),
    (b"/version", "torch"),
    (b"/.format_version", "torch"),
    (b"metadata.json", "keras"),
    (b"config.json", "keras"),
    (b"model.weights.h5", "keras"),
)
"""Endings of the name of a zip archive's first member, each with the key of the format."""

_ONNX_FIELDS = b"\x12\x1a\x22\x28\x32\x3a\x42"
"""Tags of the ModelProto fields that may follow the version of the format."""

_SUFFIXES = {".onnx": "onnx", ".tflite": "tflite", ".mlmodel": "core_ml", ".pb": "tensorflow", ".cvm": "program"}

_OF_CVM = frozenset({"program", "language_model", "receipt", "trace", "step", "vectors"})
"""Formats of which every file begins with the same bytes."""

_READ_BY_NNEF = frozenset({"nnef", "archive", "tensor"})
"""The formats that the reader of NNEF gets; it has its own messages for errors in them."""


def recognised(path: str | os.PathLike[str]) -> FileFormat | None:
    """The format of a file or folder by its first bytes, else by its suffix; None if neither tells it.

    A file that cannot be read has the format of its name. Nothing is parsed, and nothing of the file is run.
    """
    name = os.fspath(path)
    if os.path.isdir(name):
        return _of_folder(name)
    start = _first_bytes(name)
    key = _by_bytes(start) or _SUFFIXES.get(os.path.splitext(name)[1].lower())
    return _FORMATS[key] if key is not None else None


def _of_folder(name: str) -> FileFormat | None:
    if os.path.isfile(os.path.join(name, "saved_model.pb")):
        return _FORMATS["saved_model"]
    if os.path.isfile(os.path.join(name, "Manifest.json")) and name.rstrip("/\\").endswith(".mlpackage"):
        return _FORMATS["core_ml"]
    return _FORMATS["nnef"] if os.path.isfile(os.path.join(name, "graph.nnef")) else None


def _by_bytes(start: bytes) -> str | None:
    for where, magic, key in _MAGIC:
        if start[where : where + len(magic)] == magic:
            return key
    if start[:4] == b"PK\x03\x04":
        member = start[30 : 30 + int.from_bytes(start[26:28], "little")]
        return next((key for end, key in _ZIPS if member.endswith(end)), "zip")
    if start[:1] == b"\x80" and start[1:2] in (b"\x02", b"\x03", b"\x04", b"\x05"):
        return "pickle"
    if len(start) > 2 and start[0] == 0x08 and 1 <= start[1] <= 32 and start[2] in _ONNX_FIELDS:
        return "onnx"
    if start[8:10] == b'{"' and int.from_bytes(start[:8], "little") < 2**32:
        return "safetensors"
    return _by_text(start.lstrip()[:200].lower())


def _by_text(text: bytes) -> str | None:
    if text.startswith((b"<!doctype html", b"<html")):
        return "web_page"
    if text.startswith((b"<?xml", b"<net ")) and b"<net " in text:
        return "openvino"
    return "cvm_runtime" if text.startswith(b"{") else None


def model_format(path: str | os.PathLike[str]) -> ModelFormat:
    """The format of a model: TFLite or ONNX by the first bytes or the suffix, otherwise NNEF.

    A path that cannot be read has the format of its name; the reader then raises the error. Raises `Invalid`
    (``format.other``) for a file of a known format that is no model for cvm, with what it is and what to do, and
    (``format.unknown``) for a file that is neither text nor known.
    """
    found = recognised(path)
    if found is None:
        _require_text(os.fspath(path))
        return "nnef"
    if found.key in _READ_BY_NNEF:
        return "nnef"
    if found.key in ("onnx", "tflite"):
        return cast("ModelFormat", found.key)
    raise Invalid("format.other", _message(found, "a model of NNEF, ONNX or TFLite"), Location(os.fspath(path)))


def _require_text(path: str) -> None:
    start = _first_bytes(path)
    if b"\0" in start and not path.endswith(".nnef"):
        readable = "models are NNEF (a folder, a .tar or .tgz of one, a document), ONNX (.onnx) or TFLite (.tflite)"
        message = f"no format that cvm knows begins with the bytes {start[:8].hex(' ')}; {readable}"
        raise Invalid("format.unknown", message, Location(path))


def diagnosed(error: CvmError, path: str | os.PathLike[str], expected: str, keys: Collection[str]) -> CvmError:
    """The same error, with a better message if the file could not be decoded because it has another format.

    ``expected`` says what was wanted; ``keys`` are the formats for which the message of ``error`` is right.
    """
    if isinstance(error, Malformed):
        message = mistaken(path, expected, keys)
        if message is not None:
            return Malformed(error.code, message, Location(os.fspath(path)))
    return error


def mistaken(path: str | os.PathLike[str], expected: str, keys: Collection[str]) -> str | None:
    """What to say of a file or folder that is of another format than those of ``keys``; None if it may be of one.

    A file of no known format is another one where those of ``keys`` are formats of cvm, which it does not begin as.
    """
    name = os.fspath(path)
    found = recognised(name)
    if found is not None and found.key not in keys:
        return _message(found, expected)
    start = _first_bytes(name)
    if start and _OF_CVM.issuperset(keys) and not any(_begins(start, key) for key in keys):
        return f"expected {expected}, and the file does not begin as one: look whether it is the right file"
    return None


def _begins(start: bytes, key: str) -> bool:
    """Whether a file that begins with ``start`` is of a format of cvm, as far as it goes."""
    return any(start[: len(magic)] == magic[: len(start)] for _, magic, of in _MAGIC if of == key)


def refuse_folder(path: str | os.PathLike[str], expected: str) -> None:
    """Raise `Invalid` (``format.other``) for a folder, with what it is and what to do, where a file is expected."""
    if os.path.isdir(path):
        found = recognised(path)
        message = f"expected {expected}, found a folder" if found is None else _message(found, expected)
        raise Invalid("format.other", message, Location(os.fspath(path)))


def _message(found: FileFormat, expected: str) -> str:
    return f"expected {expected}, found {found.words}; {found.next_step}"


def _first_bytes(path: str) -> bytes:
    """The first bytes of a regular file; no bytes for anything else."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return b""
        with open(path, "rb") as file:
            return file.read(_SAMPLE)
    except (OSError, ValueError):
        return b""
