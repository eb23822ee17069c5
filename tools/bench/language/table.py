"""The results as a document and as a table of Markdown."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np

from tools.bench.language.contest import Outcome
from tools.bench.language.engines import ENGINES

__all__ = ["BEGIN", "END", "document_of", "markdown", "put_into_page"]

BEGIN, END = "<!-- measured by tools/bench/language_models.py -->", "<!-- end of measured -->"
"""What stands before and behind the table on a page."""

_CACHES = 64 << 20
"""Weights that take less than this stay in caches, and no share of the memory's bandwidth is stated."""


def document_of(network: str, weights: int, outcome: Outcome) -> dict[str, Any]:
    """The result of an engine: ``tokens_per_second`` at the median pass, and at the quartiles of the passes.

    ``weights`` are those that one token reads. Decoding reads them once per token: ``bytes_per_second``.
    """
    job = outcome.job
    known: dict[str, Any] = {
        "network": network, "task": job.task, "threads": job.threads, "engine": job.engine,
        "failure": outcome.failure, "facts": dict(outcome.facts), "check": outcome.check,
    }  # fmt: skip
    if outcome.failure is not None:
        return known
    rates = [1e9 * len(job.following) / spent for spent in outcome.spent]
    low, middle, high = np.percentile(rates, (25, 50, 75)).tolist()
    size = weights * ENGINES[job.engine].bytes_per_weight
    reading = middle * size if job.task == "decode" and size > _CACHES else None
    speeds = {"tokens_per_second": middle, "quartiles": [low, high], "passes": len(rates), "bytes_per_second": reading}
    return known | speeds


def markdown(document: Mapping[str, Any]) -> str:
    """The table, what it was measured on, and why an engine is missing."""
    results = document["results"]
    lines = [
        f"| {' | '.join(_HEADINGS)} |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [_row(item, results, document["bandwidth"]) for item in results if item["failure"] is None]
    lines += ["", _machine(document)]
    failed = [f"{item['engine']} ({item['network']}, {item['task']}): {item['failure']}" for item in results
              if item["failure"] is not None]  # fmt: skip
    lines += [f"* {line}" for line in dict.fromkeys(failed)]
    return "\n".join(lines)


_HEADINGS = (
    "network, task", "threads", "engine", "tokens per second", "middle half", "cvm's speed / its speed",
    "GB of weights per second", "share of the memory's bandwidth", "logits, dB to float", "same likeliest token",
)  # fmt: skip


def _row(item: Mapping[str, Any], results: Sequence[Mapping[str, Any]], bandwidth: Mapping[str, float]) -> str:
    keys = ("network", "task", "threads")
    ours = next((one for one in results if all(one[key] == item[key] for key in keys)), item)
    ratio = ""
    if ours is not item and ours["failure"] is None:
        ratio = f"{ours['tokens_per_second'] / item['tokens_per_second']:.2f}"
    low, high = (f"{rate:,.0f}" for rate in item["quartiles"])
    reading, check = item["bytes_per_second"], item["check"]
    cells = [
        f"{item['network']}, {item['task']}",
        str(item["threads"]),
        item["engine"],
        f"{item['tokens_per_second']:,.0f}",
        f"{low} to {high}",
        ratio,
        "" if reading is None else f"{reading / 1e9:.1f}",
        "" if reading is None else f"{100 * reading / bandwidth[str(item['threads'])]:.0f} %",
        "not compared" if check is None else f"{check['decibels']:.1f}",
        "not compared" if check is None else f"{100 * check['argmax']:.0f} %",
    ]
    return f"| {' | '.join(cells)} |"


def _machine(document: Mapping[str, Any]) -> str:
    packages = dict.fromkeys(item["facts"].get("package") for item in document["results"])
    reads = ", ".join(f"{rate / 1e9:.1f} GB/s with {count} thread{'' if count == '1' else 's'}"
                      for count, rate in document["bandwidth"].items())  # fmt: skip
    named = ", ".join(name for name in packages if name)
    passes = [item["passes"] for item in document["results"] if item["failure"] is None]
    counted = (
        f"median of {min(passes)} passes or more ({statistics.median(passes):.0f} in the middle)" if passes else ""
    )
    date = datetime.now(UTC).date().isoformat()
    where = f"{date}, {_processor()}, instructions {document['machine']}"
    return f"{'; '.join(filter(None, (where, f'memory read at {reads}', counted, named)))}."


def _processor() -> str:
    """The name of the processor, where the system tells."""
    try:
        with open("/proc/cpuinfo") as file:
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        names = []
    return f"{len(names)} processors {names[0]}" if names else "unknown processor"


def put_into_page(text: str, page: str) -> str:
    """The page with the table in place of what stands between `BEGIN` and `END`. Raises `ValueError` without them."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page has no lines {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{text}\n\n{END}{after}"
