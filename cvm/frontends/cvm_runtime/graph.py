"""A model of cvm-runtime as data, and the rules that its document alone can break.

A node has one entry per output; entries are numbered in the order of the nodes. Shapes, precisions and storage are
those of the document; `cvm.frontends.cvm_runtime.inference` checks them against derived ones.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from cvm.errors import CvmError, Invalid, LimitExceeded, Location, Unsupported
from cvm.frontends.cvm_runtime.document import Document, NodeRecord, read_attributes, read_document
from cvm.frontends.cvm_runtime.operators import Operator, operator
from cvm.limits import DEFAULT, Limits, require
from cvm.records import dataclass

__all__ = [
    "DATA",
    "DIMENSION",
    "ELEMENTS",
    "RANKS",
    "SHOWN",
    "Entry",
    "Graph",
    "GraphNode",
    "Postprocess",
    "read_graph",
]

DATA = "data"
"""The name of the input variable."""
VERSIONS = ("cvm_1.0.0", "cvm_1.1.0")
RANKS = range(1, 7)
DIMENSION = 2**24
ELEMENTS = 2**30
_PRECISIONS = (-1, *range(1, 33))
SHOWN = 80
"""The most characters of a node's name in a message."""
_NAME_OF_POSTPROCESS = 32
"""The characters of a name that the library compares."""

Postprocess: TypeAlias = Literal["", "argmax", "detection"]
Entry: TypeAlias = tuple[int, int]
"""An entry: the index of a node, and the index of its output."""

_SUFFIX = re.compile(r"_[0-9]*$", re.ASCII)


@dataclass(frozen=True, slots=True)
class GraphNode:
    """An op on entries, or a variable, which has no ``operator``."""

    name: str
    operator: Operator | None
    inputs: tuple[Entry, ...]
    texts: Mapping[str, str]
    """The attributes as strings."""
    first: int
    """The index of the node's first entry."""

    @property
    def outputs(self) -> int:
        """The number of entries of the node."""
        return 1 if self.operator is None else self.operator.outputs

    @property
    def location(self) -> Location:
        """The location of the node, for messages."""
        return Location(tensor=self.name[:SHOWN], op=None if self.operator is None else self.operator.name)


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """A model without its parameters. ``shapes``, ``precisions`` and ``storage`` have an item per entry."""

    nodes: tuple[GraphNode, ...]
    heads: tuple[Entry, ...]
    shapes: tuple[tuple[int, ...], ...]
    precisions: tuple[int, ...]
    storage: tuple[int, ...]
    version: str
    postprocess: Postprocess

    def number(self, entry: Entry) -> int:
        """The index of an entry."""
        return self.nodes[entry[0]].first + entry[1]

    @property
    def variables(self) -> tuple[GraphNode, ...]:
        """The input and the parameters, in order."""
        return tuple(node for node in self.nodes if node.operator is None)

    @property
    def data(self) -> GraphNode:
        """The input variable."""
        return next(node for node in self.variables if node.name == DATA)


def read_graph(data: bytes | str, limits: Limits = DEFAULT, *, known_postprocess: bool = True) -> Graph:
    """The graph in the text of a model, with its structure checked.

    With ``known_postprocess``, a postprocess that the library does not know is refused; otherwise it counts as none, as
    in the library. Raises `Malformed` for bytes that are not of the format, `Invalid` (``cvm_runtime.<rule>``) for a
    document that breaks a rule, `Unsupported` (``cvm_runtime.postprocess``), and `LimitExceeded`.
    """
    document = read_document(data, limits)
    if document.version not in VERSIONS:
        expected = " or ".join(VERSIONS)
        raise Invalid("cvm_runtime.version", f"expected version {expected}, found {document.version[:40]!r}")
    require("nodes", len(document.nodes), limits.nodes, "nodes of a model")
    _require_length("op_attrs", document.attrs.op_attrs.items, len(document.nodes), "nodes")
    nodes = _nodes(document, limits)
    entries = sum(node.outputs for node in nodes)
    for name in ("shape", "storage_id", "precision"):
        _require_length(name, getattr(document.attrs, name).items, entries, "entries")
    _check_index(document, nodes, entries)
    graph = Graph(
        nodes,
        tuple(_entry(head, nodes, "a head", Location()) for head in document.heads),
        tuple(map(tuple, document.attrs.shape.items)),
        tuple(document.attrs.precision.items),
        tuple(document.attrs.storage_id.items),
        document.version,
        _postprocess(document.postprocess, known_postprocess),
    )
    if not graph.heads:
        raise Invalid("cvm_runtime.heads", "a model has at least one head")
    _check_variables(graph)
    _check_entries(graph)
    return graph


def _require_length(name: str, items: Sequence[Any], expected: int, of: str) -> None:
    if len(items) != expected:
        raise Invalid("cvm_runtime.length", f"attrs.{name} has {len(items)} items for {expected} {of}")


def _nodes(document: Document, limits: Limits) -> tuple[GraphNode, ...]:
    nodes: list[GraphNode] = []
    first = 0
    for record, text in zip(document.nodes, document.attrs.op_attrs.items, strict=True):
        node = _node(record, text, first, nodes, limits)
        nodes.append(node)
        first += node.outputs
    return tuple(nodes)


def _node(record: NodeRecord, text: str, first: int, earlier: Sequence[GraphNode], limits: Limits) -> GraphNode:
    where = Location(tensor=record.name[:SHOWN])
    if record.op not in ("null", "cvm_op"):
        raise Invalid("cvm_runtime.node", f"a node is a cvm_op or null, found {record.op[:40]!r}", where)
    if record.op == "null":
        if record.inputs:
            raise Invalid("cvm_runtime.node", "a variable has no inputs", where)
        return GraphNode(record.name, None, (), {}, first)
    if record.attrs is None:
        raise Invalid("cvm_runtime.node", "an op has attrs with its func_name", where)
    try:
        found = operator(_function(record.attrs.func_name))
        where = Location(tensor=record.name[:SHOWN], op=found.name)
        inputs = tuple(_entry(item, earlier, "an input", where) for item in record.inputs)
        return GraphNode(record.name, found, inputs, read_attributes(text, limits), first)
    except CvmError as error:
        raise error.at(tensor=record.name[:SHOWN]) from None


def _function(name: str) -> str:
    """The op that the name of a function stands for: the name without a trailing number and the
    underscore before it.
    """
    return _SUFFIX.sub("", name)


def _entry(item: Sequence[int], nodes: Sequence[GraphNode], what: str, where: Location) -> Entry:
    """An entry that must belong to one of ``nodes``."""
    node, output = item[:2]
    if not 0 <= node < len(nodes):
        message = f"{what} is output {output} of node {node}; there are {len(nodes)} nodes before it"
        raise Invalid("cvm_runtime.order", message, where)
    if not 0 <= output < nodes[node].outputs:
        message = f"{what} is output {output} of node {node}, which has {nodes[node].outputs}"
        raise Invalid("cvm_runtime.order", message, where)
    return node, output


def _check_index(document: Document, nodes: Sequence[GraphNode], entries: int) -> None:
    """Check the redundant lists: version 1.0.0 needs all of them, and correct; version 1.1.0 needs
    node_row_ptr alone.
    """
    strict = document.version == VERSIONS[0]
    pointers = [node.first for node in nodes] + [entries]
    arguments = [index for index, node in enumerate(nodes) if node.operator is None]
    if document.node_row_ptr != pointers:
        reason = "missing, which the library does not survive" if document.node_row_ptr is None else "wrong"
        raise Invalid("cvm_runtime.index", f"node_row_ptr is {reason}; expected the number of the first entry per node")
    if strict and document.arg_nodes != arguments:
        raise Invalid("cvm_runtime.index", "arg_nodes does not hold the numbers of the variables")
    types = document.attrs.dltype
    if strict and types is None:
        raise Invalid("cvm_runtime.type", "attrs.dltype is missing")
    if strict and types is not None:
        _require_length("dltype", types.items, entries, "entries")
        other = next((item for item in types.items if item != "int32"), None)
        if other is not None:
            raise Invalid("cvm_runtime.type", f"every tensor is int32, found {other[:40]!r}")
    devices = document.attrs.device_index
    if devices is not None and devices.items:
        raise Invalid("cvm_runtime.device", "attrs.device_index must be absent or empty")


def _postprocess(name: str, required: bool) -> Postprocess:
    known: tuple[Postprocess, ...] = ("", "argmax", "detection")
    for item in known:
        if name[:_NAME_OF_POSTPROCESS] == item:
            return item
    if not required:
        return ""
    # The library ignores an unknown name, but the author of the model meant something by it.
    raise Unsupported("cvm_runtime.postprocess", f"expected argmax, detection or nothing, found {name[:40]!r}")


def _check_variables(graph: Graph) -> None:
    names: set[str] = set()
    for node in graph.variables:
        if node.name in names:
            raise Invalid("cvm_runtime.variable", "two variables have this name", node.location)
        names.add(node.name)
        if graph.precisions[node.first] == -1:
            raise Invalid("cvm_runtime.variable", "a variable has a precision, found -1", node.location)
    if DATA not in names:
        raise Invalid("cvm_runtime.variable", f"the input is a variable called {DATA}; there is none")


def _check_entries(graph: Graph) -> None:
    """Check the shapes, precisions and storage indices of the document."""
    for node in graph.nodes:
        for number in range(node.first, node.first + node.outputs):
            where, shape = node.location, graph.shapes[number]
            if len(shape) not in RANKS or not all(1 <= extent <= DIMENSION for extent in shape):
                expected = "1 to 6 dimensions of 1 to 2^24"
                raise Invalid("cvm_runtime.shape", f"expected {expected}, found {list(shape)[:8]}", where)
            if math.prod(shape) > ELEMENTS:
                message = f"a tensor has at most 2^30 elements, found {math.prod(shape)}"
                raise LimitExceeded("limit.cvm_runtime.elements", message, where)
            if graph.precisions[number] not in _PRECISIONS:
                message = f"a precision is -1 or 1 to 32, found {graph.precisions[number]}"
                raise Invalid("cvm_runtime.precision", message, where)
            if graph.storage[number] < 0:
                message = f"a storage_id is 0 or more, found {graph.storage[number]}"
                raise Invalid("cvm_runtime.storage", message, where)
