"""Proofs about programs that are none: every hash is right, nothing else is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cvm.audit.dispute.proof import (
    GivenSource,
    ListOpening,
    OperandOpening,
    StepClaim,
    StepProof,
    Witness,
)
from cvm.audit.dispute.targets import auxiliary_count
from cvm.audit.trace import head_of
from cvm.ops import REGISTRY
from cvm.program import commitments
from cvm.program.commitments import ProgramClaim, TensorClaim, counted_root
from cvm.program.merkle import root
from cvm.program.preimage import i64, listed, shape, text, u32

LEAF = bytes(1020) + b"\xff\xff\xff\x7f"


def proof_about(
    op: str, attributes: Mapping[str, Any], shapes: tuple[tuple[int, ...], ...], target: int, element: int, step: int
) -> StepProof:
    """A proof of a step of an op on inputs of these shapes, which hold zeros as far as anybody can see."""
    declared = REGISTRY[op].parse(attributes)
    complete = {name: value for name, value in declared if value is not None}
    outputs = [text("y") + shape(shapes[0]) + i64(0) + i64(0)] * len(REGISTRY[op].outputs)
    record = b"".join([
        b"cvm1:op\0", text(op), commitments._attributes(complete), listed([u32(i) for i in range(len(shapes))]),
        u32(len(shapes)), listed(outputs),
    ])  # fmt: skip
    kinds = REGISTRY[op].input_kinds(len(shapes))
    items = [8 if kind == "parameter" else 4 for kind in kinds]
    sizes = [item * _count(extents) for item, extents in zip(items, shapes, strict=True)]
    leaves = [LEAF[: min(1024, size)] for size in sizes]
    data_roots = [root([leaf]) for leaf in leaves]
    claims = [
        TensorClaim("int32" if item == 4 else "int64", extents, data)
        for item, extents, data in zip(items, shapes, data_roots, strict=True)
    ]
    inputs = tuple(_root(claim) for claim in claims)
    lists = (ListOpening(1, root([record])), *(ListOpening(n, root([])) for n in (0, len(shapes), 0, 0)))
    program = ProgramClaim(
        REGISTRY[op].op_set, "default", *(counted_root(item.count, item.root) for item in lists)
    ).digest()
    log = root([])
    head = head_of(program, inputs, (), counted_root(0, log))
    auxiliaries = (bytes(32),) * min(target + 1, auxiliary_count(op))
    claim = StepClaim(head, 0, target, auxiliaries, element, step, bytes(32))
    operands = tuple(
        OperandOpening(i, items[i] // 4, shapes[i], data_roots[i], GivenSource(), ((0, leaves[i]),), ())
        for i in range(len(shapes))
    )
    before = 0 if step else None
    witness = Witness(REGISTRY[op].op_set, "default", lists, inputs, (), log, record, (), before, 0, (), operands)
    return StepProof(claim, witness)


def _count(extents: tuple[int, ...]) -> int:
    count = 1
    for extent in extents:
        count *= extent
    return count


def _root(claim: TensorClaim) -> bytes:
    try:
        return claim.root()
    except ValueError:  # longer than a length can say
        return bytes(32)
