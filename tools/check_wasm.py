"""Compare exported WebAssembly with the NumPy executor on whole models: outputs, and every tensor.

    python -m tools.check_wasm FILE.. [--runs N] [--engines node,wasmtime,chromium] [--random-range LOW HIGH]

A FILE is a program of cvm, or a model of ONNX, TFLite or NNEF; quantisers that a model lacks are chosen from random
data, as `tools.check_exactness` does. Each program runs N times on drawn codes, as one module that gives the outputs,
and as one that gives every tensor. Prints a line for each file, and exits with 1 if a tensor differs.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cvm.errors import CvmError
from cvm.program import Program, load
from tools.check_exactness import How, made
from tools.fuzz.wasm_programs import differences
from tools.wasm_driver import MAKERS, Engine, engines

__all__ = ["main"]


def _program(path: Path, how: How) -> Program:
    return load(path) if path.suffix == ".cvm" else made(path, how)[2]


def _checked(path: Path, how: How, runs: int, running: dict[str, Engine]) -> tuple[str, bool]:
    """What is said of a file, and whether it is right."""
    began = time.process_time()
    try:
        program = _program(path, how)
        random = np.random.default_rng(len(program.nodes))
        values = [item.value for item in program.inputs]
        feeds = [
            {one.name: random.integers(one.lo, one.hi + 1, one.shape).astype(np.int32) for one in values}
            for _ in range(runs)
        ]
        wrong = differences(program, feeds, running)
    except (CvmError, RuntimeError, OSError) as error:
        return f"{path}: {error}", False
    tensors = sum(len(node.outputs) for node in program.nodes)
    words = "; ".join(wrong[:3]) if wrong else f"{tensors} tensors of {runs} runs are equal"
    return f"{path}: {words} ({time.process_time() - began:.1f} s)", not wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--engines", default=",".join(engines()))
    parser.add_argument("--random-range", nargs=2, type=float, default=(-1.0, 1.0), metavar=("LOW", "HIGH"))
    options = parser.parse_args(arguments)
    how = How(low=options.random_range[0], high=options.random_range[1])
    running: dict[str, Engine] = {name: MAKERS[name]() for name in options.engines.split(",")}
    failures = 0
    for path in options.files:
        words, right = _checked(path, how, options.runs, running)
        print(words, flush=True)
        failures += not right
    print(f"{len(options.files)} files, {failures} with a difference or refused")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
