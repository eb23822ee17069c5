"""Run everything on a GPU that this project can check there, and print a table. It exits with 1 on a difference.

    python -m tools.check_cuda [--device 0] [--quick] [--models DIR].. [--programs 2000] [--seed 1] [-o FILE.json]
                               [--seconds S] [--limit 300] [--workers N] [--resume] [--sanitizer] [--here]

In the order of what is learned from them: digests of SHA-256 on the device; every class of kernels of the trial in the
forms that are chosen, single samples and batches; small models; all test vectors; the first of --programs random
programs, every tensor of every run; large models; every class in plain form; the other random programs. Models are the
two that come with cvm, networks of tools/bench, and the models or programs in DIR: every tensor of a single run and the
root of its trace, which is printed so that two GPUs can be compared, then batches of 1, 8, 32 and 128. All are compared
with the NumPy executor; of batches, every sample is compared with the fastest executor of this processor, and the first
one with NumPy. --quick leaves out all but a fiftieth of the programs, and the large networks.

Each part runs in a process of its own, --workers at a time, since a GPU that has failed once answers nothing else to
the same process, and for --limit seconds at most. --seconds bounds the whole check: what has not begun by then is left
out and named, and it exits with 4. -o writes what is known so far after each part; with --resume, parts in that file
that had no difference on this GPU are not run again. --here runs all parts in this process, one after the other.
--sanitizer runs the quick parts under compute-sanitizer too, if that is installed (memcheck and racecheck). Without a
device, it says so and exits with 3.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from cvm.audit.record import Observation, Observer
from cvm.cli.models import open_program
from cvm.demo import LANGUAGE_MODEL, MODEL
from cvm.errors import CvmError
from cvm.executors import Executor, Int32Array, create, default, initial_state
from cvm.executors.batching import Batching
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.emit.registry import PLAIN
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.hashing import Hashing
from cvm.executors.cuda.launch import CROWD
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.trial import agrees
from cvm.executors.native.runtime.trial_programs import CLASSES, Class
from cvm.executors.numpy import NumpyExecutor
from cvm.program.verifier import VerifiedProgram, verify
from cvm.vectors import ExecutorRunner, check
from cvm.vectors.shipped import shipped
from cvm.writing import write_atomically
from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of
from tools.fuzz.c_programs import case
from tools.fuzz.cuda_programs import differences

__all__ = ["BATCHES", "Part", "Result", "completed", "main", "parts"]

BATCHES = (1, 8, 32, 128)
DIFFERENT, NO_DEVICE, INCOMPLETE = 1, 3, 4
"""What it exits with."""
NAMED = 10
"""The most parts that were left out which the summary names. The file names all of them."""
FEW = 50
"""One random program in so many is run with --quick."""
SMALL = "lenet"
"""The network of tools/bench that is run with --quick."""
ENDING = 10.0
"""The most seconds to wait for a process that was ended. One that waits for a driver that hangs may never end."""
TOGETHER, PACK = 8, 50
"""How many classes, and how many random programs, are one part."""
Run = Callable[[Device], list[str]]
"""Says what is wrong on a device. A line that begins with a blank is a remark."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the check: what it does, and the function that says what is wrong on a device."""

    what: str
    run: Run


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a part: its differences, remarks, and the seconds that it took."""

    what: str
    wrong: tuple[str, ...]
    remarks: tuple[str, ...]
    seconds: float


def parts(programs: int, seed: int, models: Sequence[Path], quick: bool) -> Iterator[Part]:
    """All parts of the check, in order."""
    yield Part("SHA-256 on the device", lambda device: [] if Hashing(device).right else ["digests differ from hashlib"])
    yield from _of_classes(frozenset(), "chosen")
    yield from _of_models(_small())
    for folder in sorted({path.parent for path in shipped().rglob("*.msgpack")}):
        yield Part(f"vectors {folder.relative_to(shipped()).as_posix()}", partial(_vectors, folder))
    count = programs // FEW if quick else programs
    random = [
        Part(f"random programs {first} to {min(first + PACK, count) - 1}",
             partial(_programs, seed, first, min(PACK, count - first)))
        for first in range(0, count, PACK)
    ]  # fmt: skip
    yield from random[:1]
    yield from _of_models(_large(models, quick))
    yield from _of_classes(frozenset(PLAIN), "plain")
    yield from random[1:]


def _of_classes(plain: frozenset[type], form: str) -> Iterator[Part]:
    for first in range(0, len(CLASSES), TOGETHER):
        some = CLASSES[first : first + TOGETHER]
        yield Part(f"classes {first} to {first + len(some) - 1}, {form} form", partial(_classes, some, plain))


def _of_models(models: Iterable[tuple[str, Callable[[], VerifiedProgram]]]) -> Iterator[Part]:
    for name, opened in models:
        yield Part(f"{name}: every tensor, trace", partial(_single, opened))
        yield Part(f"{name}: batches", partial(_batches, opened))


def _classes(some: Sequence[Class], plain: frozenset[type], device: Device) -> list[str]:
    wrong = []
    for one in some:
        verified = one.program()
        executor = CudaExecutor(verified, device=device, plain=plain)
        fed: list[Mapping[str, Int32Array]] = []
        if executor.refusals or not agrees(verified, partial(_values, executor, fed)) or not _together(executor, fed):
            wrong.append(one.name)
        executor.close()
    return wrong


def _values(
    executor: CudaExecutor, fed: list[Mapping[str, Int32Array]], feed: Mapping[str, Int32Array]
) -> Mapping[str, Int32Array]:
    fed.append(feed)
    return executor.run(feed, {}).values


def _together(executor: CudaExecutor, feeds: Sequence[Mapping[str, Int32Array]]) -> bool:
    """Whether batches give what single samples give. Groups have half of the samples, and large ones other kernels."""
    order = [number % len(feeds) for number in range(2 * CROWD)]
    single = [executor.run(feed, {}).values for feed in feeds]
    found = executor.run_samples([feeds[number] for number in order]) or []
    return len(found) == len(order) and all(
        np.array_equal(values[name], array)
        for values, number in zip(found, order, strict=True)
        for name, array in single[number].items()
    )


def _vectors(folder: Path, device: Device) -> list[str]:
    refused: list[str] = []

    def made(verified: VerifiedProgram) -> CudaExecutor:
        executor = CudaExecutor(verified, device=device)
        refused.extend(executor.refusals)  # NumPy would give the expected values
        return executor

    report = check(folder, ExecutorRunner("cuda", made))
    wrong = [] if report.ok else [str(report.first)]
    skipped = sum(tally.skipped for tally in report.tallies)
    return [*refused, *wrong, *([f"{skipped} vectors were answered with an error of the device"] if skipped else [])]


def _programs(seed: int, first: int, count: int, device: Device) -> list[str]:
    """Cases from the number ``first`` on, until they have held so many programs: some hold several."""
    wrong, done, number = [], 0, first
    while done < count:
        program, feeds, held = case(seed, number)
        wrong += [f"case {number}: {what}" for what in differences(program, feeds, device)]
        done, number = done + held, number + 1
    return wrong


def _small() -> Iterator[tuple[str, Callable[[], VerifiedProgram]]]:
    """The small models by name, each with the function that opens it."""
    yield "digits", partial(open_program, MODEL)
    yield "tiny_gpt", partial(open_program, LANGUAGE_MODEL)
    yield SMALL, partial(_network, SMALL)


def _large(folders: Sequence[Path], quick: bool) -> Iterator[tuple[str, Callable[[], VerifiedProgram]]]:
    """The other models by name, those of the folders too."""
    for name in NETWORKS:
        if name != SMALL and not quick:
            yield name, partial(_network, name)
    for path in (path for folder in folders for path in sorted(folder.iterdir())):
        yield path.name, partial(open_program, path)


def _network(name: str) -> VerifiedProgram:
    return verify(program_of(NETWORKS[name]()))


def _feed(verified: VerifiedProgram, samples: int) -> dict[str, Int32Array]:
    random = np.random.default_rng(samples)
    return {
        item.value.name: random.integers(
            item.value.lo, item.value.hi + 1, (samples, *item.value.shape)
        ).astype(np.int32)
        for item in verified.program.inputs
    }  # fmt: skip


def _single(opened: Callable[[], VerifiedProgram], device: Device) -> list[str]:
    """What is wrong with the tensors of a program, and a remark with the root of its trace."""
    verified = opened()
    executor = CudaExecutor(verified, device=device, hashing=Hashing(device))
    numpy = NumpyExecutor(verified)
    one = {name: array[0] for name, array in _feed(verified, 1).items()}
    state = initial_state(verified.program)
    expected = numpy.run(one, state, "all").values
    found = executor.run(one, state, "all").values
    wrong = [*executor.refusals, *(name for name in expected if not np.array_equal(found[name], expected[name]))]
    ours, theirs = _observed(executor, verified, one), _observed(numpy, verified, one)
    root = "" if ours.run.trace is None else ours.run.trace.hex()
    executor.close()
    return [*wrong, *([] if ours == theirs else ["the trace"]), f" trace root {root}"]


def _observed(executor: Executor, verified: VerifiedProgram, feed: dict[str, Int32Array]) -> Observation:
    observer = Observer(verified.program, feed, initial_state(verified.program), True)
    return observer.end(executor.run(feed, initial_state(verified.program), watch=observer.watch))


def _batches(opened: Callable[[], VerifiedProgram], device: Device) -> list[str]:
    """What is wrong with batches of a program. One with state has none."""
    verified = opened()
    if verified.program.state:
        return [" its state goes from run to run, so it has no batches"]
    executor, numpy = CudaExecutor(verified, device=device), NumpyExecutor(verified)
    fastest = create(default()[0], verified)
    wrong = list(executor.refusals)
    for samples in BATCHES:
        feed = _feed(verified, samples)
        found = executor.run_batch(samples, feed) or {}
        expected = _expected(fastest, samples, feed)
        single = numpy.run({name: array[0] for name, array in feed.items()}, {}).values
        for name, array in expected.items():
            apart = [k for k in range(samples) if name not in found or not np.array_equal(found[name][k], array[k])]
            wrong += [f"{name} of sample {sample} of a batch of {samples}" for sample in apart]
            wrong += [] if np.array_equal(array[0], single[name]) else [f"{name} by the executor {fastest.name}"]
    executor.close()
    return wrong


def _expected(executor: Executor, samples: int, feed: Mapping[str, Int32Array]) -> Mapping[str, Int32Array]:
    """The results of a batch, by an executor of this processor."""
    batch = executor.run_batch(samples, feed) if isinstance(executor, Batching) else None
    if batch is not None:
        return batch
    runs = [executor.run({name: array[k] for name, array in feed.items()}, {}).values for k in range(samples)]
    return {name: np.stack([values[name] for values in runs]) for name in runs[0]}


# Running parts ------------------------------------------------------------------------------------------------------


def completed(part: Part, device: Device) -> Result:
    """What comes of a part on a device. An error is a difference."""
    start = time.perf_counter()
    try:
        lines = part.run(device)
    except CvmError as error:
        lines = [str(error)]
    seconds = time.perf_counter() - start
    remarks = tuple(line.strip() for line in lines if line.startswith(" "))
    return Result(part.what, tuple(line for line in lines if not line.startswith(" ")), remarks, seconds)


def _apart(part: Part, command: Sequence[str], limit: float) -> Result:
    """What comes of a part in a process of its own."""
    start = time.perf_counter()

    def result(wrong: Sequence[str], remarks: Sequence[str] = ()) -> Result:
        return Result(part.what, tuple(wrong), tuple(remarks), time.perf_counter() - start)

    process = subprocess.Popen(
        [*command, "--part", part.what], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        answer, errors = process.communicate(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=ENDING)
        return result([f"it had not ended after {limit:.0f} s"])
    try:
        said = json.loads(answer.splitlines()[-1])
        return result(said["wrong"], said["remarks"])
    except (IndexError, ValueError, KeyError, TypeError):  # the process has died before its answer
        return result([f"its process ended with {process.returncode}: {(errors.splitlines() or [''])[-1]}"])


class _Report:
    """The table on the screen, and the file with what is known so far."""

    def __init__(self, device: str, file: Path | None) -> None:
        self._device, self._file = device, file
        self._code = cache.key(CUDA, ("check",))
        self.results: list[Result] = []
        self.left: list[str] = []

    def known(self) -> dict[str, Result]:
        """The parts in the file without differences, if it is about this device and this version of cvm."""
        if self._file is None or not self._file.is_file():
            return {}
        document = json.loads(self._file.read_text())
        if (document["device"], document.get("code")) != (self._device, self._code):
            return {}
        found = [Result(one["what"], (), tuple(one["remarks"]), one["seconds"]) for one in document["parts"]
                 if not one["wrong"]]  # fmt: skip
        return {one.what: one for one in found}

    def add(self, one: Result) -> None:
        """Print a line, and write the file."""
        self.results.append(one)
        verdict = f"{len(one.wrong)} WRONG: {'; '.join(one.wrong[:3])}" if one.wrong else "0 differences"
        print(f"{one.what:<50} {one.seconds:8.1f} s  {verdict}", flush=True)
        for line in one.remarks:
            print(f"  {line}", flush=True)
        self.write()

    def write(self) -> None:
        """Write the file, if there is one."""
        if self._file is None:
            return
        document = {"device": self._device, "code": self._code, "parts": [asdict(one) for one in self.results],
                    "left out": self.left}  # fmt: skip
        write_atomically(self._file, json.dumps(document, indent=1).encode())

    def summary(self) -> str:
        """What differed, the roots of all models, and at the end the numbers of parts: a log is read from its end."""
        wrong = [one for one in self.results if one.wrong]
        lines = [f"{one.what}: {'; '.join(one.wrong[:3])}" for one in wrong]
        lines += [f"{one.what}: {line}" for one in self.results for line in one.remarks]
        lines += [f"left out: {what}" for what in self.left[:NAMED]]
        counts = f"{len(self.results)} parts, {len(wrong)} with differences, {len(self.left)} left out"
        return "\n".join(["", f"Summary, on {self._device}", *lines, counts])


def _all_apart(every: Sequence[Part], report: _Report, options: argparse.Namespace, arguments: Sequence[str]) -> None:
    """Run parts in processes, some at a time, until the time is over."""
    command = [sys.executable, "-m", "tools.check_cuda", *arguments]
    end = time.monotonic() + options.seconds

    def run(part: Part) -> Result | None:
        left = end - time.monotonic()
        return None if left <= 0 else _apart(part, command, min(options.limit, left))

    with ThreadPoolExecutor(options.workers) as pool:
        running = {pool.submit(run, part): part.what for part in every}
        for future in as_completed(running):
            found = future.result()
            if found is None:
                report.left.append(running[future])
            else:
                report.add(found)
    report.write()


def sanitized(device: int, limit: float) -> bool:
    """Run the quick part under compute-sanitizer's tools; without it, say so."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("compute-sanitizer is not installed (it comes with the CUDA toolkit): left out")
        return True
    right = True
    for name in ("memcheck", "racecheck"):
        command = [tool, "--tool", name, "--error-exitcode", "9", sys.executable, "-m", "tools.check_cuda", "--quick"]
        try:
            done = subprocess.run([*command, "--here", "--device", str(device)], timeout=limit, check=False)
            status = "0 errors" if done.returncode == 0 else f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            status = f"it had not ended after {limit:.0f} s"
        print(f"compute-sanitizer {name}: {status}", flush=True)
        right = right and status == "0 errors"
    return right


def _options(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--workers", type=int, default=max(1, min(8, (os.cpu_count() or 2) // 2)))
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--here", action="store_true")
    parser.add_argument("-o", dest="file", type=Path, metavar="FILE")
    parser.add_argument("--part", help=argparse.SUPPRESS)  # what the processes of this program are given
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    options = _options(given)
    try:
        device = Driver(options.device, ptx.assembled)
        ptx.nearest(device.capability)
    except CvmError as error:
        print(f"no device: {error.message}", file=sys.stderr)
        return NO_DEVICE
    every = list(parts(options.programs, options.seed, options.models, options.quick))
    if options.part is not None:
        (one,) = [part for part in every if part.what == options.part]
        print(json.dumps(asdict(completed(one, device))))
        return 0
    print(device.name, flush=True)
    report = _Report(device.name, options.file)
    known = report.known() if options.resume else {}
    report.results += [known[part.what] for part in every if part.what in known]
    every = [part for part in every if part.what not in known]
    if options.here:
        for part in every:
            report.add(completed(part, device))
    else:
        device.close()
        _all_apart(every, report, options, given)
    right = not any(one.wrong for one in report.results)
    print(report.summary())
    if options.sanitizer:
        right = sanitized(options.device, options.limit) and right
    return DIFFERENT if not right else INCOMPLETE if report.left else 0


if __name__ == "__main__":
    sys.exit(main())
