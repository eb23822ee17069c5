"""Random programs as exported C against NumPy: outputs, and with every tensor shown, every tensor.

    python -m tools.fuzz.c_programs --seed 1 --begin 0 --count 100 [--target gcc] [--options=-O2]

Small programs at the edges of machine integers are packed into one (`tools.fuzz.native_programs.pack`); every other
program is one of any ops, with state. Each is exported once as it is and once with every tensor shown, and compiled
with all warnings as errors and, for this machine, with the sanitizers of addresses and of undefined behaviour. Prints a
line for each difference, and exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from cvm.executors import create, initial_state
from cvm.ops import REGISTRY
from cvm.program import Program, decode, verify
from cvm.program.verifier import VerifiedProgram
from tools.c_driver import SANITIZED, Member, build_all
from tools.c_targets import TARGETS, Target
from tools.fuzz.growers import GROWERS, Sample, sample
from tools.fuzz.growth import Seeded
from tools.fuzz.native_programs import pack

__all__ = ["case", "compared", "computed", "covering", "differences", "examined", "main"]

Array = npt.NDArray[np.int32]
Feeds = Sequence[Mapping[str, Array]]

SINGLE = 12
"""How many ops a program of any ops has at most."""


def _grown(random: Random, ops: Sequence[str]) -> Sample:
    """A program of these ops, with inputs for some runs."""
    return sample(Seeded(random), lambda: ops)


def case(seed: int, number: int) -> tuple[Program, Feeds, int]:
    """A program, the inputs of its runs, and how many programs it holds."""
    if number % 2 == 0:
        found = pack(seed, number // 2)
        return found.program, found.runs, found.programs
    random = Random(f"{seed}:{number}")
    ops = random.choices(list(GROWERS), k=random.randint(5, SINGLE))
    grown = _grown(random, ops)
    return grown.program, grown.runs, 1


def covering() -> Iterator[tuple[str, Program, Feeds]]:
    """Random programs in which every op occurs, each with the op that was still missing, and the inputs of its runs."""
    uses: Counter[str] = Counter()
    for number, op in enumerate(sorted(REGISTRY)):
        if uses[op]:
            continue
        random = Random(number)
        ops = [op, op, *random.choices(list(GROWERS), k=6)]
        grown = _grown(random, ops)
        uses.update(node.op for node in grown.program.nodes)
        yield op, grown.program, grown.runs
    missing = [op for op in REGISTRY if not uses[op]]
    if missing:
        raise RuntimeError(f"no program has the ops {', '.join(missing)}")


def differences(program: Program, feeds: Feeds, folder: Path, target: Target, options: Sequence[str]) -> list[str]:
    """What C computes otherwise than NumPy, in words: outputs of the plain program, every tensor of the traced one."""
    verified = verify(decode(program.to_bytes()))
    expected = computed(verified, feeds)
    sanitized = SANITIZED if target.sanitizers else ()
    batch = build_all([Member(verified), Member(verified, traced=True)], folder, target, (*options, *sanitized))
    return [words for member, runs in zip(batch.members, batch.run([feeds, feeds]), strict=True)
            for words in compared(member, runs, expected)]  # fmt: skip


def computed(verified: VerifiedProgram, feeds: Feeds) -> list[Mapping[str, Array]]:
    """Every tensor of each run by the name of its value, computed by NumPy."""
    numpy = create("numpy", verified)
    state = initial_state(verified.program)
    expected: list[Mapping[str, Array]] = []
    for feed in feeds:
        result = numpy.run(dict(feed), state, capture="all")
        expected.append({**feed, **state, **result.values})
        state = result.state
    return expected


def compared(member: Member, runs: Sequence[Mapping[str, Array]], expected: Sequence[Mapping[str, Array]]) -> list[str]:
    """Where the tensors of runs differ from the expected ones, in words."""
    outputs = {item.name: item.value for item in member.verified.program.outputs}
    words = []
    for number, (tensors, right) in enumerate(zip(runs, expected, strict=True)):
        missing = {value.name for node in member.verified.program.nodes for value in node.outputs} - set(tensors)
        if member.traced and missing:
            words.append(f"run {number}, {len(missing)} tensors were not shown")
        for name, array in tensors.items():
            if not np.array_equal(array, right[name if member.traced else outputs[name]]):
                words.append(f"run {number}, {'tensor' if member.traced else 'output'} {name!r}")
    return words


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--target", choices=list(TARGETS), default="gcc")
    parser.add_argument("--options", default="-O1")
    options = parser.parse_args(arguments)

    def check(program: Program, feeds: Feeds) -> list[str]:
        with tempfile.TemporaryDirectory(prefix="cvm-c-") as folder:
            return differences(program, feeds, Path(folder), TARGETS[options.target], options.options.split())

    return examined(options.seed, range(options.begin, options.begin + options.count), check)


def examined(seed: int, numbers: Iterable[int], check: Callable[[Program, Feeds], list[str]]) -> int:
    """Check the cases with these numbers, and print what was found; 1 if there was a difference."""
    programs = failures = 0
    for number in numbers:
        program, feeds, members = case(seed, number)
        try:
            wrong = check(program, feeds)
        except (CvmError, RuntimeError) as error:
            wrong = [str(error)]
        programs += members
        failures += bool(wrong)
        for words in wrong[:3]:
            print(f"case {number}: {words}", flush=True)
    print(f"{programs} programs, {failures} cases with a difference")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
