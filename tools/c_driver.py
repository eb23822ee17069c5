"""A main function around an exported model: codes of inputs from stdin, outputs or every tensor to stdout.

All numbers are int32, little-endian. stdin holds the inputs of some runs, one after the other. After each run stdout
gets what the run returned and then, if that is 0, the outputs, or for a traced model the number, count and elements of
every tensor, and -1 after the last one.
"""

from __future__ import annotations

import math
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.export.c import exported
from cvm.program.verifier import VerifiedProgram

__all__ = ["STRICT", "Built", "build", "compilers", "main_text"]

Array = npt.NDArray[np.int32]

STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror")
SANITIZED = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g")


def compilers() -> list[str]:
    """The compilers of C that this machine has."""
    return [name for name in ("gcc", "clang") if shutil.which(name) is not None]


_MAIN = """#include <stdio.h>
#include <stdlib.h>
#include "{name}.h"

/* Numbers are read and written byte by byte, so that the driver is the same on machines of every byte order. */
static int take(int32_t *value)
{{
    unsigned char bytes[4];
    uint32_t bits;
    if (fread(bytes, 1, 4, stdin) != 4) {{
        return 0;
    }}
    bits = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
    *value = bits <= 0x7fffffffu ? (int32_t)bits : -1 - (int32_t)(0xffffffffu - bits);
    return 1;
}}

static void give(int32_t value)
{{
    const uint32_t bits = (uint32_t)value;
    unsigned char bytes[4];
    bytes[0] = (unsigned char)(bits & 0xffu);
    bytes[1] = (unsigned char)(bits >> 8 & 0xffu);
    bytes[2] = (unsigned char)(bits >> 16 & 0xffu);
    bytes[3] = (unsigned char)(bits >> 24 & 0xffu);
    if (fwrite(bytes, 1, 4, stdout) != 4) {{
        exit(3);
    }}
}}
{hook}
static {name}_arena arena;
{state}{arrays}
int main(void)
{{
    {name}_inputs in;
    {name}_outputs out;
{reset}    for (;;) {{
        int32_t status;
{filled}{pointed}        status = {name}_run({arguments});
        {mark}give(status);
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


def main_text(verified: VerifiedProgram, name: str, traced: bool, header: str) -> str:
    """The main function of a program that is exported under ``name`` with this header."""
    fields = {kind: _fields(header, f"{name}_{kind}") for kind in ("inputs", "outputs")}
    program = verified.program
    arrays: list[str] = []
    filled: list[str] = []
    pointed: list[str] = []
    given: list[str] = []
    for item, (kind, word) in zip(program.inputs, fields["inputs"], strict=False):
        count = math.prod(item.value.shape)
        arrays.append(f"static {kind} in_{word}[{count}];\n")
        missing = "2" if filled else "i == 0 ? 0 : 2"
        filled.append(
            f"        for (int32_t i = 0; i < {count}; i++) {{\n            int32_t x;\n"
            f"            if (!take(&x)) {{\n                return {missing};\n            }}\n"
            f"            in_{word}[i] = ({kind})x;\n"
            f"            if ((int32_t)in_{word}[i] != x) {{\n                return 4;\n            }}\n        }}\n"
        )
        pointed.append(f"        in.{word} = in_{word};\n")
    if not program.inputs:
        filled.append("        int32_t go;\n        if (!take(&go)) {\n            return 0;\n        }\n")
        pointed.append("        in.none = &go;\n")
    for output, (kind, word) in zip(program.outputs, fields["outputs"], strict=True):
        count = math.prod(verified.shapes[output.value])
        arrays.append(f"static {kind} out_{word}[{count}];\n")
        pointed.append(f"        out.{word} = out_{word};\n")
        if not traced:
            given.append(
                f"            for (int32_t i = 0; i < {count}; i++) {{\n"
                f"                give(out_{word}[i]);\n            }}\n"
            )
    arguments = ["&arena", "&in", "&out", *(["&state"] if program.state else []), *(["show", "0"] if traced else [])]
    return _MAIN.format(
        name=name,
        hook=_HOOK if traced else "",
        state=f"static {name}_state state;\n" if program.state else "",
        arrays="".join(arrays),
        reset=f"    {name}_reset(&state);\n" if program.state else "",
        filled="".join(filled),
        pointed="".join(pointed),
        arguments=", ".join(arguments),
        mark="give(-1);\n        " if traced else "",
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


class Built:
    """A program, exported, compiled and ready to run."""

    def __init__(self, verified: VerifiedProgram, binary: Sequence[str], traced: bool) -> None:
        self.verified, self.traced = verified, traced
        self._command = list(binary)

    def run(self, feeds: Sequence[Mapping[str, Array]]) -> list[dict[str, Array]]:
        """The outputs of each run by name, or every tensor by the name of its value. Raises RuntimeError."""
        program = self.verified.program
        sent = b"".join(
            np.ascontiguousarray(feed[item.value.name], "<i4").tobytes() for feed in feeds for item in program.inputs
        )
        if not program.inputs:
            sent = bytes(4 * len(feeds))
        done = subprocess.run(self._command, input=sent, capture_output=True, check=False)
        if done.returncode:
            raise RuntimeError(f"exit {done.returncode}: {done.stderr.decode(errors='replace')[:2000]}")
        numbers = np.frombuffer(done.stdout, "<i4").astype(np.int32)
        return list(self._parsed(numbers))

    def _parsed(self, numbers: Array) -> Iterator[dict[str, Array]]:
        names = list(self.verified.program.value_names())
        at = 0
        while at < len(numbers):
            found: dict[str, Array] = {}
            if self.traced:
                while numbers[at] != -1:
                    name, count = names[numbers[at]], int(numbers[at + 1])
                    found[name] = numbers[at + 2 : at + 2 + count].reshape(self.verified.shapes[name])
                    at += 2 + count
                at += 1
            status = int(numbers[at])
            at += 1
            if status:
                raise RuntimeError(f"the run returned {status}")
            for output in () if self.traced else self.verified.program.outputs:
                shape = self.verified.shapes[output.value]
                found[output.name] = numbers[at : at + math.prod(shape)].reshape(shape)
                at += math.prod(shape)
            yield found


def build(
    verified: VerifiedProgram,
    folder: Path,
    compiler: Sequence[str] = ("gcc",),
    options: Sequence[str] = ("-O1",),
    traced: bool = False,
    runner: Sequence[str] = (),
) -> Built:
    """Export a program into a folder and compile it with a driver. Raises RuntimeError with what the compiler said."""
    folder.mkdir(parents=True, exist_ok=True)
    made = exported(verified, "model", traced)
    for name, data in made.files.items():
        (folder / name).write_bytes(data)
    (folder / "main.c").write_text(main_text(verified, "model", traced, made.files["model.h"].decode()))
    binary = folder / "model"
    command = [*compiler, *STRICT, *options, "model.c", "main.c", "-o", str(binary)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])
    return Built(verified, [*runner, str(binary)], traced)
