"""From the bytes of a file to a `TfliteModel`.

The classes of the schema come from the package ``tflite``. They follow every offset in the file; where one leads out of
the file they raise an error, which becomes `Malformed` here. All lengths are checked against limits before anything is
collected. The contents of tensors stay views of the file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

from cvm.errors import CvmError, Invalid, Malformed, Unsupported
from cvm.frontends.common.files import Buffer
from cvm.frontends.tflite.model import Option, Quantization, Subgraph, TfliteModel, TfliteOperator, TfliteTensor
from cvm.limits import MAX_RANK, Limits, require

__all__ = ["IDENTIFIER", "read_model"]

IDENTIFIER = b"TFL3"
"""The identifier of the format, bytes 4 to 7 of a file."""
_VERSION = 3
_MOST_SUBGRAPHS = 64
_MOST_ITEMS = 4096
"""The most items of an option that is a list; a list of scales may be as long as the extent of an axis."""
_CUSTOM = "CUSTOM"


def read_model(data: Buffer, limits: Limits) -> TfliteModel:
    """The model in the bytes of a file.

    Raises `Malformed` for bytes that are not a model, `Invalid` for one that breaks a rule of the format, `Unsupported`
    where the package for the schema is missing or the schema has another version, `LimitExceeded`.
    """
    if data[4:8] != IDENTIFIER:
        raise Malformed("tflite.identifier", "this is no TFLite model: bytes 4 to 7 are not TFL3")
    schema = _schema()
    with _malformed():
        model = schema.Model.GetRootAsModel(data, 0)
        if model.Version() != _VERSION:
            raise Unsupported("tflite.version", f"the schema version is {model.Version()}, and {_VERSION} is read")
        count = model.SubgraphsLength()
        if not 1 <= count <= _MOST_SUBGRAPHS:
            raise Invalid("tflite.subgraphs", f"there are {count} subgraphs; there must be 1 to {_MOST_SUBGRAPHS}")
        reader = _Reader(schema, model, memoryview(data), limits)
        subgraphs = [reader.subgraph(model.Subgraphs(index)) for index in range(count)]
        return TfliteModel(subgraphs, reader.names(), hashlib.sha256(data).hexdigest())


def _schema() -> Any:
    try:
        import tflite
    except ImportError:
        message = "reading a TFLite model needs the packages tflite and flatbuffers: pip install 'cvm[tflite]'"
        raise Unsupported("tflite.extra", message) from None
    return tflite


@contextmanager
def _malformed() -> Iterator[None]:
    """Convert the errors of the schema's classes, which come from wrong offsets and lengths, to `Malformed`."""
    try:
        yield
    except CvmError:
        raise
    except (struct.error, IndexError, ValueError, TypeError, AttributeError, OverflowError, MemoryError):
        raise Malformed("tflite.structure", "an offset or a length in the file leads nowhere") from None


class _Reader:
    """Collects the parts of one model."""

    def __init__(self, schema: Any, model: Any, data: memoryview, limits: Limits) -> None:
        self._schema, self._model, self._data, self._limits = schema, model, data, limits
        self._types = {number: name.lower() for name, number in _numbers(schema.TensorType).items()}
        self._operators = {number: name for name, number in _numbers(schema.BuiltinOperator).items()}
        self._options = {number: name for name, number in _numbers(schema.BuiltinOptions).items()}
        self._codes = [self._code(model.OperatorCodes(i)) for i in range(self._length(model.OperatorCodesLength()))]

    def _length(self, count: int) -> int:
        require("nodes", count, self._limits.nodes, "items of a list of the model")
        return count

    def _code(self, code: Any) -> str:
        # Files before 2020 hold the code in a byte; later files set that byte to 127 for larger codes.
        number = max(code.BuiltinCode(), code.DeprecatedBuiltinCode())
        name = self._operators.get(number, f"number {number}")
        return f"{_CUSTOM}.{_text(code.CustomCode())}" if name == _CUSTOM else name

    def subgraph(self, graph: Any) -> Subgraph:
        """One subgraph. Raises `Invalid` where it refers to a tensor that does not exist."""
        tensors = [self._tensor(graph.Tensors(i), i) for i in range(self._length(graph.TensorsLength()))]
        operators = [self._operator(graph.Operators(i), i) for i in range(self._length(graph.OperatorsLength()))]
        inputs, outputs = (self._indices(graph, name) for name in ("Inputs", "Outputs"))
        for operator in operators:
            for index in (*operator.inputs, *operator.outputs, *operator.intermediates):
                if not -1 <= index < len(tensors):
                    raise Invalid("tflite.index", f"{operator.label} names tensor {index} of {len(tensors)}")
        if any(not 0 <= index < len(tensors) for index in (*inputs, *outputs)):
            raise Invalid("tflite.index", f"an input or an output is none of the {len(tensors)} tensors")
        return Subgraph(tensors, inputs, outputs, operators)

    def _indices(self, table: Any, name: str) -> tuple[int, ...]:
        length = self._length(getattr(table, f"{name}Length")())
        item: Callable[[int], int] = getattr(table, name)
        return tuple(int(item(i)) for i in range(length))

    def _tensor(self, tensor: Any, index: int) -> TfliteTensor:
        name = _text(tensor.Name())[: self._limits.name_bytes]
        what = f"tensor {index} ({name!r})"
        rank = tensor.ShapeLength()
        require("rank", rank, MAX_RANK, f"axes of {what}")
        shape = tuple(int(tensor.Shape(i)) for i in range(rank))
        signature = [int(tensor.ShapeSignature(i)) for i in range(min(tensor.ShapeSignatureLength(), MAX_RANK))]
        if any(extent < 0 for extent in shape):
            raise Invalid("tflite.shape", f"{what} has the shape {list(shape)}")
        if tensor.Sparsity() is not None:
            raise Unsupported("tflite.sparse", f"{what} is stored sparse, which is not read; convert the model without")
        data_type = self._types.get(tensor.Type())
        if data_type is None:
            raise Invalid("tflite.data-type", f"{what} has the data type number {tensor.Type()}, which TFLite lacks")
        return TfliteTensor(
            index,
            name,
            shape,
            data_type,
            self._quantization(tensor.Quantization(), shape, what),
            self._contents(tensor.Buffer(), what),
            bool(tensor.IsVariable()),
            -1 in signature,
        )

    def _quantization(self, quantization: Any, shape: tuple[int, ...], what: str) -> Quantization | None:
        if quantization is None or not quantization.ScaleLength():
            return None
        count = quantization.ScaleLength()
        if count > max((*shape, 1)):
            raise Invalid("tflite.quantization", f"{what} of shape {list(shape)} has {count} scales")
        scales = tuple(float(quantization.Scale(i)) for i in range(count))
        zeros = quantization.ZeroPointLength()
        if zeros not in (0, 1, count):
            raise Invalid("tflite.quantization", f"{what} has {count} scales and {zeros} zero points")
        points = tuple(int(quantization.ZeroPoint(i)) for i in range(zeros)) or (0,)
        return Quantization(scales, points * count if len(points) == 1 else points, quantization.QuantizedDimension())

    def _contents(self, index: int, what: str) -> memoryview | None:
        """The bytes of a constant, or None. Buffer 0 is empty, and so is the buffer of every computed tensor."""
        if not 0 <= index < self._model.BuffersLength():
            raise Invalid("tflite.buffer", f"{what} has buffer {index} of {self._model.BuffersLength()}")
        buffer = self._model.Buffers(index)
        start, size = buffer.Offset(), buffer.Size()
        if start > 1:  # a file of more than 2 GiB keeps contents after the flatbuffer
            if start + size > len(self._data):
                raise Malformed("tflite.buffer", f"{what} is stored beyond the end of the file")
            return self._data[start : start + size]
        if not buffer.DataLength():
            return None
        return memoryview(buffer.DataAsNumpy())

    def _operator(self, operator: Any, number: int) -> TfliteOperator:
        index = operator.OpcodeIndex()
        if not 0 <= index < len(self._codes):
            raise Invalid("tflite.operator-code", f"operator {number} has the code {index} of {len(self._codes)}")
        custom = b""
        if self._codes[index].startswith(_CUSTOM) and operator.CustomOptionsLength():
            require("text_bytes", operator.CustomOptionsLength(), self._limits.text_bytes, "bytes of custom options")
            custom = operator.CustomOptionsAsNumpy().tobytes()
        inputs, outputs, intermediates = (
            self._indices(operator, name) for name in ("Inputs", "Outputs", "Intermediates")
        )
        options = self._read_options(operator)
        return TfliteOperator(number, self._codes[index], inputs, outputs, intermediates, options, custom)

    def _read_options(self, operator: Any) -> Mapping[str, Option]:
        """All options of an operator, under the names of the schema."""
        kind = self._options.get(operator.BuiltinOptionsType(), "NONE")
        table = operator.BuiltinOptions()
        if kind == "NONE" or table is None:
            return MappingProxyType({})
        options = getattr(self._schema, kind)()
        options.Init(table.Bytes, table.Pos)
        found: dict[str, Option] = {}
        for name, is_list in _fields(options):
            if is_list:
                length = getattr(options, f"{name}Length")()
                require("nodes", length, _MOST_ITEMS, f"items of the option {name}")
                found[name] = tuple(getattr(options, name)(i) for i in range(length))
            else:
                value = getattr(options, name)()
                if isinstance(value, bytes):
                    value = _text(value)[: self._limits.name_bytes]
                if isinstance(value, int | float | str):
                    found[name] = value
        return MappingProxyType(found)

    def names(self) -> Mapping[int, str]:
        """The names in the first signature, if it belongs to the first subgraph."""
        found: dict[int, str] = {}
        if self._model.SignatureDefsLength():
            signature = self._model.SignatureDefs(0)
            if signature.SubgraphIndex() == 0:
                for kind in ("Inputs", "Outputs"):
                    for i in range(self._length(getattr(signature, f"{kind}Length")())):
                        item = getattr(signature, kind)(i)
                        found[int(item.TensorIndex())] = _text(item.Name())[: self._limits.name_bytes]
        return MappingProxyType(found)


def _fields(options: Any) -> tuple[tuple[str, bool], ...]:
    """The fields of a table of options; for each, its name and whether it is a list."""
    names = [
        name for name in vars(type(options)) if name[0].isupper() and name != "Init" and not name.startswith("GetRoot")
    ]
    derived = ("Length", "AsNumpy", "IsNone", "BufferHasIdentifier")
    plain = [name for name in names if not name.endswith(derived)]
    return tuple((name, f"{name}Length" in names) for name in plain)


def _numbers(enumeration: type) -> dict[str, int]:
    return {name: number for name, number in vars(enumeration).items() if isinstance(number, int)}


def _text(value: bytes | None) -> str:
    return (value or b"").decode("utf-8", "replace")
