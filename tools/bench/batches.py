"""Samples per second of cvm and other engines on batches: what `compare.py --batches` measures and prints."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from cvm.bench.contest import Contestant, Score, compete
from cvm.errors import CvmError

__all__ = ["Contest", "contests", "document", "markdown"]

LONG = 4.0
"""With this many seconds of estimated calls in a round, there is one round; else three."""
RATE = 2e11
"""Multiply-adds per second of a core, for the estimate."""
CALLS = 6
"""The calls of an engine in a round at least."""


@dataclass(frozen=True, slots=True)
class Contest:
    """A network with the engines to time on it, ours first, and the multiply-adds of a sample."""

    network: str
    macs: int
    contestants: tuple[Contestant, ...]

    @property
    def threads(self) -> int:
        """The number of threads of all contestants."""
        return self.contestants[0].threads

    @property
    def batch(self) -> int:
        """The number of samples in a call of all contestants."""
        return self.contestants[0].batch

    def rounds(self) -> int:
        """How often every engine has its turn."""
        estimate = CALLS * len(self.contestants) * self.batch * self.macs / (RATE * self.threads)
        return 1 if estimate > LONG else 3


def contests(found: Iterable[Contest], seconds: float, cache: str) -> Iterator[dict[str, Any]]:
    """A document for each contest. An engine that fails has no rate; if ours fails, the contest has a failure."""
    for one in found:
        try:
            made = document(one, compete(one.contestants, one.rounds(), seconds, cache=cache))
        except CvmError as error:
            made = {"network": one.network, "threads": one.threads, "batch": one.batch, "failure": str(error)}
        print(f"{one.network}, {one.threads} threads, batch {one.batch}: done", file=sys.stderr, flush=True)
        yield made


def document(contest: Contest, scores: Sequence[Score]) -> dict[str, Any]:
    """Samples per second by engine, from median calls and from processor time, and what failed."""
    engines: dict[str, Any] = {}
    for score in scores:
        run = score.run
        engines[score.contestant.label] = {
            "rate": None if run is None else contest.batch * 1e9 / run.median,
            "cpu_rate": None if run is None else contest.batch * 1e9 / run.cpu,
            "failure": score.failure,
        }
    named = {"network": contest.network, "threads": contest.threads, "batch": contest.batch}
    return {**named, "failure": None, "ours": scores[0].contestant.label, "engines": engines}


def markdown(results: Sequence[dict[str, Any]]) -> str:
    """A table: a row for each contest, a column for each engine, then our rate divided by the best other one.

    An engine that refuses a batch gets the rate of its single samples, with a star: a caller passes them one by one.
    """
    labels = list(dict.fromkeys(label for item in results for label in item.get("engines", ())))
    head = ["network", "threads", "batch", *labels, "ours / best other", "by processor time"]
    lines = [_row(head), _row(["---", *["---:"] * (len(labels) + 2), "---", "---"])]
    single = {(item["network"], item["threads"]): item for item in results if item["batch"] == 1}
    said = []
    for item in results:
        start = [item["network"], str(item["threads"]), str(item["batch"])]
        if item["failure"] is not None:
            lines.append(_row([*start, *["failed"] * len(labels), "", ""]))
            said.append(f"* {', '.join(start)}: {item['failure']}")
            continue
        engines = _with_single(item, single.get((item["network"], item["threads"])))
        rates = [_rate(engines[label]) if label in engines else "" for label in labels]
        ratios = [_ratio(engines, item["ours"], measure) for measure in ("rate", "cpu_rate")]
        lines.append(_row([*start, *rates, *ratios]))
        said += [f"* {', '.join(start)}, {label}: {one['failure']}" for label, one in engines.items() if one["failure"]]
    return "\n".join(["Samples per second of the median call.", "", *lines, *(["", *said] if said else [])])


def _with_single(item: dict[str, Any], single: dict[str, Any] | None) -> dict[str, Any]:
    """The engines of a contest; those that failed have the rates that they have for single samples, if any."""
    known = {} if single is None else single.get("engines", {})
    return {
        label: {**one, **{key: known[label][key] for key in ("rate", "cpu_rate")}}
        if one["rate"] is None and label in known
        else one
        for label, one in item["engines"].items()
    }


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rate(engine: dict[str, Any]) -> str:
    if engine["rate"] is None:
        return "failed"
    return f"{engine['rate']:.4g}{' *' if engine['failure'] else ''}"


def _ratio(engines: dict[str, Any], ours: str, measure: str) -> str:
    """Our rate divided by the greatest of the others, with the name of that engine."""
    others = {label: one[measure] for label, one in engines.items() if label != ours and one[measure] is not None}
    if not others or engines[ours][measure] is None:
        return ""
    best = max(others, key=lambda label: others[label])
    return f"{engines[ours][measure] / others[best]:.2f} ({best})"
