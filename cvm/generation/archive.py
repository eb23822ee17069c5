"""Files of a language model: a decode step and its prefill programs, whose constants are stored once.

A file is the canonical msgpack (`cvm.program.wire`) of ``["cvm-model", 1, model]``. ``model`` has ``constants``, the
data of large constants in ascending order of their SHA-256, and the programs ``decode`` (one) and ``prefill``
(several). Each program is a binary: its canonical bytes (`cvm.program.codec`), but with the SHA-256 of the data in the
place of the data of every constant of more than 32 bytes. So each program keeps its own bytes and digest: they are
those of the program that is put together from the parts.

A reader refuses bytes that do not encode to themselves again, and verifies every program. It checks sizes before it
takes memory: the data of all constants together, each counted as often as it is used, have at most `MOST_TIMES` times
the bytes of the file.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from hashlib import sha256
from os import PathLike

from cvm.arguments import checked_path
from cvm.errors import CvmError, Invalid, Malformed
from cvm.formats import diagnosed, refuse_folder
from cvm.limits import DEFAULT, MAX_RANK, Limits, require
from cvm.program import Program
from cvm.program.codec import decode
from cvm.program.model import Constant
from cvm.program.reading import read_bytes
from cvm.program.verifier import VerifiedProgram, verify
from cvm.program.wire import Reader, Tree, packs_to, pieces
from cvm.records import dataclass
from cvm.writing import write_file

__all__ = ["MAGIC", "MOST_PREFILL", "MOST_TIMES", "LanguageModel", "is_language_model", "load_model", "read_model"]

FORMAT = "cvm-model"
VERSION = 1
MAGIC = b"\x93\xa9cvm-model"
MOST_PREFILL = 16
"""The most prefill programs of a file."""
MOST_TIMES = 64
"""How many times the bytes of a file its programs may have together."""

_NAME = "generation"
"""The beginning of the codes of errors."""
_DIGEST_BYTES = 32


@dataclass(frozen=True, eq=False, slots=True)
class LanguageModel:
    """A decode step and the prefill programs that go with it (`cvm.generation.Generator`)."""

    decode: VerifiedProgram
    prefill: tuple[VerifiedProgram, ...] = ()

    def pieces(self) -> Iterator[bytes]:
        """The canonical bytes, in pieces. Raises `Invalid` and `LimitExceeded` for what cannot be written."""
        require("prefill", len(self.prefill), MOST_PREFILL, "prefill programs of a file")
        return pieces(_tree([self.decode.program, *(item.program for item in self.prefill)]), _NAME)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the file, whole or not at all. Raises OSError, and as `pieces` does."""
        write_file(checked_path(path, "a file"), *self.pieces())


def is_language_model(path: str | PathLike[str]) -> bool:
    """Whether a file begins as one of a language model does. A file that cannot be read is none."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def load_model(path: str | PathLike[str], limits: Limits = DEFAULT) -> LanguageModel:
    """Read and verify a file. Raises `CvmError` (with the file in its location) or OSError."""
    refuse_folder(path, "a language model of cvm")
    try:
        return read_model(read_bytes(path, limits.program_bytes), limits)
    except CvmError as error:
        raise diagnosed(error.at(file=os.fspath(path)), path, "a language model of cvm", ("language_model",)) from None


def read_model(data: bytes, limits: Limits = DEFAULT) -> LanguageModel:
    """The language model that ``data`` encodes; its programs are verified.

    Raises `Malformed` for bytes that are not the canonical bytes of any, and as decoding and verifying a program does.
    """
    require("program_bytes", len(data), limits.program_bytes, "bytes of a language model")
    reader = Reader(data, _NAME, limits.entries)
    if reader.array_header() != 3 or reader.text() != FORMAT:
        raise reader.malformed("format", "this is not a language model of cvm")
    version = reader.integer()
    if version != VERSION:
        raise reader.malformed("version", f"expected version {VERSION} of the format, found {version}")
    parts = reader.record({
        "constants": lambda: reader.array(reader.binary),
        "decode": reader.binary,
        "prefill": lambda: reader.array(reader.binary),
    })  # fmt: skip
    reader.end()
    reader.forget()
    require("prefill", len(parts["prefill"]), MOST_PREFILL, "prefill programs of a file")
    known = {sha256(item).digest(): item for item in parts["constants"]}
    outlines = [decode(item, limits) for item in (parts["decode"], *parts["prefill"])]
    total = sum(_size(constant) for program in outlines for constant in program.constants if _is_apart(constant))
    require("model_bytes", total, MOST_TIMES * len(data), "bytes of the constants of all programs")
    programs = [_completed(program, known) for program in outlines]
    if not packs_to(_tree(programs), data, _NAME):
        raise Malformed("generation.canonical", "these are not the canonical bytes of the programs that they describe")
    first, *others = (verify(program, limits) for program in programs)
    return LanguageModel(first, tuple(others))


def _size(constant: Constant) -> int:
    """The bytes of the data of a constant, by its shape; 0 for impossible shapes, which verifying refuses."""
    return max(0, math.prod(constant.shape) * constant.width) if len(constant.shape) <= MAX_RANK else 0


def _is_apart(constant: Constant) -> bool:
    """Whether the data of a constant are stored apart from its program."""
    return _size(constant) > _DIGEST_BYTES


def _completed(program: Program, known: Mapping[bytes, bytes]) -> Program:
    """The program of an outline. Raises `Invalid` (``generation.constant``) for data that the file does not have."""
    constants = []
    for constant in program.constants:
        if _is_apart(constant):
            data = known.get(constant.data)
            if data is None or len(data) != _size(constant):
                message = f"the file has no data of {_size(constant)} bytes for the constant {constant.name!r}"
                raise Invalid("generation.constant", message)
            constant = replace(constant, data=data)
        constants.append(constant)
    return replace(program, constants=tuple(constants))


def _tree(programs: list[Program]) -> Tree:
    """The content of a file. Equal data are stored once; a constant of the wrong length cannot be."""
    data: dict[bytes, bytes] = {}
    outlines = []
    for program in programs:
        constants = []
        for constant in program.constants:
            if _is_apart(constant):
                digest = sha256(constant.data).digest()
                data[digest] = constant.data
                constant = replace(constant, data=digest)
            constants.append(constant)
        outlines.append(replace(program, constants=tuple(constants)).to_bytes())
    stored: list[Tree] = [data[digest] for digest in sorted(data)]
    return [FORMAT, VERSION, {"constants": stored, "decode": outlines[0], "prefill": list(outlines[1:])}]
