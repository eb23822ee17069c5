"""Exported C on any target against FORMAL's vectors and NumPy: every output and every tensor, exactly.

    python -m tools.check_c vectors [--folder spec_vectors] [--target gcc]... [--options=-O2]...
    python -m tools.check_c random  [--seed 1] [--begin 0] [--count 100] ...
    python -m tools.check_c models  PROGRAM|MODEL... [--runs 3] ...

Each program is exported once as it is and once with every tensor shown, and compiled for each target and set of options
with all warnings as errors; for the machine that this runs on with sanitizers, unless --plain is given. ``vectors`` are
all cases with a value of programs, and of ops, whose tensors are all outputs: their inputs are constants, and once more
inputs where the verifier accepts it;
``random`` programs are those of `tools.fuzz.c_programs`; ``models`` are program files, NNEF folders, TFLite and ONNX
files. A target whose compiler or emulator is missing is skipped by name. What takes more than --seconds is ended, and
each program of its batch is tried alone, so that the slow one is named. Exit status: 0 no difference, 1 a difference,
2 nothing ran.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.cli.models import open_program
from cvm.errors import CvmError
from cvm.program import decode, verify
from cvm.program.verifier import VerifiedProgram
from cvm.vectors.check import files
from cvm.vectors.format import OpCase, ProgramCase
from cvm.vectors.own import program_of_op
from tools.c_driver import SANITIZED, Member, build_all
from tools.c_targets import TARGETS, Target
from tools.feeds import feeds
from tools.fuzz.c_programs import case, compared, computed

__all__ = ["Subject", "main", "of_op", "of_program"]

Tensors = Mapping[str, npt.NDArray[np.int32]]

BATCH = 120
"""How many programs are compiled as one file of C."""
SECONDS = 1800.0
"""How long a compiler and a compiled file may take each, until the programs of the file are tried one by one."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A program, the inputs of its runs, and every tensor of each run that is known, by the name of its value."""

    name: str
    verified: VerifiedProgram
    runs: Sequence[Tensors]
    expected: Sequence[Tensors]
    programs: int = 1
    """How many random programs it was made of."""
    traces: tuple[bool, ...] = (False, True)
    """Whether it is exported as it is, with every tensor shown, or both."""


def of_op(case: OpCase, constant: bool) -> Subject:
    """A program of one op whose operands are constants, or inputs with the least intervals that hold them.

    Raises `CvmError` if the verifier refuses it.
    """
    program, feed = program_of_op(case, constant)
    right = {output.value: tensor.array() for output, tensor in zip(program.outputs, case.outputs, strict=True)}
    return Subject(f"{case.op} {case.id}", verify(decode(program.to_bytes())), [feed], [{**feed, **right}], 1, (False,))


def of_program(case: ProgramCase) -> Subject:
    """A program of the vectors with its runs."""
    runs = [{name: tensor.array() for name, tensor in run.inputs.items()} for run in case.runs]
    values = [{name: tensor.array() for name, tensor in run.values.items()} for run in case.runs]
    expected = [{**feed, **right} for feed, right in zip(runs, values, strict=True)]
    return Subject(case.id, verify(decode(case.program)), runs, expected)


def _vectors(options: argparse.Namespace) -> Iterator[Subject]:
    for _, file in files(options.folder):
        for item in file.cases:
            if item.verdict != "value":
                continue
            if isinstance(item, ProgramCase):
                yield of_program(item)
            elif isinstance(item, OpCase):
                yield of_op(item, constant=True)
                try:
                    yield of_op(item, constant=False)
                except CvmError:  # intervals of inputs can prove less than the values of constants
                    continue


def _random(options: argparse.Namespace) -> Iterator[Subject]:
    for number in range(options.begin, options.begin + options.count):
        program, runs, programs = case(options.seed, number)
        verified = verify(decode(program.to_bytes()))
        yield Subject(f"random {options.seed}:{number}", verified, runs, computed(verified, runs), programs)


def _models(options: argparse.Namespace) -> Iterator[Subject]:
    for path in options.paths:
        verified = open_program(path)
        runs = feeds(verified.program, options.runs)
        yield Subject(str(path), verified, runs, computed(verified, runs))


def _differences(
    subjects: Sequence[Subject], target: Target, options: Sequence[str], dots: bool, seconds: float
) -> Iterator[str]:
    """What a target computes otherwise, in words; a program that takes longer than ``seconds`` is a difference."""
    members = [Member(subject.verified, traced, dots) for subject in subjects for traced in subject.traces]
    owners = [subject for subject in subjects for _ in subject.traces]
    with tempfile.TemporaryDirectory(prefix="cvm-c-") as folder:
        try:
            batch = build_all(members, Path(folder), target, options, seconds)
            found = batch.run([owner.runs for owner in owners])
        except RuntimeError as error:
            if len(subjects) == 1:
                yield f"{subjects[0].name}: {error}"
            else:
                for subject in subjects:
                    yield from _differences([subject], target, options, dots, seconds)
            return
    for owner, member, runs in zip(owners, members, found, strict=True):
        yield from (f"{owner.name}: {words}" for words in compared(member, runs, owner.expected))


def _batches(subjects: Iterator[Subject], size: int) -> Iterator[list[Subject]]:
    while batch := list(islice(subjects, size)):
        yield batch


def _parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="suite", required=True)
    suites = {name: commands.add_parser(name) for name in _SUITES}
    for suite in suites.values():
        suite.add_argument("--target", choices=list(TARGETS), action="append")
        suite.add_argument("--options", action="append", help="e.g. --options=-O2")
        suite.add_argument("--plain", action="store_true", help="no sanitizers")
        suite.add_argument("--dot", action="store_true", help="export with --dot")
        suite.add_argument("--batch", type=int, default=BATCH)
        suite.add_argument(
            "--seconds", type=float, default=SECONDS, help="the most that compiling and running may take"
        )
    suites["vectors"].add_argument("--folder", type=Path, default=Path("spec_vectors"))
    suites["random"].add_argument("--seed", type=int, default=1)
    suites["random"].add_argument("--begin", type=int, default=0)
    suites["random"].add_argument("--count", type=int, default=20)
    suites["models"].add_argument("paths", type=Path, nargs="+")
    suites["models"].add_argument("--runs", type=int, default=3)
    return parser.parse_args(arguments)


_SUITES = {"vectors": _vectors, "random": _random, "models": _models}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    options = _parsed(arguments)
    targets = [TARGETS[name] for name in options.target or ["gcc"]]
    for target in targets:
        if target.missing():
            print(f"{target.name}: skipped, {target.missing()}")
    found = [target for target in targets if not target.missing()]
    settings = [(target, words.split()) for target in found for words in options.options or ["-O2"]]
    programs, cases = 0, 0
    failures = {f"{target.name} {' '.join(words)}": 0 for target, words in settings}
    for batch in _batches(_SUITES[options.suite](options), options.batch):
        cases += len(batch)
        programs += sum(subject.programs for subject in batch)
        for (target, words), name in zip(settings, failures, strict=True):
            sanitized = SANITIZED if target.sanitizers and not options.plain else ()
            for difference in _differences(batch, target, [*words, *sanitized], options.dot, options.seconds):
                failures[name] += 1
                print(f"{name}: {difference}", flush=True)
    for name, count in failures.items():
        print(f"{options.suite}, {name}: {cases} cases of {programs} programs, {count} differences", flush=True)
    return 2 if not failures or not cases else int(any(failures.values()))


def _stopped(number: int, _: object) -> None:
    """End by an exception, so that the compiler that runs is ended too."""
    sys.exit(128 + number)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, _stopped)
    sys.exit(main())
