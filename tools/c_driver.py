"""Exported programs behind one main function: codes of inputs from stdin, outputs or every tensor to stdout.

All numbers are int32, little-endian. For each program in turn stdin holds how many runs it gets, and the inputs of each
of them. After each run stdout gets what the run returned, and then, if that is 0, the outputs; before it, for a traced
program, the number, count and elements of every tensor, and -1 after the last one. One file of C includes the sources
of all programs, since a compiler needs more time to start than for a small program. A table names the functions that
run them: called by name, they would become parts of one long function, for which clang needs long. Compilers and
programs that take longer than they may are ended.
"""

from __future__ import annotations

import math
import os
import re
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.export.c import exported
from cvm.program.verifier import VerifiedProgram
from tools.c_targets import GCC, Target, compilers

__all__ = ["SANITIZED", "STRICT", "Batch", "Built", "Member", "build", "build_all", "compilers"]

Array = npt.NDArray[np.int32]
Feeds = Sequence[Mapping[str, Array]]
Tensors = list[dict[str, Array]]

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")

_MAIN = """#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* Numbers are read and written byte by byte, so that the driver is the same on machines of every byte order. */
static int32_t take(void)
{
    unsigned char bytes[4];
    uint32_t bits;
    if (fread(bytes, 1, 4, stdin) != 4) {
        exit(2);
    }
    bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    return bits <= 0x7fffffffu ? (int32_t)bits : -1 - (int32_t)(0xffffffffu - bits);
}

static void give(int32_t value)
{
    const uint32_t bits = (uint32_t)value;
    unsigned char bytes[4];
    bytes[0] = (unsigned char)(bits & 0xffu);
    bytes[1] = (unsigned char)(bits >> 8 & 0xffu);
    bytes[2] = (unsigned char)(bits >> 16 & 0xffu);
    bytes[3] = (unsigned char)(bits >> 24 & 0xffu);
    if (fwrite(bytes, 1, 4, stdout) != 4) {
        exit(3);
    }
}
"""

_DRIVE = """
static {name}_arena arena_of_{name};
{arrays}
static void drive_{name}(void)
{{
    {name}_inputs in;
    {name}_outputs out;
    int32_t runs = take();
{reset}{pointed}    for (; runs > 0; runs--) {{
        int32_t status;
{filled}        status = {name}_run({arguments});
{mark}        give(status);
        if (status == 0) {{
{given}        }}
    }}
}}
"""

_HOOK = """
static void show(void *context, int32_t value, const void *elements, int32_t bytes, int32_t is_signed, int32_t count)
{
    int32_t i;
    (void)context;
    give(value);
    give(count);
    for (i = 0; i < count; i++) {
        give(bytes == 1   ? (is_signed ? ((const int8_t *)elements)[i] : ((const uint8_t *)elements)[i])
             : bytes == 2 ? (is_signed ? ((const int16_t *)elements)[i] : ((const uint16_t *)elements)[i])
                          : ((const int32_t *)elements)[i]);
    }
}
"""


_START = """
static void (*const drives[])(void) = {{{drives}}};

int main(void)
{{
    for (size_t i = 0; i < sizeof drives / sizeof drives[0]; i++) {{
        drives[i]();
    }}
    return 0;
}}
"""


@dataclass(frozen=True, slots=True)
class Member:
    """One program of a batch."""

    verified: VerifiedProgram
    traced: bool = False
    dots: bool = False


def _drive(member: Member, name: str, header: str) -> str:
    """The function that runs a program that is exported under ``name`` with this header."""
    inputs, outputs = (_fields(header, f"{name}_{kind}") for kind in ("inputs", "outputs"))
    verified, program = member.verified, member.verified.program
    arrays: list[str] = []
    filled: list[str] = []
    pointed: list[str] = []
    given: list[str] = []
    for item, (kind, word) in zip(program.inputs, inputs, strict=False):
        count = math.prod(item.value.shape)
        arrays.append(f"static {kind} {name}_in_{word}[{count}];\n")
        filled.append(
            f"        for (int32_t i = 0; i < {count}; i++) {{\n            const int32_t x = take();\n"
            f"            {name}_in_{word}[i] = ({kind})x;\n"
            f"            if ((int32_t){name}_in_{word}[i] != x) {{\n                exit(4);\n            }}\n"
            "        }\n"
        )
        pointed.append(f"    in.{word} = {name}_in_{word};\n")
    if not program.inputs:
        pointed.append("    in.none = 0;\n")
    for output, (kind, word) in zip(program.outputs, outputs, strict=True):
        count = math.prod(verified.shapes[output.value])
        arrays.append(f"static {kind} {name}_out_{word}[{count}];\n")
        pointed.append(f"    out.{word} = {name}_out_{word};\n")
        if not member.traced:
            loop = f"            for (int32_t i = 0; i < {count}; i++) {{\n"
            given.append(f"{loop}                give({name}_out_{word}[i]);\n            }}\n")
    state = ["&kept"] if program.state else []
    arguments = [f"&arena_of_{name}", "&in", "&out", *state, *(["show", "0"] if member.traced else [])]
    return _DRIVE.format(
        name=name,
        arrays="".join(arrays),
        reset=f"    static {name}_state kept;\n    {name}_reset(&kept);\n" if program.state else "",
        filled="".join(filled),
        pointed="".join(pointed),
        arguments=", ".join(arguments),
        mark="        give(-1);\n" if member.traced else "",
        given="".join(given),
    )


def _fields(header: str, struct: str) -> list[tuple[str, str]]:
    """Type and name of the pointers in a struct of the header."""
    body = header[: header.index(f"}} {struct};")].rsplit("typedef struct {", 1)[1]
    found = []
    for line in body.splitlines():
        if line.strip().endswith(";"):
            kind, word = line.strip().removeprefix("const ").removesuffix(";").split(" *")
            found.append((kind, word))
    return found


def _included(member: Member, name: str, source: str, header: str) -> str:
    """A program's source and its driver, with names of their own for what the source declares as static."""
    names = sorted(set(re.findall(r"^static [\w ]*?(\w+)[(\[]", source, re.MULTILINE)) | {"wide"})
    defined = "".join(f"#define {word} {name}_{word}\n" for word in names)
    undefined = "".join(f"#undef {word}\n" for word in names)
    return f'{defined}#include "{name}.c"\n{_drive(member, name, header)}{undefined}'


@dataclass(frozen=True, slots=True)
class _Done:
    """What a command returned and wrote."""

    status: int
    output: bytes
    errors: str


def _finished(
    what: str, command: Sequence[str], seconds: float | None, given: bytes = b"", folder: Path | None = None
) -> _Done:
    """Run a command to its end. Raises RuntimeError if it takes longer than ``seconds``.

    It is ended together with what it started: the driver of a compiler starts the compiler as a process of its own.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True) as process:
        try:
            output, errors = process.communicate(given, seconds)
        except BaseException as error:
            os.killpg(process.pid, signal.SIGKILL)
            if isinstance(error, subprocess.TimeoutExpired):
                raise RuntimeError(f"{what} took more than {seconds:g} seconds") from None
            raise
    return _Done(process.returncode, output, errors.decode(errors="replace"))


class Batch:
    """Programs, exported, compiled and ready to run."""

    def __init__(self, members: Sequence[Member], command: Sequence[str], seconds: float | None = None) -> None:
        self.members = list(members)
        self._command = list(command)
        self._seconds = seconds

    def run(self, feeds: Sequence[Feeds]) -> list[Tensors]:
        """For each program the outputs of each of its runs by name, or every tensor by the name of its value.

        Raises RuntimeError.
        """
        sent: list[bytes] = []
        for member, runs in zip(self.members, feeds, strict=True):
            sent.append(len(runs).to_bytes(4, "little"))
            for feed in runs:
                given = [feed[item.value.name] for item in member.verified.program.inputs]
                sent.extend(np.ascontiguousarray(array, "<i4").tobytes() for array in given)
        done = _finished("the program", self._command, self._seconds, b"".join(sent))
        if done.status:
            raise RuntimeError(f"exit {done.status}: {done.errors[:2000]}")
        numbers = np.frombuffer(done.output, "<i4").astype(np.int32)
        found, at = [], 0
        for member, runs in zip(self.members, feeds, strict=True):
            of_program: Tensors = []
            for _ in runs:
                tensors, at = _parsed(member, numbers, at)
                of_program.append(tensors)
            found.append(of_program)
        if at != len(numbers):
            raise RuntimeError(f"{len(numbers)} numbers were written, {at} were expected")
        return found


def _parsed(member: Member, numbers: Array, at: int) -> tuple[dict[str, Array], int]:
    """The tensors of the run that begins at this number, and where the next one begins."""
    program, shapes = member.verified.program, member.verified.shapes
    found: dict[str, Array] = {}
    if member.traced:
        names = list(program.value_names())
        while numbers[at] != -1:
            name, count = names[numbers[at]], int(numbers[at + 1])
            found[name] = numbers[at + 2 : at + 2 + count].reshape(shapes[name])
            at += 2 + count
        at += 1
    status = int(numbers[at])
    at += 1
    if status:
        raise RuntimeError(f"the run returned {status}")
    for output in () if member.traced else program.outputs:
        shape = shapes[output.value]
        found[output.name] = numbers[at : at + math.prod(shape)].reshape(shape)
        at += math.prod(shape)
    return found, at


class Built:
    """One program, exported, compiled and ready to run."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch

    def run(self, feeds: Feeds) -> Tensors:
        """See `Batch.run`."""
        return self._batch.run([feeds])[0]


def build_all(
    members: Sequence[Member],
    folder: Path,
    target: Target = GCC,
    options: Sequence[str] = ("-O1",),
    seconds: float | None = None,
) -> Batch:
    """Export programs into a folder and compile them.

    The compiler and each call of `Batch.run` may take so many ``seconds``. Raises RuntimeError with what the compiler
    said.
    """
    folder.mkdir(parents=True, exist_ok=True)
    parts = [_MAIN]
    if any(member.traced for member in members):
        parts.append(_HOOK)
    for number, member in enumerate(members):
        name = f"m{number}"
        files = exported(member.verified, name, member.traced, member.dots).files
        for file, data in files.items():
            (folder / file).write_bytes(data)
        parts.append(_included(member, name, *(files[f"{name}.{end}"].decode() for end in ("c", "h"))))
    parts.append(_START.format(drives=", ".join(f"drive_m{number}" for number in range(len(members)))))
    (folder / "main.c").write_text("\n".join(parts))
    command = target.command([*STRICT, *options], ["main.c"], folder / "program")
    done = _finished("the compiler", command, seconds, folder=folder)
    if done.status:
        raise RuntimeError(done.errors[:4000])
    return Batch(members, target.run(folder / "program"), seconds)


def build(
    verified: VerifiedProgram,
    folder: Path,
    target: Target = GCC,
    options: Sequence[str] = ("-O1",),
    traced: bool = False,
) -> Built:
    """`build_all` for one program."""
    return Built(build_all([Member(verified, traced)], folder, target, options))
