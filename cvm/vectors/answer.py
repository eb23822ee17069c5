"""The questions to an implementation under test, and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Protocol

from cvm.records import dataclass
from cvm.vectors.format import Bounds, OpCase, ProgramCase, VectorTensor, VerdictCase

__all__ = ["UNSUPPORTED", "VERDICTS", "Answer", "Runner"]

UNSUPPORTED = "unsupported"
VERDICTS = ("value", "invalid", "malformed", "limit", UNSUPPORTED, "error")
"""The verdicts of vectors; ``unsupported``, which skips the case; and ``error``, which never matches."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to one case. An empty field was not given and is not compared, except the outputs of a value, and
    the gas and the ranges of a program that a verifier accepts.
    """

    verdict: str
    code: str = ""
    message: str = ""
    outputs: tuple[VectorTensor, ...] = ()
    digest: str = ""
    runs: tuple[Mapping[str, VectorTensor], ...] = ()
    gas: tuple[int, ...] = ()
    ranges: Mapping[str, Bounds] = field(default_factory=dict)


class Runner(Protocol):
    """An implementation under test. It answers every case, and never raises because of a case's content."""

    @property
    def name(self) -> str:
        """The name of the implementation, for reports."""

    def op(self, case: OpCase) -> Answer:
        """Apply an op to the case's inputs, each taken as a constant."""

    def program(self, case: ProgramCase) -> Answer:
        """Load a program and run it for all the case's runs, in order, from its initial state."""

    def verdict(self, case: VerdictCase) -> Answer:
        """Verify a program within the default limits, and state the gas of its nodes and the bounds of its values."""
