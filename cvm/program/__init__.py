"""The integer program: data, canonical bytes, digest, verification. A name is imported when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cvm.program.build import ProgramBuilder
    from cvm.program.codec import decode
    from cvm.program.commitments import constant_tree, program_claim, program_digest, records, tensor_root, tensor_tree
    from cvm.program.encoding import encode
    from cvm.program.files import load, load_verified
    from cvm.program.model import (
        OP_SET,
        AttributeValue,
        Constant,
        Exactness,
        Input,
        Node,
        Output,
        Provenance,
        State,
        Value,
    )
    from cvm.program.program import Program
    from cvm.program.verifier import VerifiedProgram, verify

__all__ = [
    "OP_SET", "AttributeValue", "Constant", "Exactness", "Input", "Node", "Output", "Program", "ProgramBuilder",
    "Provenance", "State", "Value", "VerifiedProgram", "constant_tree", "decode", "encode", "load", "load_verified",
    "program_claim", "program_digest", "records", "tensor_root", "tensor_tree", "verify",
]  # fmt: skip

_HOMES = {
    "commitments": "constant_tree program_claim program_digest records tensor_root tensor_tree",
    "model": "OP_SET AttributeValue Constant Exactness Input Node Output Provenance State Value",
    "files": "load load_verified", "verifier": "VerifiedProgram verify", "program": "Program", "encoding": "encode",
    "build": "ProgramBuilder", "codec": "decode",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    for module, names in _HOMES.items():
        if name in names.split():
            globals()[name] = value = getattr(import_module(f"cvm.program.{module}"), name)
            return value
    raise AttributeError(f"module 'cvm.program' has no attribute {name!r}")
