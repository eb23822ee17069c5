"""Static semantics of provisional documents: section 3.3 of the provisional specification.

A fragment declares that a parameter is a tensor, but not its data type. Therefore a fragment is checked once for every
combination of data types with which it is invoked; each such instance is a fragment with complete types, as in 1.0.1. A
fragment that is never invoked must be valid for some combination.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from types import MappingProxyType

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import Body, Findings, TooMany, check_flat, check_graph
from cvm.frontends.nnef.declarations import literal_expression_type
from cvm.frontends.nnef.faults import invalid, location_of, malformed, too_large
from cvm.frontends.nnef.inference import Inference, Language, Tainted, bind_arguments
from cvm.frontends.nnef.provisional.operations import LAYERS, library
from cvm.frontends.nnef.types import ArrayType, DataType, Primitive, TensorType, TupleType, Type, castable, has_tensor
from cvm.limits import DEFAULT
from cvm.records import dataclass

__all__ = ["Checked", "Instance", "check_provisional", "with_names"]

_LANGUAGE = Language(graph_only=("external",), mixed_tuples=True, chaining=True)
_MAX_INSTANCES = 4096
_INTEGER = re.compile(r"(?<!['\w])integer(?!['\w])")  # the type, which has another name here; names stand in quotes
_GUESSES: tuple[DataType, ...] = ("scalar", "logical", "integer")


@dataclass(eq=False, slots=True)
class Instance:
    """A fragment with the data types of one kind of invocation.

    ``fragment`` has complete parameter types; ``results`` holds its result types (None where one is wrong); ``calls``
    maps the invocations in its body, by the identity of the node, to their instances.
    """

    source: syntax.Fragment
    fragment: syntax.Fragment
    results: tuple[Type | None, ...] | None = None
    calls: dict[int, Instance] = field(default_factory=dict)
    errors: list[CvmError] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Checked:
    """A provisional document with the instances of its fragments that the graph invokes, by the invocation.

    ``skipped`` holds the indices of the statements of the graph that cannot be evaluated because of an error,
    ``unsound`` the fragments that have an error.
    """

    document: syntax.Document
    calls: Mapping[int, Instance]
    skipped: frozenset[int] = frozenset()
    unsound: frozenset[str] = frozenset()

    def instances(self) -> list[Instance]:
        """All instances that the graph needs; each follows the instances that it needs itself."""
        return list(_reachable(self.calls.values()))


def _reachable(roots: Iterable[Instance]) -> Iterator[Instance]:
    seen: set[int] = set()
    pending: list[tuple[Instance, bool]] = [(root, False) for root in reversed(list(roots))]
    while pending:
        instance, done = pending.pop()
        if done:
            yield instance
        elif id(instance) not in seen:
            seen.add(id(instance))
            pending.append((instance, True))
            pending.extend((callee, False) for callee in reversed(instance.calls.values()))


def check_provisional(document: syntax.Document, findings: Findings) -> Checked:
    """Check everything in a provisional document that needs neither values nor shapes; errors are added to
    ``findings``.
    """
    instances = _Instances(document)
    found = Findings()
    graph = _GraphBody(instances)
    skipped: set[int] = set()
    unsound: set[str] = set()
    try:
        instances.broken |= _check_declarations(document, found)
        unsound |= instances.broken
        try:
            check_graph(document.graph, graph, found, skipped)
        finally:
            for instance in _all_instances(document, instances, list(graph.inference.calls.values())):
                if instance.errors:
                    unsound.add(instance.source.name)
                    _add_new(instance.errors, found)
    except TooMany:
        skipped.update(range(len(document.graph.body)))
    for error in found:
        error.message = _INTEGER.sub("extent", error.message)
    findings.extend(sorted(found, key=lambda error: (error.location.line or 0, error.location.column or 0)))
    calls = MappingProxyType(graph.inference.calls)
    return Checked(document, calls, frozenset(skipped), frozenset(unsound))


def _all_instances(document: syntax.Document, instances: _Instances, roots: list[Instance]) -> Iterator[Instance]:
    """The instances of all fragments; a fragment that is never invoked has one, too."""
    invoked = {instance.source.name for instance in _reachable(roots)}
    others = (fragment for fragment in document.fragments if fragment.name not in invoked | instances.broken)
    return _reachable([*roots, *map(instances.guess, others)])


def _add_new(errors: Iterable[CvmError], found: Findings) -> None:
    """Add the errors of an instance, except those that another instance of the same fragment has reported."""
    for error in errors:
        key = error.code, error.location.line, error.location.column
        if all(key != (known.code, known.location.line, known.location.column) for known in found):
            found.add(error)


def _check_declarations(document: syntax.Document, findings: Findings) -> set[str]:
    """Section 3.3.1, declarations; returns the names of the wrong ones."""
    broken: set[str] = set()
    names: set[str] = set()
    for fragment in document.fragments:
        try:
            standard = fragment.name in library() and fragment.name not in LAYERS
            if standard or fragment.name in names:
                known = "an operation of the specification" if standard else "another fragment"
                message = f"{fragment.name!r} is the name of {known}"
                raise invalid("fragment-definition.duplicate", message, fragment)
            names.add(fragment.name)
            _check_declaration(fragment)
        except CvmError as error:
            broken.add(fragment.name)
            findings.add(error)
    return broken


def _check_declaration(fragment: syntax.Fragment) -> None:
    names: set[str] = set()
    formals: tuple[syntax.Parameter | syntax.Result, ...] = (*fragment.parameters, *fragment.results)
    for formal in formals:
        if formal.name in names:
            message = f"{formal.name!r} names two parameters or results of {fragment.name!r}"
            raise invalid("fragment-definition.unique-names", message, formal)
        names.add(formal.name)
    for parameter in fragment.parameters:
        if parameter.default is not None:
            found = literal_expression_type(parameter.default)
            if not castable(found, _bind(parameter.type, found)):
                message = f"the default value of {parameter.name!r} is of type {found}, not {parameter.type}"
                raise invalid("fragment-definition.default", message, parameter.default)


def with_names(node: syntax.Invocation, declaration: syntax.Fragment) -> syntax.Invocation:
    """An invocation of a fragment without tensors, with its positional arguments replaced by named ones.

    The rule is that only tensors may be given by position, but the specification breaks it in its own example of such a
    fragment, ``sum_of(items[1:])``.
    """
    parameters = declaration.parameters
    if declaration.body is None or any(has_tensor(p.type) for p in parameters) or len(node.arguments) > len(parameters):
        return node
    pairs = zip(node.arguments, parameters, strict=False)
    return replace(node, arguments=tuple(replace(a, name=a.name or p.name) for a, p in pairs))


def _bind(formal: Type, actual: Type | None, otherwise: DataType = "scalar") -> Type:
    """A declared type, with the data types of its tensors taken from the actual type."""
    match formal, actual:
        case TensorType(None), (TensorType(name) | Primitive(("scalar" | "logical") as name)) if name is not None:
            return TensorType(name)
        case TensorType(None), _:
            return TensorType(otherwise)
        case ArrayType(item), ArrayType(actual_item) if item is not None:
            return ArrayType(_bind(item, actual_item, otherwise))
        case ArrayType(item), _ if item is not None:
            return ArrayType(_bind(item, None, otherwise))
        case TupleType(items), TupleType(actual_items) if len(items) == len(actual_items):
            return TupleType(tuple(_bind(a, b, otherwise) for a, b in zip(items, actual_items, strict=True)))
        case TupleType(items), _:
            return TupleType(tuple(_bind(item, None, otherwise) for item in items))
    return formal


class _Inference(Inference):
    """Types in one body; ``calls`` holds the instances that its invocations refer to."""

    def __init__(self, instances: _Instances, fragment: syntax.Fragment | None, depth: int) -> None:
        super().__init__(instances.declarations, fragment, _LANGUAGE, instances.broken)
        self._instances = instances
        self._depth_of_calls = depth
        self.calls: dict[int, Instance] = {}

    def bind(
        self, node: syntax.Invocation, declaration: syntax.Fragment
    ) -> tuple[tuple[syntax.Parameter, syntax.Expression | None], ...]:
        """Each formal parameter with its argument; attributes of a compile-time function may be positional, too."""
        return bind_arguments(declaration, with_names(node, declaration))

    def specialise(
        self, node: syntax.Invocation, declaration: syntax.Fragment, types: Mapping[str, Type | None]
    ) -> syntax.Fragment:
        """The instance of a fragment for the types of the arguments."""
        if declaration.body is None:
            return declaration
        found = {
            parameter.name: _bind(
                parameter.type,
                types[parameter.name]
                or (None if parameter.default is None else literal_expression_type(parameter.default)),
            )
            for parameter in declaration.parameters
        }
        instance = self._instances.get(declaration, tuple(found.values()), node, self._depth_of_calls)
        self.calls[id(node)] = instance
        results = instance.results
        if results is None:  # the fragment invokes itself
            results = tuple(_bind(result.type, None) for result in declaration.results)
        if None in results:
            raise Tainted
        typed = zip(declaration.results, results, strict=True)
        complete = tuple(replace(result, type=type_) for result, type_ in typed if type_ is not None)
        return replace(instance.fragment, results=complete)

    def declared(self, type_: Type, found: Type) -> Type:
        """A result has the data types of the value that is assigned to it."""
        return _bind(type_, found)


class _GraphBody(Body):
    """The assignments of the graph, which must be flat."""

    inference: _Inference

    def __init__(self, instances: _Instances) -> None:
        super().__init__(instances.declarations, None, inference=_Inference(instances, None, 0))

    def check_assignment(self, assignment: syntax.Assignment) -> None:
        """Check one assignment. Section 3.2.4 restricts the body of a graph to flat syntax."""
        try:
            check_flat(assignment)
        except CvmError as error:
            message = "the body of a graph has flat syntax: one invocation on names, literals, arrays and tuples"
            raise malformed("syntax.flat", message, error.location) from None
        super().check_assignment(assignment)


class _Instances:
    """The instances of the fragments of one document, made on demand."""

    def __init__(self, document: syntax.Document) -> None:
        own: dict[str, syntax.Fragment] = {}
        for fragment in document.fragments:
            own.setdefault(fragment.name, fragment)
        self.declarations: Mapping[str, syntax.Fragment] = MappingProxyType({**library(), **own})
        self.broken: set[str] = set()
        self._known: dict[tuple[str, tuple[Type, ...]], Instance] = {}

    def get(self, source: syntax.Fragment, types: tuple[Type, ...], at: syntax.SyntaxNode, depth: int) -> Instance:
        """The instance of a fragment for complete parameter types."""
        key = source.name, types
        known = self._known.get(key)
        if known is not None:
            return known
        if depth >= DEFAULT.nesting:
            raise too_large("nesting", f"fragments invoke each other deeper than {DEFAULT.nesting}", at)
        if len(self._known) >= _MAX_INSTANCES:
            message = f"fragments are invoked with more than {_MAX_INSTANCES} combinations of data types"
            raise too_large("expansion", message, at)
        typed = zip(source.parameters, types, strict=True)
        fragment = replace(source, parameters=tuple(replace(parameter, type=type_) for parameter, type_ in typed))
        instance = self._known[key] = Instance(source, fragment)
        inference = _Inference(self, fragment, depth + 1)
        body = Body(self.declarations, fragment, inference=inference)
        found = Findings()
        with suppress(TooMany):
            body.check(source.body or (), found)
        for error in found:
            error.trace = (*error.trace, location_of(at, source.name)) if at is not source else error.trace
        instance.errors = list(found)
        instance.calls = inference.calls
        instance.results = tuple(inference.names.get(result.name) for result in source.results)
        return instance

    def guess(self, source: syntax.Fragment) -> Instance:
        """An instance without errors of a fragment that is never invoked; if there is none, the instance with scalars
        only.
        """
        first: Instance | None = None
        for types in _combinations(source):
            instance = self.get(source, types, source, 0)
            if not any(reached.errors for reached in _reachable([instance])):
                return instance
            first = first or instance
        assert first is not None
        return first


def _combinations(source: syntax.Fragment) -> Iterator[tuple[Type, ...]]:
    """Complete parameter types: all tensors of one data type first, then one parameter with another
    type than the rest.
    """
    for name in _GUESSES:
        yield tuple(_bind(parameter.type, None, name) for parameter in source.parameters)
    for index in range(len(source.parameters)):
        for name in _GUESSES[1:]:
            yield tuple(
                _bind(parameter.type, None, name if number == index else "scalar")
                for number, parameter in enumerate(source.parameters)
            )
