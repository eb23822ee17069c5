"""Executors with planted defects, for tests of what finds them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.executors import Capture, Int32Array, RunResult, Watch
from cvm.executors.numpy import NumpyExecutor
from cvm.program import VerifiedProgram

__all__ = ["Faulty", "When", "Where", "channel", "everywhere", "fraction"]

Where: TypeAlias = "Callable[[Int32Array], npt.NDArray[np.bool_]]"
"""Says which elements of a tensor are wrong."""
When: TypeAlias = Literal["always", "open", "ordinary"]
"""In which runs a defect shows: all, those that lay every tensor open (captured or watched), or the others."""


def everywhere(array: Int32Array) -> npt.NDArray[np.bool_]:
    """Every element is wrong."""
    return np.ones(array.shape, bool)


def channel(number: int) -> Where:
    """One channel is wrong."""

    def where(array: Int32Array) -> npt.NDArray[np.bool_]:
        wrong = np.zeros(array.shape, bool)
        wrong[:, number] = True
        return wrong

    return where


def fraction(part: float) -> Where:
    """So many of all elements, at least one, are wrong, and always the same ones."""

    def where(array: Int32Array) -> npt.NDArray[np.bool_]:
        order = np.random.default_rng(0).permutation(array.size)
        return (order < max(1, round(part * array.size))).reshape(array.shape)

    return where


@dataclass
class Faulty:
    """The NumPy executor, but for wrong elements of one tensor, which stay within its interval.

    All that is computed from this tensor follows from it, as in a real executor.
    """

    verified: VerifiedProgram
    tensor: str
    where: Where = everywhere
    when: When = "always"
    name: str = "faulty"
    by: int = 1
    """By how much a wrong element differs."""
    ordinary: int = 0
    """Runs so far that returned outputs alone."""
    opened: int = 0
    """Runs so far that laid every tensor open."""

    def __post_init__(self) -> None:
        self._numpy = NumpyExecutor(self.verified)
        self._is_wrong = False
        values = {value.name: value for node in self.verified.program.nodes for value in node.outputs}
        for index, scheduled in enumerate(self._numpy._schedule):
            if self.tensor in scheduled.writes:
                number = scheduled.writes.index(self.tensor)
                step = replace(scheduled.step, run=self._planted(scheduled.step.run, number, values[self.tensor].hi))
                self._numpy._schedule[index] = replace(scheduled, step=step)
                self._numpy._joined = self._numpy._schedule  # every run computes every tensor
                return
        raise AssertionError(f"no node computes {self.tensor!r}")

    def _planted(self, honest: Callable[[Any], Any], number: int, hi: int) -> Callable[[Any], Any]:
        def run(operands: Any) -> Any:
            results = list(honest(operands))
            if self._is_wrong:
                array = results[number]
                moved = np.where(array + self.by <= hi, array + self.by, array - self.by)
                results[number] = np.where(self.where(array), moved, array).astype(np.int32)
            return results

        return run

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        is_open = watch is not None or bool(capture)
        self.opened, self.ordinary = self.opened + is_open, self.ordinary + (not is_open)
        self._is_wrong = self.when == "always" or (self.when == "open") == is_open
        return self._numpy.run(inputs, state, capture, watch)

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        return self._numpy.explain()
