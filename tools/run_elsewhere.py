"""Run the native executor's code for another processor, under emulation, and compare it with NumPy, exactly.

    python tools/run_elsewhere.py [NETWORK|PROGRAM..] [--trial] [--random N] [--machine NAME] [--cpu CPU]
                                  [--triple TRIPLE] [--threads N] [--runs N] [--outputs] [--assembly FILE]

NETWORK is one of tools/bench/networks.py, PROGRAM a program file or an NNEF model. ``--trial`` runs the programs of the
executor's own trial, ``--random`` N networks of each aim of tools/planted/networks.py. All tensors are
compared, or with ``--outputs`` only the outputs. The network is compiled for the triple and processor (LLVM's names),
linked by Debian's cross compiler (TRIPLE-gcc) with tools/run_elsewhere.c, and run by QEMU's emulation of user programs.
Exit status: 0 all the same, 1 something differs, 2 something is missing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import prod
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvm.cli.models import open_program
from cvm.errors import CvmError, Unsupported
from cvm.executors.base import initial_state, returned
from cvm.executors.native.emit.ir import Module
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.emit.sharing import HEAD_BYTES, claim_bytes, emit_worker
from cvm.executors.native.kernels.registry import plan
from cvm.executors.native.plan.memory import SLACK
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime import calls
from cvm.executors.native.runtime.networks import network_text, read_bounds
from cvm.executors.native.runtime.trial_programs import programs
from cvm.executors.numpy import NumpyExecutor
from cvm.program import verify
from cvm.program.verifier import VerifiedProgram
from tools.feeds import Feed, feeds

__all__ = ["CPUS", "Elsewhere", "Subject", "assembly", "differences", "executed", "missing"]


MAIN = Path(__file__).with_suffix(".c")
TRIPLE = "aarch64-linux-gnu"
CPUS = {"generic": "cortex-a72", "neon_dot": "neoverse-n1", "neon_i8mm": "neoverse-v1"}
"""The default processor to compile for, by machine: the least one that the machine supports."""


@dataclass(frozen=True)
class Elsewhere:
    """Another processor: LLVM's triple and name for it, and the machine to plan for."""

    machine: Machine
    cpu: str
    triple: str = TRIPLE

    def target(self) -> llvm.TargetMachine:
        """The code generator. Raises `Unsupported` (``elsewhere.triple``) if this LLVM has none."""
        _initialize()
        try:
            target = llvm.Target.from_triple(self.triple)
        except RuntimeError as error:
            raise Unsupported("elsewhere.triple", f"no code for {self.triple}: {error}") from error
        return target.create_target_machine(
            cpu=self.cpu, features=self.machine.features or "", opt=2, reloc="pic", codemodel="default"
        )

    def compiler(self) -> str:
        """The cross compiler. Raises `Unsupported` (``elsewhere.compiler``)."""
        return _found(f"{self.triple}-gcc", "elsewhere.compiler", f"Debian: gcc-{self.triple}")

    def emulator(self) -> str:
        """QEMU for user programs. Raises `Unsupported` (``elsewhere.emulator``)."""
        name = f"qemu-{self.triple.split('-', 1)[0]}"
        if shutil.which(name):
            return name
        return _found(f"{name}-static", "elsewhere.emulator", "Debian: qemu-user-static")


@cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def _found(name: str, code: str, package: str) -> str:
    if shutil.which(name) is None:
        raise Unsupported(code, f"{name} is not installed ({package})")
    return name


def missing(triple: str = TRIPLE) -> str | None:
    """The first needed program that is not installed, or None."""
    elsewhere = Elsewhere(MACHINES[-1], "", triple)
    try:
        elsewhere.target(), elsewhere.compiler(), elsewhere.emulator()
    except Unsupported as error:
        return str(error)
    return None


@dataclass(frozen=True)
class Subject:
    """A program as one network of a machine: its plan, its IR, and the names of the arrays that it writes."""

    verified: VerifiedProgram
    plan: Plan
    text: str
    threads: int

    @staticmethod
    def of(verified: VerifiedProgram, machine: Machine, threads: int, everything: bool) -> Subject:
        """With ``everything`` all tensors are written; otherwise the outputs and the next states."""
        program = verified.program
        names = returned(program, "all" if everything else frozenset())
        made = plan(verified, machine, names | {kept.update for kept in program.state})
        return Subject(verified, made, network_text(made, machine, threads, read_bounds(program)), threads)

    def job(self, runs: Sequence[Feed]) -> bytes:
        """The input of run_elsewhere.c: for every run the arrays that are read, inputs and states."""
        sizes = [4 * prod(self.verified.shapes[name]) for name in self.plan.arrays]
        claims = claim_bytes(self.threads) * len(self.plan.calls)
        head = [self.threads, HEAD_BYTES + claims, self.plan.arena + SLACK, len(self.plan.constants) + SLACK]
        head += [len(sizes), self.plan.written, len(runs), *sizes]
        pieces = [np.array(head, "<i8").tobytes(), self.plan.constants, bytes(SLACK)]
        read = self.plan.arrays[: self.plan.written]
        return b"".join([*pieces, *(run[name].astype("<i4").tobytes() for run in runs for name in read)])

    def results(self, data: bytes, runs: int) -> Iterator[tuple[int, dict[str, npt.NDArray[np.int32]]]]:
        """For every run, the return value of ``start`` and the arrays that were written."""
        written = self.plan.arrays[self.plan.written :]
        shapes = [self.verified.shapes[name] for name in written]
        each = 8 + 4 * sum(map(prod, shapes))
        if len(data) != runs * each:
            raise Unsupported("elsewhere.results", f"{len(data)} bytes of results instead of {runs * each}")
        for start in range(0, len(data), each):
            offset = start + 8
            arrays = {}
            for name, shape in zip(written, shapes, strict=True):
                arrays[name] = np.frombuffer(data, "<i4", prod(shape), offset).reshape(shape)
                offset += 4 * prod(shape)
            yield int(np.frombuffer(data, "<i8", 1, start)[0]), arrays


def built(subject: Subject, elsewhere: Elsewhere, folder: Path) -> Path:
    """The executable of a subject, built in a folder."""
    target = elsewhere.target()
    workers = Module()
    emit_worker(workers, elsewhere.machine)
    # Two modules have a function of the same name; in the executor they are never linked together.
    text = str(workers).replace("@start(", "@show(")
    for name, ir in (("network.o", subject.text), ("workers.o", text)):
        module = llvm.parse_assembly(ir)
        module.verify()
        (folder / name).write_bytes(target.emit_object(module))
    sources = [str(MAIN), *(str(folder / name) for name in ("network.o", "workers.o"))]
    command = [elsewhere.compiler(), "-O1", "-Wall", "-Werror", "-static", "-pthread", *sources]
    _ran([*command, "-o", str(folder / "network")], 600.0)
    return folder / "network"


def _ran(command: Sequence[str], seconds: float) -> None:
    """Run a command. If it fails, raises `Unsupported` (``elsewhere.run``) with the end of its output."""
    try:
        done = subprocess.run(command, capture_output=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired as error:
        raise Unsupported("elsewhere.run", f"{command[0]} took more than {seconds:.0f} s") from error
    if done.returncode:
        said = done.stderr.decode(errors="replace").strip()[-2000:]
        raise Unsupported("elsewhere.run", f"{command[0]} ended with {done.returncode}: {said}")


def executed(
    subject: Subject, runs: Sequence[Feed], elsewhere: Elsewhere, seconds: float = 600.0
) -> list[tuple[int, dict[str, npt.NDArray[np.int32]]]]:
    """Build a subject and run it. For every run: the return value of ``start`` (-1, or the number of an array outside
    its interval) and the written arrays. Raises `Unsupported` (``elsewhere..``) if that is impossible or crashes.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        program = built(subject, elsewhere, folder)
        (folder / "job").write_bytes(subject.job(runs))
        command = [elsewhere.emulator(), "-cpu", "max", str(program), str(folder / "job"), str(folder / "results")]
        _ran(command, seconds)
        return list(subject.results((folder / "results").read_bytes(), len(runs)))


def differences(
    verified: VerifiedProgram,
    feeds: Sequence[Feed],
    elsewhere: Elsewhere,
    threads: int = 1,
    everything: bool = True,
    seconds: float = 600.0,
) -> list[str]:
    """The differences from the NumPy executor, run by run and tensor by tensor; states pass from run to run.

    Raises the errors of `executed`.
    """
    numpy, state = NumpyExecutor(verified), initial_state(verified.program)
    runs: list[Feed] = []
    expected: list[dict[str, npt.NDArray[np.int32]]] = []
    for feed in feeds:
        known = numpy.run(feed, state, "all" if everything else frozenset())
        following = {kept.update: known.state[kept.value.name] for kept in verified.program.state}
        runs.append({**feed, **state})
        expected.append({**known.values, **following})
        state = known.state
    subject = Subject.of(verified, elsewhere.machine, threads, everything)
    found = executed(subject, runs, elsewhere, seconds)
    return [
        f"run {number}: {what}"
        for number, ((status, arrays), right) in enumerate(zip(found, expected, strict=True))
        for what in _compared(status, arrays, right)
    ]


def _compared(status: int, arrays: Feed, right: Feed) -> Iterator[str]:
    if status >= 0:
        yield f"input {status} is said to be outside its interval"
        return
    if arrays.keys() != right.keys():
        yield f"other tensors: {sorted(arrays.keys() ^ right.keys())}"
    for name in sorted(arrays.keys() & right.keys()):
        wrong = np.argwhere(arrays[name] != right[name])
        if len(wrong):
            index = tuple(map(int, wrong[0]))
            yield (
                f"{name}: {len(wrong)} of {arrays[name].size} elements, first at {index}: "
                f"{arrays[name][index]} instead of {right[name][index]}"
            )


def assembly(verified: VerifiedProgram, elsewhere: Elsewhere) -> str:
    """The assembly of a program's outputs for one thread."""
    module = llvm.parse_assembly(Subject.of(verified, elsewhere.machine, 1, everything=False).text)
    return str(elsewhere.target().emit_assembly(module))


def subjects(options: argparse.Namespace) -> Iterator[tuple[str, VerifiedProgram]]:
    """The programs to run, by name."""
    from tools.bench.networks import NETWORKS
    from tools.bench.programs import program_of
    from tools.planted.networks import AIMS, network

    for name in options.programs:
        yield name, verify(program_of(NETWORKS[name]())) if name in NETWORKS else open_program(Path(name))
    if options.trial:
        yield from programs()
    for aim in AIMS:
        for seed in range(options.random):
            yield f"{aim}, {seed}", verify(network(aim, seed))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("programs", nargs="*", metavar="NETWORK|PROGRAM")
    parser.add_argument("--trial", action="store_true", help="the programs of the executor's trial")
    parser.add_argument("--random", type=int, default=0, metavar="N", help="so many random networks of each aim")
    parser.add_argument("--machine", choices=sorted(CPUS), default="generic")
    parser.add_argument("--cpu", help="LLVM's name of the processor (default: one that suits the machine)")
    parser.add_argument("--triple", default=TRIPLE)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--runs", type=int, default=4, help="runs with different inputs")
    parser.add_argument("--outputs", action="store_true", help="compare the outputs alone")
    parser.add_argument("--assembly", type=Path, help="write the assembly of the last program, and run nothing")
    options = parser.parse_args(arguments)
    if options.threads > 1:
        calls.GRAIN = 1  # share small work between threads, too
    machine = next(machine for machine in MACHINES if machine.name == options.machine)
    elsewhere = Elsewhere(machine, options.cpu or CPUS[machine.name], options.triple)
    try:
        return _main(options, elsewhere)
    except CvmError as error:
        print(f"run_elsewhere: {error}", file=sys.stderr)
        return 2


def _main(options: argparse.Namespace, elsewhere: Elsewhere) -> int:
    wrong = count = 0
    for name, verified in subjects(options):
        if options.assembly is not None:
            options.assembly.write_text(assembly(verified, elsewhere), encoding="utf-8")
            continue
        runs = feeds(verified.program, options.runs)
        found = differences(verified, runs, elsewhere, options.threads, not options.outputs)
        count += 1
        wrong += bool(found)
        print(f"{name}: {'; '.join(found) or 'the same'}", flush=True)
    if options.assembly is None:
        print(f"{count - wrong} of {count} the same: {elsewhere.machine.name}, {elsewhere.triple}, {elsewhere.cpu}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
