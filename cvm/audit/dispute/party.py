"""A party that has all tensors of a run and answers every question from them."""

from __future__ import annotations

from cvm.audit.dispute import questions as q
from cvm.audit.dispute.evidence import Evidence, OpenProgram, leaf_of
from cvm.audit.dispute.proof import encode_proof, partial_record
from cvm.audit.trace import Trace
from cvm.program.merkle import Tree

__all__ = ["Witnessed", "children_of", "open_trace"]


class Witnessed:
    """A party that answers from its evidence. It is honest if the evidence follows from the program and its inputs."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def root(self) -> bytes:
        """The trace root that the party claims."""
        return self.evidence.trace.root

    def answer(self, question: q.Question) -> q.Answer:
        """The answer to a question; None if the party does not have the answer or cannot prove it."""
        try:
            return self._answer(question)
        except (ArithmeticError, LookupError, ValueError):  # CvmError is a ValueError
            return None

    def _answer(self, question: q.Question) -> q.Answer:
        evidence = self.evidence
        match question:
            case q.OpenTrace():
                return open_trace(evidence.program, evidence.trace)
            case q.LogNode(start, end):
                return children_of(evidence.log, start, end)
            case q.OpenOp(op):
                program = evidence.program
                return q.OpOpening(program.record(op), program.nodes.prove(op).path, evidence.trace.steps[op])
            case q.OpenAuxiliaries(op):
                return evidence.auxiliary_roots(op)
            case q.OpenTensor(op, target):
                claim = evidence.claim(op, target)
                return q.TensorOpening(claim.shape, claim.data_root)
            case q.TensorNode(op, target, start, end):
                return children_of(evidence.tree(op, target), start, end)
            case q.OpenLeaf(op, target, leaf):
                return leaf_of(evidence.tensor(op, target), leaf)
            case q.Commit(op, target, element):
                tree = self._partials(op, target, element)
                return q.PartialsOpening(tree.count, tree.root, tree.prove(tree.count - 1).path)
            case q.PartialNode(op, target, element, start, end):
                return children_of(self._partials(op, target, element), start, end)
            case q.ProveStep(op, target, element, step):
                partials = self.partials(op, target, element)
                return encode_proof(evidence.prove(op, target, element, step, partials))

    def partials(self, op: int, target: int, element: int) -> list[int]:
        """The partials of an element, as the party claims them."""
        return self.evidence.partials(op, target, element)

    def _partials(self, op: int, target: int, element: int) -> Tree:
        return Tree.of(map(partial_record, self.partials(op, target, element)))


def open_trace(program: OpenProgram, trace: Trace) -> q.TraceOpening:
    """The content to which the root of a trace commits."""
    return q.TraceOpening(
        op_set=program.program.op_set,
        limits=program.program.limits,
        lists=program.lists,
        inputs=trace.inputs,
        before=trace.before,
        steps=len(trace.steps),
        log=Tree.of(trace.records()).root,
    )


def children_of(tree: Tree, start: int, end: int) -> q.Children:
    """The children of the node over some leaves of a tree."""
    split = start + (1 << (end - start - 1).bit_length() - 1)
    return q.Children(tree.node(start, split), tree.node(split, end))
