"""Proofs about changed ops: names, attributes, lengths, shapes and numbers differ from those of the vectors.

Every hash of a changed proof would be wrong, and a judge would find only that. So all hashes of the proof are computed
again from its new content: the roots of tensors, lists and run, and the partials if the op still gives any. The only
fault that remains is the change itself, or none.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from cvm.audit.dispute import StepProof, encode_proof
from cvm.audit.dispute.judge import opened_fold
from cvm.audit.dispute.proof import (
    ConstantSource,
    GivenSource,
    ListOpening,
    OperandOpening,
    ResultSource,
    Witness,
    partial_record,
)
from cvm.audit.dispute.records import read_op_record
from cvm.audit.trace import head_of, step_record
from cvm.errors import CvmError
from cvm.ops import REGISTRY
from cvm.program.commitments import ProgramClaim, TensorClaim, counted_root
from cvm.program.merkle import Proof, root_of_proof, root_of_several
from cvm.program.model import AttributeValue
from cvm.program.preimage import i64, listed, shape, text, u8, u32

__all__ = ["Record", "mutant", "whole"]

_Shape: TypeAlias = tuple[int, ...]

_NUMBERS = (
    0, 1, -1, 2, 3, 7, 8, 9, 31, 32, 33, 62, 63, 64, 255, 256, 257, 4095, 4096, 4097, 2**31 - 1, 2**31, -(2**31),
    -(2**31) - 1, 2**32, 2**63 - 1, -(2**63), 100, 101, -2, -3, -8, -9,
)  # fmt: skip
_EXTENTS = (1, 2, 3, 4, 5, 7, 16, 256, 257, 2**28, 2**31, 2**32, 2**61, 2**63)
_NAMES = (*REGISTRY, "", "conv3d", "Sum", "cvm_cilp")
_KEYS = (
    "axes",
    "axis",
    "keepdims",
    "padding",
    "strides",
    "groups",
    "scale",
    "precision",
    "lo",
    "rounding",
    "",
    "é",
    "x",
)


@dataclass
class Record:
    """An op that may not exist."""

    op: str
    attributes: list[tuple[str, AttributeValue]]
    inputs: list[int]
    first: int
    outputs: list[_Shape]

    def data(self) -> bytes:
        """The bytes of the record."""
        values = [text("y") + shape(extents) + i64(0) + i64(0) for extents in self.outputs]
        attributes = [text(key) + _attribute(value) for key, value in self.attributes]
        inputs = listed([u32(number) for number in self.inputs])
        return b"cvm1:op\0" + text(self.op) + listed(attributes) + inputs + u32(self.first) + listed(values)


def _attribute(value: AttributeValue) -> bytes:
    if isinstance(value, bool):
        return u8(0) + u8(value)
    if isinstance(value, int):
        return u8(1) + i64(value)
    if isinstance(value, str):
        return u8(2) + text(value)
    return u8(3) + listed([i64(item) for item in value])


# Changes


def _number(random_: random.Random, old: int) -> int:
    return random_.choice((old + 1, old - 1, -old, *random_.sample(_NUMBERS, 3)))


def _value(random_: random.Random, old: AttributeValue) -> AttributeValue:
    """Another value of an attribute, often of the same kind."""
    if random_.random() < 0.1:
        return random_.choice((True, 0, 1, "", "half_up", (), (1,), (1, 1), (0,) * 9, (2**62,) * 3_000))
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        return _number(random_, old)
    if isinstance(old, str):
        return random_.choice(("half_up", "half_even", "toward_zero", old + " ", ""))
    return _integers(random_, old)


def _integers(random_: random.Random, old: _Shape) -> _Shape:
    at = random_.randrange(len(old) + 1)
    match random_.randrange(4):
        case 0:
            return old[:at] + old[at + 1 :]
        case 1:
            return (*old[:at], random_.choice(_NUMBERS[:20]), *old[at:])
        case 2:
            return old[::-1]
    return (*old[:at], _number(random_, old[at]), *old[at + 1 :]) if at < len(old) else old * 2


def _shape(random_: random.Random, old: _Shape) -> _Shape:
    """Another shape of a tensor, of 1 to 8 extents."""
    at = random_.randrange(len(old))
    match random_.randrange(6):
        case 0 if len(old) > 1:
            return old[:at] + old[at + 1 :]
        case 1 if len(old) < 8:
            return (*old[:at], 1, *old[at:])
        case 2:
            return tuple(random_.sample(old, len(old)))
        case 3:
            return (*old[:at], max(1, old[at] + random_.choice((-1, 1))), *old[at + 1 :])
        case 4 if at and old[at - 1] % 2 == 0:
            return (*old[: at - 1], old[at - 1] // 2, old[at] * 2, *old[at + 1 :])
    return (*old[:at], random_.choice(_EXTENTS), *old[at + 1 :])


def _change_attributes(random_: random.Random, record: Record) -> None:
    items = record.attributes
    if not items or random_.random() < 0.1:
        items.insert(random_.randrange(len(items) + 1), (random_.choice(_KEYS), _value(random_, 1)))
        return
    at = random_.randrange(len(items))
    key, value = items[at]
    match random_.randrange(12):
        case 0:
            del items[at]
        case 1:
            items[at] = random_.choice(_KEYS), value
        case 2:
            items.reverse()
        case _:
            items[at] = key, _value(random_, value)


def _change_record(random_: random.Random, record: Record) -> None:
    match random_.randrange(10):
        case 0:
            record.op = random_.choice(_NAMES)
        case 1:
            record.op = random_.choice(_NAMES)
            declared = REGISTRY[record.op].Attributes.declared if record.op in REGISTRY else {}
            record.attributes = [(key, random_.choice((True, 1, (1,), (1, 1)))) for key in sorted(declared)]
        case 2:
            record.inputs = random_.choice(
                (record.inputs[:-1], record.inputs * 2, record.inputs[::-1], [*record.inputs, 0])
            )
        case 3 if record.inputs:
            record.inputs[random_.randrange(len(record.inputs))] = random_.choice((0, 1, 2, 9, 2**32 - 1))
        case 4:
            record.outputs = random_.choice(([], record.outputs * 2, record.outputs[:1]))
        case 5 | 6 if record.outputs:
            at = random_.randrange(len(record.outputs))
            record.outputs[at] = _shape(random_, record.outputs[at])
        case _:
            _change_attributes(random_, record)


def _change_operand(random_: random.Random, operand: OperandOpening) -> OperandOpening:
    match random_.randrange(6):
        case 0:
            return replace(operand, dtype=random_.choice((0, 1, 2, 3)))
        case 1:
            return replace(operand, leaves=operand.leaves[:-1])
        case 2 if operand.leaves:
            number, leaf = operand.leaves[-1]
            return replace(operand, leaves=(*operand.leaves, (number + random_.choice((0, 1, 2**40)), leaf)))
        case 3 if operand.leaves:
            at = random_.randrange(len(operand.leaves))
            number, leaf = operand.leaves[at]
            return replace(operand, leaves=(*operand.leaves[:at], (number, leaf[:4] + leaf), *operand.leaves[at + 1 :]))
    return replace(operand, shape=_shape(random_, operand.shape))


def _change_claim(random_: random.Random, proof: StepProof) -> StepProof:
    claim, witness = proof.claim, proof.witness
    match random_.randrange(6):
        case 0:
            return replace(proof, claim=replace(claim, target=random_.choice((0, 1, 2, 3, 4, 2**32 - 1))))
        case 1:
            return replace(proof, claim=replace(claim, step=random_.choice((0, 1, claim.step + 1, 2**32 - 1))))
        case 2:
            element = random_.choice((0, 1, claim.element + 1, max(0, claim.element - 1), 2**63))
            return replace(proof, claim=replace(claim, element=element))
        case 3:
            roots = random_.choice(((), (bytes(32),), (bytes(32),) * 3))
            return replace(proof, claim=replace(claim, auxiliaries=roots))
        case 4:
            before = random_.choice((None, 0, 1, -1, 2**32, 2**32 + 1, 2**127 - 1, -(2**127)))
            return replace(proof, witness=replace(witness, partial_before=before))
    operands = witness.operands
    changed = random_.choice((operands[:-1], operands[::-1], operands * 2, operands[1:]))
    return replace(proof, witness=replace(witness, operands=changed))


def _changed(random_: random.Random, proof: StepProof) -> StepProof:
    """A proof with one change, whose hashes are wrong."""
    kind, witness = random_.random(), proof.witness
    if kind < 0.15:
        return _change_claim(random_, proof)
    if kind < 0.4 and witness.operands:
        at = random_.randrange(len(witness.operands))
        changed = _change_operand(random_, witness.operands[at])
        operands = (*witness.operands[:at], changed, *witness.operands[at + 1 :])
        return replace(proof, witness=replace(witness, operands=operands))
    known = read_op_record(witness.record)
    record = Record(
        known.op, list(known.attributes.items()), list(known.inputs), known.first, [v.shape for v in known.outputs]
    )
    _change_record(random_, record)
    return replace(proof, witness=replace(witness, record=record.data()))


# Hashes


def _with_data_root(operand: OperandOpening) -> OperandOpening:
    size = {1: 4, 2: 8}.get(operand.dtype, 4)
    for extent in operand.shape:
        size *= extent
    root = _root_of(dict(operand.leaves), -(-size // 1024), operand.path)
    return operand if root is None else replace(operand, data_root=root)


def _root_of(leaves: Mapping[int, bytes], count: int, path: Sequence[bytes]) -> bytes | None:
    return root_of_several(leaves, count, path) if leaves else None


def _put(roots: tuple[bytes, ...], index: int, root: bytes) -> tuple[bytes, ...]:
    return (*roots[:index], root, *roots[index + 1 :]) if 0 <= index < len(roots) else roots


def _with_opening(proof: StepProof, operand: OperandOpening, inputs: Sequence[int]) -> StepProof:
    """The proof with the root of an operand inserted where its source says that the root is."""
    claim, witness = proof.claim, proof.witness
    if operand.dtype not in (1, 2):
        return proof
    try:
        root = TensorClaim({1: "int32", 2: "int64"}[operand.dtype], operand.shape, operand.data_root).root()
    except CvmError:
        return proof
    if operand.position >= len(inputs):
        return replace(
            proof, claim=replace(claim, auxiliaries=_put(claim.auxiliaries, operand.position - len(inputs), root))
        )
    number, given, constants = inputs[operand.position], witness.lists[2].count, witness.lists[1].count
    match operand.source:
        case GivenSource() if number < given:
            return replace(proof, witness=replace(witness, inputs=_put(witness.inputs, number, root)))
        case GivenSource():
            before = _put(witness.before, number - given - constants, root)
            return replace(proof, witness=replace(witness, before=before))
        case ConstantSource(name, path):
            record = b"cvm1:constant\0" + text(name) + root
            return replace(proof, witness=_listed(witness, 1, record, number - given, path))
        case ResultSource() as source:
            return _made(proof, operand, source, number, root)
    raise AssertionError("there is no such source")


def _made(proof: StepProof, operand: OperandOpening, source: ResultSource, number: int, root: bytes) -> StepProof:
    """The proof with the root of another op's output inserted in the log."""
    roots = _put(source.roots, number - read_op_record(source.record).first, root)
    log = root_of_proof(step_record(source.op, roots), Proof(source.op, proof.claim.op, source.step_path))
    operands = tuple(
        replace(item, source=replace(source, roots=roots)) if item is operand else item
        for item in proof.witness.operands
    )
    return replace(proof, witness=replace(proof.witness, operands=operands, log=log or proof.witness.log))


def _listed(witness: Witness, which: int, record: bytes, index: int, path: tuple[bytes, ...]) -> Witness:
    """The witness with the root of a list in which the record stands at its index."""
    lists = list(witness.lists)
    root = root_of_proof(record, Proof(index, lists[which].count, path))
    lists[which] = ListOpening(lists[which].count, root or lists[which].root)
    return replace(witness, lists=tuple(lists))


def _with_head(proof: StepProof) -> StepProof:
    claim, witness = proof.claim, proof.witness
    nodes, constants, inputs, outputs, state = (counted_root(item.count, item.root) for item in witness.lists)
    program = ProgramClaim(witness.op_set, witness.limits, nodes, constants, inputs, outputs, state).digest()
    head = head_of(program, witness.inputs, witness.before, counted_root(claim.op, witness.log))
    return replace(proof, claim=replace(claim, head=head))


def _with_partials(proof: StepProof) -> StepProof:
    """The proof with the partials that its step gives; unchanged if the step cannot be computed."""
    claim, witness = proof.claim, proof.witness
    try:
        course, _ = opened_fold(claim, witness)
        before = course.start if witness.partial_before is None else witness.partial_before
        after = course.step(claim.step, before)
        leaves = {claim.step: partial_record(after)}
    except (CvmError, ArithmeticError, LookupError, TypeError, ValueError):
        return proof
    if witness.partial_before is not None and claim.step:
        leaves[claim.step - 1] = partial_record(witness.partial_before)
    for length in range(130):
        path = (bytes(32),) * length
        root = _root_of(leaves, course.count, path)
        if root is not None:
            witness = replace(witness, partial_after=after, partials_path=path)
            return StepProof(replace(claim, partials=claim.commitment(course.count, root)), witness)
    return proof


def whole(proof: StepProof) -> StepProof:
    """The proof with every hash computed from its content."""
    operands = tuple(map(_with_data_root, proof.witness.operands))
    proof = replace(proof, witness=replace(proof.witness, operands=operands))
    try:
        inputs: Sequence[int] = read_op_record(proof.witness.record).inputs
    except CvmError:
        inputs = range(len(operands))
    for index in range(len(operands)):
        proof = _with_opening(proof, proof.witness.operands[index], inputs)
    witness = _listed(proof.witness, 0, proof.witness.record, proof.claim.op, proof.witness.record_path)
    return _with_partials(_with_head(replace(proof, witness=witness)))


def mutant(random_: random.Random, proof: StepProof) -> bytes:
    """A proof with one to three changes; mostly, all hashes are right again."""
    for _ in range(random_.choice((1, 1, 1, 2, 3))):
        try:
            proof = _changed(random_, proof)
        except CvmError:  # an earlier change left no valid record, or one that cannot be written
            break
    if random_.random() < 0.95:
        proof = whole(proof)
    return _encoded(proof)


def _encoded(proof: StepProof, otherwise: Callable[[StepProof], bytes] = lambda _: b"") -> bytes:
    try:
        return encode_proof(proof)
    except CvmError:  # an integer beyond its width
        return otherwise(proof)
