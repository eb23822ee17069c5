"""From the bytes of a file to a `Model`: the format is read by the package `onnx`, the rules are checked here."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends.onnx.model import STANDARD, Attribute, Dimension, Model, OnnxNode, Refused, Tensor, Value
from cvm.frontends.onnx.tensors import data_type_of, tensor_of
from cvm.frontends.onnx.wire import require_few_messages
from cvm.limits import DEFAULT, Limits, require

if TYPE_CHECKING:
    from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, ValueInfoProto

__all__ = ["read_model"]


def _library() -> Any:
    """The package that knows the format. Raises `Unsupported` where it is not installed."""
    try:
        import onnx
    except ImportError:
        message = "models of ONNX are read by the package onnx, which is not installed: pip install 'cvm[onnx]'"
        raise Unsupported("onnx.package", message) from None
    return onnx


def read_model(data: bytes, folder: str | None = None, limits: Limits = DEFAULT) -> Model:
    """The model in ``data``; constants in other files are read within ``folder`` alone.

    Raises `Malformed` for bytes that are no model, `Invalid` for one that breaks a rule, `Unsupported` for one with
    functions, training information or sparse tensors, and `LimitExceeded`.
    """
    library = _library()
    require_few_messages(data)
    from google.protobuf.message import DecodeError

    proto = library.ModelProto()
    try:
        proto.ParseFromString(data)
        return _model(proto, folder, limits, hashlib.sha256(data).hexdigest())
    except DecodeError as error:
        raise Malformed("onnx.bytes", f"this is no model of ONNX: {error}") from None
    except UnicodeDecodeError:
        raise Malformed("onnx.bytes", "a name of the model is no UTF-8 text") from None
    except MemoryError:
        raise LimitExceeded("limit.memory", "memory is exhausted") from None


def _model(proto: ModelProto, folder: str | None, limits: Limits, digest: str) -> Model:
    if not proto.HasField("graph"):
        raise Malformed("onnx.bytes", "this is no model of ONNX: there is no graph in it")
    if proto.training_info:
        raise Unsupported("onnx.training", "the model has training information; export it for inference")
    graph = proto.graph
    if graph.sparse_initializer:
        name = _text(graph.sparse_initializer[0].values.name)
        raise Unsupported("onnx.sparse", f"the constant {name!r} is a sparse tensor, which is not read; store it dense")
    require("nodes", len(graph.node), limits.nodes, "nodes of the model")
    constants = _constants(graph, folder, limits)
    inputs = tuple(_value(item, limits) for item in graph.input if _text(item.name) not in constants)
    outputs = tuple(_value(item, limits) for item in graph.output)
    nodes = tuple(_node(item, number, folder, limits) for number, item in enumerate(graph.node))
    _require_defined([item.name for item in inputs], constants, nodes, outputs)
    functions = frozenset((_text(item.domain), _text(item.name)) for item in proto.functions)
    name = _name(graph.name, limits) or "onnx"
    return Model(name, _opsets(proto), inputs, outputs, nodes, constants, functions, digest)


def _opsets(proto: ModelProto) -> dict[str, int]:
    found: dict[str, int] = {}
    for item in proto.opset_import:
        domain = STANDARD if item.domain == "ai.onnx" else _text(item.domain)
        if found.setdefault(domain, item.version) != item.version:
            raise Invalid(
                "onnx.opset", f"the model imports the versions {found[domain]} and {item.version} of {domain!r}"
            )
    if STANDARD not in found:
        raise Invalid("onnx.opset", "the model does not say which version of ONNX's operators it uses (opset_import)")
    return found


def _text(text: str | bytes) -> str:
    """A string of the format; the library gives bytes where it is not UTF-8."""
    if isinstance(text, bytes):
        raise Malformed("onnx.bytes", f"a string of the model is no UTF-8 text: {text[:40]!r}")
    return text


def _name(text: str | bytes, limits: Limits) -> str:
    text = _text(text)
    require("name_bytes", len(text.encode("utf-8", "surrogatepass")), limits.name_bytes, "UTF-8 bytes of a name")
    return text


def _constants(graph: GraphProto, folder: str | None, limits: Limits) -> dict[str, Callable[[], Tensor]]:
    """The readers of constants, by name; what they allocate together is within the limits."""
    read: dict[str, Tensor] = {}
    taken = 0

    def reader(name: str, item: Any) -> Callable[[], Tensor]:
        def tensor() -> Tensor:
            nonlocal taken
            if name not in read:
                found = read[name] = tensor_of(item, folder, limits, f"the constant {name!r}")
                taken += found.values.nbytes
                require("constants", taken, limits.constants, "bytes of constants")
            return read[name]

        return tensor

    found: dict[str, Callable[[], Tensor]] = {}
    for item in graph.initializer:
        name = _name(item.name, limits)
        if not name or name in found:
            raise Invalid("onnx.name", f"two constants are called {name!r}" if name else "a constant has no name")
        found[name] = reader(name, item)
    return found


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


def _dimension(extent: Any) -> Dimension:
    kind = extent.WhichOneof("value")
    if kind == "dim_value":
        return int(extent.dim_value)
    return _text(extent.dim_param) if kind == "dim_param" and extent.dim_param else None


def _node(item: NodeProto, number: int, folder: str | None, limits: Limits) -> OnnxNode:
    domain = STANDARD if item.domain == "ai.onnx" else _text(item.domain)
    inputs, outputs = (tuple(_name(name, limits) for name in names) for names in (item.input, item.output))
    node = OnnxNode(_text(item.op_type), domain, _name(item.name, limits), inputs, outputs, {}, number)
    attributes: dict[str, Attribute] = {}
    for attribute in item.attribute:
        if not _text(attribute.name) or attribute.name in attributes:
            raise Invalid("onnx.node.attribute", f"{node.label}: attribute {attribute.name!r} stands there twice")
        try:
            attributes[attribute.name] = _attribute(attribute, folder, limits)
        except CvmError as error:
            error.message = f"{node.label}: {error.message}"
            raise
    return OnnxNode(node.op, domain, node.name, inputs, outputs, attributes, number)


_SIMPLE: dict[int, Callable[[Any], Attribute]] = {
    1: lambda item: float(item.f),
    2: lambda item: int(item.i),
    3: lambda item: str(item.s, "utf-8"),
    6: lambda item: tuple(map(float, item.floats)),
    7: lambda item: tuple(map(int, item.ints)),
    8: lambda item: tuple(str(part, "utf-8") for part in item.strings),
}
_KINDS = {5: "a graph", 9: "tensors", 10: "graphs", 11: "a sparse tensor", 12: "sparse tensors", 13: "a type",
          14: "types"}  # fmt: skip


def _attribute(item: AttributeProto, folder: str | None, limits: Limits) -> Attribute:
    if item.ref_attr_name:
        raise Invalid("onnx.node.attribute", f"attribute {item.name!r} refers to one of a function, but this is none")
    if item.type in _SIMPLE:
        return _SIMPLE[item.type](item)
    if item.type == 4:
        return tensor_of(item.t, folder, limits, f"attribute {item.name!r}")
    if item.type in _KINDS:
        return Refused(_KINDS[item.type])
    raise Invalid("onnx.node.attribute", f"attribute {item.name!r} has no type that ONNX has")


def _require_defined(
    inputs: Iterable[str], constants: Iterable[str], nodes: Iterable[OnnxNode], outputs: Iterable[Value]
) -> None:
    """Check that every name is defined once, before it is read; then there is no cycle."""
    known: set[str] = set()

    def define(name: str, what: str) -> None:
        if name in known:
            raise Invalid("onnx.name", f"{what} gives {name!r}, which is there already")
        known.add(name)

    for name in inputs:
        define(name, "an input")
    known.update(constants)
    for node in nodes:
        for name in filter(None, node.inputs):
            if name not in known:
                message = f"{node.label}: {name!r} is no input, no constant and no result of a node before this one"
                raise Invalid("onnx.order", message)
        for name in filter(None, node.outputs):
            define(name, node.label)
    seen: set[str] = set()
    for value in outputs:
        if value.name not in known:
            raise Invalid("onnx.order", f"nothing gives the output {value.name!r}")
        if value.name in seen:
            raise Invalid("onnx.name", f"the output {value.name!r} stands there twice")
        seen.add(value.name)
    if not seen:
        raise Invalid("onnx.name", "the model has no output")
