"""Makes the modules for `tools/wasm_vectors.mjs`: questions of the vectors' protocol from stdin, modules to stdout.

A frame is a length (u32, little-endian) and that many bytes of msgpack. The answer to a question has the modules that
compute it and their inputs, or is the answer to give: why the program is refused.
"""

from __future__ import annotations

import sys
from typing import Any, BinaryIO

import msgpack
import numpy as np

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.export.wasm import module
from cvm.program import Output, ProgramBuilder, VerifiedProgram, decode, verify

__all__ = ["answer", "main"]

_VERDICTS: dict[type[CvmError], str] = {Invalid: "invalid", LimitExceeded: "limit", Malformed: "malformed"}


def answer(question: dict[str, Any]) -> dict[str, Any]:
    """The modules for a question, or the answer to give."""
    try:
        match question["kind"]:
            case "op":
                return _op(question)
            case "program":
                return {"module": module(verify(decode(question["program"])), traced=True).code}
            case _:
                return {"verdict": "unsupported", "message": "modules prove nothing"}
    except CvmError as error:
        return {"verdict": _VERDICTS.get(type(error), "error"), "code": error.code, "message": error.message}
    except Exception as error:
        return {"verdict": "error", "message": f"{type(error).__name__}: {error}"}


def _op(question: dict[str, Any]) -> dict[str, Any]:
    """The op on constants and, if the verifier accepts that, on inputs."""
    verified, inputs = _program(question, constant=True)
    programs = [{"module": module(verified).code, "inputs": inputs}]
    try:
        verified, inputs = _program(question, constant=False)
    except CvmError:  # the intervals of inputs can prove less than the values of constants
        return {"programs": programs}
    return {"programs": [*programs, {"module": module(verified).code, "inputs": inputs}]}


def _program(question: dict[str, Any], constant: bool) -> tuple[VerifiedProgram, dict[str, Any]]:
    builder, names, inputs = ProgramBuilder(), [], {}
    for index, (dtype, shape, data) in enumerate(question["inputs"]):
        array = np.frombuffer(data, "<i8" if dtype == "int64" else "<i4").reshape(shape)
        if dtype == "int64":
            names.append(builder.parameter(array))
        elif constant:
            names.append(builder.constant(array))
        else:
            name = builder.input(f"x{index}", array.shape, int(array.min()), int(array.max()))
            inputs[name] = [dtype, shape, data]
            names.append(name)
    attributes = {
        name: tuple(value) if isinstance(value, list) else value for name, value in question["attributes"].items()
    }
    results = builder.add(question["op"], names, attributes)
    return verify(builder.build([Output(result, result) for result in results])), inputs


def main(source: BinaryIO = sys.stdin.buffer, target: BinaryIO = sys.stdout.buffer) -> None:
    """Answer frames until the source ends."""
    while len(head := source.read(4)) == 4:
        question = msgpack.unpackb(source.read(int.from_bytes(head, "little")))
        content = msgpack.packb(answer(question))
        target.write(len(content).to_bytes(4, "little") + content)
        target.flush()


if __name__ == "__main__":
    main()
