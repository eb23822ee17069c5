"""Fuzzer of models of cvm-runtime: exported programs of the test vectors, with parts of their files damaged.

    python -m tools.fuzz.models --count 20000 --seed 1

A model that is read must run on any input and have an output of the length that it states. It is either exported again
with the same outputs, or refused. A model that is read under cvm-1 must also be read as a program.
"""

from __future__ import annotations

import json
import random
import struct
import sys
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from cvm.errors import CvmError, Unsupported
from cvm.export.cvm_runtime import saved
from cvm.frontends import cvm_runtime
from cvm.program import decode
from cvm.session import Session
from cvm.vectors.format import ProgramCase
from cvm.vectors.format import decode as decode_vectors
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import changed_tree, mutate_bytes, mutate_text

__all__ = ["FUZZER"]

_VECTORS = Path(__file__).parents[2] / "spec_vectors" / "programs"
_TEXTS = (
    "", "0", "1", "-1", "2", "7", "8", "9", "32", "33", "4096", "2147483647", "-2147483648", "True", "None", "()",
    "(0,)", "(-1,)", "(1, 1)", "(2, 2)", "(0, -1)", "(-2,)", "(-4, 2, -1)", "[1, 0]", "(9999999999,)", "x",
)  # fmt: skip
_LARGEST = 2**20
"""A model is run only if its input has at most this many elements."""


@lru_cache(maxsize=1)
def _models() -> tuple[tuple[Any, bytes], ...]:
    """The document and the parameters of every program that can be exported."""
    found = []
    for path in sorted(_VECTORS.glob("*.msgpack")):
        for case in decode_vectors(path.read_bytes()).cases:
            if isinstance(case, ProgramCase):
                with suppress(CvmError):
                    files = saved(decode(case.program)).content
                    found.append((json.loads(files["model.json"]), files["model.params"]))
    return tuple(found)


def make(random_: random.Random) -> bytes:
    """The length of the text in four bytes, the text, and the parameters; the text or the parameters are damaged."""
    document, parameters = random_.choice(_models())
    text = json.dumps(document).encode()
    match random_.randrange(6):
        case 0:
            text = mutate_text(random_, text, random_.choice((1, 1, 2, 4)))
        case 1:
            parameters = mutate_bytes(random_, parameters, random_.choice((1, 1, 2, 4)))
        case 2 | 3:
            text = json.dumps(changed_tree(random_, document), default=lambda _: "").encode()
        case 4:
            text = json.dumps(_with_another_attribute(random_, document)).encode()
    return struct.pack("<I", len(text)) + text + parameters


def _with_another_attribute(random_: random.Random, document: Any) -> Any:
    """The document with one attribute of one op replaced, added or left out."""
    made = json.loads(json.dumps(document))
    texts = made["attrs"]["op_attrs"][1]
    index = random_.randrange(len(texts))
    attributes = json.loads(texts[index])
    name = random_.choice([*attributes, "axis"])
    if random_.random() < 0.2:
        attributes.pop(name, None)
    else:
        attributes[name] = random_.choice(_TEXTS)
    texts[index] = json.dumps(attributes)
    return made


def examine(case: bytes) -> str:
    """Read a model, run it and export it; then read and run the exported model."""
    length = struct.unpack_from("<I", case)[0]
    text, parameters = case[4 : 4 + length], case[4 + length :]
    with suppress(CvmError):
        cvm_runtime.loads(text, parameters, "cvm-1")
    imported = cvm_runtime.loads(text, parameters)
    interface = imported.model.interface
    if interface.input_length > _LARGEST or imported.model.metering.storage > _LARGEST:
        return "valid, too large to run"
    data = random.Random(length).randbytes(interface.input_length)
    outputs = _run(imported, data)
    assert len(outputs) == interface.output_length, "the output has not the length that the model states"
    try:
        files = saved(imported.program).content
    except Unsupported:
        return "valid, not exported"
    again = cvm_runtime.loads(files["model.json"], files["model.params"])
    clamped = np.clip(interface.decode(data), -interface.clamped, interface.clamped)
    codes = clamped.astype(f"<i{again.model.interface.input_size}").tobytes()
    expected = [
        Session(imported.program, "numpy").run({"data": clamped}, codes=True)[item.name]
        for item in imported.program.outputs
    ]
    assert _run(again, codes) == again.model.interface.encode(expected), "the exported model gives another output"
    return "valid"


def _run(imported: cvm_runtime.Imported, data: bytes) -> bytes:
    result = Session(imported.program, "numpy").run({"data": imported.model.interface.decode(data)}, codes=True)
    return imported.model.interface.encode([result[item.name] for item in imported.program.outputs])


FUZZER = Fuzzer("tools.fuzz.models", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
