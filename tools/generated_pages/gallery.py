"""The page ``docs/gallery.md``: networks made by others, and what happened to each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction
from itertools import groupby
from typing import Any

from tools.gallery.measure import JUDGED, SAMPLES
from tools.gallery.networks import Network, networks
from tools.gallery.results import rows
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# Gallery: networks of others

Generated from `tools/gallery` by `tools/generate_pages.py`; do not edit.

Other people made these files for other engines. None of them is part of this project; the page names each by its
source, its licence and the SHA-256 of its bytes. `python -m tools.gallery FOLDER..` finds the files below folders
by their digests and tries each of them again.

{summary}

How to read the tables:

* **Way**: `compile` is `cvm compile`, for a file that is quantised: its codes are the exact meaning of the file.
  `quantize` is `cvm quantize --random {samples}`, for a file of floats: quantisers come from {samples} samples of
  random numbers. The program is as exact as any other; its ranges fit random numbers, not photographs.
* **Seconds**: the whole command, start of Python included, on two cores of a shared machine.
* **Exact**: how many of the document's tensors have codes that are proven to be those of exact arithmetic. If some
  do not, the bound is the largest proven distance, in codes.
* **SQNR**: the outputs of the program against those of the file in float64, on the samples, for the worst output. Empty
  for quantised files, since the file itself says what is rounded.
* **Agree**: the native executor and NumPy gave equal bytes for every tensor on random codes, and FORMAL confirmed up
  to {judged} elements drawn from all of them.
* **Engine**: median time of the file's own engine (LiteRT, ONNX Runtime; on the file as it is, one thread) divided by
  that of our native executor, by turns in one run. A number above 1 means that `cvm` is faster.
  Where the engine fails, its own words stand below the tables.

[calibration.md](calibration.md) gives the accuracy of the networks for which there is data.
"""


def markdown() -> str:
    """The page."""
    every, measured = networks(), rows()
    parts = [_INTRODUCTION.format(summary=_summary(every, measured), samples=SAMPLES, judged=JUDGED)]
    for (source, licence), group in groupby(every, key=lambda network: (network.source, network.licence)):
        parts.append(f"\n## {source} ({licence})\n\n" + "\n".join(_table(list(group), measured)) + "\n")
    refused = [(network, measured[network.name]["refused"]) for network in every if _is_refused(network, measured)]
    if refused:
        parts.append("\n## Refused\n\n")
        parts += [f"* **{network.name}**: {_plain(why['message'])} [{why['code']}]\n" for network, why in refused]
    failing = [(network, measured.get(network.name, {}).get("engine_fails")) for network in every]
    if any(why for _, why in failing):
        parts.append("\n## Engines that fail\n\n")
        parts += [f"* **{network.name}**: {_plain(why)}\n" for network, why in failing if why]
    parts.append("\n## Files\n\n| network | file | SHA-256 |\n|---|---|---|\n")
    parts += [f"| {network.name} | {network.path} | `{network.sha256}` |\n" for network in every]
    return "".join(parts)


def _is_refused(network: Network, measured: dict[str, dict[str, Any]]) -> bool:
    return "refused" in measured.get(network.name, {})


def _summary(every: list[Network], measured: dict[str, dict[str, Any]]) -> str:
    found = [measured[network.name] for network in every if network.name in measured]
    made = [row for row in found if "refused" not in row]
    exact = [row for row in made if row["exact"] == row["tensors"]]
    agree = sum(row.get("agree", False) for row in made)
    slow = sum(row["seconds"] > 20 for row in made)
    return (
        f"Of {len(found)} networks, **{len(made)} become programs**, {len(exact)} of them exact in every tensor; "
        f"{slow} take over 20 seconds. The executors agree on {agree} of {len(made)}."
    )


def _table(group: list[Network], measured: dict[str, dict[str, Any]]) -> Iterator[str]:
    yield "| network | what it is | way | seconds | ops | MMAC | exact | SQNR dB | agree | ms | engine |"
    yield "|---|---|---|---|---|---|---|---|---|---|---|"
    for network in group:
        row = measured.get(network.name)
        start = [network.name, network.what, network.way]
        if row is None:
            cells = [*start, "not tried", *[""] * 7]
        elif "refused" in row:
            cells = [*start, f"{row['seconds']:.1f}", *[""] * 2, "refused", *[""] * 4]
        else:
            cells = [*start, *_cells(row)]
        yield f"| {' | '.join(cells)} |"


def _cells(row: dict[str, Any]) -> Iterable[str]:
    exact = f"{row['exact']} of {row['tensors']}"
    if row["exact"] != row["tensors"]:
        exact += f", bound {float(Fraction(row['bound'])):.3g}"
    ratios = [number for number in row.get("sqnr", ()) if isinstance(number, float)]  # an equal output is a word
    least = "" if "sqnr" not in row else "equal" if not ratios else f"{min(ratios):.1f}"
    timed, compared = "ours_us" in row, "theirs_us" in row
    return (
        f"{row['seconds']:.1f}",
        str(row["nodes"]),
        f"{row['macs'] / 1e6:.3g}",
        exact,
        least,
        "not checked" if "unchecked" in row else "yes" if row["agree"] else "NO",
        f"{row['ours_us'] / 1e3:.3g}" if timed else "",
        f"{row['theirs_us'] / row['ours_us']:.2f}" if compared else "fails" if timed else "",
    )


def _plain(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


PAGE = Page("gallery.md", markdown)
