"""From a position of a game on a chain to the next move of a party: the question, and the call that answers it.

Nothing of a game is kept between moves. What a call needs beside the answer (the nodes of the log on which both agree,
the roots of auxiliary tensors, the record of the op) is asked of the party again, so a party may stop and start at any
moment.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Any

from cvm.audit.dispute import questions as q
from cvm.audit.receipt import Roots
from cvm.errors import CvmError
from cvm.program.commitments import ProgramClaim, counted_root
from cvm.program.preimage import listed, shape
from cvm.records import dataclass

__all__ = ["Move", "Position", "Stage", "move", "question"]


class Stage(IntEnum):
    """What a game asks its parties, as ``DisputeGame.Stage`` counts."""

    NONE = 0
    OPEN_TRACE = 1
    LOG_NODE = 2
    OPEN_OP = 3
    OPEN_AUXILIARIES = 4
    OPEN_TENSOR = 5
    TENSOR_NODE = 6
    OPEN_LEAF = 7
    COMMIT = 8
    PARTIAL_NODE = 9
    PROVE_STEP = 10
    OVER = 11


@dataclass(frozen=True, slots=True)
class Position:
    """A game as the contract has it; the members are those of ``DisputeGame.Game``."""

    parties: tuple[str, str]
    deadline: int
    stage: Stage
    answered: int
    rounds: int
    move_time: int
    ops: int
    winner: int
    op: int
    target: int
    start: int
    end: int
    element: int
    step: int
    nodes: tuple[bytes, bytes]

    @staticmethod
    def of(names: tuple[str, ...], values: tuple[Any, ...]) -> Position:
        """The position in the result of ``DisputeGame.game``."""
        game: Mapping[str, Any] = dict(zip(names, values, strict=True))
        same = ("deadline", "answered", "rounds", "ops", "winner", "op", "target", "start", "end", "element", "step")
        return Position(
            parties=(game["a"], game["b"]),
            stage=Stage(game["stage"]),
            move_time=game["moveTime"],
            nodes=tuple(game["nodes"]),
            **{name: game[name] for name in same},
        )

    def has_answered(self, side: int) -> bool:
        """Whether a side has answered the question."""
        return bool(self.answered >> side & 1)


@dataclass(frozen=True, slots=True)
class Move:
    """A call of the game that answers its question."""

    question: q.Question
    function: str
    arguments: tuple[Any, ...]
    """The arguments after the number of the game."""


def question(position: Position) -> q.Question | None:
    """The question of a position; None if there is none."""
    op, target, start, end = position.op, position.target, position.start, position.end
    match position.stage:
        case Stage.OPEN_TRACE:
            return q.OpenTrace()
        case Stage.LOG_NODE:
            return q.LogNode(start, end)
        case Stage.OPEN_OP:
            return q.OpenOp(op)
        case Stage.OPEN_AUXILIARIES:
            return q.OpenAuxiliaries(op)
        case Stage.OPEN_TENSOR:
            return q.OpenTensor(op, target)
        case Stage.TENSOR_NODE:
            return q.TensorNode(op, target, start, end)
        case Stage.OPEN_LEAF:
            return q.OpenLeaf(op, target, start)
        case Stage.COMMIT:
            return q.Commit(op, target, position.element)
        case Stage.PARTIAL_NODE:
            return q.PartialNode(op, target, position.element, start, end)
        case Stage.PROVE_STEP:
            return q.ProveStep(op, target, position.element, position.step)
    return None


def move(party: q.Party, position: Position, shown: bytes | None) -> Move | None:
    """The next move of a party; None if it withholds its answer, or has none that the game could read.

    ``shown`` is what the other party showed when it answered this question (the event ``Opened``); None if it has not.
    """
    asked = question(position)
    if asked is None:
        return None
    try:
        answer = party.answer(asked)
        call = None if answer is None else _call(party, position, asked, answer, shown or b"")
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):  # CvmError is a ValueError
        return None
    return None if call is None else Move(asked, *call)


def _call(
    party: q.Party, position: Position, asked: q.Question, answer: Any, shown: bytes
) -> tuple[str, tuple[Any, ...]]:
    """The function that takes the answer, and its arguments."""
    match asked:
        case q.OpenTrace():
            nodes: q.ListOpening = answer.lists[0]
            preimage = _program(answer).preimage()
            return "openTrace", (preimage, nodes.count, nodes.root, _beginning(answer), answer.log)
        case q.LogNode() | q.TensorNode() | q.PartialNode():
            return "children", (answer.left, answer.right)
        case q.OpenOp():
            return "openOp", (answer.record, answer.path, listed(answer.roots), shown)
        case q.OpenAuxiliaries(op):
            opened: Any = party.answer(q.OpenOp(op))
            return "openAuxiliaries", (listed(answer), shown, opened.record)
        case q.OpenTensor():
            return "openTensor", (shape(answer.shape), answer.data_root)
        case q.OpenLeaf():
            return "openLeaf", (answer, shown)
        case q.Commit():
            return "commit", (answer.count, answer.root, answer.path)
        case q.ProveStep(op, target):
            trace: Any = party.answer(q.OpenTrace())
            named = listed(_auxiliaries(party, op, target))
            prefix = _prefix(party, trace.lists[0].count, op)
            return "proveStep", (_program(trace).digest(), _beginning(trace), prefix, named, answer)


def _program(opening: q.TraceOpening) -> ProgramClaim:
    lists = [counted_root(item.count, item.root) for item in opening.lists]
    return ProgramClaim(opening.op_set, opening.limits, *lists)


def _beginning(opening: q.TraceOpening) -> bytes:
    return listed(opening.inputs) + listed(opening.before)


def _prefix(party: q.Party, ops: int, op: int) -> list[bytes]:
    """The nodes of the log to the left of an op, from the left."""
    start, end, prefix = 0, ops, list[bytes]()
    while end - start > 1:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if op < middle:
            end = middle
            continue
        children: Any = party.answer(q.LogNode(start, end))
        prefix.append(children.left)
        start = middle
    return prefix


def _auxiliaries(party: q.Party, op: int, target: int) -> Roots:
    """The roots of the auxiliary tensors that a claim about a target names."""
    try:
        found: Any = party.answer(q.OpenAuxiliaries(op))
    except CvmError:
        return ()
    return tuple(found or ())[: target + 1]
