"""Bounds known from a program alone: the most rounds of a game, and the largest proof of any step of a target."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.audit.dispute.evidence import OpenProgram, leaf_count
from cvm.audit.dispute.folds import Fold
from cvm.audit.dispute.records import OpRecord
from cvm.audit.dispute.targets import auxiliary_count, fold, target_shape
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES

__all__ = ["largest_proof", "most_rounds"]

_CLAIM = 16 + 32 + 4 + 4 + 4 + 8 + 4 + 32
_WITNESS = 16 + 4 + 4 + 5 * 40 + 4 + 4 + 32 + 4 + 4 + 17 + 16 + 4 + 4
_OPERAND = 4 + 1 + 1 + 32 + 4 + 4
"""Bytes of the parts that every proof has, tags and lengths of lists included."""


def most_rounds(program: OpenProgram) -> int:
    """The most rounds of a game about a run of this program.

    Two for the trace and the op; one for the auxiliary tensors, if there are any; one each for the tensor, the leaf,
    the partials and the proofs; and the levels of three trees: the log, the tensor, the partials.
    """
    most = 0
    for op in range(len(program.program.nodes)):
        record = program.op(op)
        extra = auxiliary_count(record.op)
        for target in range(extra + len(record.outputs)):
            shape = target_shape(record, target)
            trees = _levels(leaf_count(shape)) + _levels(_course(program, op, record, target).count)
            most = max(most, min(extra, 1) + trees)
    return 6 + _levels(len(program.program.nodes)) + most


def largest_proof(program: OpenProgram, op: int, target: int) -> int:
    """Bytes that no proof about a target of an op exceeds, whatever the element, the step and the data."""
    record = program.op(op)
    course = _course(program, op, record, target)
    extra = min(target + 1, auxiliary_count(record.op))
    _, _, inputs, _, state = (item.count for item in program.lists)
    ends = HASH_BYTES * (extra + inputs + state) + len(program.program.limits.encode())
    paths = HASH_BYTES * (_levels(len(program.program.nodes)) + _neighbours(2, course.count))
    groups = course.groups or (tuple(course.leaves),)
    opened = max(_operands(program, op, record, course, group) for group in groups)
    return _CLAIM + _WITNESS + ends + len(program.record(op)) + paths + opened


def _course(program: OpenProgram, op: int, record: OpRecord, target: int) -> Fold:
    """The fold of the last element of a target. No other element takes more steps."""
    return fold(record, target, math.prod(target_shape(record, target)) - 1, program.operands(op))


def _operands(program: OpenProgram, op: int, record: OpRecord, course: Fold, group: Sequence[int]) -> int:
    """The most bytes of the operands in a group that is opened together."""
    shapes = {position: program.operands(op)[position].shape for position in group}
    items = {position: program.item_bytes(record, position) for position in group}
    opened = sum(_OPERAND + 8 * len(shapes[p]) + _source(program, op, record, p) for p in group)
    single = [_leaves(shapes[p], items[p], 1) for p in group]
    if course.all_leaves is not None:
        return opened + course.all_leaves * max(single)
    return opened + sum(_leaves(shapes[p], items[p], course.leaves[p]) for p in group)


def _leaves(shape: Sequence[int], item: int, leaves: int) -> int:
    """The most bytes of ``leaves`` leaves of a tensor, with their path."""
    size = item * math.prod(shape)
    count = -(-size // LEAF_BYTES)
    opened = min(leaves, count)
    return opened * (8 + 4) + min(size, opened * LEAF_BYTES) + HASH_BYTES * _neighbours(opened, count)


def _source(program: OpenProgram, op: int, record: OpRecord, position: int) -> int:
    """The bytes of the source of an operand."""
    name = program.names[record.inputs[position]] if position < len(record.inputs) else ""
    if name in program.constant_arrays:
        return 1 + 4 + len(name.encode()) + 4 + HASH_BYTES * _levels(program.lists[1].count)
    if name not in program.makers:
        return 1
    maker = program.makers[name]
    hashes = _levels(program.lists[0].count) + len(program.op(maker).outputs) + _levels(op)
    return 1 + 4 + 4 + len(program.record(maker)) + 4 + 4 + 4 + HASH_BYTES * hashes


def _levels(count: int) -> int:
    """The number of levels above the leaves in a tree of ``count`` leaves: the longest path."""
    return (count - 1).bit_length()


def _neighbours(leaves: int, count: int) -> int:
    """The most hashes in the proof of ``leaves`` leaves of a tree."""
    hashes = 0
    while count > 1:
        hashes += min(leaves, count // 2)
        count -= count // 2
    return hashes
