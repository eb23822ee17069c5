"""Flattening: from a checked document to its operations with concrete arguments.

Source: NNEF 1.0.1 chapter 6. Fragments of the document are expanded; operations of chapter 4 and custom operations stay
whole, except the compound operations that the caller names. Shapes are inferred on the way, since ``shape_of`` may need
them. Operations of the dialect "khronos" that 1.0.1 can express become operations of 1.0.1.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import identifiers_of
from cvm.frontends.nnef.declarations import compound_operations, is_library, khronos_library
from cvm.frontends.nnef.dialects import standard_form
from cvm.frontends.nnef.expressions import Environment, Evaluator
from cvm.frontends.nnef.faults import invalid, location_of, too_large, unsupported
from cvm.frontends.nnef.inference import bind_arguments
from cvm.frontends.nnef.types import ArrayType, DataType, TensorType, Type, has_tensor, is_generic, substitute
from cvm.frontends.nnef.values import Array, FlatGraph, FlatOperation, FlatTensor, Value, concrete, data_type
from cvm.graph.shapes import Results, ShapeCall, infer_shapes, label_path
from cvm.limits import DEFAULT, Limits

__all__ = ["concrete", "flatten_document"]


def flatten_document(
    document: syntax.Document,
    declarations: Mapping[str, syntax.Fragment],
    limits: Limits = DEFAULT,
    lower: Collection[str] = (),
    supplied: Collection[str] = (),
) -> FlatGraph:
    """The flat form of a document that `cvm.frontends.nnef.checker.check_document` has accepted.

    Compound operations named in ``lower`` are expanded by their definitions, wherever they occur; their lines and
    columns are those of the invocation in the document. The same holds for fragments named in ``supplied``, which are
    among the ``declarations`` but not in the document. Raises `Invalid` for arguments and shapes, and for a name in
    ``lower`` that is not a compound operation; `LimitExceeded` for expansions; `Unsupported` where an expression needs
    the shape of a custom operation's result.
    """
    for name in lower:
        if name not in compound_operations():
            raise invalid("lower.name", f"{str(name)[:80]!r} is not a compound operation, so it cannot be expanded")
    return _Flattener(document.graph, declarations, limits, frozenset(lower), frozenset(supplied)).run()


class _Flattener:
    """Collects the operations of one graph; `invoke` and `apply` are called by the evaluator."""

    def __init__(
        self,
        graph: syntax.Graph,
        declarations: Mapping[str, syntax.Fragment],
        limits: Limits,
        lower: frozenset[str],
        supplied: frozenset[str],
    ) -> None:
        self._graph = graph
        self._declarations = declarations
        self._lower = lower
        self._supplied = supplied
        self._site: syntax.Invocation | None = None
        """The invocation in the document, while a definition from outside of the document is expanded; else None."""
        self._limits = limits
        self._evaluator = Evaluator(self, limits)
        self._operations: list[FlatOperation] = []
        self._unnamed: list[FlatTensor] = []
        self._exported: dict[str, FlatTensor] = {}
        self._taken = {identifier.name for identifier in (*graph.parameters, *graph.results)}
        self._counts: dict[str, int] = {}
        self._defaults: dict[tuple[str, str], Value] = {}
        self._variables: dict[str, tuple[tuple[int, ...] | None, DataType]] = {}
        self._updated: set[FlatTensor] = set()
        self._calls = 0
        self._expanded = 0
        self._depth = 0

    def run(self) -> FlatGraph:
        for assignment in self._graph.body:
            self._taken.update(identifiers_of(assignment.target))
        environment = Environment({})
        parameters = {identifier.name for identifier in self._graph.parameters}
        for assignment in self._graph.body:
            value = self._evaluator.evaluate(assignment.value, environment, _lengths(assignment.target))
            self._unpack(assignment, value, environment.names)
            for name in identifiers_of(assignment.target):
                environment.names[name] = self._export(name, environment.names[name], assignment)
                self._check_external(name, self._exported[name], parameters, assignment)
            for tensor in self._unnamed:
                if not tensor.name:
                    self._check_external("", tensor, parameters, assignment)
                    tensor.name = self._new_name(tensor.operation)
            self._unnamed.clear()
        return FlatGraph(
            self._graph.name,
            tuple(identifier.name for identifier in self._graph.parameters),
            tuple(identifier.name for identifier in self._graph.results),
            tuple(self._operations),
            self._exported,
            fragments=self._declarations,
        )

    def invoke(self, node: syntax.Invocation, environment: Environment, lengths: tuple[int | None, ...]) -> Value:
        """Expand a fragment of the document, or emit any other operation."""
        declaration = self._declarations[node.name]
        arguments: dict[str, Value] = {}
        for parameter, expression in bind_arguments(declaration, node):
            if expression is None:
                arguments[parameter.name] = self._default(declaration, parameter)
            else:
                arguments[parameter.name] = self._evaluator.evaluate(expression, environment)
        generic = _generic(node, declaration, arguments, environment)
        if declaration.body is None:
            return self._emit(declaration, arguments, generic, node, lengths)
        if is_library(declaration):
            if node.name not in self._lower:
                return self._emit(declaration, arguments, generic, node, lengths)
            return self._define(declaration, arguments, generic, node, khronos_library())
        if node.name in self._supplied:
            return self._define(declaration, arguments, generic, node, self._declarations)
        return self._expand(declaration, arguments, generic, node)

    def _define(
        self,
        declaration: syntax.Fragment,
        names: dict[str, Value],
        generic: DataType | None,
        node: syntax.Invocation,
        declarations: Mapping[str, syntax.Fragment],
    ) -> Value:
        """Expand a definition of a library, with the declarations that are in force there.

        Its lines and columns do not refer to the document, so errors are located at the invocation.
        """
        outer = self._declarations, self._site
        self._declarations, self._site = declarations, self._site or node
        try:
            return self._expand(declaration, names, generic, node)
        except CvmError as error:
            site = self._site
            error.location = replace(error.location, line=site.line, column=site.column)
            error.trace = ()
            raise
        finally:
            self._declarations, self._site = outer

    def apply(self, name: str, operands: tuple[Value, ...], node: syntax.SyntaxNode) -> Value:
        """Emit the operation that an operator stands for."""
        declaration = self._declarations[name]
        names = (parameter.name for parameter in declaration.parameters)
        arguments = dict(zip(names, operands, strict=True))
        return self._emit(declaration, arguments, "scalar" if declaration.generic else None, node, ())

    def _default(self, declaration: syntax.Fragment, parameter: syntax.Parameter) -> Value:
        key = declaration.name, parameter.name
        if key not in self._defaults:
            assert parameter.default is not None
            self._defaults[key] = self._evaluator.evaluate(parameter.default, Environment({}))
        return self._defaults[key]

    def _expand(
        self, declaration: syntax.Fragment, names: dict[str, Value], generic: DataType | None, node: syntax.Invocation
    ) -> Value:
        self._calls += 1
        if self._depth >= self._limits.nesting:
            message = f"fragments invoke each other deeper than {self._limits.nesting}"
            raise too_large("nesting", message, node)
        if self._calls > self._limits.expansion:
            raise too_large("expansion", f"more than {self._limits.expansion} fragments are expanded", node)
        self._depth += 1
        environment = Environment(names, generic, repeated=True)
        for assignment in declaration.body or ():
            value = self._evaluator.evaluate(assignment.value, environment, _lengths(assignment.target))
            self._unpack(assignment, value, names)
        self._depth -= 1
        results = tuple(names[result.name] for result in declaration.results)
        return results[0] if len(results) == 1 else results

    def _unpack(self, assignment: syntax.Assignment, value: Value, names: dict[str, Value]) -> None:
        """Assign the items of a value to the identifiers on the left-hand side, which has the same structure (section
        3.3.2).
        """
        pending: list[tuple[syntax.Expression, Value]] = [(assignment.target, value)]
        while pending:
            target, part = pending.pop()
            if isinstance(target, syntax.Identifier):
                names[target.name] = part
                continue
            assert isinstance(target, syntax.ArrayExpression | syntax.TupleExpression)
            assert isinstance(part, tuple)
            if len(target.items) != len(part):
                source = assignment.value
                op = source.name if isinstance(source, syntax.Invocation) else None
                message = f"{len(part)} values cannot be assigned to {len(target.items)} identifiers"
                raise invalid("shapes.count", message, target, op)
            pending.extend(zip(target.items, part, strict=True))

    def _emit(
        self,
        declaration: syntax.Fragment,
        arguments: dict[str, Value],
        generic: DataType | None,
        node: syntax.SyntaxNode,
        lengths: tuple[int | None, ...],
    ) -> Value:
        node = self._site or node
        self._expanded += self._depth > 0
        if self._expanded > self._limits.expansion:
            raise too_large("expansion", f"fragments expand to more than {self._limits.expansion} operations", node)
        if len(self._operations) >= self._limits.nodes:
            raise too_large("nodes", f"the graph has more than {self._limits.nodes} operations", node)
        location = location_of(node, declaration.name)
        if declaration.name == "update":
            self._check_update(arguments["variable"], node)
        try:
            shapes = self._shapes(declaration, arguments, lengths)
        except CvmError as error:
            raise error.at(line=node.line, column=node.column, op=declaration.name) from None
        if declaration.name == "variable":
            self._check_label(arguments, generic, node)
        plain, kept = standard_form(declaration, arguments, shapes)
        results: list[Value] = []
        for result, shape in zip(declaration.results, shapes, strict=True):
            dtype = _tensor_type(result.type, generic)
            if isinstance(shape, list):
                results.append(Array(FlatTensor(dtype, s, declaration.name, location) for s in shape))
            else:
                results.append(FlatTensor(dtype, shape, declaration.name, location))
        for value in results:
            self._unnamed.extend(value if isinstance(value, Array) else [value])  # type: ignore[list-item,arg-type]
        self._operations.append(FlatOperation(plain, kept, tuple(results), generic, location))
        return results[0] if len(results) == 1 else tuple(results)

    def _shapes(
        self, declaration: syntax.Fragment, arguments: Mapping[str, Value], lengths: tuple[int | None, ...]
    ) -> Results | tuple[list[None] | None, ...]:
        """The shapes of the results; None where a custom operation makes them unknown."""
        shapes: dict[str, Any] = {}
        attributes: dict[str, Any] = {}
        known = is_library(declaration)
        for parameter in declaration.parameters:
            value = arguments[parameter.name]
            if has_tensor(parameter.type):
                shapes[parameter.name] = _shape(value)
                known = known and _is_known(shapes[parameter.name])
            else:
                attributes[parameter.name] = concrete(value)
        if known:
            return infer_shapes(ShapeCall(declaration.name, shapes, attributes, self._limits), self._limits)
        unknown: list[list[None] | None] = []
        for index, result in enumerate(declaration.results):
            length = lengths[index] if index < len(lengths) else None
            if isinstance(result.type, TensorType):
                unknown.append(None)
            elif length is None:
                raise unsupported("shapes.custom", f"how many tensors {declaration.name} gives is not known")
            else:
                unknown.append([None] * length)
        return tuple(unknown)

    def _check_label(self, arguments: Mapping[str, Value], generic: DataType | None, node: syntax.SyntaxNode) -> None:
        """Section 4.1.3: variables with one label, in any letter case, share their data and must have one shape."""
        path = label_path(str(arguments["label"])) or ()
        key = "/".join(path).lower()
        found = concrete(arguments["shape"]), generic or "scalar"
        if self._variables.setdefault(key, found) != found:
            message = f"variables of label {'/'.join(path)!r} have different shapes or data-types"
            raise invalid("argument-validity.label", message, node, "variable")

    def _check_update(self, variable: Value, node: syntax.SyntaxNode) -> None:
        """Section 4.8: only a variable can be updated, and at most once in a cycle."""
        if not isinstance(variable, FlatTensor) or variable.operation != "variable":
            raise invalid("argument-validity.variable", "only a variable can be updated", node, "update")
        if variable in self._updated:
            message = f"variable {variable.name!r} is updated twice in a cycle"
            raise invalid("argument-validity.update", message, node, "update")
        self._updated.add(variable)

    def _export(self, name: str, value: Value, at: syntax.SyntaxNode) -> FlatTensor:
        """The tensor of an identifier of the graph: the value itself, a copy of a tensor that has a name, or a
        constant.
        """
        if isinstance(value, FlatTensor) and not value.name:
            value.name = name
            self._exported[name] = value
            return value
        dtype = data_type(value) or "scalar"
        arguments: dict[str, Value]
        if isinstance(value, FlatTensor):
            operation, arguments = "copy", {"x": value}
        else:
            operation, arguments = "constant", {"shape": Array([1]), "value": Array([value])}
        tensor = self._emit(self._declarations[operation], arguments, dtype, at, ())
        assert isinstance(tensor, FlatTensor)
        tensor.name = name
        self._exported[name] = tensor
        return tensor

    def _check_external(self, name: str, tensor: FlatTensor, parameters: set[str], at: syntax.SyntaxNode) -> None:
        """Section 3.3.2: the graph parameters must be exactly the external tensors."""
        external = tensor.operation == "external"
        if external == (name in parameters):
            return
        found = f"parameter {name!r} is not external" if not external else f"{name or 'a result'} is not a parameter"
        message = f"the parameters of a graph are its external tensors; {found}"
        raise invalid("identifier-usage.external", message, at)

    def _new_name(self, operation: str) -> str:
        while True:
            self._counts[operation] = self._counts.get(operation, 0) + 1
            name = f"{operation}_{self._counts[operation]}"
            if name not in self._taken:
                return name


def _lengths(target: syntax.Expression) -> tuple[int | None, ...]:
    """The number of tensors that the left-hand side expects of each result, None for a result that is not an array."""
    items = target.items if isinstance(target, syntax.TupleExpression) else (target,)
    return tuple(len(item.items) if isinstance(item, syntax.ArrayExpression) else None for item in items)


def _generic(
    node: syntax.Invocation, declaration: syntax.Fragment, arguments: Mapping[str, Value], environment: Environment
) -> DataType | None:
    if not declaration.generic:
        return None
    if node.generic is not None:
        return environment.generic if node.generic == "?" else node.generic
    if declaration.generic_default is not None:
        return declaration.generic_default
    for parameter in declaration.parameters:
        if is_generic(parameter.type):
            found = data_type(arguments[parameter.name])
            if found is not None:
                return found
    raise invalid("types.generic", f"the generic type of {node.name} cannot be deduced", node, node.name)


def _tensor_type(type_: Type, generic: DataType | None) -> DataType:
    if generic is not None:
        type_ = substitute(type_, generic)
    while isinstance(type_, ArrayType):
        assert type_.item is not None
        type_ = type_.item
    assert isinstance(type_, TensorType)
    return type_.name or "scalar"


def _shape(value: Value) -> Any:
    """The shape of a tensor argument; a literal has rank 0."""
    if isinstance(value, FlatTensor):
        return value.shape
    return [_shape(item) for item in value] if isinstance(value, tuple) else ()


def _is_known(shape: Any) -> bool:
    return all(map(_is_known, shape)) if isinstance(shape, list) else shape is not None
