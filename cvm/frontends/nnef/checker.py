"""Static semantics of a document: extensions, definitions, and the use of identifiers.

Source: NNEF 1.0.1 sections 3.2 (extensions) and 3.3.2 (Assignments; Identifier Usage in the Graph and Fragment Body).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.declarations import declare
from cvm.frontends.nnef.faults import MAX_ERRORS, collected, invalid, too_large, unsupported
from cvm.frontends.nnef.inference import CURRENT, Inference, Tainted
from cvm.frontends.nnef.types import ArrayType, TensorType, TupleType, Type, castable, depth_of
from cvm.limits import DEFAULT
from cvm.records import dataclass

__all__ = [
    "FRAGMENTS",
    "OPERATOR_EXPRESSIONS",
    "Body",
    "Findings",
    "Survey",
    "TooMany",
    "check_document",
    "check_flat",
    "check_graph",
    "identifiers_of",
    "is_flat",
    "survey",
]

FRAGMENTS = "KHR_enable_fragment_definitions"
OPERATOR_EXPRESSIONS = "KHR_enable_operator_expressions"


@dataclass(frozen=True, slots=True)
class Survey:
    """The result of the static check of a document: the declarations in force, and the errors.

    ``unsound`` holds the fragments that cannot be expanded, ``skipped`` the indices of the assignments of the graph
    that cannot be evaluated, because of one of the errors.
    """

    declarations: Mapping[str, syntax.Fragment]
    errors: tuple[CvmError, ...]
    unsound: frozenset[str]
    skipped: frozenset[int]


class TooMany(Exception):
    """Raised when the greatest number of errors that are reported has been found."""


class Findings(list[CvmError]):
    """The errors found so far, at most `MAX_ERRORS`."""

    def add(self, error: CvmError) -> None:
        """Add an error, with the independent errors that it carries. Raises `TooMany` at the limit."""
        self.extend(error.errors)
        if len(self) >= MAX_ERRORS:
            raise TooMany


def check_document(document: syntax.Document) -> Mapping[str, syntax.Fragment]:
    """Check everything in a document that needs neither values nor shapes; returns all declarations in force.

    Raises `Invalid` with the rule that is broken, `Unsupported` for an extension that is not known; the error carries
    the other independent errors (`CvmError.errors`).
    """
    found = survey(document)
    if found.errors:
        raise collected(found.errors)
    return found.declarations


def survey(document: syntax.Document) -> Survey:
    """Check everything in a document that needs neither values nor shapes.

    Each statement yields at most one error, and a statement that depends on a wrong one yields none. A document that
    lacks an extension that it needs, or names an unknown one, yields that error alone.
    """
    findings = Findings()
    declarations: dict[str, syntax.Fragment] = {}
    unsound: set[str] = set()
    skipped: set[int] = set()
    try:
        _check_extensions(document, findings)
        broken = _declare(document.fragments, declarations, findings)
        unsound |= broken
        flat = all(extension.name != OPERATOR_EXPRESSIONS for extension in document.extensions)
        for fragment in document.fragments:
            if fragment.body is not None and declarations.get(fragment.name) is fragment:
                body = Body(declarations, fragment, flat=flat, broken=broken)
                if body.check(fragment.body, findings):
                    unsound.add(fragment.name)
                flat = flat and not body.needs_extension
        graph = Body(declarations, None, flat=flat, broken=broken)
        check_graph(document.graph, graph, findings, skipped)
    except TooMany:
        skipped.update(range(len(document.graph.body)))
    return Survey(MappingProxyType(declarations), tuple(findings), frozenset(unsound), frozenset(skipped))


def _check_extensions(document: syntax.Document, findings: Findings) -> None:
    for extension in document.extensions:
        if extension.name not in (FRAGMENTS, OPERATOR_EXPRESSIONS):
            findings.add(unsupported("extension.unknown", f"extension {extension.name} is not known", extension))
            raise TooMany
    if document.fragments and all(extension.name != FRAGMENTS for extension in document.extensions):
        message = f"a fragment definition needs 'extension {FRAGMENTS};'"
        findings.add(invalid("extension.fragments", message, document.fragments[0]))


def _declare(
    fragments: Sequence[syntax.Fragment], declarations: dict[str, syntax.Fragment], findings: Findings
) -> set[str]:
    """Fill in the declarations in force, the first of each name; returns the names of the wrong ones."""
    try:
        declarations.update(declare(fragments))
        return set()
    except CvmError:
        pass
    declarations.update(declare(()))
    own: dict[str, syntax.Fragment] = {}
    broken: set[str] = set()
    for fragment in fragments:
        first = own.setdefault(fragment.name, fragment)
        try:
            declare([fragment] if first is fragment else [first, fragment])
        except CvmError as error:
            if fragment.name not in broken:
                findings.add(error)
            broken.add(fragment.name)
    for name, fragment in own.items():
        if name not in broken or name not in declarations:
            declarations[name] = fragment
    return broken


def check_graph(graph: syntax.Graph, body: Body, findings: Findings, skipped: set[int]) -> None:
    """Check the parameters, the results and all assignments of a graph; adds the indices of wrong
    ones to ``skipped``.
    """
    lists = (("parameter", graph.parameters), ("result", graph.results))
    for kind, identifiers in lists:
        seen: set[str] = set()
        for identifier in identifiers:
            if identifier.name in seen:
                message = f"{kind} {identifier.name!r} of the graph is listed twice"
                findings.add(invalid("identifier-usage.duplicate", message, identifier))
            seen.add(identifier.name)
    skipped |= body.check(graph.body, findings)
    for kind, identifiers in lists:
        for identifier in identifiers:
            if identifier.name not in body.assigned:
                message = f"{kind} {identifier.name!r} of the graph is never assigned"
                findings.add(invalid("identifier-usage.unassigned", message, identifier))


class Body:
    """The assignments of one fragment, or of the graph when ``fragment`` is None."""

    def __init__(
        self,
        declarations: Mapping[str, syntax.Fragment],
        fragment: syntax.Fragment | None,
        flat: bool = False,
        broken: set[str] | frozenset[str] = frozenset(),
        inference: Inference | None = None,
    ) -> None:
        self.inference = inference or Inference(declarations, fragment, CURRENT, broken)
        self._fragment = fragment
        self._flat = flat
        self._results = {} if fragment is None else {result.name: result.type for result in fragment.results}
        self._parameters = set() if fragment is None else {parameter.name for parameter in fragment.parameters}
        self.assigned: set[str] = set()
        self.needs_extension = False
        """Whether an operator expression was found without its extension; one error reports it for
        the whole document.
        """

    def check(self, body: tuple[syntax.Assignment, ...], findings: Findings) -> set[int]:
        """Check all assignments; returns the indices of those that are wrong or depend on a wrong one."""
        skipped = set()
        for index, assignment in enumerate(body):
            try:
                self.check_assignment(assignment)
            except (CvmError, Tainted) as error:
                skipped.add(index)
                for target in identifiers_of(assignment.target):
                    self.assigned.add(target)
                    self.inference.names[target] = None
                if isinstance(error, CvmError):
                    self._note(error, findings)
        if self._fragment is not None:
            for result in self._fragment.results:
                if result.name not in self.assigned:
                    message = f"result {result.name!r} of fragment {self._fragment.name!r} is never assigned"
                    findings.add(invalid("identifier-usage.unassigned", message, result))
                    skipped.add(len(body))
        return skipped

    def _note(self, error: CvmError, findings: Findings) -> None:
        if error.code == "nnef.extension.operator-expressions":
            self._flat, self.needs_extension = False, True
        findings.add(error)

    def check_assignment(self, assignment: syntax.Assignment) -> None:
        """Check one assignment, and define the identifiers on its left-hand side."""
        if self._flat:
            check_flat(assignment)
        type_ = self.inference.infer(assignment.value, tail=True)
        self._assign(assignment.target, type_, assignment.value)

    def _assign(self, target: syntax.Expression, type_: Type, value: syntax.Expression) -> None:
        match target, type_:
            case syntax.Identifier(), _:
                self._define(target, type_, value)
            case syntax.ArrayExpression(items=items), ArrayType(item):
                for child in items:
                    if item is None:
                        raise invalid("identifier-usage.structure", "the array on the right is empty", child)
                    self._assign(child, item, value)
            case syntax.TupleExpression(items=items), TupleType(types) if len(items) == len(types):
                for child, child_type in zip(items, types, strict=True):
                    self._assign(child, child_type, value)
            case _:
                message = f"a value of type {type_} cannot be assigned to this {_shape(target)}"
                raise invalid("identifier-usage.structure", message, target)

    def _define(self, target: syntax.Identifier, type_: Type, value: syntax.Expression) -> None:
        name = target.name
        if name in self._parameters:
            raise invalid("identifier-usage.parameter", f"parameter {name!r} is assigned", target)
        if name in self.assigned:
            raise invalid("identifier-usage.twice", f"{name!r} is assigned twice", target)
        if self._fragment is None and not isinstance(type_, TensorType):
            message = f"identifiers of a graph must be tensors; {name!r} would be {type_}"
            raise invalid("identifier-usage.graph-tensors", message, target)
        if name in self._results:
            declared = self.inference.declared(self._results[name], type_)
            if not castable(type_, declared):
                raise invalid("types.result", f"result {name!r} is {declared}, found {type_}", target)
            type_ = declared
        if self.inference.must_be_unpacked(type_) and _invokes(value):
            message = f"{name!r} would be {type_}; the left side must have the structure of the result"
            raise invalid("identifier-usage.structure", message, target)
        if depth_of(type_) > DEFAULT.nesting:
            raise too_large("nesting", f"the type of {name!r} is nested deeper than {DEFAULT.nesting}", target)
        self.assigned.add(name)
        self.inference.names[name] = type_


def identifiers_of(target: syntax.Expression) -> list[str]:
    """The identifiers on the left-hand side of an assignment."""
    match target:
        case syntax.Identifier(name=name):
            return [name]
        case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
            return [name for child in items for name in identifiers_of(child)]
    return []


def _shape(target: syntax.Expression) -> str:
    return "array" if isinstance(target, syntax.ArrayExpression) else "tuple"


def _invokes(value: syntax.Expression) -> bool:
    """Whether the value of an expression may be the unchanged result of an invocation."""
    while True:
        match value:
            case syntax.Invocation():
                return True
            case syntax.Paren(operand=operand):
                value = operand
            case syntax.IfElse(consequence=consequence, alternative=alternative):
                if _invokes(consequence):
                    return True
                value = alternative
            case _:
                return False


def check_flat(assignment: syntax.Assignment) -> None:
    """Section 3.2.1: without operator expressions, the right-hand side is one invocation with flat arguments."""
    value = assignment.value
    if isinstance(value, syntax.Invocation):
        for argument in value.arguments:
            _check_flat_argument(argument.value)
        return
    if isinstance(value, syntax.Identifier | syntax.Literal | syntax.ArrayExpression | syntax.TupleExpression):
        message = f"the right side must be an invocation without 'extension {OPERATOR_EXPRESSIONS};'"
        raise invalid("syntax.assignment", message, value)
    _check_flat_argument(value)


def _check_flat_argument(root: syntax.Expression) -> None:
    pending = [root]
    while pending:
        node = pending.pop()
        match node:
            case syntax.Identifier() | syntax.Literal():
                continue
            case syntax.ArrayExpression(items=items) | syntax.TupleExpression(items=items):
                pending.extend(reversed(items))
                continue
            case syntax.Unary(operator=operator, operand=syntax.Literal(value=value)) if _is_number(value):
                if operator == "-":
                    continue
                if operator == "+":
                    raise invalid("lexical.plus", "a numeric literal has no plus sign in flat syntax", node)
        message = f"this expression needs 'extension {OPERATOR_EXPRESSIONS};'"
        raise invalid("extension.operator-expressions", message, node)


def is_flat(assignment: syntax.Assignment) -> bool:
    """Whether an assignment needs no operator expressions."""
    try:
        check_flat(assignment)
    except CvmError:
        return False
    return True


def _is_number(value: object) -> bool:
    return not isinstance(value, bool | str)
