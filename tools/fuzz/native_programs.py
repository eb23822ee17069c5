"""Fuzzer of native code: packs of small programs at the edges of machine integers, compared with NumPy and FORMAL.

    python -m tools.fuzz.native_programs --count 10000 --seed 1 --jobs 2 --log fuzz-native.log
    python -m tools.fuzz.native_programs --check failure-0123456789ab.cvm

Small programs are packed into one, since compiling costs more than everything else, and members of a family share their
kernels. Every tensor of a pack is compared on every machine: on one thread with nothing captured and on two with
everything, or vice versa, alternately; ``--thorough`` does all four. Other options take other programs:

* ``--documents``: of documents of wide inputs and narrow results.
* ``--chains``: chains of ops of op-set 2; FORMAL judges every tensor.
* ``--computed``: each has an op of op-set 2 or a table, in lengths that fill vectors and in others.
* ``--layouts``: each reads, keeps and returns tensors in many layouts.
* ``--sessions``: one of those in each pack, run in all ways in which callers may run it (`session_agreement`).

One pack in eight is compiled with full optimisation. With ``--guarded N``, one pack in N runs as users' programs do; in
the others, the output of the planner and the emitter runs without being checked and rehearsed first, which takes half
the time. Packs run in workers. A worker that dies is a failure of its pack, and the next pack goes on. With ``--log``,
a run that was stopped goes on where it was. A failure is reduced and written as ``failure-..`` files: program, inputs,
test.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from cvm.errors import CvmError
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.kernels.registry import PLANS
from cvm.executors.native.runtime.select import available, named
from cvm.program import Program, decode, verify
from cvm.program.merging import merged
from tools.fuzz import computed_programs
from tools.fuzz.chains import chained
from tools.fuzz.edge_feeds import Feed, feeds
from tools.fuzz.edge_programs import drawn_aim, family
from tools.fuzz.growers import GROWERS, sample
from tools.fuzz.growth import Seeded
from tools.fuzz.layouts import laid_out
from tools.fuzz.merging import pruned
from tools.fuzz.native_agreement import (
    Difference,
    Way,
    differences,
    formal_differences,
    known_results,
    prepared,
)
from tools.fuzz.session_agreement import session_differences
from tools.fuzz.shrinking import Case, regression_test, shrunk
from tools.fuzz.wide_documents import compiled, document

__all__ = ["Pack", "Report", "examined", "main", "pack", "smallest", "ways"]

FAMILIES, MEMBERS, GROWN, RUNS = 3, 24, 1, 10
"""The sizes of a pack: families, members of each, programs of any ops, and inputs."""
DOCUMENTS = 12
"""The sizes of a pack of documents."""
COMPUTED = 40
"""The size of a pack of ops between computed tensors."""
CHAINED = 10
"""The size of a pack of chains."""
LAYOUTS = 6
"""The size of a pack of programs in many layouts."""
WILD = 0.4
"""The share of members with parameters at the ends of what fits."""
FORMAL_GAS = 60_000
"""How much FORMAL judges of each pack, for two of its inputs."""
OPTIMISED = 8
"""One pack in this many is compiled with full optimisation, the others as fast as possible."""
FAILURES = 3
"""The most failures of a pack that are reduced; further ones are counted."""
SECONDS = 600
"""The system ends a worker that takes longer than this for one pack."""
ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Pack:
    """Programs side by side in one, their number, the number of refused ones, and inputs."""

    program: Program
    programs: int
    refused: int
    runs: tuple[Feed, ...]
    whole: bool = False
    """Whether FORMAL judges every tensor of two runs, or as many as `FORMAL_GAS` allows."""


@dataclass(slots=True)
class Report:
    """The results of a pack."""

    number: int
    programs: int = 0
    refused: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)


def pack(seed: int, number: int, kind: str = "edges") -> Pack:
    """The pack with this number in the run with this seed: programs at the edges, of documents, or chains."""
    random = Random(f"{seed}:{number}")
    programs, members, refused = _MAKERS[kind](random)
    program = merged(programs)
    return Pack(program, members, refused, tuple(feeds(program, RUNS, random)), whole=kind == "chains")


def _computed(random: Random) -> tuple[list[Program], int, int]:
    """Programs of ops between computed tensors, how many there are, and how many were refused."""
    programs: list[Program] = []
    refused = 0
    while len(programs) < COMPUTED:
        try:
            programs.append(computed_programs.drawn(random))
        except CvmError:
            refused += 1
    return programs, len(programs), refused


def _chains(random: Random) -> tuple[list[Program], int, int]:
    """Chains of ops of op-set 2, and how many there are; none is refused."""
    return [chained(Seeded(random)).program for _ in range(CHAINED)], CHAINED, 0


def _one_layout(random: Random) -> tuple[list[Program], int, int]:
    """One such program, for sessions: a single program with state would keep others from being run in batches."""
    return [laid_out(Seeded(random))], 1, 0


def _layouts(random: Random) -> tuple[list[Program], int, int]:
    """Programs whose tensors are read in many layouts, and how many there are; none is refused."""
    return [laid_out(Seeded(random)) for _ in range(LAYOUTS)], LAYOUTS, 0


def _compiled(random: Random) -> tuple[list[Program], int, int]:
    """The programs of documents, how many there are, and how many documents were refused."""
    programs: list[Program] = []
    refused = 0
    while len(programs) < DOCUMENTS:
        try:
            programs.append(compiled(document(random)))
        except CvmError:
            refused += 1
    return programs, len(programs), refused


def _drawn(random: Random) -> tuple[list[Program], int, int]:
    """Families and programs of any ops, how many programs they hold, and how many were refused."""
    programs: list[Program] = []
    members = refused = 0
    while len(programs) < FAMILIES:
        try:
            found = family(random, drawn_aim(random), MEMBERS, WILD)
        except CvmError:
            refused += 1
            continue
        programs.append(found.program)
        members += found.members - found.refused
        refused += found.refused
    for _ in range(GROWN):
        ops = random.choices([op for op in GROWERS if op in PLANS], k=random.randint(5, 9))
        programs.append(sample(Seeded(random), lambda ops=ops: ops).program)  # type: ignore[misc]
        members += 1
    return programs, members, refused


_MAKERS: dict[str, Callable[[Random], tuple[list[Program], int, int]]] = {
    "edges": _drawn, "documents": _compiled, "chains": _chains, "computed": _computed,
    "layouts": _layouts, "sessions": _one_layout,
}  # fmt: skip
"""The kinds of packs: what makes their programs, and counts them and the refused ones."""


def ways(machines: Sequence[Machine], number: int, thorough: bool) -> list[Way]:
    """The ways in which a pack is run."""
    found = []
    for index, machine in enumerate(machines):
        swapped = (number + index) % 2 == 1
        pairs = [(1, swapped), (2, not swapped)] + ([(1, not swapped), (2, swapped)] if thorough else [])
        found += [Way(machine, threads, captured) for threads, captured in pairs]
    return found


def examined(found: Pack, chosen: Sequence[Way]) -> tuple[list[Difference], tuple[str, ...]]:
    """The differences of native code from NumPy, and the values for which NumPy differs from FORMAL."""
    verified = verify(found.program)
    known = known_results(verified, found.runs)
    part = found.program if found.whole else _judged(found.program)
    runs = [{one.value.name: feed[one.value.name] for one in part.inputs} for feed in found.runs[:2]]
    wrong = formal_differences(verify(part), runs, known)
    return differences(found.program, found.runs, known, chosen), wrong


def _judged(program: Program) -> Program:
    """The program with as many of its outputs as FORMAL is to judge, the cheapest first."""
    costs = []
    for output in program.outputs:
        part = pruned(program, [output.name])
        costs.append((sum(int(np.prod(value.shape)) for node in part.nodes for value in node.outputs), output.name))
    chosen: list[str] = []
    total = 0
    for cost, name in sorted(costs):
        part_cost = 30 * cost
        if chosen and total + part_cost > FORMAL_GAS:
            break
        chosen.append(name)
        total += part_cost
    return pruned(program, chosen)


# Failures ---------------------------------------------------------------------------------------------------------


def smallest(case: Case, difference: Difference, tries: int = 400) -> Case:
    """The smallest case that was found to fail in the same way."""

    def fails(smaller: Case) -> bool:
        known = known_results(verify(smaller.program), smaller.runs)
        found = differences(smaller.program, smaller.runs, known, [difference.way])
        return bool(found) and found[0].kind == difference.kind

    return shrunk(case, fails, tries)


def write(case: Case, difference: Difference, folder: Path) -> str:
    """Write the files of a failure; returns their name."""
    folder.mkdir(parents=True, exist_ok=True)
    data = case.program.to_bytes()
    name = f"failure-{hashlib.sha256(data).hexdigest()[:12]}"
    (folder / f"{name}.cvm").write_bytes(data)
    arrays = {f"{number}/{key}": fed for number, feed in enumerate(case.runs) for key, fed in feed.items()}
    np.savez(folder / f"{name}.npz", **arrays)  # type: ignore[arg-type]
    text = f'"""{difference.way}: {difference.kind}"""\n\n' + regression_test(case, name.replace("-", "_"))
    (folder / f"{name}.txt").write_text(text)
    return name


def read(path: Path) -> Case:
    """The case of a failure from its program and the inputs beside it."""
    program = decode(path.read_bytes())
    with np.load(path.with_suffix(".npz")) as stored:
        runs: dict[int, dict[str, Any]] = {}
        for key in stored.files:
            number, _, name = key.partition("/")
            runs.setdefault(int(number), {})[name] = stored[key]
    return Case(program, tuple(runs[number] for number in sorted(runs)))


def _failures(found: Pack, chosen: Sequence[Way], folder: Path) -> Iterator[str]:
    """Everything that is wrong with a pack, one line each; the first few failures are reduced and written.

    An error hides other failures: outputs that fail are left out, and the rest is examined again.
    """
    left = [output.name for output in found.program.outputs]
    for _ in range(FAILURES):
        case = _part(found, left)
        wrong, unlike = examined(replace(found, program=case.program, runs=case.runs), chosen)
        if unlike:
            yield f"NumPy is not FORMAL: {', '.join(unlike)}"
            return
        if not wrong:
            return
        output = _first_failing(case, wrong[0])
        small = smallest(_part(found, [output]), wrong[0])
        yield f"{wrong[0].way}: {wrong[0].kind}: {write(small, wrong[0], folder)}"
        left.remove(output)
        if not left:
            return
    yield "there may be more: not examined"


def _session_failures(found: Pack, machine: Machine, options: argparse.Namespace) -> list[str]:
    """What is wrong when callers run a pack in sessions of a machine; if anything is, the pack is written as it is."""
    verified = verify(found.program)
    random = Random(found.program.digest)
    usual = os.environ.get("CVM_MACHINE")
    os.environ["CVM_MACHINE"] = machine.name
    try:
        wrong = session_differences(verified, found.runs, known_results(verified, found.runs), random)
    finally:
        os.environ.pop("CVM_MACHINE")
        os.environ.update({} if usual is None else {"CVM_MACHINE": usual})
    if not wrong:
        return []
    case = Case(found.program, tuple(found.runs))
    name = write(case, Difference(Way(machine, 2, False), error=wrong[0]), options.failures)
    return [f"{machine.name}: {line}: {name}" for line in wrong]


def _part(found: Pack, names: Sequence[str]) -> Case:
    program = pruned(found.program, names)
    return Case(program, tuple({one.value.name: feed[one.value.name] for one in program.inputs} for feed in found.runs))


def _first_failing(case: Case, difference: Difference) -> str:
    """An output that fails by itself, found by bisection; if none does, the last one left."""
    names = [output.name for output in case.program.outputs]
    while len(names) > 1:
        half = names[: len(names) // 2]
        part = _part(Pack(case.program, 0, 0, case.runs), half)
        known = known_results(verify(part.program), part.runs)
        found = differences(part.program, part.runs, known, [difference.way])
        names = half if found and found[0].kind == difference.kind else names[len(names) // 2 :]
    return names[0]


# Workers ----------------------------------------------------------------------------------------------------------


def _work(options: argparse.Namespace) -> None:
    """The packs of a worker: one line on stdout for each."""
    machines = _machines(options)
    for number in map(int, options.packs.split(",")):
        level = 2 if number % OPTIMISED == 0 or options.thorough else 0
        signal.alarm(SECONDS)
        started = time.monotonic()
        found = pack(options.seed, number, _kind(options))
        report = Report(number, found.programs, found.refused)
        try:
            with prepared(level, number % options.guarded == 0):
                if _kind(options) == "sessions":
                    report.failures = _session_failures(found, machines[number % len(machines)], options)
                else:
                    chosen = ways(machines, number, options.thorough)
                    report.failures = list(_failures(found, chosen, options.failures))
        except Exception:
            report.failures = [traceback.format_exc()]
        report.seconds = time.monotonic() - started
        print(json.dumps(asdict(report)), flush=True)


def _kind(options: argparse.Namespace) -> str:
    return next((kind for kind in _SIZES if kind != "edges" and getattr(options, kind)), "edges")


def _machines(options: argparse.Namespace) -> Sequence[Machine]:
    return [named(name) for name in options.machines.split(",")] if options.machines else available()


def _reports(options: argparse.Namespace, numbers: Sequence[int], until: float) -> Iterator[Report]:
    """The reports of some packs, from workers that are started again when one dies."""
    left = list(numbers)
    while left and time.monotonic() < until:
        command = [sys.executable, "-m", "tools.fuzz.native_programs", "--packs", ",".join(map(str, left[:200]))]
        command += ["--seed", str(options.seed), "--failures", str(options.failures.resolve())]
        command += ["--machines", options.machines] if options.machines else []
        command += ["--thorough"] if options.thorough else []
        command += ["--guarded", str(options.guarded)]
        command += [f"--{_kind(options)}"] if _kind(options) != "edges" else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as worker:
            assert worker.stdout is not None
            assert worker.stderr is not None
            for line in worker.stdout:
                left.pop(0)
                yield Report(**json.loads(line))
                if time.monotonic() >= until:
                    worker.kill()
                    return
            if worker.wait():
                yield Report(left.pop(0), failures=[f"worker ended with {worker.returncode}: {worker.stderr.read()}"])


def _run(options: argparse.Namespace) -> int:
    """Examine packs until there are enough programs or the time is over; returns 1 if anything failed."""
    started = time.monotonic()
    until = started + 60 * options.minutes
    done = _logged(options)
    count = -(-options.count // _SIZES[_kind(options)])
    left = [number for number in range(count) if number not in {report.number for report in done}]
    with ThreadPoolExecutor(options.jobs) as pool:
        shares = [left[first :: options.jobs] for first in range(options.jobs)]

        def share(numbers: Sequence[int]) -> None:
            for report in _reports(options, numbers, until):
                done.append(report)
                _log(options, report)
                for failure in report.failures:
                    print(f"pack {report.number}: {failure}", flush=True)

        list(pool.map(share, shares))
    programs = sum(report.programs for report in done)
    seconds = sum(report.seconds for report in done)
    failures = Counter(failure.rpartition(": failure-")[0] or failure for report in done for failure in report.failures)
    refused = sum(report.refused for report in done)
    print(f"{programs} programs in {len(done)} packs, {refused} refused, {programs / max(seconds, 1e-9):.1f} a second "
          f"and core, {time.monotonic() - started:.0f} s, {failures.total()} failures")  # fmt: skip
    for failure, number in failures.most_common():
        print(f"{number} x {failure}")
    return 1 if failures else 0


_SIZES = {"edges": FAMILIES * MEMBERS + GROWN, "documents": DOCUMENTS, "chains": CHAINED,
          "computed": COMPUTED, "layouts": LAYOUTS, "sessions": 1}  # fmt: skip
"""How many programs a pack of each kind has."""


def _logged(options: argparse.Namespace) -> list[Report]:
    """The reports in the log, which must have the same seed."""
    if options.log is None or not options.log.exists():
        return []
    lines = [json.loads(line) for line in options.log.read_text().splitlines()]
    return [Report(**line["report"]) for line in lines if line["seed"] == options.seed]


def _log(options: argparse.Namespace, report: Report) -> None:
    if options.log is not None:
        with options.log.open("a") as log:
            log.write(json.dumps({"seed": options.seed, "report": asdict(report)}) + "\n")


def _check(options: argparse.Namespace) -> int:
    """Examine one stored failure in every way."""
    case = read(options.check)
    known = known_results(verify(case.program), case.runs)
    with prepared():
        found = differences(case.program, case.runs, known, ways(_machines(options), 0, True))
    for one in found:
        print(f"{one.way}: {one.kind} {', '.join(one.values)}")
    return 1 if found else 0


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; the exit code is 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.native_programs")
    parser.add_argument("--count", type=int, default=1000, help="programs to examine")
    parser.add_argument("--seed", type=int, default=0, help="seed of the run")
    parser.add_argument("--machines", default="", help="machines, with commas (default: all of this processor)")
    parser.add_argument("--minutes", type=float, default=1e6, help="time for all")
    parser.add_argument("--jobs", type=int, default=2, help="workers at the same time")
    parser.add_argument("--log", type=Path, help="file of reports; what it has is not done again")
    parser.add_argument("--failures", type=Path, default=Path("fuzz-failures"), help="folder of what failed")
    parser.add_argument("--thorough", action="store_true", help="all of threads times captures, optimised code only")
    parser.add_argument("--guarded", type=int, default=1, help="one pack of so many is checked and rehearsed")
    parser.add_argument("--documents", action="store_true", help="programs of documents instead of drawn ones")
    parser.add_argument("--chains", action="store_true", help="chains of ops of op-set 2 instead")
    parser.add_argument("--computed", action="store_true", help="ops between computed tensors, and tables, instead")
    parser.add_argument("--layouts", action="store_true", help="tensors in many layouts instead")
    parser.add_argument("--sessions", action="store_true", help="such programs, in all ways of calling a session")
    parser.add_argument("--check", type=Path, help="examine the program of a failure, with the inputs beside it")
    parser.add_argument("--packs", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.check:
        return _check(options)
    if options.packs:
        _work(options)
        return 0
    return _run(options)


if __name__ == "__main__":
    sys.exit(main())
