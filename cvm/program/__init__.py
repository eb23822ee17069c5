"""The integer program: data, canonical bytes, digest, verification."""

from cvm.program.build import ProgramBuilder
from cvm.program.codec import decode
from cvm.program.commitments import constant_tree, program_claim, program_digest, records, tensor_root, tensor_tree
from cvm.program.encoding import encode
from cvm.program.files import load, load_verified
from cvm.program.model import OP_SET, AttributeValue, Constant, Exactness, Input, Node, Output, Provenance, State, Value
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
