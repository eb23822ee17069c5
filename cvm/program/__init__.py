"""The integer program: data, canonical bytes, digest, verification.

Each name is imported when it is first used: a session that starts from the cache needs few of them.
"""

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
    "OP_SET",
    "AttributeValue",
    "Constant",
    "Exactness",
    "Input",
    "Node",
    "Output",
    "Program",
    "ProgramBuilder",
    "Provenance",
    "State",
    "Value",
    "VerifiedProgram",
    "constant_tree",
    "decode",
    "encode",
    "load",
    "load_verified",
    "program_claim",
    "program_digest",
    "records",
    "tensor_root",
    "tensor_tree",
    "verify",
]

_HOMES = {
    "AttributeValue": "cvm.program.model",
    "Constant": "cvm.program.model",
    "Exactness": "cvm.program.model",
    "Input": "cvm.program.model",
    "Node": "cvm.program.model",
    "OP_SET": "cvm.program.model",
    "Output": "cvm.program.model",
    "Program": "cvm.program.program",
    "ProgramBuilder": "cvm.program.build",
    "Provenance": "cvm.program.model",
    "State": "cvm.program.model",
    "Value": "cvm.program.model",
    "VerifiedProgram": "cvm.program.verifier",
    "constant_tree": "cvm.program.commitments",
    "decode": "cvm.program.codec",
    "encode": "cvm.program.encoding",
    "load": "cvm.program.files",
    "load_verified": "cvm.program.files",
    "program_claim": "cvm.program.commitments",
    "program_digest": "cvm.program.commitments",
    "records": "cvm.program.commitments",
    "tensor_root": "cvm.program.commitments",
    "tensor_tree": "cvm.program.commitments",
    "verify": "cvm.program.verifier",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cvm.program' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value
