"""A program while a pass rewrites it, from the first node to the last. Every new value is proven before it is used.

A rewrite adds values and never removes one; `dead` later removes those that are no longer needed. A new value that
replaces an old one has its shape, and a proven range within the old range. So everything that was proven from the old
value holds for the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude
from cvm.errors import CvmError, Location
from cvm.ops import Range, op_set
from cvm.passes.optimize.facts import Facts
from cvm.program import Program
from cvm.program.checks import check_constants_fit, check_int32
from cvm.program.model import Constant, Exactness, Node, Output, Shape, State, Value
from cvm.program.scope import Scope
from cvm.program.verifier import VerifiedProgram
from cvm.repeated import proven

__all__ = ["Declined", "Draft", "Rule", "rewritten"]

SUFFIX = 32
"""The most bytes that are added to the name of a value to make a new name."""

COMPARED = 4096
"""Ranges with more bounds than this are not compared; they count as different."""


class Declined(Exception):
    """A rewrite is not made, because a range would be wider, a rule would be broken, or the gas would not fall."""


class Draft:
    """The new program so far, and the old program from which it is made.

    Rules see the old program through ``facts``, under its names; `current` gives the value that replaces an old one.
    """

    def __init__(self, verified: VerifiedProgram) -> None:
        self.facts = Facts(verified)
        self.changed = False
        self._old = verified
        self._scope = Scope(verified.limits, proven)
        self._nodes: list[Node] = []
        self._constants: list[Constant] = []
        self._by_content: dict[tuple[str, Shape, int, bytes], str] = {}
        self._current: dict[str, str] = {}
        self._calls: dict[str, str] = {}
        self._rewritten: set[str] = set()
        self._computed: set[str] = set()
        self._rearranged: set[str] = set()
        self._taken = set(verified.shapes)
        self._begun = False
        self._waiting: list[Node] = []
        """The old nodes before the first node that a rule writes. They are adopted only when a rule writes one."""

    # What rules read

    def current(self, name: str) -> str:
        """The name of the new value that replaces an old one; the old name if nothing has replaced it."""
        return self._current.get(name, name)

    def shape(self, name: str) -> Shape:
        """The shape of a value of the new program."""
        found = self._scope.shapes.get(name)
        return self._old.shapes[name] if found is None else found

    def range(self, name: str) -> Range:
        """The proven range of a value of the new program."""
        found = self._scope.ranges.get(name)
        return self._old.ranges[name] if found is None else found

    def unchanged(self, name: str) -> Node | None:
        """The node that computes an old value, if this pass has not rewritten it; else None.

        Rules that merge two nodes use it. A node that was rewritten in this pass can be merged in the next round.
        """
        return None if name in self._rewritten else self.facts.node(name)

    def array(self, name: str) -> npt.NDArray[np.int64] | None:
        """The elements of a constant as int64; None for any other value."""
        items = self.stored(name)
        return None if items is None else items.astype(np.int64)

    def is_constant(self, name: str) -> bool:
        """Whether a value is a constant."""
        return name in self._scope.constants or name in self.facts.constants

    def stored(self, name: str) -> npt.NDArray[Any] | None:
        """The elements of a constant in the type in which they are stored, not copied; None for any other value."""
        constant = self._scope.constants.get(name) or self.facts.constants.get(name)
        return None if constant is None else constant.stored()

    # What rules write

    def constant(self, values: npt.NDArray[Any], owner: str, kind: Literal["tensor", "parameter"] = "tensor") -> str:
        """The name of a constant with these elements. It is added unless there is one. Raises `Declined` if an element
        does not fit.
        """
        self._begin()
        if magnitude(values) >= 2**63:
            raise Declined("an element does not fit in 64 bits")
        constant = Constant.of(self._fresh(owner, "constant"), values.astype(np.int64), kind)
        known = self._by_content.get(_content(constant))
        if known is not None:
            return known
        try:
            check_constants_fit([constant], self._old.limits)
            self._scope.constant(constant)
        except CvmError as error:
            raise Declined(str(error)) from None
        self._taken.add(constant.name)
        self._constants.append(constant)
        self._by_content[_content(constant)] = constant.name
        return constant.name

    def emit(self, owner: str, op: str, inputs: Sequence[str], attributes: Mapping[str, Any] | None = None) -> str:
        """Add a node, and return the name of its result, which is derived from ``owner``. Raises `Declined`.

        ``owner`` is the old value that the new node helps to compute.
        """
        name = self._fresh(owner, op)
        self._apply(name, op, inputs, attributes or {})
        self._taken.add(name)
        return name

    def redefine(
        self,
        owner: str,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any] | None = None,
        gas: int | None = None,
    ) -> None:
        """Compute the old value ``owner`` by another node.

        Raises `Declined` if the new range is wider in some channel, or if the node costs more than ``gas``.
        """
        self._apply(owner, op, inputs, attributes or {}, self._old.ranges[owner], self._old.shapes[owner], gas)
        self._rewritten.add(owner)
        self.changed = True

    def alias(self, owner: str, name: str) -> None:
        """Replace the old value ``owner`` by the value ``name``, which has the same elements.

        Raises `Declined` if the proven range of ``name`` is wider in some channel. If ``owner`` is a tensor of the
        document and ``name`` is not, the value is renamed to ``owner`` in the end.
        """
        if self.shape(name) != self._old.shapes[owner] or not self._old.ranges[owner].contains(self.range(name)):
            raise Declined("the range of the other value is wider")
        self._begin()
        self._current[owner] = name
        self._rewritten.add(owner)
        named = self.facts.named
        if owner in named and name not in named and name not in self._calls and name in self._computed:
            self._calls[name] = owner
        self.changed = True

    def rearranged(self, owner: str) -> None:
        """Record that an old value has the elements of a new one in another order, so it may be removed if unread."""
        self._rearranged.add(owner)

    def keep(self, node: Node) -> None:
        """Adopt a node of the old program, with its operands replaced by the current values.

        Raises `Declined` if its results get wider ranges than before. That is possible only where a range rule counts
        bounds (`cvm.ops.ranges.BOUNDS`) and falls back to coarser ones.
        """
        if not self._begun:
            self._waiting.append(node)
            return
        inputs = tuple(map(self.current, node.inputs))
        ranges, shapes, known = self._old.ranges, self._old.shapes, self._scope.ranges
        if all(_same(known[new], ranges[old]) for new, old in zip(inputs, node.inputs, strict=True)):
            for value in node.outputs:
                self._adopt(value.name)
            self._append(node if inputs == node.inputs else replace(node, inputs=inputs))
            return
        location = Location(op=node.op, tensor=node.outputs[0].name)
        names = [value.name for value in node.outputs]
        try:
            application = self._scope.apply(node.op, inputs, node.attributes, location)
            proven = self._scope.define(application, names, node.op)
        except CvmError as error:
            raise Declined(str(error)) from None
        if not all(ranges[name].contains(found) for name, found in zip(names, proven, strict=True)):
            raise Declined("a range is wider")
        values = tuple(Value(name, shapes[name], *found.hull()) for name, found in zip(names, proven, strict=True))
        for name, found in zip(names, proven, strict=True):
            self._scope.adopt(name, "tensor", shapes[name], ranges[name] if _same(found, ranges[name]) else found)
        self._append(Node(node.op, inputs, values, node.attributes))

    def program(self) -> Program:
        """The rewritten program, or the old one if nothing was rewritten."""
        old = self._old.program
        if not self.changed:
            return old
        names = _Names(self._current, self._calls)
        program = Program(
            inputs=old.inputs,
            outputs=tuple(Output(item.name, names(item.value), item.quantizer) for item in old.outputs),
            constants=(*old.constants, *self._constants),
            state=tuple(State(item.value, names(item.initial), names(item.update)) for item in old.state),
            nodes=tuple(_renamed(node, names) for node in self._nodes),
            op_set=op_set(node.op for node in self._nodes),
            limits=old.limits,
            provenance=old.provenance,
        )
        unread = self._unread()
        exactness = tuple(_report(item, names, unread) for item in old.provenance.exactness)
        return replace(program, provenance=replace(old.provenance, exactness=exactness))

    def _unread(self) -> set[str]:
        """The values that may be removed: only nodes that compute other such values read them."""
        unread = set(self._rearranged)
        for node in reversed(self._nodes):
            if not any(value.name in unread for value in node.outputs):
                unread.difference_update(node.inputs)
        return unread

    def _apply(
        self,
        name: str,
        op: str,
        inputs: Sequence[str],
        attributes: Mapping[str, Any],
        within: Range | None = None,
        shape: Shape | None = None,
        gas: int | None = None,
    ) -> None:
        self._begin()
        try:
            application = self._scope.apply(op, inputs, attributes, Location(op=op, tensor=name))
            (found,) = application.ranges
            check_int32(found, Location(op=op, tensor=name))
        except CvmError as error:
            raise Declined(str(error)) from None
        if gas is not None and application.gas > gas:
            raise Declined("the new node would cost more gas")
        if shape is not None and application.shapes != (shape,):
            raise Declined("the shape differs")
        if within is not None and not within.contains(found.per_channel()):
            raise Declined("the range is wider")
        (proven,) = self._scope.define(application, [name], op)
        if within is not None and _same(proven, within):
            self._scope.adopt(name, "tensor", application.shapes[0], within)
        value = Value(name, application.shapes[0], *proven.hull())
        self._append(Node(op, tuple(inputs), (value,), application.attributes))

    def _begin(self) -> None:
        """Adopt the old nodes up to here. This is done once, before the first new node is written."""
        if self._begun:
            return
        self._begun, program = True, self._old.program
        for value in (*(item.value for item in program.inputs), *(state.value for state in program.state)):
            self._adopt(value.name)
        for constant in program.constants:
            self._adopt(constant.name, constant.kind)
            self._by_content.setdefault(_content(constant), constant.name)
        for node in self._waiting:
            for value in node.outputs:
                self._adopt(value.name)
            self._append(node)

    def _append(self, node: Node) -> None:
        self._nodes.append(node)
        self._computed.update(value.name for value in node.outputs)

    def _adopt(self, name: str, kind: Literal["tensor", "parameter"] = "tensor") -> None:
        self._scope.adopt(name, kind, self._old.shapes[name], self._old.ranges[name])

    def _fresh(self, owner: str, label: str) -> str:
        room = self._old.limits.name_bytes - SUFFIX
        wish = f"{owner.encode()[:room].decode(errors='ignore')}.{label}"
        name, number = wish, 0
        while name in self._taken:
            number += 1
            name = f"{wish}_{number}"
        return name


Rule = Callable[[Draft, Node], bool]
"""A function that rewrites one node with one result, or returns False if it does not. Raises `Declined`."""


def rewritten(verified: VerifiedProgram, rule: Rule, before: Callable[[Draft], None] = lambda _: None) -> Program:
    """The program with the rule applied to every node with one result, in order; the program itself if none changed.

    ``before`` is called first, with the draft that has no node yet.
    """
    draft = Draft(verified)
    try:
        before(draft)
        for node in verified.program.nodes:
            try:
                done = len(node.outputs) == 1 and rule(draft, node)
            except Declined:
                done = False
            if not done:
                draft.keep(node)
    except Declined:
        return verified.program
    return draft.program()


class _Names:
    """The final name of every value."""

    def __init__(self, current: Mapping[str, str], calls: Mapping[str, str]) -> None:
        self._current = current
        self._calls = calls

    def __call__(self, name: str) -> str:
        found = self._current.get(name, name)
        return self._calls.get(found, found)


def _renamed(node: Node, names: _Names) -> Node:
    inputs = tuple(map(names, node.inputs))
    results = [names(value.name) for value in node.outputs]
    if inputs == node.inputs and results == [value.name for value in node.outputs]:
        return node  # the same object, so that `reproven` recognises it without comparing
    outputs = tuple(replace(value, name=name) for value, name in zip(node.outputs, results, strict=True))
    return replace(node, inputs=inputs, outputs=outputs)


def _report(item: Exactness, names: _Names, gone: set[str]) -> Exactness:
    if not item.value:
        return item
    return replace(item, value="" if item.value in gone else names(item.value))


def _same(one: Range, other: Range) -> bool:
    """Whether two ranges are equal; large ones count as different. Proofs from equal ranges need not be repeated."""
    if one is other:
        return True
    if one.shape != other.shape or one.size > COMPARED:
        return False
    return bool((one.lo == other.lo).all() and (one.hi == other.hi).all())


def _content(constant: Constant) -> tuple[str, Shape, int, bytes]:
    return constant.kind, constant.shape, constant.width, constant.data
