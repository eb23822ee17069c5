"""The tensors of an op that can be disputed (its targets), and the fold of each of their elements."""

from __future__ import annotations

import math

from cvm.audit.dispute import folds, vision
from cvm.audit.dispute.folds import Fold, FoldCall
from cvm.audit.dispute.reading import Operands
from cvm.audit.dispute.records import OpRecord
from cvm.errors import Invalid
from cvm.program.model import Shape
from formal.tensor import Index

__all__ = ["auxiliary_count", "fold", "index_of", "target_shape"]


def auxiliary_count(op: str) -> int:
    """The number of auxiliary tensors that a party commits to when this op is disputed."""
    return len(vision.AUXILIARIES.get(op, ()))


def target_shape(record: OpRecord, target: int) -> Shape:
    """The shape of a target: auxiliary tensors come first, then the outputs. Raises `Invalid` if there is none."""
    index = target - auxiliary_count(record.op)
    if not target >= 0 or index >= len(record.outputs):
        raise Invalid("step.target", f"{record.op} has no target {target}")
    return record.outputs[0].shape[:2] if index < 0 else record.outputs[index].shape


def index_of(element: int, shape: Shape) -> Index:
    """The index of an element from its number, row-major. Raises `Invalid` if there is none."""
    if not 0 <= element < math.prod(shape):
        raise Invalid("step.element", f"a tensor of shape {list(shape)} has no element {element}")
    index = []
    for extent in reversed(shape):
        element, position = divmod(element, extent)
        index.append(position)
    return tuple(reversed(index))


def fold(record: OpRecord, target: int, element: int, operands: Operands) -> Fold:
    """The fold of an element of a target. ``operands`` are the operands of the op, then its auxiliary tensors.

    Raises `Invalid` if there is no such target or element.
    """
    count = auxiliary_count(record.op)
    call = FoldCall(record, max(target - count, 0), operands, index_of(element, target_shape(record, target)))
    if target < count:
        return vision.AUXILIARIES[record.op][target](call)
    return {**folds.FOLDS, **vision.FOLDS}.get(record.op, folds.at_once)(call)
