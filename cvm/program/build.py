"""Building programs node by node. Every part is checked when it is added, exactly as the verifier checks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy.typing as npt

from cvm import ops
from cvm.errors import Invalid, Location
from cvm.limits import DEFAULT, Limits, require
from cvm.ops import Op, Range
from cvm.program.checks import check_constants_fit
from cvm.program.model import Constant, Input, Node, Output, Provenance, Shape, State, Value
from cvm.program.program import Program
from cvm.program.scope import Prove, Scope
from cvm.quantization.quantizer import Quantizer

__all__ = ["ProgramBuilder"]


class ProgramBuilder:
    """Builds a `Program`: add inputs, constants, state and nodes in execution order, then `build`.

    ``limits`` is the profile that the program will name. Names of inputs and state are public and are not changed; to a
    name of a constant or result that exists already, a number is appended.
    All methods raise `Invalid` or `LimitExceeded` as `verify` would; then they have added nothing.
    """

    def __init__(self, limits: Limits = DEFAULT, prove: Prove = Op.prove) -> None:
        self._scope = Scope(limits, prove)
        self._inputs: list[Input] = []
        self._constants: list[Constant] = []
        self._constant_bytes = 0
        self._by_content: dict[tuple[str, Shape, bytes], str] = {}
        self._state: dict[str, tuple[Value, str]] = {}
        self._updates: dict[str, str] = {}
        self._nodes: list[Node] = []
        self._next: dict[str, int] = {}

    @property
    def gas(self) -> int:
        """The metered cost of one run of the nodes so far."""
        return self._scope.gas

    def shape(self, name: str) -> Shape:
        """The shape of a value."""
        self._scope.read(name, None, Location(tensor=name))
        return self._scope.shapes[name]

    def range(self, name: str) -> Range:
        """The proven range of a value."""
        self._scope.read(name, None, Location(tensor=name))
        return self._scope.ranges[name]

    def input(
        self,
        name: str,
        shape: Sequence[int],
        lo: int | None = None,
        hi: int | None = None,
        quantizer: Quantizer | None = None,
    ) -> str:
        """Add an input with elements in [lo, hi]; by default the codes of ``quantizer``. Returns ``name``."""
        if quantizer is not None:
            lo, hi = quantizer.lo if lo is None else lo, quantizer.hi if hi is None else hi
        if lo is None or hi is None:
            raise Invalid("program.bounds", "an input needs an interval or a quantiser", Location(tensor=name))
        item = Input(Value(name, tuple(shape), lo, hi), quantizer)
        self._require_room("inputs", self._inputs)
        self._scope.input(item)
        self._inputs.append(item)
        return name

    def constant(
        self, values: npt.ArrayLike, name: str = "constant", kind: Literal["tensor", "parameter"] = "tensor"
    ) -> str:
        """Add a constant unless there is one with this kind, shape and values. Returns its name."""
        return self._added(Constant.of(self._fresh(name), values, kind))

    def same(self, constant: Constant) -> str:
        """Add a constant of another program, whose bytes both share then. Returns its name here."""
        return self._added(replace(constant, name=self._fresh(constant.name)))

    def _added(self, constant: Constant) -> str:
        content = (constant.kind, constant.shape, constant.data)
        if content in self._by_content:
            return self._by_content[content]
        self._require_room("constants", self._constants)
        total = check_constants_fit([constant], self._scope.limits, self._constant_bytes)
        self._scope.constant(constant)
        self._constant_bytes = total
        self._constants.append(constant)
        self._by_content[content] = constant.name
        return constant.name

    def parameter(self, values: npt.ArrayLike, name: str = "parameter") -> str:
        """Add an int64 parameter constant unless there is one with this shape and these values. Returns its name."""
        return self.constant(values, name, "parameter")

    def state(self, name: str, initial: str, lo: int, hi: int) -> str:
        """Add a tensor that persists from run to run, within [lo, hi]; ``initial`` is a constant. Returns ``name``."""
        value = Value(name, self.shape(initial), lo, hi)
        self._require_room("state", self._state)
        self._scope.state(State(value, initial, initial))
        self._state[name] = (value, initial)
        return name

    def update(self, state: str, value: str) -> None:
        """Set the value that a state takes when a run has ended."""
        if state not in self._state:
            raise Invalid("program.undefined", f"no state is called {state!r}", Location(tensor=state))
        self._scope.updated(State(*self._state[state], update=value))
        self._updates[state] = value

    def add(
        self, op: str, inputs: Sequence[str], attributes: Mapping[str, Any] | None = None, name: str | None = None
    ) -> tuple[str, ...]:
        """Apply an op; returns the names of its outputs, whose declared intervals are the proven ones.

        If an op has several outputs, they are called ``<name>.<output>``, with the output names of its declaration.
        """
        self._require_room("nodes", self._nodes)
        wish = name or op
        application = self._scope.apply(op, inputs, attributes or {}, Location(op=op, tensor=wish))
        labels = ops.get(op).outputs
        single = len(application.shapes) == 1
        names = tuple(self._fresh(wish if single else f"{wish}.{label}") for label in labels)
        proven = self._scope.define(application, names, op)
        outputs = tuple(
            Value(found, shape, *bounds.hull())
            for found, shape, bounds in zip(names, application.shapes, proven, strict=True)
        )
        self._nodes.append(Node(op, tuple(inputs), outputs, application.attributes))
        return names

    def build(self, outputs: Sequence[Output], provenance: Provenance | None = None) -> Program:
        """The program with these outputs. Raises `Invalid` if `update` has not been called for a state."""
        for name in self._state:
            if name not in self._updates:
                raise Invalid("program.state", "the state has no update", Location(tensor=name))
        self._require_room("outputs", outputs[1:])
        self._scope.outputs(outputs)
        return Program(
            inputs=tuple(self._inputs),
            outputs=tuple(outputs),
            constants=tuple(self._constants),
            state=tuple(State(*parts, update=self._updates[name]) for name, parts in self._state.items()),
            nodes=tuple(self._nodes),
            op_set=ops.op_set(node.op for node in self._nodes),
            limits=self._scope.limits.name,
            provenance=provenance or Provenance(),
        )

    def _require_room(self, what: str, items: Sequence[Any] | Mapping[str, Any]) -> None:
        require("nodes", len(items) + 1, self._scope.limits.nodes, f"number of {what}")

    def _fresh(self, wish: str) -> str:
        """``wish``, or the first of ``wish_1``, ``wish_2``, .. that no value has yet."""
        name = wish
        while name in self._scope.shapes:
            self._next[wish] = self._next.get(wish, 0) + 1
            name = f"{wish}_{self._next[wish]}"
        return name
