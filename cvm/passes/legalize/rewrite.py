"""`legalize`: rewriting a program without extension ops. Every value keeps its name and its codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from cvm.errors import Invalid, Location, Unsupported
from cvm.ops import REGISTRY, Call, Range, op_set
from cvm.ops.extension import terms
from cvm.passes.legalize.expressions import Expression, Expressions, Unprovable, missing
from cvm.passes.legalize.greater import greater
from cvm.passes.legalize.integers import Integers
from cvm.passes.legalize.matmul import matmul
from cvm.passes.legalize.normalize import normalize
from cvm.passes.legalize.quotient import quotient
from cvm.passes.legalize.requantize import requantize
from cvm.passes.legalize.slices import update_slice
from cvm.passes.legalize.tensors import Tensors
from cvm.program import Program
from cvm.program.model import AttributeValue, Constant, Node, Shape, Value
from cvm.program.scope import Scope
from cvm.program.verifier import VerifiedProgram, verify
from cvm.records import dataclass

__all__ = ["legalize"]

SUFFIX = 32
"""The most bytes that are added to the name of a value to name its parts."""


def legalize(program: Program) -> Program:
    """The program with every extension op expanded into the document's ops; the program itself if it has none.

    The result is verified. It has all values of ``program`` except parameters, under their names; its provenance says
    that it was legalised. Raises the errors of `verify` for ``program``, `LimitExceeded`, and `Unsupported`
    (``legalize.unprovable``) for an op that has no expansion whose intervals are proven.
    """
    verified = verify(program)
    if not any(map(_is_extension, program.nodes)) and all(item.kind == "tensor" for item in program.constants):
        return program
    try:
        return _rewritten(verified, exactly=False)
    except Invalid:
        # A later op cannot be proven without the bounds per channel that the extension op's rule gives.
        return _rewritten(verified, exactly=True)


def _is_extension(node: Node) -> bool:
    return REGISTRY[node.op].extension


def _rewritten(verified: VerifiedProgram, exactly: bool) -> Program:
    """The rewritten program. With ``exactly``, the bounds of every channel are kept."""
    program = verified.program
    rewriting = _Rewriting(verified, exactly, Scope(verified.limits), set(program.value_names()))
    for node, call in zip(program.nodes, verified.calls, strict=True):
        rewriting.node(node, call)
    provenance = replace(program.provenance, tool=f"{program.provenance.tool}, legalised".lstrip(", "))
    result = replace(
        program,
        constants=tuple(rewriting.constants),
        nodes=tuple(rewriting.nodes),
        op_set=op_set(node.op for node in rewriting.nodes),
        provenance=provenance,
    )
    verify(result)
    return result


@dataclass
class _Rewriting:
    """The new program so far."""

    verified: VerifiedProgram
    exactly: bool
    scope: Scope
    taken: set[str]
    made: Expressions = field(default_factory=Expressions)
    present: dict[int, str] = field(default_factory=dict)
    """The names of the expressions that have been written."""
    parameters: dict[str, Constant] = field(default_factory=dict)
    constants: list[Constant] = field(default_factory=list)
    nodes: list[Node] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        program = self.verified.program
        for item in program.inputs:
            self.scope.input(item)
        for constant in program.constants:
            if constant.kind == "tensor":
                self.scope.constant(constant)
                self.constants.append(constant)
            else:
                self.parameters[constant.name] = constant
        for state in program.state:
            self.scope.state(state)

    def node(self, node: Node, call: Call) -> None:
        """Write a node, expanded if it is an extension op."""
        if not _is_extension(node):
            self._write(node.op, node.inputs, node.attributes, node.outputs)
            return
        (output,) = node.outputs
        proven = self.verified.ranges[output.name]
        try:
            root = self._expansion(node, call, proven)
        except Unprovable as error:
            message = f"no expansion into the document's ops is proven to stay within int32 ({error})"
            raise Unsupported("legalize.unprovable", message, Location(op=node.op, tensor=output.name)) from None
        self._emit(root, output)
        self.made.forget(self.present)

    def _expansion(self, node: Node, call: Call, proven: Range) -> Expression:
        """The result of an extension op, clipped to the bounds that were proven for it."""
        lo, hi = proven.hull()
        tensors = Tensors(self.made)
        if node.op == "broadcast_greater":
            root = greater(self.made, *(self._value(name) for name in node.inputs))
        elif node.op == "matmul":
            # Constants are treated as computed tensors, which keep their shapes; narrowing could change these.
            a, b = (replace(self._value(name), elements=None) for name in node.inputs)
            root = matmul(a, b, call.attributes.transpose_a, call.attributes.transpose_b)
        elif node.op == "update_slice":
            x, u, index = (replace(self._value(name), elements=None) for name in node.inputs)
            root = update_slice(self.made, x, u, index, call.attributes.axis)
        elif node.op == "normalize":
            a = call.attributes
            x = replace(self._value(node.inputs[0]), elements=None)
            parameters = self._parameters(node, 1)
            root = normalize(self.made, x, parameters, a.axes, a.statistic, a.shift, a.rounding, a.lo, a.hi)
        elif node.op == "quotient":
            count = terms(len(node.inputs))
            values = [self._value(name) for name in node.inputs[:count]]
            parameters = self._parameters(node, count)
            root = quotient(self.made, values, parameters, call.attributes.terms, call.attributes.rounding, lo, hi)
        else:
            count = terms(len(node.inputs))
            parameters = self._parameters(node, count)
            root = requantize(
                self.made,
                [self._value(name) for name in node.inputs[:count]],
                parameters,
                call.attributes.rounding,
                lo,
                hi,
                self.present,
            )
        if self.exactly and not proven.contains(root.range):
            root = tensors.within(root, proven.lo, proven.hi, "bounds")
        return self._shaped(root, node.outputs[0].shape)

    def _parameters(self, node: Node, first: int) -> list[Integers]:
        """The elements of the inputs from ``first`` on, which are parameters."""
        return [self.parameters[name].array() for name in node.inputs[first:]]

    def _shaped(self, root: Expression, shape: Shape) -> Expression:
        """The tensor, broadcast to its declared shape if narrowed constants have made it smaller."""
        if root.shape == shape:
            return root
        if root.elements is not None:
            return self.made.constant(np.broadcast_to(root.elements, shape), narrow=False)
        zeros = self.made.constant(np.zeros(shape, np.int64), narrow=False)
        return root.plus(zeros, "shape")

    def _value(self, name: str) -> Expression:
        constant = self.scope.constants.get(name)
        elements = None if constant is None else constant.array().astype(np.int64)
        return self.made.value(name, self.scope.shapes[name], self.scope.ranges[name], elements)

    def _emit(self, root: Expression, output: Value) -> None:
        """Write an expression, and the expressions that it needs, so that its value is ``output``."""
        needed = missing(root, self.present)
        for item in needed:
            if item.elements is not None:
                self.present[item.number] = self._constant(item.elements, output.name)
            elif item is not root:
                self.present[item.number] = self._define(item, output.name)
        if needed and root.op:
            self._write(root.op, self._names(root), root.attributes or {}, (output,))
            self.present[root.number] = output.name
        else:
            # The value exists under another name, or is a constant. A clip that changes no element gives it the name.
            limits = {"a_min": root.lo, "a_max": root.hi}
            self._write("clip", (root.name or self.present[root.number],), limits, (output,))

    def _names(self, item: Expression) -> tuple[str, ...]:
        return tuple(part.name or self.present[part.number] for part in item.inputs)

    def _constant(self, elements: Integers, owner: str) -> str:
        constant = Constant.of(self._fresh(owner, "constant"), elements)
        self.scope.constant(constant)
        self.constants.append(constant)
        return constant.name

    def _define(self, item: Expression, owner: str) -> str:
        name = self._fresh(owner, item.label)
        value = Value(name, item.shape, item.lo, item.hi)
        self._write(item.op, self._names(item), item.attributes or {}, (value,))
        return name

    def _write(
        self, op: str, inputs: Sequence[str], attributes: Mapping[str, AttributeValue], outputs: tuple[Value, ...]
    ) -> None:
        names = [value.name for value in outputs]
        application = self.scope.apply(op, inputs, attributes, Location(op=op, tensor=names[0]))
        self.scope.define(application, names, op)
        self.nodes.append(Node(op, tuple(inputs), outputs, application.attributes))

    def _fresh(self, owner: str, label: str) -> str:
        """A new name for a part of the value ``owner``, short enough for the limits."""
        room = self.scope.limits.name_bytes - SUFFIX
        wish = f"{owner.encode()[:room].decode(errors='ignore')}.{label}"
        while True:
            number = self.numbers.get(wish, 0)
            self.numbers[wish] = number + 1
            name = f"{wish}_{number}" if number else wish
            if name not in self.taken:
                self.taken.add(name)
                return name
