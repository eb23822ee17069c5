"""Documents from graphs: flat text as in NNEF 1.0.1 section 3.2.1, with every argument written.

The text follows the declarations of operations, which say which results are arrays, which attributes are tuples, and
what a literal stands for.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import OPERATOR_EXPRESSIONS
from cvm.frontends.nnef.declarations import khronos_library, standard_library
from cvm.frontends.nnef.exact import is_decimal, number_text
from cvm.frontends.nnef.faults import invalid, unsupported
from cvm.frontends.nnef.types import ArrayType, TensorType, TupleType, Type, has_tensor, substitute
from cvm.graph import GraphOperation, GraphTensor, Operand, QuantizedGraph, declaration
from cvm.quantization import LogarithmicQuantizer

__all__ = ["document_text"]


def document_text(graph: QuantizedGraph) -> str:
    """The document of a graph, with tensors in order. Raises `Unsupported` for an operation that NNEF does not have."""
    return _Writer(graph).text()


class _Writer:
    def __init__(self, graph: QuantizedGraph) -> None:
        self._graph = graph
        self._quotients = False
        self._made_by = {name: operation for operation in graph.operations for name in operation.outputs}

    def text(self) -> str:
        graph = self._graph
        lines = [f"    {line};" for line in self._lines()]
        extension = [f"extension {OPERATOR_EXPRESSIONS};"] if self._quotients else []
        parameters, results = ", ".join(graph.inputs), ", ".join(graph.outputs)
        head = ["version 1.0;", *extension, "", f"graph {graph.name}( {parameters} ) -> ( {results} )"]
        return "\n".join([*head, "{", *lines, "}", ""])

    def _lines(self) -> Iterator[str]:
        written: set[int] = set()
        for tensor in self._graph.tensors.values():
            operation = self._made_by.get(tensor.name)
            if tensor.kind != "computed":
                yield self._introduced(tensor)
            elif operation is None:
                raise invalid("writer.tensor", "no operation computes this tensor").at(tensor=tensor.name)
            elif id(operation) not in written:
                written.add(id(operation))
                yield self._operation(operation)

    def _introduced(self, tensor: GraphTensor) -> str:
        shape = f"shape = [{', '.join(map(str, tensor.shape))}]"
        head = f"{tensor.name} = {tensor.kind}<{tensor.dtype}>"
        if tensor.kind == "variable":
            return f"{head}({shape}, label = {_string(tensor.label or tensor.name)})"
        if tensor.kind == "external":
            return f"{head}({shape})"
        return f"{head}({shape}, value = [{', '.join(self._contents(tensor))}])"

    def _contents(self, tensor: GraphTensor) -> Iterator[str]:
        """The values of a constant, or a single value where all are equal."""
        data = tensor.data
        if data is None:
            raise invalid("writer.tensor", "a constant has no contents").at(tensor=tensor.name)
        if isinstance(data.quantizer, LogarithmicQuantizer) or (data.quantizer and data.quantizer.axis is not None):
            raise unsupported("writer.constant", "a constant is written as numbers, not as codes").at(
                tensor=tensor.name
            )
        values = data.values
        repeated = values.size > 0 and not any(values.strides)
        for item in (values.ravel()[:1] if repeated else values.ravel()).tolist():
            if tensor.dtype == "logical":
                yield self._literal(bool(item))
            elif tensor.dtype == "integer":
                yield self._literal(int(item))
            elif data.quantizer is None:
                yield self._literal(Fraction(item))
            else:
                yield self._literal(data.quantizer.offset[0] + data.quantizer.scale[0] * int(item))

    def _operation(self, operation: GraphOperation) -> str:
        fragment = _declared(operation)
        outputs = list(operation.outputs)
        generic = f"<{self._graph.tensors[outputs[0]].dtype}>" if fragment.generic else ""
        arguments = []
        for parameter in fragment.parameters:
            type_ = parameter.type
            if fragment.generic:
                type_ = substitute(type_, self._graph.tensors[outputs[0]].dtype)
            if has_tensor(parameter.type):
                arguments.append(self._operand(operation.inputs[parameter.name], type_))
            else:
                value = operation.attributes[parameter.name]
                arguments.append(f"{parameter.name} = {self._value(value, type_)}")
        return f"{_results(fragment, outputs)} = {operation.name}{generic}({', '.join(arguments)})"

    def _operand(self, operand: Operand, type_: Type) -> str:
        """The text of an operand: a tensor, a literal of the parameter's data type, or an array of these."""
        match operand, type_:
            case str(), _:
                return operand
            case tuple(), ArrayType(item) if item is not None:
                return f"[{', '.join(self._operand(child, item) for child in operand)}]"
            case bool(), _:
                return self._literal(operand)
            case Fraction(), TensorType("integer"):
                return str(operand.numerator)
            case Fraction(), _:
                return self._literal(operand)
        raise invalid("writer.operand", f"{operand!r} is not {type_}")

    def _value(self, value: Any, type_: Type) -> str:
        match type_:
            case ArrayType(item) if item is not None:
                return f"[{', '.join(self._value(child, item) for child in value)}]"
            case TupleType(items):
                return f"({', '.join(map(self._value, value, items))})"
        return self._literal(value)

    def _literal(self, value: bool | int | Fraction | str) -> str:
        match value:
            case bool():
                return "true" if value else "false"
            case str():
                return _string(value)
            case Fraction():
                self._quotients = self._quotients or not is_decimal(value)
                return number_text(value)
        return str(value)


def _string(value: str) -> str:
    escaped = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _declared(operation: GraphOperation) -> syntax.Fragment:
    """The NNEF declaration whose parameters are those of an operation, apart from parameters that only graphs have.

    Parameters that only graphs have must have their default values, which express the meaning of NNEF.
    """
    found = [
        library[operation.name] for library in (standard_library(), khronos_library()) if operation.name in library
    ]
    known = {parameter.name for fragment in found for parameter in fragment.parameters}
    defaults = {item.name: item.default for item in declaration(operation.name).attributes} if found else {}
    given = {name for name, value in operation.attributes.items() if name in known or value != defaults.get(name)}
    for fragment in found:
        if {parameter.name for parameter in fragment.parameters} == {*operation.inputs, *given}:
            return fragment
    message = f"NNEF has no operation {operation.name} with the parameters of this one"
    raise unsupported("writer.operation", message, op=operation.name)


def _results(declaration: syntax.Fragment, outputs: list[str]) -> str:
    """The left-hand side of an assignment: results in a row, of which one may be an array of all remaining names."""
    singles = sum(not isinstance(result.type, ArrayType) for result in declaration.results)
    parts: list[str] = []
    for result in declaration.results:
        if isinstance(result.type, ArrayType):
            size = len(outputs) - singles
            parts.append(f"[{', '.join(outputs[:size])}]")
            outputs = outputs[size:]
        else:
            parts.append(outputs[0])
            outputs = outputs[1:]
    return ", ".join(parts)
