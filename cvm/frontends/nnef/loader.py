"""From a container to a `QuantizedGraph`: the composition of the parts of this front end.

Source: NNEF 1.0.1 chapters 5 to 7. The quantization file defines the quantiser of a computation; the contents of a
tensor file are first decoded by the parameters in that file (section 7.1).
"""

from __future__ import annotations

import gc
import hashlib
import math
import os
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import check_document
from cvm.frontends.nnef.container import (
    DOCUMENT,
    QUANTIZATION,
    Container,
    Member,
    open_container,
    read_text_file,
)
from cvm.frontends.nnef.declarations import is_library
from cvm.frontends.nnef.diagnosis import explained
from cvm.frontends.nnef.dialects import required_dialect
from cvm.frontends.nnef.faults import exhaustion, invalid, too_large, unsupported
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.parser import decode, parse_document
from cvm.frontends.nnef.quantization_file import QuantizationInfo, read_quantization
from cvm.frontends.nnef.quantizer_fragments import with_expansions
from cvm.frontends.nnef.tensor_file import BitOrder, ItemType, StoredTensor, read_tensor
from cvm.frontends.nnef.types import has_tensor
from cvm.frontends.nnef.values import Dialect, FlatGraph, FlatOperation, FlatTensor, NeededDialect, Value, concrete
from cvm.frontends.nnef.weights import TensorFile, find_tensor_files, label_of
from cvm.graph import GraphOperation, GraphTensor, Operand, QuantizedGraph, TensorData, declaration, verify
from cvm.limits import Limits
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer

__all__ = [
    "Quantization",
    "load_graph",
    "needed_dialect",
    "read_flat",
    "read_quantizers",
    "without_collection",
]

Quantization = str | os.PathLike[str] | Literal[False] | None
"""The quantization file to use: the container's own (None), another one (a path), or none (False)."""

_INTRODUCING = ("external", "variable", "constant")
_DTYPES: Mapping[str, Literal["scalar", "integer", "logical"]] = MappingProxyType(
    {"scalar": "scalar", "integer": "integer", "logical": "logical"}
)


def load_graph(
    path: str | os.PathLike[str],
    quant: Quantization,
    limits: Limits,
    dialect: Dialect = "auto",
    lower: Collection[str] = (),
    bit_order: BitOrder = "lsb",
    variant: str | None = None,
) -> QuantizedGraph:
    """See `cvm.frontends.nnef.load`."""
    with exhaustion(str(path)):
        container = open_container(path, limits, variant=variant)
        flat, text = read_flat(container, limits, dialect, lower)
        info = read_quantizers(container, quant, flat, limits)
        files = find_tensor_files(container, flat, limits, variant)
        digest = hashlib.sha256(text.encode()).hexdigest()
        with exhaustion(container.origin(DOCUMENT)), explained(text):
            flat = with_expansions(flat, info.expansions)
            return _Builder(container, flat, info.quantizers, files, limits, bit_order).graph(digest)


def read_flat(
    container: Container, limits: Limits, dialect: Dialect = "auto", lower: Collection[str] = ()
) -> tuple[FlatGraph, str]:
    """The flattened document of a container, and its text.

    The flat graph records the dialect of the document, and the dialect that is allowed for the whole model.
    """
    with exhaustion(container.origin(DOCUMENT)):
        member = container.find(DOCUMENT)
        if member is None:
            raise invalid("container.document", f"there is no {DOCUMENT}")
        text = decode(_text(member, limits), limits)
        with explained(text), without_collection():
            document = parse_document(text, limits)
            needed = required_dialect(document, dialect)
            flat = flatten_document(document, check_document(document), limits, lower)
        return replace(flat, dialect=needed, allowed=dialect), text


@contextmanager
def without_collection() -> Iterator[None]:
    """Disable Python's cyclic garbage collector for a while; trees and graphs contain no reference cycles.

    Otherwise its search is repeated as they grow, and takes a third of the time of a document of 100,000 operations.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _text(member: Member, limits: Limits) -> bytes:
    if member.size > limits.text_bytes:
        raise too_large("text_bytes", f"bytes of text: {member.size} exceeds the limit of {limits.text_bytes}")
    return member.read()


def read_quantizers(container: Container, quant: Quantization, flat: FlatGraph, limits: Limits) -> QuantizationInfo:
    """The quantisers that apply."""
    if quant is False:
        return QuantizationInfo()
    if quant is not None:
        with exhaustion(str(quant)):
            return _read_quantization(read_text_file(quant, limits), flat, limits)
    with exhaustion(container.origin(QUANTIZATION)):
        member = container.find(QUANTIZATION)
        if member is None:
            return QuantizationInfo()
        return _read_quantization(_text(member, limits), flat, limits)


def _read_quantization(data: bytes, flat: FlatGraph, limits: Limits) -> QuantizationInfo:
    text = decode(data, limits)
    with explained(text):
        return read_quantization(text, flat, limits)


def needed_dialect(flat: FlatGraph, info: QuantizationInfo, files: Mapping[str, TensorFile]) -> NeededDialect:
    """The dialect that a whole model is written in: its document, its quantisation and its tensor files."""
    parts = {flat.dialect, info.dialect, *("khronos" if file.header.item.added else "1.0.1" for file in files.values())}
    return "khronos" if "khronos" in parts else "1.0.1"


class _Builder:
    """Makes the tensors and operations of a `QuantizedGraph` from those of a flat document."""

    def __init__(
        self,
        container: Container,
        flat: FlatGraph,
        quantizers: Mapping[str, Quantizer],
        files: Mapping[str, TensorFile],
        limits: Limits,
        bit_order: BitOrder,
    ) -> None:
        self._container = container
        self._flat = flat
        self._quantizers = quantizers
        self._files = files
        self._limits = limits
        self._bit_order: BitOrder = bit_order
        self._stored: dict[str, StoredTensor] = {}  # by file name
        self._shared: dict[str, StoredTensor] = {}  # by label in lower case

    def graph(self, digest: str) -> QuantizedGraph:
        tensors: dict[str, GraphTensor] = {}
        operations: list[GraphOperation] = []
        for operation in self._flat.operations:
            if not is_library(operation.declaration):
                message = f"{operation.name} is a custom operation, whose meaning the document does not say"
                raise unsupported("invocation.custom", message).at(
                    line=operation.location.line, column=operation.location.column, op=operation.name
                )
            for result in _flat_tensors(operation.results):
                tensors[result.name] = self._tensor(operation, result)
            if operation.name not in _INTRODUCING:
                operations.append(_operation(operation))
        flat = self._flat
        graph = QuantizedGraph(
            flat.name, flat.inputs, flat.outputs, MappingProxyType(tensors), tuple(operations), digest
        )
        return verify(graph, "the reader of NNEF")

    def _tensor(self, operation: FlatOperation, tensor: FlatTensor) -> GraphTensor:
        assert tensor.shape is not None
        kind: Literal["external", "variable", "constant", "computed"] = "computed"
        data, label = None, None
        dtype = _DTYPES.get(tensor.dtype)
        try:
            if dtype is None:
                raise unsupported(
                    "types.data-type", f"a tensor has type {tensor.dtype}, on which no operation is supported"
                )
            match operation.name:
                case "external":
                    kind = "external"
                case "constant":
                    kind, data = "constant", _constant(concrete(operation.arguments["value"]), tensor.shape)
                case "variable":
                    kind, label = "variable", str(operation.arguments["label"])
                    data = self._variable(label_of(operation), tensor)
        except CvmError as error:
            if error.location.file is None:  # the error is in the document, and not in a tensor file
                error.at(line=operation.location.line, column=operation.location.column, op=operation.name)
            raise error.at(tensor=tensor.name) from None
        quantizer = self._quantizers.get(tensor.name)
        return GraphTensor(tensor.name, tensor.shape, kind, dtype, quantizer, data, label, tensor.location)

    def _variable(self, label: str, tensor: FlatTensor) -> TensorData | None:
        """The stored contents of a variable, in the data type of the document."""
        file = self._files.get(label)
        if file is None:
            return None
        with exhaustion(self._container.origin(file.name)):
            stored = self._read(file)
            shared = self._shared.setdefault(label.lower(), stored)
            if stored is not shared and not _equal(stored, shared):
                message = "it differs from the file of the same label in another letter case, but both share their data"
                raise invalid("container.shared", message)
            values, item = stored.data.values, stored.header.item
            if values.shape != tensor.shape:
                raise invalid("tensor-file.shape", "the file has changed while it was read")
            if values.dtype.kind == "f" and not np.isfinite(values).all():
                raise invalid("tensor-file.finite", "every item must be a finite number")
            if tensor.dtype == "logical" and (values.dtype.kind == "f" or values.min() < 0 or values.max() > 1):
                raise invalid("tensor-file.data-type", "the items of a logical variable must be 0 or 1")
            if tensor.dtype == "integer" and item not in (ItemType.INTEGER, ItemType.SIGNED):
                raise invalid("tensor-file.data-type", f"an integer variable is stored as {item.name.lower()}")
            if tensor.dtype == "logical":
                return TensorData(values.astype(np.bool_))
            if stored.codes:
                return TensorData(values, self._code_quantizer(tensor.name, values))
            return stored.data

    def _read(self, file: TensorFile) -> StoredTensor:
        if file.name not in self._stored:
            self._stored[file.name] = read_tensor(file.member.read(), self._limits, self._bit_order)
        return self._stored[file.name]

    def _code_quantizer(self, name: str, codes: npt.NDArray[Any]) -> LinearQuantizer:
        """The quantiser of stored codes, which the quantization file must give."""
        quantizer = self._quantizers.get(name)
        if quantizer is None:
            message = f"the file holds codes, but {QUANTIZATION} does not say what they stand for"
            raise invalid("tensor-file.codes", message)
        if isinstance(quantizer, LogarithmicQuantizer):
            message = f"the file holds codes of a linear quantiser, but {QUANTIZATION} has a logarithmic one"
            raise invalid("tensor-file.codes", message)
        if int(codes.min()) < quantizer.lo or int(codes.max()) > quantizer.hi:
            raise invalid("tensor-file.codes", f"a code is outside of [{quantizer.lo}, {quantizer.hi}]")
        return quantizer


def _equal(first: StoredTensor, second: StoredTensor) -> bool:
    """Whether two tensor files have equal headers and contents."""
    return first.header == second.header and first.data.values.tobytes() == second.data.values.tobytes()


def _flat_tensors(results: tuple[Value, ...]) -> list[FlatTensor]:
    tensors: list[FlatTensor] = []
    for result in results:
        if isinstance(result, FlatTensor):
            tensors.append(result)
        elif isinstance(result, tuple):
            tensors.extend(_flat_tensors(result))
    return tensors


def _operation(operation: FlatOperation) -> GraphOperation:
    """The graph operation with every parameter; tensors and literals are inputs, the rest attributes."""
    inputs: dict[str, Operand] = {}
    attributes: dict[str, Any] = {}
    parameter: syntax.Parameter
    for parameter in operation.declaration.parameters:
        value = operation.arguments[parameter.name]
        if has_tensor(parameter.type):
            inputs[parameter.name] = _operand(value)
        else:
            attributes[parameter.name] = concrete(value)
    outputs = tuple(tensor.name for tensor in _flat_tensors(operation.results))
    inputs, attributes = declaration(operation.name).complete(inputs, attributes)
    return GraphOperation(
        operation.name, MappingProxyType(inputs), MappingProxyType(attributes), outputs, operation.location
    )


def _operand(value: Value) -> Operand:
    match value:
        case FlatTensor(name=name):
            return name
        case bool():
            return value
        case int() | Fraction():
            return Fraction(value)
        case str():
            raise unsupported("types.data-type", "an operand is a string, on which no operation is supported")
    return tuple(map(_operand, value))


def _constant(values: tuple[Any, ...], shape: tuple[int, ...]) -> TensorData:
    """The contents of a constant, exactly: in float64 where every value is a float64, else over a
    common denominator.
    """
    quantizer = None
    if isinstance(values[0], Fraction):
        floats = [_float(value) for value in values]
        if None not in floats:
            array: npt.NDArray[Any] = np.array(floats, np.float64)
        else:
            denominator = math.lcm(*{value.denominator for value in values})
            array = _integers([value.numerator * (denominator // value.denominator) for value in values])
            quantizer = LinearQuantizer((Fraction(1, denominator),), (Fraction(0),), -(2**63), 2**63 - 1)
    else:
        array = np.array(values, np.bool_) if isinstance(values[0], bool) else _integers(list(values))
    if len(values) == 1:
        return TensorData(np.broadcast_to(array[0], shape), quantizer)
    return TensorData(array.reshape(shape), quantizer)


def _float(value: Fraction) -> float | None:
    """The float64 that equals a fraction; None if there is none."""
    try:
        nearest = float(value)
    except OverflowError:
        return None
    return nearest if nearest.as_integer_ratio() == (value.numerator, value.denominator) else None


def _integers(values: list[int]) -> npt.NDArray[np.int64]:
    if min(values) < -(2**63) or max(values) >= 2**63:
        raise too_large("number", "the values of a constant do not fit into 64-bit integers over a common denominator")
    return np.array(values, np.int64)
