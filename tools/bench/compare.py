"""The networks on cvm and on other engines, by turns in one run: medians, ratios, shares of the peak, memory, starts.

    python tools/bench/compare.py [NETWORK..] [--real DIR] [--threads 1,2] [--batch 1] [--rounds 3] [--seconds 0.5]
                                  [--peers onnxruntime,openvino,litert] [-o FOLDER]
    python tools/bench/compare.py [NETWORK..] [--real DIR] [--threads 1,2] --batches 1,8,32,128 [--seconds 0.25]

NETWORK is one of tools/bench/networks.py (default: all). --real takes folders of NNEF models, each with the network
that it was converted from beside it (original.tflite). Tables go to stdout; FOLDER gets bench.json and bench.png.
Every engine runs in a process of its own; threads and batches are measured one after the other. Before anything is
timed, the bytes of cvm are compared with the NumPy executor's. --batches gives samples per second as a table in
Markdown instead, in about a quarter of an hour for six networks and four batches; FOLDER gets batches.md and
batches.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rich.console import Console
from rich.table import Table

from cvm.audit.costs import macs
from cvm.bench.contest import Contestant, Score, check, compete, require
from cvm.cli.bench import score_document
from cvm.cli.models import open_program
from cvm.errors import CvmError
from cvm.executors.native.runtime.select import choice
from tools.bench.batches import Contest, contests, markdown
from tools.bench.networks import NETWORKS
from tools.bench.peak import multiply_add_peak
from tools.bench.programs import program_of

__all__ = ["Entry", "compared", "main"]

OURS = "native"
PEERS = ("onnxruntime", "openvino", "litert")


@dataclass(frozen=True, slots=True)
class Entry:
    """A network ready to be timed: its multiply-adds, the program file, and (engine, label, file) of other engines."""

    name: str
    macs: int
    program: Path
    others: tuple[tuple[str, str, Path], ...]


def synthetic(name: str, folder: Path, peers: Sequence[str], batch: int) -> Entry:
    """One of our networks, written in every form that a peer reads."""
    network = NETWORKS[name]()
    program = folder / f"{name}.cvm"
    program_of(network).save(program)
    others = []
    for label, engine, write in _FORMS:
        if engine in peers:
            file = folder / f"{name}.{batch}.{label.replace(' ', '.')}{'.tflite' if engine == 'litert' else '.onnx'}"
            file.write_bytes(write(network, batch))
            others.append((engine, label, file))
    return Entry(name, network.macs, program, tuple(others))


def _qlinear(network: Any, batch: int) -> bytes:
    from tools.bench.onnx_models import onnx_model

    return bytes(onnx_model(network, "qlinear", batch).SerializeToString())


def _qdq(network: Any, batch: int) -> bytes:
    from tools.bench.onnx_models import onnx_model

    return bytes(onnx_model(network, "qdq", batch).SerializeToString())


def _tflite(network: Any, batch: int) -> bytes:
    from tools.bench.tflite_models import tflite_model

    return tflite_model(network, batch)


def _tflite_without_pads(network: Any, batch: int) -> bytes:
    from tools.bench.tflite_models import tflite_model

    return tflite_model(network, batch, own_padding=True)


_FORMS = (
    ("onnxruntime", "onnxruntime", _qlinear),
    ("onnxruntime qdq", "onnxruntime", _qdq),
    ("openvino", "openvino", _qdq),
    ("litert", "litert", _tflite_without_pads),
    ("litert pads", "litert", _tflite),
)
"""Label, engine and form. LiteRT also gets the form without PAD operators, which suits it best."""


def real(source: Path, folder: Path, peers: Sequence[str]) -> Entry:
    """An NNEF model, and the TFLite file that it was converted from."""
    verified = open_program(source)
    program = folder / f"{source.name}.cvm"
    verified.program.save(program)
    original = source / "original.tflite"
    others = tuple((engine, engine, original) for engine in peers if engine in ("openvino", "litert"))
    return Entry(f"{source.name} (real)", sum(macs(verified)), program, others)


def compared(entry: Entry, threads: int, batch: int, rounds: int, seconds: float) -> list[dict[str, Any]]:
    """The documents of all engines on one network, the native executor's first."""
    contestants = [Contestant(OURS, entry.program, threads, batch, OURS)]
    contestants += [Contestant(engine, file, threads, batch, label) for engine, label, file in entry.others]
    check([contestants[0], Contestant("numpy", entry.program, 1, batch)])
    scores: list[Score] = compete(contestants, rounds, seconds)
    return [
        {"network": entry.name, "label": score.contestant.label, "macs": entry.macs} | score_document(score, entry.macs)
        for score in scores
    ]


# Tables -------------------------------------------------------------------------------------------------------------


def ratios(results: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """For every network, threads and batch: our result, and the best other engine's time divided by ours."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for item in results:
        if item["failure"] is None:
            groups.setdefault((item["network"], item["threads"], item["batch"]), []).append(item)
    for (network, threads, batch), items in groups.items():
        ours, *others = items
        found: dict[str, Any] = {"network": network, "threads": threads, "batch": batch, "ours": ours}
        for key, part, field in _RATIOS:
            rivals = {item["label"]: item[part][field] for item in others if item[part] is not None}
            found[key] = None
            if rivals and ours[part] is not None:
                best = min(rivals, key=lambda label: rivals[label])
                found[key] = {"best": best, "ratio": rivals[best] / ours[part][field]}
        yield found


_RATIOS = (
    ("median", "run", "median"),
    ("least", "run", "least"),
    ("bound", "bound", "median"),
    ("cpu", "run", "cpu"),
)
"""The measures that select the best other engine: calls with arrays (median, least, processor time), bound memory."""


def show(document: dict[str, Any], console: Console) -> None:
    """Print the tables."""
    detail = Table(title="Every engine", box=None, header_style="bold")
    names = ("network", "engine", "threads", "batch", "ms", "middle half", "least", "bound", "cpu", "GMAC/s", "% peak",
             "start s", "cached s", "MiB")  # fmt: skip
    for index, name in enumerate(names):
        detail.add_column(name, justify="left" if index < 2 else "right", no_wrap=True)
    for item in document["results"]:
        detail.add_row(*_cells(item, document["peaks"]))
    console.print(detail)
    short = Table(title="Time of the best other engine / ours", box=None, header_style="bold")
    for index, name in enumerate(("network", "threads", "batch", "ours ms", "% peak", *(key for key, _, _ in _RATIOS))):
        short.add_column(name, justify="right" if 0 < index < 5 else "left", no_wrap=True)
    for found in ratios(document["results"]):
        run = found["ours"]["run"]
        share = 1e11 * run["gmacs"] / document["peaks"][str(found["threads"])]
        cells = [f"{one['ratio']:.2f} ({one['best']})" if one else "" for one in (found[key] for key, _, _ in _RATIOS)]
        ms = f"{run['median'] / 1e6:.4g}"
        short.add_row(found["network"], str(found["threads"]), str(found["batch"]), ms, f"{share:.0f}", *cells)
    console.print(short)
    for item in document["results"]:
        if item["failure"] is not None:
            console.print(f"{item['network']}, {item['label']}: {item['failure']}", markup=False)


def _cells(item: dict[str, Any], peaks: dict[str, float]) -> list[str]:
    start = [item["network"], item["label"], str(item["threads"]), str(item["batch"])]
    if item["failure"] is not None:
        return [*start, "failed"]
    run, cached = item["run"], item["cached"]
    return [
        *start,
        f"{run['median'] / 1e6:.4g}",
        f"{run['quartile'] / 1e6:.4g}..{run['upper_quartile'] / 1e6:.4g}",
        f"{run['least'] / 1e6:.4g}",
        "" if item["bound"] is None else f"{item['bound']['median'] / 1e6:.4g}",
        f"{run['cpu'] / 1e6:.4g}",
        f"{run['gmacs']:.4g}",
        f"{1e11 * run['gmacs'] / peaks[str(item['threads'])]:.0f}",
        f"{item['cold']['first_result']:.2f}",
        "" if cached is None else f"{cached['first_result']:.2f}",
        f"{item['memory']['peak'] / 2**20:.1f}",
    ]


def plot(document: dict[str, Any], file: Path) -> None:
    """Multiply-adds per second of every engine on every network, a panel per number of threads, for the first batch."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    batch = document["results"][0]["batch"]
    results = [item for item in document["results"] if item["batch"] == batch and item["failure"] is None]
    networks = list(dict.fromkeys(item["network"] for item in results))
    labels = list(dict.fromkeys(item["label"] for item in results))
    counts = sorted({item["threads"] for item in results})
    figure, panels = pyplot.subplots(
        1, len(counts), figsize=(6.5 * len(counts), 1.6 + 0.75 * len(networks)), squeeze=False, sharey=True
    )
    height = 0.8 / len(labels)
    for panel, threads in zip(panels[0], counts, strict=True):
        peak = document["peaks"][str(threads)] / 1e9
        for index, label in enumerate(labels):
            chosen = [item for item in results if (item["threads"], item["label"]) == (threads, label)]
            known = {item["network"]: item["run"]["gmacs"] for item in chosen}
            rows = [row + index * height for row, network in enumerate(networks) if network in known]
            rates = [known[network] for network in networks if network in known]
            panel.barh(rows, rates, height, label=label, color=_COLORS[index % len(_COLORS)])
        panel.axvline(peak, color="0.4", linestyle="--", linewidth=1)
        corner = {"xy": (peak, 1), "xycoords": ("data", "axes fraction"), "ha": "right", "va": "bottom"}
        panel.annotate(f"peak {peak:.0f}", **corner, fontsize=8, color="0.3")
        panel.set_title(f"{threads} thread{'s' if threads > 1 else ''}, batch {batch}")
        panel.set_xlabel("10⁹ multiply-adds per second (median call)")
        panel.spines[["top", "right"]].set_visible(False)
    panels[0][0].set_yticks([row + 0.4 - height / 2 for row in range(len(networks))], networks)
    panels[0][0].invert_yaxis()
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, frameon=False, loc="lower center", ncols=3 * len(counts))
    figure.tight_layout(rect=(0, 0.1 if len(counts) == 1 else 0.05, 1, 1))
    figure.savefig(file, dpi=150)


_COLORS = ("#1b4f72", "#d68910", "#f0b27a", "#7d8b93", "#27ae60", "#a9dfbf")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK")
    parser.add_argument("--real", nargs="*", type=Path, default=[], metavar="DIR")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--batch", default="1")
    parser.add_argument("--batches", help="samples in a call: a table of samples per second")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="for each turn of an engine (0.5; with --batches 0.25)")
    parser.add_argument("--peers", default=",".join(PEERS))
    parser.add_argument("-o", "--output", type=Path)
    options = parser.parse_args(arguments)
    peers = options.peers.split(",") if options.peers else []
    threads, batches = ([int(word) for word in words.split(",")] for words in (options.threads, options.batch))
    console = Console(width=None if sys.stdout.isatty() else 200)
    machine = choice().machine
    if machine is None:
        console.print(f"compare: {choice().reason}", markup=False)
        return 1
    if not set(options.networks) <= set(NETWORKS):
        console.print(f"compare: the networks are {', '.join(NETWORKS)}")
        return 2
    try:
        require([OURS, *peers])
        if options.batches:
            return _batches(options, peers, threads)
        options.seconds = options.seconds or 0.5
        results = _results(options, peers, threads, batches)
    except CvmError as error:
        console.print(f"compare: {error}", markup=False)
        return error.exit_code
    peaks = {str(count): multiply_add_peak(machine, 1.0, count) for count in threads}
    document = {"version": 1, "machine": machine.name, "peaks": peaks, "results": results}
    show(document, console)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "bench.json").write_text(json.dumps(document, indent=1) + "\n")
        plot(document, options.output / "bench.png")
    return 0


def _batches(options: argparse.Namespace, peers: Sequence[str], threads: Sequence[int]) -> int:
    """Print, and store, the samples per second on batches."""
    sizes = [int(word) for word in options.batches.split(",")]
    with tempfile.TemporaryDirectory(prefix="cvm-bench-") as directory:
        found = _contests(options, peers, threads, sizes, Path(directory))
        results = list(contests(found, options.seconds or 0.25, str(Path(directory) / "cache")))
    text = markdown(results)
    print(text)
    if options.output is not None:
        options.output.mkdir(parents=True, exist_ok=True)
        (options.output / "batches.md").write_text(text + "\n")
        (options.output / "batches.json").write_text(json.dumps({"version": 1, "results": results}, indent=1) + "\n")
    return 0


def _contests(
    options: argparse.Namespace, peers: Sequence[str], threads: Sequence[int], sizes: Sequence[int], folder: Path
) -> Iterator[Contest]:
    """All contests, network by network. The bytes of cvm are compared with NumPy's for each network, batch 1."""
    sources = [*(options.networks or ([] if options.real else _LARGE)), *options.real]
    for source in sources:
        for batch in sizes:
            entry = real(source, folder, peers) if isinstance(source, Path) else synthetic(source, folder, peers, batch)
            if batch == sizes[0]:
                check([Contestant(OURS, entry.program, 1, 1), Contestant("numpy", entry.program, 1, 1)])
            for count in threads:
                others = [one for one in entry.others if one[1] != _SLOWER]
                them = (Contestant(engine, file, count, batch, label) for engine, label, file in others)
                yield Contest(entry.name, entry.macs, (Contestant(OURS, entry.program, count, batch, OURS), *them))


_LARGE = ("lenet", "mobilenet_v1", "mobilenet_v2", "resnet18", "resnet50")
_SLOWER = "litert pads"
"""A form of a network that another form of the same engine beats; batches leave it out to save time."""


def _results(
    options: argparse.Namespace, peers: Sequence[str], threads: Sequence[int], batches: Sequence[int]
) -> list[dict[str, Any]]:
    names = options.networks or ([] if options.real else list(NETWORKS))
    results = []
    with tempfile.TemporaryDirectory(prefix="cvm-bench-") as directory:
        folder = Path(directory)
        for batch in batches:
            entries = (synthetic(name, folder, peers, batch) for name in names)
            originals = (real(source, folder, peers) for source in options.real if batch == 1)
            for entry in (*entries, *originals):
                for count in threads:
                    results += compared(entry, count, batch, options.rounds, options.seconds)
                    print(f"{entry.name}, {count} threads, batch {batch}: done", file=sys.stderr)
    return results


if __name__ == "__main__":
    sys.exit(main())
