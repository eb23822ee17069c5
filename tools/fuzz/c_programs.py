"""Random programs as exported C against NumPy: outputs, and with every tensor shown, every tensor.

    python -m tools.fuzz.c_programs --seed 1 --begin 0 --count 100 [--compiler gcc] [--options=-O2]

Small programs at the edges of machine integers are packed into one (`tools.fuzz.native_programs.pack`); every other
program is one of any ops, with state. Each is exported once as it is and once with every tensor shown, and compiled
with all warnings as errors and with the sanitizers of addresses and of undefined behaviour. Prints a line for each
difference, and exits with 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from random import Random

import numpy as np
import numpy.typing as npt

from cvm.executors import create, initial_state
from cvm.program import Program, decode, verify
from tools.c_driver import SANITIZED, build
from tools.fuzz.growers import GROWERS, sample
from tools.fuzz.growth import Seeded
from tools.fuzz.native_programs import pack

__all__ = ["case", "differences", "main"]

Feeds = Sequence[Mapping[str, npt.NDArray[np.int32]]]

SINGLE = 12
"""How many ops a program of any ops has at most."""


def case(seed: int, number: int) -> tuple[Program, Feeds, int]:
    """A program, the inputs of its runs, and how many programs it holds."""
    if number % 2 == 0:
        found = pack(seed, number // 2)
        return found.program, found.runs, found.programs
    random = Random(f"{seed}:{number}")
    ops = random.choices(list(GROWERS), k=random.randint(5, SINGLE))
    grown = sample(Seeded(random), lambda: ops)
    return grown.program, grown.runs, 1


def differences(program: Program, feeds: Feeds, folder: Path, compiler: str, options: Sequence[str]) -> list[str]:
    """What C computes otherwise than NumPy, in words."""
    verified = verify(decode(program.to_bytes()))
    numpy = create("numpy", verified)
    state = initial_state(verified.program)
    expected = []
    for feed in feeds:
        result = numpy.run(dict(feed), state, capture="all")
        expected.append({**feed, **state, **result.values})
        state = result.state
    found = []
    for traced in (False, True):
        built = build(verified, folder / str(traced), (compiler,), (*options, *SANITIZED), traced)
        outputs = {item.name: item.value for item in verified.program.outputs}
        for number, tensors in enumerate(built.run(feeds)):
            for name, array in tensors.items():
                value = name if traced else outputs[name]
                if not np.array_equal(array, expected[number][value]):
                    found.append(f"run {number}, {'tensor' if traced else 'output'} {name!r}")
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--compiler", default="gcc")
    parser.add_argument("--options", default="-O1")
    options = parser.parse_args(arguments)
    programs = failures = 0
    for number in range(options.begin, options.begin + options.count):
        program, feeds, members = case(options.seed, number)
        with tempfile.TemporaryDirectory(prefix="cvm-c-") as folder:
            try:
                wrong = differences(program, feeds, Path(folder), options.compiler, options.options.split())
            except RuntimeError as error:
                wrong = [str(error)]
        programs += members
        failures += bool(wrong)
        for words in wrong[:3]:
            print(f"case {number}: {words}", flush=True)
    print(f"{programs} programs, {failures} cases with a difference")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
