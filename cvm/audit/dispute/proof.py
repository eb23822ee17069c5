"""One-step proofs: the claim about a step, and the witness that shows it.

A proof is bytes of a fixed layout, as preimages are (docs/commitments.md, section 9): one proof, one encoding.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TypeAlias

from cvm.audit.dispute.cursor import Cursor
from cvm.audit.receipt import Roots
from cvm.errors import Invalid
from cvm.limits import require
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES
from cvm.program.model import Shape
from cvm.program.preimage import listed, shape, text, u8, u32, u64
from cvm.records import dataclass

__all__ = [
    "PROOF_BYTES",
    "ConstantSource",
    "GivenSource",
    "ListOpening",
    "OperandOpening",
    "Path",
    "ResultSource",
    "Source",
    "StepClaim",
    "StepProof",
    "Witness",
    "decode_proof",
    "encode_proof",
    "partial_record",
]

PROOF_BYTES = 2**20
"""The most bytes of a proof that the judge reads; proofs of ordinary programs have fewer than 2^14."""
_PARTIAL_BYTES = 16

Path: TypeAlias = tuple[bytes, ...]
"""The hashes of neighbours, from the leaves to the root."""


@dataclass(frozen=True, slots=True)
class StepClaim:
    """The claim of a proof: that one step of the fold of one element is right."""

    head: bytes
    """The state of the run before the op: the head of its trace over the earlier ops."""
    op: int
    target: int
    """The number of the tensor: the auxiliary tensors of the op come first, then its outputs."""
    auxiliaries: Roots
    """The roots of the auxiliary tensors up to the target."""
    element: int
    """The row-major number of the element in the target."""
    step: int
    partials: bytes
    """The commitment to all partials of the element."""

    def _location(self) -> bytes:
        return self.head + u32(self.op) + u32(self.target) + listed(self.auxiliaries) + u64(self.element)

    def preimage(self) -> bytes:
        """The bytes of the claim."""
        return b"cvm1:step-claim\0" + self._location() + u32(self.step) + self.partials

    def commitment(self, count: int, root: bytes) -> bytes:
        """The commitment to ``count`` partials of the element, ``root`` being their Merkle root.

        It contains the location of the element, so a claim holds for one element alone.
        """
        return sha256(b"cvm1:partials\0" + self._location() + u64(count) + root).digest()


@dataclass(frozen=True, slots=True)
class ListOpening:
    """The content of a list root: the number of records, and their Merkle root."""

    count: int
    root: bytes


@dataclass(frozen=True, slots=True)
class GivenSource:
    """The root of the operand is in the claim, or is an input or a state before the run."""


@dataclass(frozen=True, slots=True)
class ConstantSource:
    """The operand is a constant: its name, and the path of its record in the list of constants."""

    name: str
    path: Path


@dataclass(frozen=True, slots=True)
class ResultSource:
    """The operand is an output of an earlier op: that op's record, the roots of its outputs, and the paths of both."""

    op: int
    record: bytes
    record_path: Path
    roots: Roots
    step_path: Path


Source: TypeAlias = GivenSource | ConstantSource | ResultSource


@dataclass(frozen=True, slots=True)
class OperandOpening:
    """One operand: the content of its root, the source of this root, and the leaves that the step reads."""

    position: int
    dtype: int
    """1 is int32, 2 is int64."""
    shape: Shape
    data_root: bytes
    source: Source
    leaves: tuple[tuple[int, bytes], ...]
    """The numbers of the leaves, ascending, and their bytes."""
    path: Path
    """The one proof of all these leaves."""


@dataclass(frozen=True, slots=True)
class Witness:
    """Everything that a step reads, opened from the roots of the claim."""

    op_set: int
    limits: str
    lists: tuple[ListOpening, ...]
    """The five lists of the program: ops, constants, inputs, outputs, state."""
    inputs: Roots
    before: Roots
    """The roots of the state before the run."""
    log: bytes
    """The Merkle root of the records of the earlier ops."""
    record: bytes
    """The record of the op."""
    record_path: Path
    partial_before: int | None
    """The partial before the step; None for the first step, whose start the op defines."""
    partial_after: int
    partials_path: Path
    operands: tuple[OperandOpening, ...]
    """The operands that the step reads, in order."""


@dataclass(frozen=True, slots=True)
class StepProof:
    """A claim and its witness."""

    claim: StepClaim
    witness: Witness


# Partials


def _partial(value: int) -> bytes:
    try:
        return value.to_bytes(_PARTIAL_BYTES, "little", signed=True)
    except OverflowError:
        raise Invalid("step.partial", f"{value} does not fit in {8 * _PARTIAL_BYTES} bits") from None


def partial_record(value: int) -> bytes:
    """The record of a partial: a leaf of the list of partials. Raises `Invalid` for a partial beyond 128 bits."""
    return b"cvm1:partial\0" + _partial(value)


# Bytes


def encode_proof(proof: StepProof) -> bytes:
    """The bytes of a proof. Raises `Invalid` for integers beyond their width."""
    witness = proof.witness
    before = witness.partial_before
    return b"".join([
        b"cvm1:step-proof\0",
        proof.claim.preimage(),
        u32(witness.op_set),
        text(witness.limits),
        *(u64(item.count) + item.root for item in witness.lists),
        listed(witness.inputs),
        listed(witness.before),
        witness.log,
        _binary(witness.record),
        listed(witness.record_path),
        u8(0) if before is None else u8(1) + _partial(before),
        _partial(witness.partial_after),
        listed(witness.partials_path),
        listed([_operand(operand) for operand in witness.operands]),
    ])  # fmt: skip


def _binary(data: bytes) -> bytes:
    return u32(len(data)) + data


def _operand(operand: OperandOpening) -> bytes:
    claim = u8(operand.dtype) + shape(operand.shape) + operand.data_root
    leaves = listed([u64(number) + _binary(leaf) for number, leaf in operand.leaves])
    return u32(operand.position) + claim + _source(operand.source) + leaves + listed(operand.path)


def _source(source: Source) -> bytes:
    if isinstance(source, GivenSource):
        return u8(0)
    if isinstance(source, ConstantSource):
        return u8(1) + text(source.name) + listed(source.path)
    record = _binary(source.record) + listed(source.record_path)
    return u8(2) + u32(source.op) + record + listed(source.roots) + listed(source.step_path)


def decode_proof(data: bytes) -> StepProof:
    """The proof that ``data`` encodes; nothing that it claims is verified.

    Raises `LimitExceeded` for more than 2^20 bytes, and `Malformed` for bytes that are no proof.
    """
    require("proof_bytes", len(data), PROOF_BYTES, "bytes of a one-step proof")
    cursor = Cursor(data)
    cursor.tag(b"cvm1:step-proof\0")
    proof = StepProof(_read_claim(cursor), _read_witness(cursor))
    cursor.end()
    return proof


def _read_claim(cursor: Cursor) -> StepClaim:
    cursor.tag(b"cvm1:step-claim\0")
    return StepClaim(
        head=cursor.root(),
        op=cursor.u32(),
        target=cursor.u32(),
        auxiliaries=cursor.roots(),
        element=cursor.u64(),
        step=cursor.u32(),
        partials=cursor.root(),
    )


def _read_witness(cursor: Cursor) -> Witness:
    return Witness(
        op_set=cursor.u32(),
        limits=cursor.text(),
        lists=tuple(ListOpening(cursor.u64(), cursor.root()) for _ in range(5)),
        inputs=cursor.roots(),
        before=cursor.roots(),
        log=cursor.root(),
        record=cursor.binary(),
        record_path=cursor.roots(),
        partial_before=cursor.integer(_PARTIAL_BYTES, signed=True) if cursor.flag() else None,
        partial_after=cursor.integer(_PARTIAL_BYTES, signed=True),
        partials_path=cursor.roots(),
        operands=cursor.listed(lambda: _read_operand(cursor), 4 + 1 + 1 + 9 + HASH_BYTES + 4 + 4),
    )


def _read_operand(cursor: Cursor) -> OperandOpening:
    return OperandOpening(
        position=cursor.u32(),
        dtype=cursor.u8(),
        shape=cursor.shape(),
        data_root=cursor.root(),
        source=_read_source(cursor),
        leaves=cursor.listed(lambda: (cursor.u64(), _read_leaf(cursor)), 12),
        path=cursor.roots(),
    )


def _read_leaf(cursor: Cursor) -> bytes:
    leaf = cursor.binary()
    if not 1 <= len(leaf) <= LEAF_BYTES:
        raise cursor.malformed("leaf", f"a leaf has 1 to {LEAF_BYTES} bytes, found {len(leaf)}")
    return leaf


def _read_source(cursor: Cursor) -> Source:
    kind = cursor.u8()
    if kind == 0:
        return GivenSource()
    if kind == 1:
        return ConstantSource(cursor.text(), cursor.roots())
    if kind == 2:
        return ResultSource(cursor.u32(), cursor.binary(), cursor.roots(), cursor.roots(), cursor.roots())
    raise cursor.malformed("source", f"there is no kind {kind} of source")
