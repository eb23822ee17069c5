"""Runs of many samples, several at once where the executor gains by it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

from cvm.arguments import checked_arrays
from cvm.errors import Invalid
from cvm.executors import CONCURRENT, Capture, Executor, RunResult, create, initial_state
from cvm.executors.batching import Batching
from cvm.executors.held import Held, hold
from cvm.inputs import Feed, Intake, Layout, arrange
from cvm.session.naming import Captured, Naming
from cvm.session.opening import Source
from cvm.session.plain import PlainInputs
from cvm.session.result import Result
from cvm.session.witness import Witness

if TYPE_CHECKING:
    from cvm.program.model import ProgramParts

__all__ = ["SINGLE", "Many", "Samples", "sequence"]

_T = TypeVar("_T")
_R = TypeVar("_R")
_Progress = Callable[[int], None]
_Numbered = tuple[int, Mapping[str, Any]]

SHARES = 8
"""How many shares of the inputs of one call each thread gets, so that no thread waits long for the last one."""
PART = 16
"""How many inputs of `Session.run_many` each thread gets at least before progress is told."""
SINGLE = Layout()
"""The layout of one sample."""


def sequence(
    feeds: Sequence[Feed], executor: Executor, held: Held | None, capture: Capture, witness: Witness | None
) -> list[tuple[RunResult, Any]]:
    """Runs that pass their state on, each with the note of the witness."""
    seen: list[tuple[RunResult, Any]] = []
    for feed in feeds:
        observer = None if witness is None else witness.begin(feed, {} if held is None else held)
        watch = None if observer is None else observer.watch
        if held is None:
            result = executor.run(feed, {}, capture, watch)
        else:
            result = held.run(feed, capture, watch)
        seen.append((result, None if observer is None else observer.end(result)))
    return seen


class Samples:
    """Runs of samples that do not depend on one another: each begins with the initial state."""

    def __init__(self, source: Source, parts: ProgramParts, executor: Executor, threads: int) -> None:
        self._source, self._parts, self._executor, self._threads = source, parts, executor, threads
        self._single: Executor | None = None
        self.batching = executor if isinstance(executor, Batching) and not parts.state else None
        """The executor, if it deals the samples of one call to its threads itself."""

    def begun(self, executor: Executor) -> Held:
        """The initial state, held by an executor."""
        return hold(executor, self._parts, initial_state(self._parts))

    def run(self, feeds: Sequence[Feed], capture: Capture, witness: Witness | None) -> list[tuple[RunResult, Any]]:
        """The runs of one sample, one for each cycle; other samples may run at the same time."""
        executor = self._single or self._executor
        held = self.begun(executor) if self._parts.state else None
        return sequence(feeds, executor, held, capture, witness)

    def each(self, compute: Callable[[_T], _R], items: Sequence[_T], progress: _Progress | None = None) -> list[_R]:
        """``compute`` for every item, for several at once if the executor gains by it."""
        threads = min(self._threads, len(items)) if self._executor.name in CONCURRENT else 1
        results: list[_R] = []
        size = max(1, len(items) // (SHARES * threads))
        shares = [items[start : start + size] for start in range(0, len(items), size)]

        def share(part: Sequence[_T]) -> list[_R]:
            return [compute(item) for item in part]

        def collect(parts: Iterable[list[_R]]) -> None:
            for part in parts:
                results.extend(part)
                if progress is not None:
                    progress(len(results))

        if threads <= 1:
            collect(map(share, shares))
            return results
        if self._single is None:
            self._single = create(self._executor.name, self._source.verified, 1)
        from concurrent.futures import ThreadPoolExecutor  # imported here: it imports much, and few sessions need it

        with ThreadPoolExecutor(threads, thread_name_prefix="cvm-run") as pool:
            collect(pool.map(share, shares))
        return results

    def in_parts(
        self, compute: Callable[[Sequence[_T]], list[_R]], items: Sequence[_T], progress: _Progress | None
    ) -> list[_R]:
        """``compute`` for parts of the items, so that progress is told and few results exist in two forms."""
        size = max(self._threads * PART, len(items) // SHARES)
        results: list[_R] = []
        for start in range(0, len(items), size):
            results.extend(compute(items[start : start + size]))
            if progress is not None:
                progress(len(results))
        return results


class Many:
    """One call of `Session.run_many`: the inputs of many runs, and what is asked of each of them."""

    def __init__(
        self,
        parts: ProgramParts,
        plain: PlainInputs,
        naming: Naming,
        samples: Samples,
        captured: Captured,
        intakes: Sequence[Intake],
    ) -> None:
        """``intakes`` has an intake for each input."""
        self._parts, self._plain, self._naming, self._samples = parts, plain, naming, samples
        self._captured, self._intakes = captured, intakes
        self._trusting = any(intake.codes for intake in intakes) or not plain.ambiguous

    def run(self, inputs: Sequence[Mapping[str, Any]], progress: _Progress | None) -> list[Result]:
        """Run on all inputs; results in their order. Raises `Invalid`."""
        numbered = list(enumerate(inputs))
        if self._samples.batching is None:
            return self._samples.each(self._one, numbered, progress)
        return self._samples.in_parts(self._several, numbered, progress)

    def _one(self, item: _Numbered) -> Result:
        """Run on one input, which may hold several samples."""
        layout, samples = self._opened(item)
        results = [result for feeds in samples for result, _ in self._samples.run(feeds, self._captured.values, None)]
        return self._naming.joined(results, layout, self._captured)

    def _several(self, part: Sequence[_Numbered]) -> list[Result]:
        """Run on several inputs at once, if the executor can; else one by one."""
        executor = self._samples.batching
        opened = [self._opened(item, self._trusting) for item in part]
        feeds = [feed for _, samples in opened for (feed,) in samples]
        try:
            values = None if executor is None else executor.run_samples(feeds, self._captured.values)
        except Invalid:
            for item in part:
                self._opened(item)  # one of them raises an error that names the wrong code
            raise
        if values is None:
            return self._samples.each(self._one, part)
        left = iter(values)
        made = [(layout, [RunResult(next(left), {}) for _ in samples]) for layout, samples in opened]
        return [self._result(layout, results) for layout, results in made]

    def _result(self, layout: Layout, results: Sequence[RunResult]) -> Result:
        if layout is SINGLE and not self._captured.tensors:
            return self._naming.single(results[0])
        return self._naming.joined(results, layout, self._captured)

    def _opened(self, item: _Numbered, trusting: bool = False) -> tuple[Layout, list[list[Feed]]]:
        """The layout and the codes of an input; ``trusting`` leaves the check of codes to the executor."""
        number, arrays = item
        if trusting and self._plain.fit(arrays):
            return SINGLE, [[cast("Feed", arrays)]]
        try:
            checked_arrays(arrays, self._plain.names)
            return arrange(self._parts, arrays, intake=self._intakes[number])
        except Invalid as error:
            error.message = f"number {number} of the {len(self._intakes)} inputs of run_many: {error.message}"
            raise
