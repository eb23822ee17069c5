"""A program and all tensors of one run. They suffice to open any part of the run and to prove any of its steps."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.audit.dispute import vision
from cvm.audit.dispute.folds import Fold, FoldCall
from cvm.audit.dispute.proof import (
    ConstantSource,
    GivenSource,
    ListOpening,
    OperandOpening,
    ResultSource,
    Source,
    StepClaim,
    StepProof,
    Witness,
    partial_record,
)
from cvm.audit.dispute.reading import NotedTensor, Operands
from cvm.audit.dispute.records import OpRecord, read_op_record
from cvm.audit.dispute.targets import auxiliary_count, fold
from cvm.audit.hashing import tensor_roots
from cvm.audit.receipt import Roots
from cvm.audit.trace import Trace, head_of, trace_of
from cvm.errors import Invalid
from cvm.program import Program
from cvm.program.commitments import TensorClaim, counted_root, records, tensor_tree
from cvm.program.merkle import LEAF_BYTES, Tree
from cvm.program.model import Shape
from cvm.records import dataclass

__all__ = ["Evidence", "OpenProgram"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class OpenProgram:
    """A program with the trees over its records."""

    program: Program

    @cached_property
    def lists(self) -> tuple[ListOpening, ...]:
        """The five lists: ops, constants, inputs, outputs, state."""
        parts = self._records
        lists = (parts.nodes, parts.constants, parts.inputs, parts.outputs, parts.state)
        return tuple(ListOpening(len(items), Tree.of(items).root) for items in lists)

    @cached_property
    def nodes(self) -> Tree:
        """The tree over the records of the ops."""
        return Tree.of(self._records.nodes)

    @cached_property
    def constants(self) -> Tree:
        """The tree over the records of the constants."""
        return Tree.of(self._records.constants)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of all values by their numbers."""
        return tuple(self.program.value_names())

    @cached_property
    def makers(self) -> Mapping[str, int]:
        """For each value that an op makes, the number of this op."""
        return {value.name: number for number, node in enumerate(self.program.nodes) for value in node.outputs}

    @cached_property
    def constant_arrays(self) -> Mapping[str, Array]:
        """The constants by name."""
        return {constant.name: constant.array() for constant in self.program.constants}

    @cached_property
    def _records(self) -> Any:
        return records(self.program)

    def record(self, op: int) -> bytes:
        """The record of an op."""
        found: bytes = self._records.nodes[op]
        return found

    def op(self, number: int) -> OpRecord:
        """An op, as its record states it."""
        return read_op_record(self.record(number))

    @cached_property
    def shapes(self) -> Mapping[str, Shape]:
        """The shapes of all values by name."""
        program = self.program
        values = [item.value for item in program.inputs] + [item.value for item in program.state]
        values += [value for node in program.nodes for value in node.outputs]
        constants = {constant.name: constant.shape for constant in program.constants}
        return constants | {value.name: value.shape for value in values}

    def item_bytes(self, record: OpRecord, position: int) -> int:
        """The bytes of an element of an operand: 8 for a parameter, else 4."""
        if position >= len(record.inputs):
            return 4
        constant = self.constant_arrays.get(self.names[record.inputs[position]])
        return 4 if constant is None else constant.itemsize

    def operands(self, op: int) -> Operands:
        """The operands of an op as shapes, without elements; its auxiliary tensors follow."""
        record = self.op(op)
        shapes = [self.shapes[self.names[number]] for number in record.inputs]
        shapes += [record.outputs[0].shape[:2]] * auxiliary_count(record.op)

        def element(number: int) -> int:
            raise LookupError(f"there is no element {number}: only the shape is known")

        return Operands(len(shapes), lambda position: NotedTensor(shapes[position], element))


class Evidence:
    """All tensors of one run, as a party states them.

    ``values`` are the int32 tensors by name: inputs, the state before the run, and the outputs of every op.
    """

    def __init__(self, program: OpenProgram, values: Mapping[str, Array]) -> None:
        self.program = program
        self.values = dict(values)
        self._trees: dict[str, Tree] = {}
        self._auxiliaries: dict[int, tuple[Array, ...]] = {}

    # The tensors of the run

    @cached_property
    def trace(self) -> Trace:
        """The trace of the run."""
        program = self.program.program
        names = [item.value.name for item in program.inputs] + [item.value.name for item in program.state]
        names += self.program.makers
        return trace_of(program, tensor_roots({name: self.values[name] for name in names}))

    @cached_property
    def log(self) -> Tree:
        """The tree over the records of the trace."""
        return Tree.of(self.trace.records())

    def tensor(self, op: int, target: int) -> Array:
        """A target of an op."""
        node = self.program.program.nodes[op]
        index = target - auxiliary_count(node.op)
        return self.auxiliaries(op)[target] if index < 0 else self.values[node.outputs[index].name]

    def auxiliaries(self, op: int) -> tuple[Array, ...]:
        """The auxiliary tensors of an op."""
        if op not in self._auxiliaries:
            record = self.program.op(op)
            made = vision.auxiliaries(self._call(op, record)) if auxiliary_count(record.op) else ()
            shape = record.outputs[0].shape[:2]
            self._auxiliaries[op] = tuple(np.array(items, np.int32).reshape(shape) for items in made)
        return self._auxiliaries[op]

    def auxiliary_roots(self, op: int) -> Roots:
        """The roots of the auxiliary tensors."""
        return tuple(self.claim(op, target).root() for target in range(len(self.auxiliaries(op))))

    def tree(self, op: int, target: int) -> Tree:
        """The tree over the leaves of a target."""
        return self._tree(f"{op} {target}", self.tensor(op, target))

    def claim(self, op: int, target: int) -> TensorClaim:
        """The content to which the root of a target commits."""
        return TensorClaim("int32", self.tensor(op, target).shape, self.tree(op, target).root)

    def _tree(self, key: str, array: Array) -> Tree:
        if key not in self._trees:
            self._trees[key] = tensor_tree(array)
        return self._trees[key]

    # Steps

    def _call(self, op: int, record: OpRecord) -> FoldCall:
        return FoldCall(record, 0, self._operands(op, record), ())

    def _operands(self, op: int, record: OpRecord) -> Operands:
        count = len(record.inputs) + auxiliary_count(record.op)
        return Operands(count, lambda position: _noted(self._operand(op, record, position)))

    def _operand(self, op: int, record: OpRecord, position: int) -> Array:
        index = position - len(record.inputs)
        return self.auxiliaries(op)[index] if index >= 0 else self._value(record.inputs[position])

    def _value(self, number: int) -> Array:
        name = self.program.names[number]
        found = self.program.constant_arrays.get(name)
        return self.values[name] if found is None else found

    def fold(self, op: int, target: int, element: int) -> tuple[Fold, Operands]:
        """The fold of an element, and the operands, which record which of their elements are read."""
        record = self.program.op(op)
        operands = self._operands(op, record)
        return fold(record, target, element, operands), operands

    def partials(self, op: int, target: int, element: int) -> list[int]:
        """The partials of an element. The last one is the element as the party states it, even if that is wrong."""
        course, _ = self.fold(op, target, element)
        found, partial = [], course.start
        for step in range(course.count):
            partial = course.step(step, partial)
            found.append(partial)
        return [*found[:-1], int(self.tensor(op, target).flat[element])]

    def reads(self, op: int, target: int, element: int, step: int, before: int) -> Mapping[int, frozenset[int]]:
        """The numbers of the elements that a step reads, for each operand that it opens, by the operand's position.

        ``before`` is the partial before the step; after the end of a search, nothing more is read.
        """
        course, operands = self.fold(op, target, element)
        course.step(step, before)
        return {position: frozenset(tensor.numbers) for position, tensor in operands.taken.items()}

    def prove(self, op: int, target: int, element: int, step: int, partials: Sequence[int] | None = None) -> StepProof:
        """The proof of one step. ``partials`` are those of the element, if they are known.

        Raises `Invalid` (``step.count``) if the element takes fewer steps.
        """
        known = self.partials(op, target, element) if partials is None else partials
        course, operands = self.fold(op, target, element)
        if not 0 <= step < course.count == len(known):
            raise Invalid("step.count", f"the element takes {course.count} steps: there is no step {step}")
        before = known[step - 1] if step else None
        course.step(step, course.start if before is None else before)
        record, program = self.program.op(op), self.program
        tree = Tree.of(map(partial_record, known))
        log = Tree.of(self.trace.records()[:op])
        claim = StepClaim(
            head=head_of(self.trace.program, self.trace.inputs, self.trace.before, counted_root(op, log.root)),
            op=op,
            target=target,
            auxiliaries=self.auxiliary_roots(op)[: target + 1],
            element=element,
            step=step,
            partials=b"",
        )
        claim = replace(claim, partials=claim.commitment(tree.count, tree.root))
        witness = Witness(
            op_set=program.program.op_set,
            limits=program.program.limits,
            lists=program.lists,
            inputs=self.trace.inputs,
            before=self.trace.before,
            log=log.root,
            record=program.record(op),
            record_path=program.nodes.prove(op).path,
            partial_before=before,
            partial_after=known[step],
            partials_path=tree.prove_several(range(max(step - 1, 0), step + 1)),
            operands=tuple(
                self._opening(op, record, log, position, tensor) for position, tensor in operands.taken.items()
            ),
        )
        return StepProof(claim, witness)

    def _opening(self, op: int, record: OpRecord, log: Tree, position: int, tensor: NotedTensor) -> OperandOpening:
        array = self._operand(op, record, position)
        index = position - len(record.inputs)
        tree = self.tree(op, index) if index >= 0 else self._tree(self.program.names[record.inputs[position]], array)
        size = LEAF_BYTES // array.itemsize
        numbers = sorted({number // size for number in tensor.numbers})
        return OperandOpening(
            position=position,
            source=GivenSource() if index >= 0 else self._source(record.inputs[position], log),
            dtype=1 if array.itemsize == 4 else 2,
            shape=array.shape,
            data_root=tree.root,
            leaves=tuple((number, leaf_of(array, number)) for number in numbers),
            path=tree.prove_several(numbers) if numbers else (),
        )

    def _source(self, number: int, log: Tree) -> Source:
        name, program = self.program.names[number], self.program
        if name in program.constant_arrays:
            index = number - program.lists[2].count
            return ConstantSource(name, program.constants.prove(index).path)
        if name not in program.makers:
            return GivenSource()
        op = program.makers[name]
        roots, path = self.trace.steps[op], log.prove(op).path
        return ResultSource(op, program.record(op), program.nodes.prove(op).path, roots, path)


def leaf_of(array: Array, number: int) -> bytes:
    """A leaf of the data of a tensor."""
    size = LEAF_BYTES // array.itemsize
    items = array.reshape(-1)[number * size : (number + 1) * size]
    return items.astype(items.dtype.newbyteorder("<"), copy=False).tobytes()


def _noted(array: Array) -> NotedTensor:
    flat = array.reshape(-1)
    return NotedTensor(array.shape, lambda number: int(flat[number]))


def leaf_count(shape: Sequence[int]) -> int:
    """The number of leaves of an int32 tensor."""
    return -(-4 * math.prod(shape) // LEAF_BYTES)
