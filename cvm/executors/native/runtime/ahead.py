"""The trial of a plan's kernels, which begins while the planner works on most of them.

Planning takes Python alone. Meanwhile, the code generator has nothing to do on another core.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

from cvm.executors.native.runtime.classes import kinds, kinds_of

if TYPE_CHECKING:
    from cvm.executors.native.plan.steps import Plan

__all__ = ["Ahead"]

FIRST = 12
"""So many kernels are of most of the kinds that a network has. Plans of fewer kernels do not take long."""


class Ahead:
    """Tries the kinds of a plan's kernels: those of the first `FIRST` as soon as these are planned, then the others.

    ``attempt`` tries kinds (`cvm.executors.native.runtime.classes`); it raises `Failed` if the machine fails. If there
    is none, nothing is tried.
    """

    def __init__(self, attempt: Callable[[frozenset[str]], None] | None) -> None:
        self._attempt = attempt
        self._threads = ThreadPoolExecutor(1)
        self._kernels: list[object] = []
        self._tried: frozenset[str] = frozenset()
        self._begun: Future[None] | None = None

    def saw(self, kernel: object) -> None:
        """Note a kernel that has been planned, and begin the trial if there are enough of them."""
        if self._attempt is None:
            return
        self._kernels.append(kernel)
        if len(self._kernels) == FIRST:
            found = frozenset().union(*map(kinds, self._kernels))
            try:
                self._begun = self._threads.submit(self._attempt, found)
            except RuntimeError:  # the system has no more threads
                return
            self._tried = found

    def rest(self, plan: Plan) -> None:
        """Wait for what has begun, then try the other kinds of a plan. Raises `Failed` if the machine fails."""
        if self._attempt is None:
            return
        if self._begun is not None:
            self._begun.result()
        left = kinds_of(plan) - self._tried
        if left or not self._tried:
            self._attempt(left)

    def close(self) -> None:
        """Wait for what has begun, whatever it finds."""
        self._threads.shutdown(cancel_futures=True)
