"""Random programs as exported WebAssembly against NumPy: outputs, and with every tensor given, every tensor.

    python -m tools.fuzz.wasm_programs --seed 1 --begin 0 --count 100 [--engines node,wasmtime,chromium]

The programs are those of `tools.fuzz.c_programs`: packs at the edges of machine integers, and programs of any ops with
state. Each is exported once as it is and once with every tensor. Prints a line for each difference, and exits with 1 if
there was one.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence

import numpy as np

from cvm.export.wasm import module
from cvm.program import Program, decode, verify
from tools.fuzz.c_programs import Feeds, computed, examined
from tools.wasm_driver import MAKERS, Engine, engines

__all__ = ["differences", "main"]


def differences(program: Program, feeds: Feeds, running: Mapping[str, Engine]) -> list[str]:
    """What modules compute otherwise than NumPy, in words."""
    verified = verify(decode(program.to_bytes()))
    expected = computed(verified, feeds)
    made = {value.name for node in verified.program.nodes for value in node.outputs}
    found = []
    values = {item.name: item.value for item in verified.program.outputs}
    for traced in (False, True):
        code = module(verified, traced).code
        for engine, runner in running.items():
            for number, (outputs, tensors) in enumerate(runner.run(code, feeds)):
                given = {**{values[name]: array for name, array in outputs.items()}, **tensors}
                if traced and made - set(tensors):
                    found.append(f"{engine}, run {number}, {len(made - set(tensors))} tensors were not given")
                wrong = [name for name, array in given.items() if not np.array_equal(array, expected[number][name])]
                found += [f"{engine}, run {number}, {'traced, ' if traced else ''}{name!r}" for name in wrong]
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--begin", type=int, default=0)
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--engines", default=",".join(engines()))
    options = parser.parse_args(arguments)
    running: dict[str, Engine] = {name: MAKERS[name]() for name in options.engines.split(",")}
    return examined(
        options.seed,
        range(options.begin, options.begin + options.count),
        lambda program, feeds: differences(program, feeds, running),
    )


if __name__ == "__main__":
    sys.exit(main())
