"""The judge of a dispute: accepts or refuses one step, from nothing but its claim and its witness.

`verify_step` recomputes every root from the witness and compares it with the root that the claim names or
that follows from the claim: the program and the log of the run from the head, the op and its operands from these, the
leaves from the operands. Then it computes the step, which can read only the opened leaves, and looks for the partials
before and after it in the committed list. Every opened leaf must be read, so no part of a proof can be changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from cvm.audit.dispute.folds import Fold
from cvm.audit.dispute.proof import (
    ConstantSource,
    GivenSource,
    OperandOpening,
    ResultSource,
    Source,
    StepClaim,
    Witness,
    partial_record,
)
from cvm.audit.dispute.reading import NotedTensor, Operands
from cvm.audit.dispute.records import OpRecord, read_op_record
from cvm.audit.dispute.targets import auxiliary_count, fold, target_shape
from cvm.audit.trace import head_of, step_record
from cvm.errors import CvmError, Invalid
from cvm.ops import REGISTRY, op_set
from cvm.program.commitments import ProgramClaim, TensorClaim, counted_root
from cvm.program.merkle import LEAF_BYTES, Proof, root_of_proof, root_of_several
from cvm.program.model import Shape
from cvm.program.preimage import text
from cvm.records import dataclass

__all__ = ["StepVerdict", "opened_fold", "verify_step"]

_DTYPES = {1: "int32", 2: "int64"}
_ITEM_BYTES = {1: 4, 2: 8}


@dataclass(frozen=True, slots=True)
class StepVerdict:
    """Whether the step is right, and if not, the reason."""

    accepted: bool
    reason: str


def verify_step(claim: StepClaim, witness: Witness) -> StepVerdict:
    """Judge one step. Every claim and every witness get a verdict; nothing is raised.

    The program is assumed to be valid (`cvm.program.verify`), and the head to be the one on which the parties agree.
    """
    try:
        _judge(claim, witness)
    except CvmError as error:
        return StepVerdict(False, f"{error.message} [{error.code}]")
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        # FORMAL assumes a valid program; nothing follows from an invalid one.
        return StepVerdict(False, f"the op cannot be what the program says of it: {error} [step.op]")
    return StepVerdict(True, "the step follows")


def _require(holds: bool, code: str, message: str) -> None:
    if not holds:
        raise Invalid(f"step.{code}", message)


def opened_fold(claim: StepClaim, witness: Witness) -> tuple[Fold, Operands]:
    """The fold of the element that the claim is about, over operands that are opened when they are first read.

    Raises `CvmError`, and so may the step of the fold; FORMAL's own errors if no valid program has such an op.
    """
    record = _open_op(witness, claim.op, witness.record, witness.record_path)
    newer = REGISTRY[record.op].op_set > witness.op_set
    _require(not newer, "op_set", f"op-set {witness.op_set} has no {record.op}")
    extra = min(claim.target + 1, auxiliary_count(record.op))
    _require(len(claim.auxiliaries) == extra, "auxiliaries", f"{extra} roots of auxiliary tensors belong to the target")

    openings = {opening.position: opening for opening in witness.operands}
    _require(list(openings) == sorted(openings) and len(openings) == len(witness.operands), "operands", "out of order")
    operands = Operands(len(record.inputs) + extra, lambda position: _open(claim, witness, record, openings, position))
    return fold(record, claim.target, claim.element, operands), operands


def _judge(claim: StepClaim, witness: Witness) -> None:
    _open_program(claim, witness)
    course, operands = opened_fold(claim, witness)
    _require(claim.step < course.count, "count", f"the element takes {course.count} steps")
    _require((witness.partial_before is None) == (claim.step == 0), "before", "the first step has no partial before it")

    before = course.start if witness.partial_before is None else witness.partial_before
    after = course.step(claim.step, before)
    _require(after == witness.partial_after, "after", f"the step gives {after}, not {witness.partial_after}")
    _require_partials(claim, witness, course.count)
    openings = {opening.position: opening for opening in witness.operands}
    _require(list(operands.taken) == list(openings), "operands", "an operand is opened that the step does not read")
    for position, tensor in operands.taken.items():
        size = LEAF_BYTES // _ITEM_BYTES[openings[position].dtype]
        read = {number // size for number in tensor.numbers}
        opened = {number for number, _ in openings[position].leaves}
        _require(read == opened, "leaves", f"leaves of operand {position} are opened that the step does not read")


def _open_program(claim: StepClaim, witness: Witness) -> None:
    """Open the program and the run from the head."""
    nodes, constants, inputs, outputs, state = (counted_root(item.count, item.root) for item in witness.lists)
    program = ProgramClaim(witness.op_set, witness.limits, nodes, constants, inputs, outputs, state).digest()
    log = counted_root(claim.op, witness.log)
    found = head_of(program, witness.inputs, witness.before, log)
    _require(found == claim.head, "head", "program, inputs, state and log do not give the head")
    latest = op_set(REGISTRY)
    _require(1 <= witness.op_set <= latest, "op_set", f"expected op-set 1 to {latest}, found {witness.op_set}")
    ops, _, given, _, kept = (item.count for item in witness.lists)
    counts = (len(witness.inputs), len(witness.before)) == (given, kept)
    _require(counts and claim.op < ops, "counts", "the run has not the op, the inputs and the state of the program")


def _open_op(witness: Witness, number: int, record: bytes, path: tuple[bytes, ...]) -> OpRecord:
    """The op with that number, opened from the program."""
    nodes = witness.lists[0]
    root = root_of_proof(record, Proof(number, nodes.count, path))
    _require(root == nodes.root, "record", f"this is not the record of op {number}")
    return read_op_record(record)


def _open(
    claim: StepClaim, witness: Witness, record: OpRecord, openings: Mapping[int, OperandOpening], position: int
) -> NotedTensor:
    """One operand, of which only the opened leaves can be read."""
    _require(position in openings, "closed", f"the step reads operand {position}, which the witness does not open")
    opening = openings[position]
    _require(opening.dtype in _DTYPES, "dtype", f"there is no type {opening.dtype} of elements")
    root = TensorClaim(_DTYPES[opening.dtype], opening.shape, opening.data_root).root()
    index = position - len(record.inputs)
    if index >= 0:
        _require(isinstance(opening.source, GivenSource), "source", "an auxiliary tensor is in the claim")
        expected: tuple[bytes | None, Shape | None] = claim.auxiliaries[index], target_shape(record, index)
    else:
        expected = _root_of_value(witness, claim.op, record.inputs[position], opening.source, root)
    _require(root == expected[0], "root", f"operand {position} has not the root that the run gives it")
    same = expected[1] in (None, opening.shape)
    _require(same, "shape", f"operand {position} has not the shape that the program gives it")
    return NotedTensor(opening.shape, _elements(opening))


def _root_of_value(
    witness: Witness, before: int, number: int, source: Source, root: bytes
) -> tuple[bytes | None, Shape | None]:
    """The root that the run has for the value of that number, and its declared shape if the witness shows it."""
    _, constants, inputs, _, state = (item.count for item in witness.lists)
    begin = inputs + constants
    if number < inputs or begin <= number < begin + state:
        _require(isinstance(source, GivenSource), "source", "an input or state is among what the run began with")
        return witness.inputs[number] if number < inputs else witness.before[number - begin], None
    if number < begin:
        if not isinstance(source, ConstantSource):
            raise Invalid("step.source", f"value {number} is a constant")
        record = b"cvm1:constant\0" + text(source.name) + root
        found = root_of_proof(record, Proof(number - inputs, constants, source.path))
        return root if found == witness.lists[1].root else None, None
    if not isinstance(source, ResultSource):
        raise Invalid("step.source", f"value {number} is what an op gave")
    maker = _open_op(witness, source.op, source.record, source.record_path)
    index = number - maker.first
    _require(0 <= index < len(maker.outputs) == len(source.roots), "source", f"op {source.op} is not its maker")
    log = root_of_proof(step_record(source.op, source.roots), Proof(source.op, before, source.step_path))
    _require(log == witness.log, "log", f"op {source.op} has not given these roots in the run")
    return source.roots[index], maker.outputs[index].shape


def _elements(opening: OperandOpening) -> Callable[[int], int]:
    """A function from the row-major number of an element to the element, read from the opened leaves."""
    item = _ITEM_BYTES[opening.dtype]
    size = item * math.prod(opening.shape)
    leaves = dict(opening.leaves)
    _require(list(leaves) == sorted(leaves) and len(leaves) == len(opening.leaves), "leaves", "leaves are out of order")
    if leaves:
        whole = all(len(leaf) == min(LEAF_BYTES, size - LEAF_BYTES * number) for number, leaf in leaves.items())
        _require(whole, "leaves", "a leaf has not its length")
        found = root_of_several(leaves, -(-size // LEAF_BYTES), opening.path)
        _require(found == opening.data_root, "leaves", "the leaves are not those of the operand")
    else:
        _require(not opening.path, "leaves", "there is no leaf to prove")

    def element(number: int) -> int:
        leaf, start = divmod(number * item, LEAF_BYTES)
        _require(leaf in leaves, "closed", f"the step reads leaf {leaf}, which the witness does not open")
        return int.from_bytes(leaves[leaf][start : start + item], "little", signed=True)

    return element


def _require_partials(claim: StepClaim, witness: Witness, count: int) -> None:
    """Require that the partials before and after the step are neighbouring leaves of the commitment."""
    leaves = {claim.step: partial_record(witness.partial_after)}
    if witness.partial_before is not None:
        leaves[claim.step - 1] = partial_record(witness.partial_before)
    root = root_of_several(leaves, count, witness.partials_path)
    found = None if root is None else claim.commitment(count, root)
    _require(found == claim.partials, "partials", "the partials are not those of the claim")
