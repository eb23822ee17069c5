"""Smallest failures: from a model that fails to the smallest one that still does.

`opened` reads a program or a model of NNEF or ONNX; `smallest` makes it smaller as long as a `Comparison` fails in the
same way: two executors, an engine against the exact codes, or a command. `reduced` takes any predicate instead.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from cvm.arrays import npz_members, read_npz
from cvm.errors import Invalid, Location
from cvm.records import dataclass
from cvm.reduction.judging import Comparison, Judge, stacked
from cvm.reduction.network import Network
from cvm.reduction.onnx_form import OnnxForm
from cvm.reduction.opening import Subject, opened
from cvm.reduction.program_form import ProgramForm
from cvm.reduction.search import Bound, Reduced, reduced
from cvm.reduction.texts import file_test, program_test

__all__ = [
    "Bound",
    "Comparison",
    "Found",
    "Judge",
    "Reduced",
    "Subject",
    "opened",
    "outcome",
    "reduced",
    "smallest",
    "stacked",
    "test_text",
]


_BOUND = Bound()


@dataclass(frozen=True, eq=False, slots=True)
class Found:
    """A smallest failure, and how it fails."""

    reduced: Reduced
    outcome: str
    """"differs", "error CODE", "ended with STATUS" or "ended by SIGNAL"."""


def smallest(
    subject: Subject,
    network: Network,
    comparison: Comparison,
    bound: Bound = _BOUND,
    progress: Callable[[str], None] = lambda _: None,
) -> Found:
    """The smallest network that fails as ``network`` does.

    Raises `Invalid` (``reduce.passes``) if it does not fail, and what `Comparison.require` raises.
    """
    comparison.require(subject.form)
    started = time.monotonic()
    with Judge(subject.form, comparison) as judge:
        begun, how = _begun(subject, network, comparison, judge)

        def fails(smaller: Network) -> bool:
            judge.seconds = max(0.1, bound.seconds - (time.monotonic() - started))
            return judge.outcome(smaller) == how

        left = Bound(bound.tries, max(0.0, bound.seconds - (time.monotonic() - started)))
        found = reduced(begun, subject.form, fails, left, progress)
    return Found(Reduced(found.network, network.size(subject.form), found.after, found.tries, found.complete), how)


def _begun(subject: Subject, network: Network, comparison: Comparison, judge: Judge) -> tuple[Network, str]:
    """The network to begin with, and how it fails. For an engine, its outputs are tensors that have codes."""
    form, starts = subject.form, [network]
    if comparison.engine is not None and isinstance(form, OnnxForm):
        starts = list(form.starts(network))
    for start in starts:
        how = judge.outcome(start)
        if how:
            return start, how
    raise Invalid(
        "reduce.passes", "nothing fails with this data: there is nothing to reduce", Location(str(subject.path))
    )


def outcome(model: Path, data: Path, comparison: Comparison, cycles: bool = False) -> str:
    """How a model fails with the data in a .npz file; "" if it does not. For the tests that `test_text` writes."""
    subject = opened(model)
    comparison.require(subject.form)
    arrays = {name: read_npz(data, name) for name in npz_members(data)}
    network = subject.with_data(arrays, codes=True, cycles=cycles)
    with Judge(subject.form, comparison) as judge:
        return judge.outcome(network)


def test_text(subject: Subject, network: Network, comparison: Comparison, path: Path) -> str:
    """A test to paste, for the file ``path`` to which the network was written."""
    if isinstance(subject.form, ProgramForm):
        return program_test(subject.form.built(network), network.runs, comparison, path)
    return file_test(comparison, path)


test_text.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test
