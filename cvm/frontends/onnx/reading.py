"""From the bytes of a file to a `Model`: the package `onnx` parses the format, this module checks the rules."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends.common.files import Buffer
from cvm.frontends.onnx.model import (
    LEARNING,
    STANDARD,
    Attribute,
    Body,
    Dimension,
    Function,
    Model,
    OnnxNode,
    Reference,
    Refused,
    Tensor,
    Value,
)
from cvm.frontends.onnx.tensors import Sources, data_type_of, tensor_of
from cvm.frontends.onnx.wire import require_few_messages, without_contents
from cvm.limits import DEFAULT, Limits, require

if TYPE_CHECKING:
    from onnx import AttributeProto, FunctionProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

__all__ = ["read_model"]


def _library() -> Any:
    """The package `onnx`. Raises `Unsupported` where it is not installed."""
    try:
        import onnx
    except ImportError:
        message = "models of ONNX are read by the package onnx, which is not installed: pip install 'cvm[onnx]'"
        raise Unsupported("onnx.package", message) from None
    return onnx


def read_model(data: Buffer, folder: str | None = None, limits: Limits = DEFAULT) -> Model:
    """The model in ``data``; external constants are read from files within ``folder`` alone.

    If ``data`` is mapped from a file, its constants stay views of the file.

    Raises `Malformed` for bytes that are not a model, `Invalid` for a model that breaks a rule, `Unsupported` for one
    with training information or sparse tensors, and `LimitExceeded`.
    """
    library = _library()
    require_few_messages(data)
    from google.protobuf.message import DecodeError

    proto = library.ModelProto()
    try:
        contents = None
        if isinstance(data, bytes):
            proto.ParseFromString(data)
        else:
            skeleton, contents = without_contents(data)
            proto.ParseFromString(skeleton)
        return _model(proto, Sources(folder, contents), limits, hashlib.sha256(data).hexdigest())
    except DecodeError as error:
        raise Malformed("onnx.bytes", f"this is no model of ONNX: {error}") from None
    except UnicodeDecodeError:
        raise Malformed("onnx.bytes", "a name of the model is no UTF-8 text") from None
    except MemoryError:
        raise LimitExceeded("limit.memory", "memory is exhausted") from None


def _model(proto: ModelProto, sources: Sources, limits: Limits, digest: str) -> Model:
    if not proto.HasField("graph"):
        raise Malformed("onnx.bytes", "this is no model of ONNX: there is no graph in it")
    if proto.training_info:
        raise Unsupported("onnx.training", "the model has training information; export it for inference")
    graph = proto.graph
    reader = _Reader(sources, limits)
    constants = reader.constants(graph)
    inputs = tuple(_value(item, limits) for item in graph.input if _text(item.name) not in constants)
    maps = _maps(graph)
    outputs = tuple(maps.get(_text(item.name)) or _value(item, limits) for item in graph.output)
    nodes = reader.nodes(graph.node)
    _require_defined([item.name for item in inputs], constants, nodes, [item.name for item in outputs])
    functions = {_key(item): reader.function(item) for item in proto.functions}
    if len(functions) != len(proto.functions):
        raise Invalid("onnx.function", "the model defines a function twice")
    name = _name(graph.name, limits) or "onnx"
    return Model(name, _opsets(proto.opset_import, "the model"), inputs, outputs, nodes, constants, functions, digest)


def _domain(text: str | bytes) -> str:
    return STANDARD if text == "ai.onnx" else _text(text)


def _key(item: FunctionProto) -> tuple[str, str, str]:
    return _domain(item.domain), _text(item.name), _text(item.overload)


def _opsets(imports: Iterable[Any], what: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in imports:
        domain = _domain(item.domain)
        if found.setdefault(domain, item.version) != item.version:
            raise Invalid("onnx.opset", f"{what} imports the versions {found[domain]} and {item.version} of {domain!r}")
    if STANDARD not in found and what == "the model":
        raise Invalid("onnx.opset", "the model does not say which version of ONNX's operators it uses (opset_import)")
    return found


def _text(text: str | bytes) -> str:
    """A string of the model. The library returns bytes where it is not UTF-8. Raises `Malformed` for those."""
    if isinstance(text, bytes):
        raise Malformed("onnx.bytes", f"a string of the model is no UTF-8 text: {text[:40]!r}")
    return text


def _name(text: str | bytes, limits: Limits) -> str:
    text = _text(text)
    require("name_bytes", len(text.encode("utf-8", "surrogatepass")), limits.name_bytes, "UTF-8 bytes of a name")
    return text


def _value(item: ValueInfoProto, limits: Limits) -> Value:
    name = _name(item.name, limits)
    if not name:
        raise Invalid("onnx.name", "an input or output of the model has no name")
    kind = item.type.WhichOneof("value")
    if kind != "tensor_type":
        what = "has no type" if kind is None else f"is of {kind.removesuffix('_type')}"
        raise Unsupported("onnx.type", f"{name!r} {what}: inputs and outputs must be tensors")
    tensor = item.type.tensor_type
    data_type = data_type_of(tensor.elem_type, repr(name))
    if not tensor.HasField("shape"):
        return Value(name, data_type, None)
    return Value(name, data_type, tuple(_dimension(extent) for extent in tensor.shape.dim))


def _maps(graph: GraphProto) -> dict[str, Value]:
    """The score tensors that ZipMap nodes convert to lists of maps, by the name of the ZipMap's result, which they
    replace.
    """
    found = {}
    for node in graph.node:
        if (node.op_type, node.domain) == ("ZipMap", LEARNING) and len(node.input) == len(node.output) == 1:
            found[_text(node.output[0])] = Value(_text(node.input[0]), "float32", None)
    return found


def _dimension(extent: Any) -> Dimension:
    kind = extent.WhichOneof("value")
    if kind == "dim_value":
        return int(extent.dim_value)
    return _text(extent.dim_param) if kind == "dim_param" and extent.dim_param else None


_SIMPLE: dict[int, Callable[[Any], Attribute]] = {
    1: lambda item: float(item.f),
    2: lambda item: int(item.i),
    3: lambda item: str(item.s, "utf-8"),
    6: lambda item: tuple(map(float, item.floats)),
    7: lambda item: tuple(map(int, item.ints)),
    8: lambda item: tuple(str(part, "utf-8") for part in item.strings),
}
_KINDS = {9: "tensors", 10: "graphs", 11: "a sparse tensor", 12: "sparse tensors", 13: "a type", 14: "types"}


class _Reader:
    """Reads nodes, constants and the bodies of nodes, and holds all of them together to the limits."""

    def __init__(self, sources: Sources, limits: Limits) -> None:
        self._sources, self._limits = sources, limits
        self._bytes = self._nodes = 0

    def constants(self, graph: GraphProto) -> dict[str, Callable[[], Tensor]]:
        """For each constant of a graph, by name, a function that reads it."""
        if graph.sparse_initializer:
            name = _text(graph.sparse_initializer[0].values.name)
            message = f"the constant {name!r} is a sparse tensor, which is not read; store it dense"
            raise Unsupported("onnx.sparse", message)
        found: dict[str, Callable[[], Tensor]] = {}
        for item in graph.initializer:
            name = _name(item.name, self._limits)
            if not name or name in found:
                raise Invalid("onnx.name", f"two constants are called {name!r}" if name else "a constant has no name")
            found[name] = self._constant(name, item)
        return found

    def _constant(self, name: str, item: Any) -> Callable[[], Tensor]:
        read: list[Tensor] = []

        def tensor() -> Tensor:
            if not read:
                read.append(tensor_of(item, self._sources, self._limits, f"the constant {name!r}"))
                self._bytes += read[0].values.nbytes
                require("constants", self._bytes, self._limits.constants, "bytes of constants")
            return read[0]

        return tensor

    def nodes(self, items: Sequence[NodeProto]) -> tuple[OnnxNode, ...]:
        """Read nodes in order, with the bodies in their attributes."""
        self._nodes += len(items)
        require("nodes", self._nodes, self._limits.nodes, "nodes of the model")
        return tuple(self._node(item, number) for number, item in enumerate(items))

    def _node(self, item: NodeProto, number: int) -> OnnxNode:
        inputs, outputs = (tuple(_name(name, self._limits) for name in names) for names in (item.input, item.output))
        name = _name(item.name, self._limits)
        node = OnnxNode(_text(item.op_type), _domain(item.domain), name, inputs, outputs, {}, number)
        attributes: dict[str, Attribute] = {}
        for attribute in item.attribute:
            if not _text(attribute.name) or attribute.name in attributes:
                raise Invalid("onnx.node.attribute", f"{node.label}: attribute {attribute.name!r} is given twice")
            try:
                attributes[attribute.name] = self._attribute(attribute)
            except CvmError as error:
                error.message = f"{node.label}: {error.message}"
                raise
        return replace(node, attributes=attributes, overload=_text(item.overload))

    def _attribute(self, item: AttributeProto) -> Attribute:
        if item.ref_attr_name:
            return Reference(_text(item.ref_attr_name))
        if item.type in _SIMPLE:
            return _SIMPLE[item.type](item)
        if item.type == 4:
            return tensor_of(item.t, self._sources, self._limits, f"attribute {item.name!r}")
        if item.type == 5:
            return self._body(item.g)
        if item.type in _KINDS:
            return Refused(_KINDS[item.type])
        raise Invalid("onnx.node.attribute", f"attribute {item.name!r} has no type that ONNX has")

    def _body(self, graph: GraphProto) -> Body:
        constants = self.constants(graph)
        inputs = tuple(_name(item.name, self._limits) for item in graph.input if _text(item.name) not in constants)
        outputs = tuple(_name(item.name, self._limits) for item in graph.output)
        return Body(inputs, outputs, self.nodes(graph.node), constants)

    def function(self, item: FunctionProto) -> Function:
        """Read a function of the model. Its nodes may read only its inputs."""
        label = f"the function {_text(item.name)!r}"
        inputs, outputs = (tuple(_name(name, self._limits) for name in names) for names in (item.input, item.output))
        nodes = self.nodes(item.node)
        try:
            _require_defined(inputs, (), nodes, outputs, functions=True)
            defaults = {_text(part.name): self._attribute(part) for part in item.attribute_proto}
        except CvmError as error:
            error.message = f"{label}: {error.message}"
            raise
        required = tuple(_text(name) for name in item.attribute)
        return Function(inputs, outputs, nodes, required, defaults, _opsets(item.opset_import, label))


def _require_defined(
    inputs: Iterable[str],
    constants: Iterable[str],
    nodes: Iterable[OnnxNode],
    outputs: Iterable[str],
    outside: Set[str] = frozenset(),
    functions: bool = False,
) -> None:
    """Check that every name is defined once and before it is read; then the graph has no cycle.

    ``outside`` holds the outer names that a body may read as well; only nodes of functions may refer to attributes.
    """
    known: set[str] = set(outside)

    def define(name: str, what: str) -> None:
        if name in known:
            raise Invalid("onnx.name", f"{what} defines {name!r}, which is defined already")
        known.add(name)

    for name in inputs:
        define(name, "an input")
    known.update(constants)
    for node in nodes:
        for name in filter(None, node.inputs):
            if name not in known:
                message = f"{node.label}: {name!r} is no input, no constant and no result of a node before this one"
                raise Invalid("onnx.order", message)
        for key, attribute in node.attributes.items():
            if isinstance(attribute, Body):
                body = attribute
                _require_defined(body.inputs, body.constants, body.nodes, body.outputs, known, functions)
            elif isinstance(attribute, Reference) and not functions:
                message = f"{node.label}: attribute {key!r} refers to one of a function, but the node is in none"
                raise Invalid("onnx.node.attribute", message)
        for name in filter(None, node.outputs):
            define(name, node.label)
    _require_results(outputs, known, bool(outside) or functions)


def _require_results(outputs: Iterable[str], known: Set[str], inner: bool) -> None:
    seen: set[str] = set()
    for name in outputs:
        if name not in known:
            raise Invalid("onnx.order", f"no node computes the output {name!r}")
        if name in seen and not inner:
            raise Invalid("onnx.name", f"the output {name!r} is listed twice")
        seen.add(name)
    if not seen:
        raise Invalid("onnx.name", "the model has no output")
