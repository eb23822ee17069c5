"""A model of cvm-runtime under construction: variables, nodes, and the precision that the library derives for each
entry.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.bounds import magnitude, require_fits
from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.export.cvm_runtime.expressions import shifts_alike
from cvm.export.cvm_runtime.writing import Spelling, spelled
from cvm.frontends.cvm_runtime.attributes import written
from cvm.frontends.cvm_runtime.graph import DATA, DIMENSION, ELEMENTS, RANKS
from cvm.frontends.cvm_runtime.operators import Use, operator
from cvm.frontends.cvm_runtime.precisions import derived
from cvm.frontends.cvm_runtime.storage import planned
from cvm.limits import DEFAULT
from cvm.records import dataclass

__all__ = ["Draft", "Written"]

_BYTE = 8
_NAME = DEFAULT.name_bytes - 32
"""The most bytes of a name, with room for an appended number."""


@dataclass(frozen=True, eq=False, slots=True)
class Written:
    """An entry: its node, its index among the node's outputs, its shape, its precision in the library, the proven
    precision.
    """

    node: _DraftNode
    index: int
    shape: tuple[int, ...]
    precision: int
    proven: int


@dataclass(eq=False, slots=True)
class _DraftNode:
    name: str
    spelling: Spelling | None
    inputs: tuple[Written, ...]
    outputs: list[Written] = field(default_factory=list)
    array: npt.NDArray[Any] | None = None


class Draft:
    """The model so far. Methods raise `Unsupported` (``cvm_runtime.export.*``) for what the library refuses."""

    def __init__(self) -> None:
        self._variables: list[_DraftNode] = []
        self._ops: list[_DraftNode] = []
        self._names = {DATA}
        self._contents: dict[tuple[tuple[int, ...], bytes], Written] = {}
        self._tight: dict[tuple[Written, int], Written] = {}

    def data(self, shape: tuple[int, ...], precision: int, proven: int) -> Written:
        """Add the input."""
        _require_tensor(shape, DATA)
        return self._entry(self._variable(DATA), shape, precision, proven)

    def variable(self, array: npt.NDArray[Any], wish: str, precision: int) -> Written:
        """Add a parameter under a name of its own; a parameter with the same elements is reused."""
        _require_tensor(array.shape, wish)
        require_fits(magnitude(array), 7 if precision <= _BYTE else 31, f"the parameter {wish!r}")
        stored = array.astype(np.int8 if precision <= _BYTE else np.int32)
        content = (stored.shape, stored.tobytes())
        if content in self._contents:
            return self._contents[content]
        node = self._variable(self._fresh(wish))
        node.array = stored
        self._contents[content] = self._entry(node, array.shape, precision, precision)
        return self._contents[content]

    def add(
        self, op: str, inputs: Sequence[Written], attributes: Mapping[str, Any], name: str, proven: Sequence[int]
    ) -> list[Written]:
        """Add an op of cvm whose results have the ``proven`` precisions; operands are clipped where the library's rules
        need it.
        """
        operands = _prepared(self, op, list(inputs))
        spelling = spelled(op, attributes, tuple(item.shape for item in operands))
        ordered = [operands[index] for index in spelling.order]
        try:
            use = operator(spelling.name).use(spelling.texts, tuple(item.shape for item in ordered))
        except CvmError as error:
            raise Unsupported("cvm_runtime.export.op", error.message, Location(op=op, tensor=name)) from None
        for shape in use.out_shapes:
            _require_tensor(shape, name)
        precisions = _admitted(use, ordered)
        if precisions is None:
            ordered = [self.narrowed(item) for item in ordered]
            precisions = _admitted(use, ordered)
        if precisions is None:
            bits = ", ".join(str(item.proven) for item in ordered)
            message = f"no precision rule admits operands of {bits} bits"
            raise Unsupported("cvm_runtime.export.precision", message, Location(op=op, tensor=name))
        node = _DraftNode(name, spelling, tuple(ordered))
        self._ops.append(node)
        for shape, precision, least in zip(use.out_shapes, precisions, proven, strict=True):
            self._entry(node, shape, precision, least)
        return node.outputs

    def narrowed(self, item: Written) -> Written:
        """The entry, clipped to its proven precision where the library derives a larger one."""
        return self.clipped(item, item.proven) if item.precision > item.proven else item

    def clipped(self, item: Written, precision: int) -> Written:
        """The entry clipped to another precision. Its elements fit already, so none of them changes."""
        if item.precision == precision:
            return item
        key = (item, precision)
        if key not in self._tight:
            self._tight[key] = self.copied(item, precision, f"{item.node.name}.int{precision}")
        return self._tight[key]

    def copied(self, item: Written, precision: int, name: str) -> Written:
        """A node with the same elements and a precision of its own."""
        proven = min(item.proven, precision)
        (found,) = self.add("cvm_clip", [item], {"precision": precision}, name, [proven])
        return found

    def reserve(self, names: Sequence[str], owners: Sequence[_DraftNode]) -> None:
        """Rename the nodes that have one of ``names``, except for the input and ``owners``."""
        for node in [*self._variables, *self._ops]:
            if node.name in names and node.name != DATA and node not in owners:
                node.name = self._fresh(f"{node.name}.value", names)

    def _fresh(self, wish: str, taken: Sequence[str] = ()) -> str:
        """A name that neither a variable nor an item of ``taken`` has, short enough for the reader of models."""
        wish = wish.encode()[:_NAME].decode(errors="ignore")
        name, count = wish, 0
        while name in self._names or name in taken:
            count += 1
            name = f"{wish}_{count}"
        self._names.add(name)
        return name

    def _variable(self, name: str) -> _DraftNode:
        node = _DraftNode(name, None, ())
        self._variables.append(node)
        return node

    @staticmethod
    def _entry(node: _DraftNode, shape: tuple[int, ...], precision: int, proven: int) -> Written:
        item = Written(node, len(node.outputs), shape, precision, proven)
        node.outputs.append(item)
        return item

    def finished(self, heads: Sequence[Written], kept: Sequence[Written]) -> tuple[str, dict[str, npt.NDArray[Any]]]:
        """The text of the model and the arrays of its parameters.

        Variables that no node reads are left out, except for the input and those in ``kept``.
        """
        read = {item.node for node in self._ops for item in node.inputs} | {item.node for item in (*heads, *kept)}
        variables = [node for node in self._variables if node in read or node.name == DATA]
        nodes = [*variables, *self._ops]
        first: dict[_DraftNode, int] = {}
        entries: list[Written] = []
        for node in nodes:
            first[node] = len(entries)
            entries += node.outputs
        index = {node: number for number, node in enumerate(nodes)}
        number = {item: first[item.node] + item.index for item in entries}
        reads = [[number[item] for item in node.inputs] for node in self._ops] + [[number[item] for item in heads]]
        writes = [[number[item] for item in node.outputs] for node in self._ops] + [[]]
        storage = planned([item.shape for item in entries], reads, writes, range(len(variables)))
        document = {
            "nodes": [_record(node, [[index[item.node], item.index, 0] for item in node.inputs]) for node in nodes],
            "arg_nodes": list(range(len(variables))),
            "node_row_ptr": [*(first[node] for node in nodes), len(entries)],
            "heads": [[index[item.node], item.index, 0] for item in heads],
            "attrs": {
                "shape": ["list_shape", [list(item.shape) for item in entries]],
                "storage_id": ["list_int", list(storage)],
                "dltype": ["list_str", ["int32"] * len(entries)],
                "precision": ["list_int", [item.precision if item.node.spelling is None else -1 for item in entries]],
                "op_attrs": ["list_str", [_texts(node) for node in nodes]],
            },
        }
        arrays = {node.name: node.array for node in variables if node.array is not None}
        return json.dumps(document, ensure_ascii=False), arrays


def _record(node: _DraftNode, inputs: list[list[int]]) -> dict[str, Any]:
    if node.spelling is None:
        return {"op": "null", "name": node.name, "inputs": []}
    function = {
        "flatten_data": "0",
        "func_name": node.spelling.name,
        "num_inputs": str(len(inputs)),
        "num_outputs": str(len(node.outputs)),
    }
    return {"op": "cvm_op", "name": node.name, "attrs": function, "inputs": inputs}


def _texts(node: _DraftNode) -> str:
    if node.spelling is not None:
        return json.dumps(dict(node.spelling.texts))
    (item,) = node.outputs
    return json.dumps({"precision": str(item.precision), "shape": written(item.shape)})


def _prepared(draft: Draft, op: str, operands: list[Written]) -> list[Written]:
    """The operands, clipped to the precision of the result for the ops whose precision rules would be unsound
    otherwise.
    """
    if op == "where":
        result = max(operands[1].precision, operands[2].precision)
        return [draft.clipped(operands[0], result), *operands[1:]]
    if op in ("broadcast_greater", "get_valid_count", "non_max_suppression") and operands[0].precision < 2:
        return [draft.clipped(operands[0], 2), *operands[1:]]
    return operands


def _admitted(use: Use, operands: Sequence[Written]) -> tuple[int, ...] | None:
    """The precisions of the results; None where the library refuses the operands or its two
    backends disagree on them.
    """
    given = tuple(item.precision for item in operands)
    if use.operator.name == "cvm_right_shift" and not shifts_alike(
        given[0], use.values["precision"], use.values["shift_bit"]
    ):
        return None
    try:
        found = derived(use, given, sound=False)
        sound = derived(use, given)
    except Invalid:
        return None
    if found != sound:
        raise AssertionError(f"{use.operator.name}: the derived precisions {found} are not {sound}")
    return found


def _require_tensor(shape: tuple[int, ...], name: str) -> None:
    """Require a shape that the library accepts."""
    size = math.prod(shape)
    if len(shape) not in RANKS or max(shape) > DIMENSION or size > ELEMENTS:
        message = f"a tensor has 1 to 6 dimensions of up to 2^24, 2^30 elements in all; found {list(shape)}"
        raise Unsupported("cvm_runtime.export.shape", message, Location(tensor=name))
