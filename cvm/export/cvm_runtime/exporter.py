"""From a program to a model of cvm-runtime."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

import numpy as np

from cvm import ops
from cvm.errors import CvmError, Location, Unsupported
from cvm.export.cvm_runtime.arithmetic import RULES
from cvm.export.cvm_runtime.draft import Draft, Written
from cvm.export.cvm_runtime.expressions import LibraryExpressions, shifts_alike
from cvm.export.cvm_runtime.suppression import suppressed
from cvm.limits import INT32_MAX
from cvm.ops import Call, Range, precision
from cvm.ops.extension import terms
from cvm.passes.legalize import legalize
from cvm.passes.legalize.expressions import Expression, Unprovable, missing
from cvm.passes.legalize.requantize import requantize
from cvm.program import Constant, Node, Program, VerifiedProgram, verify
from cvm.records import dataclass

__all__ = ["Exported", "exported"]

_BYTE, _INT32 = (-128, 127), (-INT32_MAX, INT32_MAX)
"""The intervals of the two encodings of an input."""

FORGOTTEN = 256
"""After this many nodes, the expressions that were tried in vain are dropped; dropping takes time in their number."""


@dataclass(frozen=True, eq=False, slots=True)
class Exported:
    """The text of a model, its parameters by name, and the names of the program's outputs in the order of the heads."""

    text: str
    arrays: Mapping[str, Any]
    input: str
    """The name of the input in the program."""
    outputs: tuple[str, ...]


def exported(program: Program) -> Exported:
    """The model of a program: for inputs within its interval it gives the same outputs on both backends of the library.

    Raises what `verify` raises, and `Unsupported` (``cvm_runtime.export.*``) for what the library cannot express:
    several inputs, state, an op or an integer that is too wide, a tensor of more than six dimensions. The library has
    no op of op-set 2: a program with one is legalised first, which may raise `Unsupported` (``legalize.unprovable``).
    """
    verified = verify(program)
    _require_interface(verified)
    if program.op_set > 1:
        program = legalize(program)
        verified = verify(program)
    writing = _Writing(verified, {item.name: item for item in program.constants})
    writing.start()
    for node, call in zip(program.nodes, verified.calls, strict=True):
        writing.node(node, call)
    return writing.finish()


def _refused(what: str, message: str, location: Location | None = None) -> Unsupported:
    return Unsupported(f"cvm_runtime.export.{what}", message, location)


def _require_interface(verified: VerifiedProgram) -> None:
    program = verified.program
    if program.state:
        raise _refused(
            "state", "cvm-runtime keeps no state from run to run", Location(tensor=program.state[0].value.name)
        )
    if len(program.inputs) != 1:
        names = ", ".join(item.value.name for item in program.inputs) or "none"
        raise _refused("inputs", f"a model of cvm-runtime has one input, the program has {names}")
    rows = {math.prod(verified.shapes[item.value][:-1]) for item in program.outputs}
    if len(rows) > 1:
        listed = ", ".join(f"{item.name} {list(verified.shapes[item.value])}" for item in program.outputs)
        raise _refused("outputs", f"cvm-runtime joins outputs row by row, so they have as many rows; found {listed}")


@dataclass
class _Writing:
    """Writes the model of a program, node by node."""

    verified: VerifiedProgram
    constants: Mapping[str, Constant]
    draft: Draft = field(default_factory=Draft)
    made: LibraryExpressions = field(default_factory=lambda: LibraryExpressions(RULES))
    present: dict[int, str] = field(default_factory=dict)
    """The key in `entries` of each expression that has been written, by the number of the expression."""
    entries: dict[str, Written] = field(default_factory=dict)
    """The written entries: by the name of a value of the program, or by a key that no value can have."""
    clamp: str = ""
    """The name of the clamped input, where the program itself clamps its input as the library does; else ""."""
    counted: dict[tuple[Written, int], list[Written]] = field(default_factory=dict)
    written: int = 0
    """The number of nodes that have been written."""

    def start(self) -> None:
        """Write the input and the constants."""
        program = self.verified.program
        value = program.inputs[0].value
        bits = precision(value.lo, value.hi)
        clamp = self._clamp()
        if clamp is not None:
            self.clamp = clamp.outputs[0].name
            bits = int(clamp.attributes["precision"])  # type: ignore[arg-type]
        entry = self.draft.data(value.shape, bits, bits)
        self.entries[self.clamp or value.name] = entry
        for constant in program.constants:
            if constant.kind == "tensor":
                array = constant.array()
                found = precision(int(array.min()), int(array.max()))
                self.entries[constant.name] = self.draft.variable(array, constant.name, found)

    def _clamp(self) -> Node | None:
        """The node that clamps the input, if it alone reads the input and the input has the interval of an encoding."""
        program = self.verified.program
        value = program.inputs[0].value
        readers = [node for node in program.nodes if value.name in node.inputs]
        if len(readers) != 1 or readers[0].op != "cvm_clip" or value.name in {item.value for item in program.outputs}:
            return None
        small = int(readers[0].attributes["precision"]) <= 8  # type: ignore[arg-type]
        return readers[0] if (value.lo, value.hi) == (_BYTE if small else _INT32) else None

    def node(self, node: Node, call: Call) -> None:
        """Write one node of the program."""
        if node.outputs[0].name == self.clamp:
            return
        where = Location(op=node.op, tensor=node.outputs[0].name)
        try:
            roots = self._expressions(node, call)
            for value, root in zip(node.outputs, roots, strict=True):
                whole = self._shaped(root, value.shape)
                self.entries[value.name] = self._write(whole, value.name, self.verified.ranges[value.name])
        except Unprovable as error:
            message = f"it has no form in integers that the library admits ({error})"
            raise _refused("unprovable", message, where) from None
        except CvmError as error:
            raise error.at(op=node.op, tensor=node.outputs[0].name) from None
        self.written += 1
        if self.written % FORGOTTEN == 0:
            self.made.forget(self.present)

    def _expressions(self, node: Node, call: Call) -> tuple[Expression, ...]:
        """The expressions of a node, one for each output."""
        name = node.outputs[0].name
        if node.op == "requantize":
            return (self._requantized(node, call),)
        inputs = [self._value(item) for item in node.inputs]
        if node.op == "get_valid_count":
            threshold = int(node.attributes["score_threshold"])  # type: ignore[arg-type]
            return self.made.valid_counts(inputs[0], threshold, name)
        if node.op == "non_max_suppression":
            rows, count = inputs
            return (suppressed(self.made, rows, count, dict(node.attributes), "suppressed"),)
        bits = precision(*call.ranges[0].hull())
        if node.op == "cvm_right_shift" and shifts_alike(bits, *map(int, _shift(node))):
            return (self.made.plain(node.op, *inputs, label="part", **node.attributes),)
        return (self.made.apply(node.op, *inputs, label="part", **node.attributes),)

    def _requantized(self, node: Node, call: Call) -> Expression:
        count = terms(len(node.inputs))
        parameters = [self.constants[name].array() for name in node.inputs[count:]]
        lo, hi = self.verified.ranges[node.outputs[0].name].hull()
        tensors = [self._value(name) for name in node.inputs[:count]]
        return requantize(self.made, tensors, parameters, call.attributes.rounding, lo, hi, self.present)

    def _value(self, name: str) -> Expression:
        """The expression for a value of the program that has been written."""
        constant = self.constants.get(name)
        elements = None if constant is None else constant.array().astype(np.int64)
        item = self.made.value(name, self.verified.shapes[name], self.verified.ranges[name], elements)
        self.present[item.number] = name
        return item

    def _write(self, root: Expression, name: str, proven: Range) -> Written:
        """Write an expression and its operands; its entry has the name ``name`` and the proven range ``proven``."""
        for item in missing(root, self.present):
            key = f"\0{item.number}"
            bits = precision(item.lo, item.hi)
            if item is root:
                self.entries[key] = self._entry(item, name, min(bits, precision(*proven.hull())))
            else:
                self.entries[key] = self._entry(item, f"{name}.{item.label}", bits)
            self.present[item.number] = key
        return self.entries[root.name or self.present[root.number]]

    def _shaped(self, root: Expression, shape: tuple[int, ...]) -> Expression:
        """The expression, broadcast to ``shape`` where constant folding has made it smaller."""
        if root.shape == shape:
            return root
        if root.elements is not None:
            return self.made.constant(np.broadcast_to(root.elements, shape), narrow=False)
        zeros = self.made.constant(np.zeros(shape, np.int64), narrow=False)
        return self.made.total("broadcast_add", root, zeros, "shape")

    def _entry(self, item: Expression, name: str, bits: int) -> Written:
        if item.elements is not None:
            return self.draft.variable(item.elements.astype(np.int32), f"{name}.constant", precision(item.lo, item.hi))
        inputs = [self.entries[part.name or self.present[part.number]] for part in item.inputs]
        attributes = dict(item.attributes or {})
        if item.op == "get_valid_count":
            index = int(attributes.pop("output"))  # type: ignore[arg-type]
            key = (inputs[0], int(attributes["score_threshold"]))  # type: ignore[arg-type]
            if key not in self.counted:
                rows = inputs[0].shape[1]
                stem = name.removesuffix(".valid_count").removesuffix(".Y")
                least = [precision(0, rows), max(inputs[0].proven, 2)]
                least[index] = bits
                self.counted[key] = self.draft.add(item.op, inputs, attributes, stem, least)
            return self.counted[key][index]
        (found,) = self.draft.add(item.op, inputs, attributes, name, [bits])
        return found

    def finish(self) -> Exported:
        """The finished model, with heads named after the outputs of the program."""
        program = self.verified.program
        heads: list[Written] = []
        for output in program.outputs:
            heads.append(self._head(self.entries[output.value], output.name, heads))
        self.draft.reserve([output.name for output in program.outputs], [head.node for head in heads])
        used = {name for node in program.nodes for name in node.inputs}
        kept = [
            self.entries[item.name] for item in program.constants if item.kind == "tensor" and item.name not in used
        ]
        text, arrays = self.draft.finished(heads, kept)
        names = tuple(item.name for item in program.outputs)
        return Exported(text, arrays, program.inputs[0].value.name, names)

    def _head(self, found: Written, name: str, others: list[Written]) -> Written:
        """The entry of an output: its node has the name of the output, and belongs to no other output."""
        node = found.node
        if node.spelling is None or len(node.outputs) > 1 or any(head.node is node for head in others):
            return found if name == _read_back(found) else self.draft.copied(found, found.precision, name)
        node.name = name
        return found


def _read_back(item: Written) -> str | None:
    """The name that the front end gives to one of several results of a node; None for a single result."""
    labels = ops.get("get_valid_count").outputs
    return f"{item.node.name}.{labels[item.index]}" if len(item.node.outputs) > 1 else None


def _shift(node: Node) -> tuple[Any, Any]:
    return node.attributes["precision"], node.attributes["shift_bit"]
