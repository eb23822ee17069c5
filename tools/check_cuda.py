"""Run everything on a GPU that this project can check there, and print a table. It exits with 1 on a difference.

    python -m tools.check_cuda [--device 0] [--programs 2000] [--seed 1] [--models DIR].. [--sanitizer] [--quick]

In order: digests of SHA-256 on the device; every class of kernels of the trial, in the forms that are chosen and in
plain form; all test vectors; --programs random programs, every tensor of every run; all models (the one that comes with
cvm, networks of tools/bench, and the models or programs in DIR), every tensor of single runs, batches of 1, 8, 32 and
128, and the root of a trace, which is printed so that two GPUs can be compared. All are compared with the NumPy
executor. --sanitizer runs the quick part once more under compute-sanitizer, if that is installed (memcheck and
racecheck). --quick leaves out all but a fiftieth of the programs, and the large networks. Without a device, it says so
and exits with 3.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from cvm.audit.record import Observation, Observer
from cvm.cli.models import open_program
from cvm.demo import LANGUAGE_MODEL, MODEL
from cvm.errors import CvmError
from cvm.executors import Executor, Int32Array, initial_state
from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.emit.registry import PLAIN
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.hashing import Hashing
from cvm.executors.native.runtime.trial import CLASSES, agrees
from cvm.executors.numpy import NumpyExecutor
from cvm.program.verifier import VerifiedProgram, verify
from cvm.vectors import ExecutorRunner, check
from cvm.vectors.shipped import shipped
from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of
from tools.fuzz.c_programs import case
from tools.fuzz.cuda_programs import differences

__all__ = ["BATCHES", "checked", "main", "parts"]

Part = tuple[str, Callable[[], list[str]]]
"""A part of the check: what it does, and the function that says what is wrong."""
BATCHES = (1, 8, 32, 128)
NO_DEVICE = 3
FEW = 50
"""One random program in so many is run with --quick."""


def parts(device: Device, programs: int, seed: int, models: Sequence[Path], quick: bool) -> Iterator[Part]:
    """All parts of the check, in order."""
    hashing = Hashing(device)
    yield "SHA-256 on the device", lambda: [] if hashing.right else ["digests differ from hashlib"]
    for plain, form in ((frozenset[type](), "chosen"), (frozenset[type](PLAIN), "plain")):
        yield f"{len(CLASSES)} classes of the trial, {form} form", partial(_classes, device, plain)
    yield "all test vectors", partial(_vectors, device)
    count = programs // FEW if quick else programs
    yield f"{count} random programs, every tensor", partial(_programs, device, count, seed)
    for name, opened in _models(models, quick):
        yield f"{name}: every tensor, batches, trace", partial(_model, device, hashing, opened)


def _classes(device: Device, plain: frozenset[type]) -> list[str]:
    wrong = []
    for one in CLASSES:
        verified = one.program()
        executor = CudaExecutor(verified, device=device, plain=plain)
        if executor.refusals or not agrees(verified, partial(_values, executor)):
            wrong.append(one.name)
        executor.close()
    return wrong


def _values(executor: CudaExecutor, feed: Mapping[str, Int32Array]) -> Mapping[str, Int32Array]:
    return executor.run(feed, {}).values


def _vectors(device: Device) -> list[str]:
    runner = ExecutorRunner("cuda", lambda verified: CudaExecutor(verified, device=device))
    report = check(shipped(), runner)
    return [] if report.ok else [str(report.first)]


def _programs(device: Device, count: int, seed: int) -> list[str]:
    wrong, done, number = [], 0, 0
    while done < count:
        program, feeds, held = case(seed, number)
        wrong += [f"case {number}: {what}" for what in differences(program, feeds, device)]
        done, number = done + held, number + 1
    return wrong


def _models(folders: Sequence[Path], quick: bool) -> Iterator[tuple[str, Callable[[], VerifiedProgram]]]:
    """The models by name, each with the function that opens it."""
    yield "digits", partial(open_program, MODEL)
    yield "tiny_gpt", partial(open_program, LANGUAGE_MODEL)
    for name in ("lenet",) if quick else NETWORKS:
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


def _model(device: Device, hashing: Hashing, opened: Callable[[], VerifiedProgram]) -> list[str]:
    """What is wrong with a program on the device. Prints the root of a trace."""
    verified = opened()
    executor, numpy = CudaExecutor(verified, device=device, hashing=hashing), NumpyExecutor(verified)
    wrong = list(executor.refusals)
    one = {name: array[0] for name, array in _feed(verified, 1).items()}
    state = initial_state(verified.program)
    expected = numpy.run(one, state, "all").values
    found = executor.run(one, state, "all").values
    wrong += [name for name in expected if not np.array_equal(found[name], expected[name])]
    ours, theirs = _observed(executor, verified, one), _observed(numpy, verified, one)
    wrong += [] if ours == theirs else ["the trace"]
    print(f"  trace root {'' if ours.run.trace is None else ours.run.trace.hex()}")
    for samples in () if verified.program.state else BATCHES:
        feed = _feed(verified, samples)
        batch = executor.run_batch(samples, feed) or {}
        for sample in range(samples):
            single = numpy.run({name: array[sample] for name, array in feed.items()}, {}).values
            same = all(np.array_equal(batch[name][sample], array) for name, array in single.items())
            wrong += [] if same else [f"sample {sample} of a batch of {samples}"]
    executor.close()
    return wrong


def _observed(executor: Executor, verified: VerifiedProgram, feed: dict[str, Int32Array]) -> Observation:
    observer = Observer(verified.program, feed, initial_state(verified.program), True)
    return observer.end(executor.run(feed, initial_state(verified.program), watch=observer.watch))


def checked(items: Iterator[Part]) -> bool:
    """Run parts, print a line for each, and return whether nothing was wrong."""
    right = True
    for what, run in items:
        start = time.perf_counter()
        try:
            wrong = run()
        except CvmError as error:
            wrong = [str(error)]
        right = right and not wrong
        verdict = f"{len(wrong)} WRONG: {'; '.join(wrong[:3])}" if wrong else "0 differences"
        print(f"{what:<50} {time.perf_counter() - start:8.1f} s  {verdict}", flush=True)
    return right


def sanitized(device: int) -> bool:
    """Run the quick part under compute-sanitizer's tools; without it, say so."""
    tool = shutil.which("compute-sanitizer")
    if tool is None:
        print("compute-sanitizer is not installed (it comes with the CUDA toolkit): left out")
        return True
    right = True
    for name in ("memcheck", "racecheck"):
        command = [tool, "--tool", name, "--error-exitcode", "9", sys.executable, "-m", "tools.check_cuda", "--quick"]
        status = subprocess.run([*command, "--device", str(device)], check=False).returncode
        print(f"compute-sanitizer {name}: {'0 errors' if status == 0 else f'exit code {status}'}")
        right = right and status == 0
    return right


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--programs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--models", type=Path, action="append", default=[], metavar="DIR")
    parser.add_argument("--sanitizer", action="store_true")
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    try:
        device = Driver(options.device, ptx.assembled)
        ptx.nearest(device.capability)
    except CvmError as error:
        print(f"no device: {error.message}", file=sys.stderr)
        return NO_DEVICE
    print(device.name)
    right = checked(parts(device, options.programs, options.seed, options.models, options.quick))
    if options.sanitizer:
        right = sanitized(options.device) and right
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main())
