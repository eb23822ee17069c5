"""From a provisional document to a document of NNEF 1.0.1 with the same meaning.

A fragment stays a fragment where 1.0.1 admits it, once for every combination of data types with which it is invoked; a
statement of the graph stays as it is where everything that it invokes stays. What 1.0.1 cannot express - variables in
fragments, results that are not tensors, mixed tuples - is expanded into the operations that it stands for. The checker
of 1.0.1 decides what 1.0.1 admits; this module has no list of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from cvm.errors import CvmError
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.checker import FRAGMENTS, OPERATOR_EXPRESSIONS, Body, Findings, check_document, is_flat
from cvm.frontends.nnef.comments import NO_COMMENTS, Comments
from cvm.frontends.nnef.declarations import check_declaration, declare
from cvm.frontends.nnef.faults import unsupported
from cvm.frontends.nnef.flatten import flatten_document
from cvm.frontends.nnef.parser import parse_document
from cvm.frontends.nnef.provisional.checker import Checked, Instance
from cvm.frontends.nnef.provisional.evaluation import evaluate
from cvm.frontends.nnef.provisional.flattened import assignment_of
from cvm.frontends.nnef.provisional.operations import definitions
from cvm.frontends.nnef.provisional.rewriting import Rewriter
from cvm.frontends.nnef.unparse import unparse
from cvm.frontends.nnef.walk import descendants
from cvm.limits import DEFAULT, Limits

__all__ = ["upgrade_document"]


def upgrade_document(
    checked: Checked, comments: Mapping[int, Comments] = MappingProxyType({}), limits: Limits = DEFAULT
) -> str:
    """The text of a document of NNEF 1.0.1 that means the same, with ``comments`` by the nodes of the document.

    Comments inside of a fragment that is not printed are omitted. Raises `Invalid` and `LimitExceeded` for arguments
    and shapes, `Unsupported` for a document that 1.0.1 cannot express.
    """
    rewriter = Rewriter(checked.document)
    evaluated = evaluate(checked.document, rewriter, limits)
    portable = _Portable(checked, rewriter)
    body = Body(portable.declarations, None)
    assignments: list[syntax.Assignment] = []
    printed: dict[int, Comments] = {}
    originals = checked.document.graph.body
    for original, plain, operations in zip(originals, evaluated.graph.body, evaluated.statements, strict=True):
        kept = replace(plain, value=rewriter.expression(original.value, portable.calls(checked.calls)))
        extended = (original.value.line, original.value.column) in rewriter.short_windows
        if not extended and portable.keeps(kept) and _admitted(body, kept):
            statements = [kept]
        else:
            statements = list(map(assignment_of, operations))
            for statement in statements:
                _admitted(body, statement)  # also defines the results of the statement for those after it
        assignments += statements
        own = comments.get(id(original))
        if own is not None and statements:
            printed[id(statements[0])] = own if len(statements) == 1 else own.above()
    graph = replace(evaluated.graph, body=tuple(assignments))
    fragments = portable.used_by(assignments)
    document = _document(graph, fragments)
    printed |= portable.comments(fragments, comments)
    printed |= _comments_of_parts(checked.document, document, portable.sources(fragments), comments)
    text = unparse(document, printed)
    try:
        again = parse_document(text, limits)
        flatten_document(again, check_document(again), limits)
    except CvmError as error:
        message = f"the document means something that 1.0.1 cannot say: {error.message}"
        raise unsupported("extension.upgrade", message, checked.document.graph) from error
    return text


def _admitted(body: Body, assignment: syntax.Assignment) -> bool:
    try:
        body.check_assignment(assignment)
    except CvmError:
        return False
    return True


class _Portable:
    """The fragments that 1.0.1 admits, and the definitions of operations that they need, by their 1.0.1 names."""

    def __init__(self, checked: Checked, rewriter: Rewriter) -> None:
        self._rewriter = rewriter
        self._names: dict[int, str] = {}
        self._fragments: dict[str, syntax.Fragment] = {}
        self._sources: dict[str, syntax.Fragment] = {}
        self.declarations: dict[str, syntax.Fragment] = dict(declare(()))
        for name in definitions():
            self._admit(rewriter.definition(name))
        for instance in checked.instances():
            first = instance.source.name not in {other.source.name for other in self._instances(checked, instance)}
            base = rewriter.fragments[instance.source.name]
            self._names[id(instance)] = base if first else rewriter.new_name(base)
        for instance in checked.instances():
            self._sources[self._names[id(instance)]] = instance.source
            self._admit(self._fragment(instance))

    def _instances(self, checked: Checked, until: Instance) -> Iterable[Instance]:
        for instance in checked.instances():
            if instance is until:
                return
            yield instance

    def _fragment(self, instance: Instance) -> syntax.Fragment:
        types = dict(zip((r.name for r in instance.source.results), instance.results or (), strict=True))
        results = tuple(replace(r, type=types[r.name] or r.type) for r in instance.source.results)
        typed = replace(instance.fragment, results=results)
        return self._rewriter.fragment(typed, self._names[id(instance)], self.calls(instance.calls))

    def calls(self, calls: Mapping[int, Instance]) -> dict[int, str]:
        """The names of the invoked fragments, by invocation."""
        return {node: self._names[id(instance)] for node, instance in calls.items()}

    def _admit(self, fragment: syntax.Fragment) -> None:
        """Declare a fragment, unless 1.0.1 does not admit it."""
        self.declarations[fragment.name] = fragment
        findings = Findings()
        try:
            check_declaration(fragment)
            Body(self.declarations, fragment).check(fragment.body or (), findings)
        except CvmError as error:
            findings.append(error)
        if findings:
            del self.declarations[fragment.name]
        else:
            self._fragments[fragment.name] = fragment

    def sources(self, fragments: Iterable[syntax.Fragment]) -> dict[int, syntax.Fragment]:
        """The document's own fragments, by the identity of the printed fragment that each became."""
        named = ((self._sources.get(fragment.name), fragment) for fragment in fragments)
        found: dict[int, syntax.Fragment] = {}
        for source, fragment in named:
            if source is not None:
                found.setdefault(id(source), fragment)
        return found

    def comments(self, fragments: Iterable[syntax.Fragment], comments: Mapping[int, Comments]) -> dict[int, Comments]:
        """The comments of the statements of fragments, and those at their end, by the nodes that are printed."""
        found: dict[int, Comments] = {}
        for fragment in fragments:
            source = self._sources.get(fragment.name)
            if source is not None:
                pairs = zip(source.body or (), fragment.body or (), strict=True)
                found |= {id(new): comments[id(old)] for old, new in pairs if id(old) in comments}
                found[id(fragment)] = replace(comments.get(id(source), NO_COMMENTS), before=())
        return found

    def keeps(self, assignment: syntax.Assignment) -> bool:
        """Whether a statement of the graph may stay; definitions of operations serve fragments only."""
        definitions_ = self._rewriter.definitions.values()
        return all(name in self.declarations and name not in definitions_ for name in _invoked([assignment]))

    def used_by(self, assignments: Iterable[syntax.Assignment]) -> list[syntax.Fragment]:
        """The fragments that the assignments need; each follows the fragments that it needs itself."""
        used: dict[str, syntax.Fragment] = {}
        pending = [(name, False) for name in _invoked(assignments)]
        while pending:
            name, done = pending.pop()
            fragment = self._fragments.get(name)
            if fragment is None or name in used:
                continue
            if done:
                used[name] = fragment
            else:
                pending.append((name, True))
                pending += [(n, False) for n in _invoked(fragment.body or ()) if n != name]
        return list(used.values())


def _invoked(assignments: Iterable[syntax.Assignment]) -> list[str]:
    nodes = (node for assignment in assignments for node in descendants(assignment.value))
    return [node.name for node in nodes if isinstance(node, syntax.Invocation)]


def _comments_of_parts(
    source: syntax.Document,
    document: syntax.Document,
    fragments: Mapping[int, syntax.Fragment],
    comments: Mapping[int, Comments],
) -> dict[int, Comments]:
    """The comments of fragments, the graph and the document; those before an omitted part go to the
    next printed part.
    """
    found: dict[int, Comments] = {}
    pending: tuple[str, ...] = ()
    parts: list[tuple[syntax.SyntaxNode, syntax.SyntaxNode | None]] = [
        (f, fragments.get(id(f))) for f in source.fragments
    ]
    for old, new in [*parts, (source.graph, document.graph)]:
        own = comments.get(id(old), NO_COMMENTS)
        own = replace(own, before=(*pending, *own.before))
        pending = own.before if new is None else ()
        if new is not None:
            found[id(new)] = own
    return found | {id(document): comments.get(id(source), NO_COMMENTS)}


def _document(graph: syntax.Graph, fragments: list[syntax.Fragment]) -> syntax.Document:
    """A document with the extensions that it needs."""
    bodies = [*(fragment.body or () for fragment in fragments), graph.body]
    extensions = [FRAGMENTS] if fragments else []
    if not all(is_flat(assignment) for body in bodies for assignment in body):
        extensions.append(OPERATOR_EXPRESSIONS)
    return syntax.Document(1, 1, tuple(syntax.Extension(1, 1, name) for name in extensions), tuple(fragments), graph)
