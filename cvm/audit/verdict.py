"""Verdicts on receipts: the answers, the levels at which they are reached, and the evidence for them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, get_args

from cvm.audit.spot_check import Judged
from cvm.records import dataclass

__all__ = [
    "LEVELS",
    "NOT_EXECUTED",
    "Answer",
    "Behind",
    "Finding",
    "Level",
    "Verdict",
    "answer_words",
    "cannot",
    "diverged",
]

Answer = Literal["REPRODUCED", "DIVERGED", "CANNOT_RECOMPUTE"]
Level = Literal["structure", "roots", "outputs", "trace", "formal"]
LEVELS: tuple[Level, ...] = get_args(Level)
NOT_EXECUTED: Mapping[Level, str] = {
    "structure": "STRUCTURE HOLDS",
    "roots": "ROOTS AGREE",
}
"""The meaning of REPRODUCED at the levels that run nothing, in words for people."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer, and the level at which it was reached."""

    answer: Answer
    level: Level
    reason: str
    """Why, or what was compared."""
    signers: tuple[str, ...] = ()
    """The public keys, in hexadecimal, whose signatures of the claim are genuine."""
    checked: tuple[Level, ...] = ()
    """The levels that were reached without a finding."""
    executor: str | None = None
    """The executor that ran the program again; None: nothing was executed."""
    judged: Judged | None = None
    """What FORMAL judged of this executor; None: nothing was executed, or FORMAL itself executed everything."""

    @property
    def words(self) -> str:
        """The answer for people."""
        return answer_words(self.answer, self.level)


def answer_words(answer: Answer, level: Level) -> str:
    """The answer for people; it does not say REPRODUCED if nothing was executed."""
    return NOT_EXECUTED.get(level, answer) if answer == "REPRODUCED" else answer


class Finding(Exception):
    """Ends a verification."""

    def __init__(self, answer: Answer, reason: str) -> None:
        super().__init__(reason)
        self.answer = answer
        self.reason = reason


def diverged(reason: str) -> Finding:
    """The verdict that the claim is false."""
    return Finding("DIVERGED", reason)


def cannot(reason: str) -> Finding:
    """The verdict that the claim could not be decided."""
    return Finding("CANNOT_RECOMPUTE", reason)


@dataclass(slots=True)
class Behind:
    """The evidence for the answer, as far as it is known by now."""

    signers: list[str] = field(default_factory=list)
    checked: list[Level] = field(default_factory=list)
    executor: str | None = None
    judged: Judged | None = None

    def verdict(self, answer: Answer, level: Level, reason: str) -> Verdict:
        """The answer with the evidence for it."""
        return Verdict(answer, level, reason, tuple(self.signers), tuple(self.checked), self.executor, self.judged)
