"""A main function around an exported object: int32 codes of inputs from stdin, outputs to stdout, run by run."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.export.object import exported
from cvm.export.object.header import Ports
from cvm.program.verifier import VerifiedProgram

__all__ = ["linked", "ran"]

_MAIN = """#include <stdio.h>
#include "model.h"
static _Alignas(64) unsigned char memory[MODEL_MEMORY_BYTES];
{arrays}
int main(void)
{{
    model_inputs in;
    model_outputs out;
{before}    while ({read}) {{
        int32_t status = model_run(memory, &in, {state}&out);
        if (status != 0) {{
            fprintf(stderr, "status %d", (int)status);
            return 3;
        }}
{given}    }}
    return 0;
}}
"""


def _main(ports: Ports) -> str:
    arrays = [f"static int32_t in_{word}[{count}];" for word, count, _ in ports.inputs]
    arrays += [f"static int32_t out_{word}[{count}];" for word, count, _ in ports.outputs]
    before = [f"    in.{word} = in_{word};\n" for word, _, _ in ports.inputs]
    before += [f"    out.{word} = out_{word};\n" for word, _, _ in ports.outputs]
    reads = [f"fread(in_{word}, 4, {count}, stdin) == {count}" for word, count, _ in ports.inputs]
    if not reads:
        reads = ["getchar() != EOF"]
        before.append("    in.none = 0;\n")
    if ports.state:
        arrays.append("static model_state state;")
        before.append("    model_reset(&state);\n")
    given = [f"        fwrite(out_{word}, 4, {count}, stdout);\n" for word, count, _ in ports.outputs]
    return _MAIN.format(
        arrays="\n".join(arrays), before="".join(before), read=" && ".join(reads), given="".join(given),
        state="&state, " if ports.state else "",
    )  # fmt: skip


def linked(verified: VerifiedProgram, folder: Path, triple: str, machine: str, compiler: Sequence[str]) -> Path:
    """An executable file with the object of a program. Raises RuntimeError with what the compiler or linker said."""
    folder.mkdir(parents=True, exist_ok=True)
    files = exported(verified, triple, machine, "model").files
    for file, data in files.items():
        (folder / file).write_bytes(data)
    (folder / "main.c").write_text(_main(Ports.of(verified, "model")))
    (code,) = (file for file in files if not file.endswith(".h"))
    strict = ("-std=c11", "-Wall", "-Wextra", "-Wpedantic", "-Werror")
    command = [*compiler, *strict, "main.c", code, "-o", "model"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr[:4000])
    return folder / "model"


def ran(
    verified: VerifiedProgram,
    feeds: Sequence[Mapping[str, npt.NDArray[np.int32]]],
    folder: Path,
    triple: str,
    machine: str,
    compiler: Sequence[str] = ("gcc",),
    runner: Sequence[str] = (),
) -> list[dict[str, npt.NDArray[np.int32]]]:
    """The outputs of each run by name. Raises RuntimeError with what the compiler or the program said."""
    binary = linked(verified, folder, triple, machine, compiler)
    names = [item.value.name for item in verified.program.inputs]
    sent = b"".join(np.ascontiguousarray(feed[name], "<i4").tobytes() for feed in feeds for name in names)
    sent = sent if names else bytes(len(feeds))
    found = subprocess.run([*runner, str(binary.resolve())], input=sent, capture_output=True, check=False)
    if found.returncode:
        raise RuntimeError(f"exit {found.returncode}: {found.stderr.decode(errors='replace')[:2000]}")
    numbers, at, results = np.frombuffer(found.stdout, "<i4").astype(np.int32), 0, []
    for _ in feeds:
        outputs = {}
        for item in verified.program.outputs:
            shape = verified.shapes[item.value]
            outputs[item.name] = numbers[at : at + math.prod(shape)].reshape(shape)
            at += math.prod(shape)
        results.append(outputs)
    return results
