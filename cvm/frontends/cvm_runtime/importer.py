"""From a graph and its parameters to a program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from fractions import Fraction
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.frontends.cvm_runtime.compat import EMITTERS, narrowed_to_bytes, require_defined
from cvm.frontends.cvm_runtime.graph import DATA, SHOWN, Graph, GraphNode
from cvm.frontends.cvm_runtime.inference import Inferred
from cvm.frontends.cvm_runtime.interface import Interface
from cvm.frontends.cvm_runtime.operators import Use
from cvm.frontends.cvm_runtime.parameters import Parameters
from cvm.frontends.cvm_runtime.precisions import magnitude
from cvm.limits import DEFAULT, INT32_MAX, Limits
from cvm.program import Exactness, Output, Program, ProgramBuilder, Provenance
from cvm.program.checks import check_name
from cvm.records import dataclass

__all__ = ["Compat", "check_parameters", "to_program"]

Compat: TypeAlias = Literal["correct", "cvm-1"]
"""The meaning of ops: "correct" is that of the operator mathematics, "cvm-1" that of cvm-runtime's FORMAL backend."""


def check_parameters(graph: Graph, parameters: Parameters) -> None:
    """Check that each parameter, and nothing else, has an array, of the right shape and within its precision.

    Raises `Invalid` (``cvm_runtime.params.unknown``, ``.missing``, ``.shape``, ``.value``).
    """
    variables = {node.name: node for node in graph.variables}
    for name, array in parameters.arrays.items():
        where = Location(tensor=name)
        if name not in variables:
            raise Invalid("cvm_runtime.params.unknown", "the model has no such variable", where)
        first = variables[name].first
        if array.shape != graph.shapes[first]:
            message = f"the model says {list(graph.shapes[first])}, found shape {list(array.shape)}"
            raise Invalid("cvm_runtime.params.shape", message, where)
        bound = magnitude(graph.precisions[first])
        lo, hi = int(array.min()), int(array.max())
        if not -bound <= lo <= hi <= bound:
            message = f"precision {graph.precisions[first]} admits +-{bound}, found elements in [{lo}, {hi}]"
            raise Invalid("cvm_runtime.params.value", message, where)
    for name in variables:
        if name != DATA and name not in parameters.arrays:
            raise Invalid("cvm_runtime.params.missing", "there is no array for this parameter", Location(tensor=name))


def to_program(
    inferred: Inferred,
    parameters: Parameters,
    interface: Interface,
    compat: Compat,
    provenance: Provenance,
    limits: Limits = DEFAULT,
) -> Program:
    """The program of a model: its input has the interval of its encoding, and is clamped first.

    Values have the names of the nodes, outputs those of the heads. Raises `Unsupported` (``cvm_runtime.undefined``,
    ``cvm_runtime.coarse``) where ``cvm-1`` has no defined result, and what `ProgramBuilder` raises.
    """
    if compat == "cvm-1":
        require_defined(inferred)
    making = _Making(inferred, ProgramBuilder(limits), compat)
    making.variables(parameters.arrays, interface)
    for node, use in zip(inferred.graph.nodes, inferred.uses, strict=True):
        if use is not None:
            making.node(node, use)
    return making.program(interface, provenance)


@dataclass
class _Making:
    """Builds the program of a model, node by node."""

    inferred: Inferred
    builder: ProgramBuilder
    compat: Compat
    values: dict[int, str] = field(default_factory=dict)
    """The name of the program's value for every entry."""
    report: list[Exactness] = field(default_factory=list)

    def variables(self, arrays: Mapping[str, npt.NDArray[Any]], interface: Interface) -> None:
        """Add the input, its clamp, and the parameters."""
        self.builder.input(DATA, interface.shape, *interface.bounds)
        for node in self.inferred.graph.variables:
            if node.name == DATA:
                clamp = {"precision": interface.precision}
                (self.values[node.first],) = self.builder.add("cvm_clip", [DATA], clamp, f"{DATA}.clamped")
            else:
                array = arrays[node.name].astype(np.int32)
                self.values[node.first] = self.builder.constant(array, self._name(node))

    def node(self, node: GraphNode, use: Use) -> None:
        """Add the ops of a node."""
        graph, translation = self.inferred.graph, use.translation
        inputs = [self.values[graph.number(node.inputs[index])] for index in translation.inputs]
        name = self._name(node)
        emit = EMITTERS.get(use.operator.name) if self.compat == "cvm-1" else None
        try:
            if emit is None:
                results = self._op(use, inputs, name)
            else:
                results = emit(self.builder, use, inputs, name)
        except CvmError as error:
            if self.compat == "cvm-1" and error.code == "program.range":
                # Only a precision rule that is unsound accepts such a model.
                message = f"{error.message}; the library computes modulo 2^32, as far as its backends agree"
                error = Unsupported("cvm_runtime.undefined", message)
            raise error.at(tensor=node.name[:SHOWN], op=use.operator.name) from None
        for index, value in enumerate(results):
            self.values[node.first + index] = value
            self.report.append(Exactness(value, value, bound=Fraction(0), note=use.operator.name))

    def _op(self, use: Use, inputs: list[str], name: str) -> tuple[str, ...]:
        """Emit the op of cvm for a use; two suppression ops for a threshold of -2^31 where a score may be -(2^31 - 1).

        Every score exceeds that threshold, so the rows stay as they are. Their count is the count of scores that have
        been raised to at least -(2^31 - 2), all of which exceed cvm's least threshold, -(2^31 - 1). Where no score is
        -(2^31 - 1), the same scores exceed both thresholds.
        """
        threshold = use.values.get("score_threshold")
        if threshold is None or threshold >= -INT32_MAX or self.builder.range(inputs[0]).hull()[0] > -INT32_MAX:
            return self.builder.add(use.translation.op, inputs, use.translation.attributes, name)
        bounds = {"a_min": 1 - INT32_MAX, "a_max": INT32_MAX}
        (raised,) = self.builder.add("clip", inputs, bounds, f"{name}.raised")
        count, _ = self.builder.add("get_valid_count", [raised], use.translation.attributes, name)
        (rows,) = self.builder.add("cvm_clip", inputs, {"precision": 32}, f"{name}.rows")
        return count, rows

    def program(self, interface: Interface, provenance: Provenance) -> Program:
        """The finished program. Its outputs are the heads, or the argmax of each head where the postprocess asks for
        it.
        """
        graph = self.inferred.graph
        heads = [self.values[graph.number(entry)] for entry in graph.heads]
        if interface.postprocess == "argmax":
            heads = [self._argmax(head) for head in heads]
        outputs: list[Output] = []
        for head in heads:
            taken = {item.name for item in outputs}
            name = next(
                wish for wish in (head, *(f"{head}_{n}" for n in range(1, len(heads) + 1))) if wish not in taken
            )
            outputs.append(Output(name, head))
        described = Provenance(provenance.tool, provenance.source, provenance.source_digest, tuple(self.report))
        return self.builder.build(outputs, described)

    def _argmax(self, x: str) -> str:
        """The index of the first maximum of every row: n minus the maximum of n - index over the elements that equal
        it.
        """
        if self.compat == "cvm-1":
            x = narrowed_to_bytes(self.builder, x, "argmax")

        def step(op: str, *inputs: str, label: str, **attributes: Any) -> str:
            return self.builder.add(op, inputs, attributes, f"argmax.{label}" if label else "argmax")[0]

        n = self.builder.shape(x)[-1]
        largest = step("max", x, label="largest", axes=(-1,), keepdims=True)
        less = step("broadcast_greater", largest, x, label="less")
        is_largest = step("broadcast_sub", self.builder.constant(np.array([1])), less, label="is_largest")
        rank = self.builder.constant(np.arange(n, 0, -1, dtype=np.int32))
        indices = step("broadcast_mul", is_largest, rank, label="places")
        first = step("max", indices, label="first", axes=(-1,))
        return step("broadcast_sub", self.builder.constant(np.array([n])), first, label="")

    def _name(self, node: GraphNode) -> str:
        """The name of the node where it is a valid name for a value; else a valid name with the node's index."""
        try:
            check_name(node.name, DEFAULT)
            return node.name
        except CvmError:
            return f"node_{node.first}"
