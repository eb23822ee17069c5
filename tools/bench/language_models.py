"""Language models on cvm and on other engines, by turns in one run: tokens per second, ratios, share of the memory.

    python -m tools.bench.language_models [--large FOLDER] [--tiny WEIGHTS] [--threads 2,1] [--rounds 5] [--seconds 1]
        [--peers NAME,..] [--only decode,prefill] [--minutes 10] [-o FOLDER] [--page FILE]

Three tasks: one token after another with a memory of 64 to 128 tokens, for a GPT of 12 blocks of width 768 and for the
model that comes with cvm; 128 tokens at once for the first. The other engines get the same weights, as GGUF in Q8_0
(llama.cpp), int8 (CTranslate2) and dynamically quantised ONNX (ONNX Runtime); those that are not installed are named.

FOLDER of --large has ``weights.npz`` and the programs ``decode.cvm`` and ``prefill.cvm`` made of it
(docs/language-models.md says how). WEIGHTS of --tiny are those that `tools/train_tiny_gpt.py` wrote for the program
that comes with cvm; without them the other engines get random weights of the same shapes. Before anything is timed,
the logits of each engine are compared with those of the float network. Every engine runs in a process of its own.

The table goes to stdout, as Markdown. After --minutes no further task is begun. -o takes a folder for
``language-models.md``, ``language-models.json`` and the files of other engines, which later runs use again. --page puts
the table into a page, between two comments, if anything was timed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from cvm.demo import LANGUAGE_MODEL, VOCABULARY
from cvm.executors.native.runtime.select import choice
from tools.bench.language.contest import Job, Outcome, compete
from tools.bench.language.engines import ENGINES
from tools.bench.language.files import write_ctranslate2, write_gguf
from tools.bench.language.network import Network, read
from tools.bench.language.onnx_form import write_onnx
from tools.bench.language.table import document_of, markdown, put_into_page
from tools.bench.peak import read_peak
from tools.tiny_gpt.drawn_weights import drawn

__all__ = ["Entry", "main", "outcomes_of"]

OURS = "cvm"
PROMPT, FOLLOWING = 64, 64
LARGE_HEADS, TINY_HEADS = 12, 4
TINY_SIZE = {"blocks": 4, "width": 128, "context": 256, "vocabulary": 65}
TEXT = """To be, or not to be, that is the question:
Whether 'tis nobler in the mind to suffer
The slings and arrows of outrageous fortune,
Or to take arms against a sea of troubles"""
"""What the tiny model reads."""


@dataclass(frozen=True, eq=False, slots=True)
class Entry:
    """A network, its tokens, and the programs of cvm by task."""

    name: str
    network: Network
    tokens: tuple[int, ...]
    programs: dict[str, Path]
    same: bool
    """Whether the programs have the network's weights."""


def large(folder: Path) -> Entry:
    """The network of GPT-2's size in a folder, with random tokens."""
    network = read(folder / "weights.npz", LARGE_HEADS)
    tokens = np.random.default_rng(0).integers(0, network.vocabulary, PROMPT + FOLLOWING)
    programs = {task: folder / f"{task}.cvm" for task in ("decode", "prefill")}
    return Entry(f"GPT of {network.blocks} x {network.width}", network, tuple(tokens.tolist()), programs, True)


def tiny(weights: Path | None) -> Entry:
    """The model that comes with cvm, on some lines of a play."""
    words = json.loads(VOCABULARY.read_text("utf-8"))
    tokens = tuple(words.index(letter) for letter in TEXT[: PROMPT + FOLLOWING])
    network = Network(drawn(**TINY_SIZE), TINY_HEADS) if weights is None else read(weights, TINY_HEADS)
    return Entry(LANGUAGE_MODEL.name, network, tokens, {"decode": LANGUAGE_MODEL}, weights is not None)


# Files of other engines ---------------------------------------------------------------------------------------------


def _onnx(task: str) -> tuple[str, Callable[[Network, Path], None]]:
    return f"{task}.onnx", lambda network, path: write_onnx(network, path, task == "decode")


_FORMS: dict[str, Callable[[str], tuple[str, Callable[[Network, Path], None]]]] = {
    "llama.cpp Q8_0": lambda task: ("q8_0.gguf", write_gguf),
    "CTranslate2 int8": lambda task: ("ctranslate2", write_ctranslate2),
    "ONNX Runtime int8": _onnx,
}
"""By engine: the name of its file for a task, and how the file is written."""


def file_of(engine: str, entry: Entry, task: str, folder: Path) -> Path:
    """The file of an engine, written now if this folder does not have it. Raises what the engine's library raises."""
    if engine == OURS:
        if not entry.programs[task].is_file():
            raise FileNotFoundError(f"there is no {entry.programs[task]}; docs/language-models.md says how it is made")
        return entry.programs[task]
    name, write = _FORMS[engine](task)
    digest = hashlib.sha256(b"".join(array.tobytes() for array in entry.network.weights.values())).hexdigest()
    path = folder / digest[:16] / name
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"unfinished.{name}")
        write(entry.network, unfinished)
        unfinished.replace(path)
    return path


def missing(engine: str) -> str | None:
    """Why an engine cannot be used here, if its packages are not installed."""
    if all(find_spec(module) for module in ENGINES[engine].modules):
        return None
    return f"not installed: pip install {ENGINES[engine].install}"


# Running ------------------------------------------------------------------------------------------------------------


def outcomes_of(
    entry: Entry, task: str, threads: int, engines: Sequence[str], folder: Path, rounds: int, seconds: float
) -> list[Outcome]:
    """The outcomes of all engines on one task, cvm's first."""
    reference = folder / "reference.npy"
    np.save(reference, entry.network.logits(np.array(entry.tokens, np.int64)))
    prompt = entry.tokens[:PROMPT] if task == "decode" else ()
    jobs, failed = [], {}
    for engine in engines:
        against = str(reference) if entry.same or engine != OURS else ""
        job = Job(engine, "", task, threads, prompt, entry.tokens[len(prompt) :], against)
        why = missing(engine)
        if why is None:
            try:
                jobs.append(Job(**asdict(job) | {"file": str(file_of(engine, entry, task, folder))}))
                continue
            except Exception as error:  # whatever another engine's library raises, the others go on
                why = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        failed[engine] = Outcome(job, why)
    found = {outcome.job.engine: outcome for outcome in compete(jobs, rounds, seconds)} | failed
    return [found[engine] for engine in engines]


def _contests(options: argparse.Namespace) -> Iterator[tuple[Entry, str, int]]:
    entries: list[Entry] = [] if options.large is None else [large(options.large)]
    entries.append(tiny(options.tiny))
    for threads in options.threads.split(","):
        for entry in entries:
            for task in entry.programs:
                if task in options.only.split(","):
                    yield entry, task, int(threads)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--large", type=Path, metavar="FOLDER")
    parser.add_argument("--tiny", type=Path, metavar="WEIGHTS")
    parser.add_argument("--threads", default="2,1")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--peers", default=",".join(name for name in ENGINES if name != OURS))
    parser.add_argument("--only", default="decode,prefill")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("-o", "--output", type=Path)
    parser.add_argument("--page", type=Path)
    options = parser.parse_args(arguments)
    engines = [OURS, *filter(None, options.peers.split(","))]
    if not set(engines) <= set(ENGINES):
        parser.error(f"the engines are {', '.join(ENGINES)}")
    for file in (options.tiny, options.page, options.large and options.large / "weights.npz"):
        if file is not None and not file.is_file():
            parser.error(f"there is no file {file}")
    if options.page is not None:
        put_into_page("", options.page.read_text("utf-8"))
    machine = choice().machine
    if machine is None:
        print(f"language_models: {choice().reason}", file=sys.stderr)
        return 1
    counts = sorted({int(word) for word in options.threads.split(",")})
    bandwidth = {str(count): read_peak(machine, 2.0, count) for count in counts}
    results = _results(options, engines)
    document = {"version": 1, "machine": machine.name, "bandwidth": bandwidth, "results": results}
    _write(document, options.output, options.page)
    return 0 if all(item["failure"] is None for item in results if item["engine"] == OURS) else 1


def _results(options: argparse.Namespace, engines: Sequence[str]) -> list[dict[str, Any]]:
    results, begin = [], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cvm-bench-") as temporary:
        folder = Path(temporary) if options.output is None else options.output
        folder.mkdir(parents=True, exist_ok=True)
        for entry, task, threads in _contests(options):
            if time.monotonic() - begin > 60 * options.minutes:
                why = f"not timed: {options.minutes:g} minutes were over"
                outcomes = [Outcome(Job(engine, "", task, threads, (), (), ""), why) for engine in engines]
            else:
                outcomes = outcomes_of(entry, task, threads, engines, folder, options.rounds, options.seconds)
            results += [document_of(entry.name, entry.network.read_per_token, item) for item in outcomes]
            spent = time.monotonic() - begin
            print(f"{entry.name}, {task}, {threads} threads: done after {spent:.0f} seconds", file=sys.stderr)
    return results


def _write(document: dict[str, Any], output: Path | None, page: Path | None) -> None:
    text = markdown(document)
    print(text)
    if output is not None:
        (output / "language-models.json").write_text(json.dumps(document, indent=1) + "\n", "utf-8")
        (output / "language-models.md").write_text(text + "\n", "utf-8")
    if page is not None and any(item["failure"] is None for item in document["results"]):
        page.write_text(put_into_page(text, page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    sys.exit(main())
