"""The game between two parties who name different trace roots for one program, one input and one state.

The referee has the digest of the program, the roots of the inputs and of the state before the run, and the two trace
roots: a few hashes. Each round puts one question to both parties. An answer must open what the same party committed to
before; a party whose answer does not, or that gives none, has lost. So the parties' own answers lead to the first op on
which they differ, the first element of its output, and the first step of that element's fold. There they agree on
everything that the step reads, and each proves its own step. At most one of the proofs can be accepted
(`cvm.audit.dispute.judge`).

A party whose tensors follow from program and inputs can answer everything and loses no game. If no party has these
tensors, both may lose.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace
from hashlib import sha256
from typing import Any, Literal, TypeAlias

from cvm.audit.dispute import questions as q
from cvm.audit.dispute.evidence import leaf_count
from cvm.audit.dispute.judge import verify_step
from cvm.audit.dispute.proof import StepClaim, StepProof, decode_proof, partial_record
from cvm.audit.dispute.records import OpRecord, read_op_record
from cvm.audit.dispute.targets import auxiliary_count, target_shape
from cvm.audit.receipt import Roots
from cvm.audit.trace import head_of, step_record
from cvm.errors import CvmError, Invalid
from cvm.program.commitments import ProgramClaim, TensorClaim, counted_root
from cvm.program.merkle import HASH_BYTES, LEAF_BYTES, Proof, root_of_proof, root_of_several
from cvm.records import dataclass

__all__ = ["Outcome", "Side", "Statement", "settle"]

Side: TypeAlias = Literal["A", "B"]
_SIDES: tuple[Side, Side] = ("A", "B")
_COUNT_BITS = 32
"""An element takes fewer than 2^32 steps."""


@dataclass(frozen=True, slots=True)
class Statement:
    """The facts on which the parties agree."""

    program: bytes
    """The digest of a valid program."""
    inputs: Roots
    before: Roots
    """The state that the run began with."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a game ended."""

    winner: Side | None
    """None: both lost, or there was nothing to settle."""
    reason: str
    rounds: int
    op: int | None = None
    """How far the game came: op, target, element and step."""
    target: int | None = None
    element: int | None = None
    step: int | None = None
    proof: bytes | None = None
    """The proof of the winner, if it came to that."""


class _Ended(Exception):
    """Raised to end a game; holds the winner and the reason."""

    def __init__(self, winner: Side | None, reason: str) -> None:
        super().__init__(reason)
        self.winner = winner
        self.reason = reason


_Pair: TypeAlias = tuple[Any, Any]
"""The same item of A and of B."""


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise Invalid("dispute.answer", what)


def settle(
    statement: Statement,
    roots: tuple[bytes, bytes],
    parties: tuple[q.Party, q.Party],
    watch: Callable[[q.Question], None] = lambda _: None,
) -> Outcome:
    """Play the game to its end. ``roots`` are the trace roots of the parties A and B; ``watch`` sees every question."""
    if roots[0] == roots[1]:
        return Outcome(None, "the parties name one trace root", 0)
    table = _Table(statement, parties, watch)
    try:
        table.play(roots)
    except _Ended as end:
        return replace(table.reached, winner=end.winner, reason=end.reason, rounds=table.rounds)
    raise AssertionError("a game ends with a verdict")


@dataclass
class _Table:
    """One game: the parties, the rounds so far, and the step that it was led to."""

    statement: Statement
    parties: tuple[q.Party, q.Party]
    watch: Callable[[q.Question], None]
    rounds: int = 0
    reached: Outcome = field(default_factory=lambda: Outcome(None, "", 0))

    def ask(self, question: q.Question, check: Callable[[int, Any], Any]) -> _Pair:
        """One round: the results of ``check`` on both answers. A party whose answer fails its check has lost."""
        self.rounds += 1
        self.watch(question)
        found: list[Any] = []
        faults: dict[int, str] = {}
        for side, party in enumerate(self.parties):
            answer = party.answer(question)
            try:
                if answer is None:
                    raise Invalid("dispute.withheld", "there is no answer")
                found.append(check(side, answer))
            except CvmError as error:
                faults[side] = error.message
            except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
                faults[side] = f"the answer is none to this question: {error}"
        if faults:
            said = "; ".join(f"{_SIDES[side]}: {fault}" for side, fault in faults.items())
            winner = None if len(faults) == 2 else _SIDES[1 - next(iter(faults))]
            raise _Ended(winner, f"{type(question).__name__}: {said}")
        return found[0], found[1]

    def at(self, **reached: Any) -> None:
        """Record the op, target, element or step that the game has reached."""
        self.reached = replace(self.reached, **reached)

    # From the trace roots to a step

    def play(self, roots: tuple[bytes, bytes]) -> None:
        """Lead the parties to the first step on which they differ, and let them prove it."""
        first, second = self.ask(q.OpenTrace(), lambda side, answer: self._trace(roots[side], answer))
        nodes: q.ListOpening = first.lists[0]
        op, prefix, records = self._descend(nodes.count, (first.log, second.log), q.LogNode)
        self.at(op=op)
        head = self._head(op, prefix)
        found = self.ask(q.OpenOp(op), lambda side, answer: _op(answer, op, nodes, records[side]))
        record: OpRecord = found[0][0]
        target, targets = self._target(op, record, (found[0][1], found[1][1]))
        self.at(target=target)
        shape = target_shape(record, target)
        datas = self.ask(q.OpenTensor(op, target), lambda side, answer: _tensor(answer, shape, targets[side][target]))
        leaf, _, leaves = self._descend(
            leaf_count(shape), datas, lambda start, end: q.TensorNode(op, target, start, end)
        )
        size = 4 * math.prod(shape)
        contents = self.ask(
            q.OpenLeaf(op, target, leaf),
            lambda side, answer: _leaf(answer, min(LEAF_BYTES, size - LEAF_BYTES * leaf), leaves[side]),
        )
        number = next(i for i, (a, b) in enumerate(zip(*contents, strict=True)) if a != b)
        element = leaf * (LEAF_BYTES // 4) + number
        self.at(element=element)
        claims = tuple(
            StepClaim(head, op, target, side[: min(target + 1, auxiliary_count(record.op))], element, 0, b"")
            for side in targets
        )
        self._steps(claims, (contents[0][number], contents[1][number]))

    def _trace(self, root: bytes, answer: q.TraceOpening) -> q.TraceOpening:
        lists = [counted_root(item.count, item.root) for item in answer.lists]
        program = ProgramClaim(answer.op_set, answer.limits, *lists).digest()
        log = counted_root(answer.steps, answer.log)
        _require(program == self.statement.program, "the program is another one")
        _require(answer.inputs == self.statement.inputs, "the inputs are other ones")
        _require(answer.before == self.statement.before, "the run began with another state")
        _require(answer.steps == answer.lists[0].count, f"the run has {answer.lists[0].count} ops, not {answer.steps}")
        _require(head_of(program, answer.inputs, answer.before, log) == root, "this does not give the trace root")
        return answer

    def _descend(
        self, count: int, nodes: _Pair, question: Callable[[int, int], q.Question]
    ) -> tuple[int, list[bytes], _Pair]:
        """The first leaf on which two trees of one form differ: the agreed nodes to its left, and both leaves."""
        start, end, prefix = 0, count, []
        while end - start > 1:
            children = self.ask(question(start, end), lambda side, answer: _children(answer, nodes[side]))  # noqa: B023
            split = start + (1 << (end - start - 1).bit_length() - 1)
            if children[0].left != children[1].left:
                nodes, end = (children[0].left, children[1].left), split
            else:
                prefix.append(children[0].left)
                nodes, start = (children[0].right, children[1].right), split
        return start, prefix, nodes

    def _head(self, op: int, prefix: list[bytes]) -> bytes:
        """The state before the op, on which the parties agree: the nodes to the left of its record are its log."""
        log = prefix[-1] if prefix else sha256().digest()
        for node in reversed(prefix[:-1]):
            log = sha256(b"\x01" + node + log).digest()
        statement = self.statement
        return head_of(statement.program, statement.inputs, statement.before, counted_root(op, log))

    def _target(self, op: int, record: OpRecord, outputs: tuple[Roots, Roots]) -> tuple[int, tuple[Roots, Roots]]:
        """The first target on which the parties differ, and each party's roots of all targets."""
        count = auxiliary_count(record.op)
        targets = outputs
        if count:
            extra = self.ask(q.OpenAuxiliaries(op), lambda _, answer: _roots(answer, count))
            targets = (extra[0] + outputs[0], extra[1] + outputs[1])
        return next(i for i, (a, b) in enumerate(zip(*targets, strict=True)) if a != b), targets

    # Steps

    def _steps(self, claims: tuple[StepClaim, ...], elements: tuple[int, int]) -> None:
        """The first step on which the parties differ, and its proofs."""
        op, target, element = claims[0].op, claims[0].target, claims[0].element
        trees = self.ask(q.Commit(op, target, element), lambda side, answer: _partials(answer, elements[side]))
        step = 0  # if they differ in the number of steps, the proof of any step decides
        if trees[0].count == trees[1].count:
            step, _, _ = self._descend(
                trees[0].count,
                (trees[0].root, trees[1].root),
                lambda start, end: q.PartialNode(op, target, element, start, end),
            )
        self.at(step=step)
        expected = [
            replace(claim, step=step, partials=claim.commitment(tree.count, tree.root))
            for claim, tree in zip(claims, trees, strict=True)
        ]
        proofs: dict[int, bytes] = {}

        def proven(side: int, answer: bytes) -> StepProof:
            proof = decode_proof(answer)
            _require(proof.claim == expected[side], "the proof is that of another step")
            verdict = verify_step(proof.claim, proof.witness)
            _require(verdict.accepted, verdict.reason)
            proofs[side] = answer
            return proof

        try:
            self.ask(q.ProveStep(op, target, element, step), proven)
        except _Ended as end:
            if end.winner is not None:
                self.at(proof=proofs[_SIDES.index(end.winner)])
            raise
        raise AssertionError("two different steps from one state were accepted")


# The conditions on answers


def _children(answer: q.Children, node: bytes) -> q.Children:
    _require(len(answer.left) == len(answer.right) == HASH_BYTES, "a node has 32 bytes")
    _require(sha256(b"\x01" + answer.left + answer.right).digest() == node, "these are not the children of the node")
    return answer


def _op(answer: q.OpOpening, op: int, nodes: q.ListOpening, node: bytes) -> tuple[OpRecord, Roots]:
    root = root_of_proof(answer.record, Proof(op, nodes.count, answer.path))
    _require(root == nodes.root, f"this is not the record of op {op}")
    record = read_op_record(answer.record)
    roots = _roots(answer.roots, len(record.outputs))
    _require(sha256(b"\x00" + step_record(op, roots)).digest() == node, "these are not the roots in the log")
    return record, roots


def _roots(answer: Roots, count: int) -> Roots:
    _require(len(answer) == count and all(len(root) == HASH_BYTES for root in answer), f"expected {count} roots")
    return answer


def _tensor(answer: q.TensorOpening, shape: tuple[int, ...], root: bytes) -> bytes:
    _require(answer.shape == shape, f"the tensor has shape {list(shape)}, not {list(answer.shape)}")
    _require(TensorClaim("int32", shape, answer.data_root).root() == root, "this does not give the root of the tensor")
    return answer.data_root


def _leaf(answer: bytes, size: int, node: bytes) -> list[int]:
    _require(len(answer) == size, f"the leaf has {size} bytes, not {len(answer)}")
    _require(sha256(b"\x00" + answer).digest() == node, "this is not the leaf")
    return [int.from_bytes(answer[start : start + 4], "little", signed=True) for start in range(0, size, 4)]


def _partials(answer: q.PartialsOpening, element: int) -> q.PartialsOpening:
    _require(1 <= answer.count < 2**_COUNT_BITS, f"there are no {answer.count} partials")
    last = {answer.count - 1: partial_record(element)}
    _require(root_of_several(last, answer.count, answer.path) == answer.root, "the last partial is not the element")
    return answer
