"""Programs, inputs and receipts for the tests of this folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from cvm.audit import Host, Receipt, Recorder, Trace
from cvm.program import VerifiedProgram, verify
from cvm.session import Session
from tests.api import small
from tests.program.examples import example


@dataclass(frozen=True)
class Subject:
    """A program and the inputs of its runs."""

    verified: VerifiedProgram
    inputs: Mapping[str, Any]
    cycles: bool = False

    def receipt(self, trace: bool = True, executor: str = "numpy", threads: int | None = None) -> Receipt:
        """A receipt of these runs."""
        recorder = Recorder(self.verified, trace)
        Session(self.verified, executor, threads).run(self.inputs, cycles=self.cycles, witness=recorder, codes=True)
        return recorder.receipt(Host(executor, "cvm test", "this machine"))

    def traces(self, executor: str = "numpy") -> tuple[Trace, ...]:
        """The trace of each of these runs."""
        recorder = Recorder(self.verified, keep_traces=True)
        Session(self.verified, executor).run(self.inputs, cycles=self.cycles, witness=recorder, codes=True)
        return recorder.traces


@cache
def subject(name: str) -> Subject:
    """One of the subjects."""
    image = np.arange(6).reshape(1, 2, 3)
    made = {
        "negated": lambda: Subject(verify(small.negated()), {"image": image}),
        "batch": lambda: Subject(verify(small.negated()), {"image": np.concatenate([image, image + 1, image * 9])}),
        "pair": lambda: Subject(verify(small.pair()), {"a": np.full((1, 4), 0.5), "b": np.arange(4)}),
        "counter": lambda: Subject(verify(small.counter()), {"step": np.array([[[1, 2]], [[3, 4]]])}, cycles=True),
        "sequences": lambda: Subject(verify(small.counter()), {"step": np.arange(8).reshape(2, 2, 1, 2)}, cycles=True),
        "example": lambda: Subject(verify(example()), {"x": np.arange(1, 7).reshape(1, 2, 3)}),
    }
    return made[name]()


SUBJECTS = ("negated", "batch", "pair", "counter", "sequences", "example")
