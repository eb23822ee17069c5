"""What tests ask of proofs and traces, by the functions of the product that judges use."""

from __future__ import annotations

from cvm.audit.hashing import tensor_roots
from cvm.audit.trace import Trace, trace_of
from cvm.executors import RunResult
from cvm.program import Program
from cvm.program.commitments import counted_root
from cvm.program.merkle import Proof, root_of_proof


def verify_proof(root: bytes, leaf: bytes, proof: Proof) -> bool:
    """Whether ``leaf`` stands where ``proof`` says in the tree with that root and ``proof.count`` leaves."""
    return root_of_proof(leaf, proof) == root


def list_root_of_proof(record: bytes, proof: Proof) -> bytes | None:
    """The root of the list in which ``record`` stands as ``proof`` says; None for a proof of no possible form."""
    root = root_of_proof(record, proof)
    return None if root is None else counted_root(proof.count, root)


def observed_trace(program: Program, result: RunResult) -> Trace:
    """The trace of a run that captured everything."""
    return trace_of(program, tensor_roots(result.values))
