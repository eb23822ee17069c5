"""Traced claims of all models, for the tests here and for processes that they start.

    python -m tests.models.claims EXECUTOR THREADS SAMPLES MODEL..

prints the id of the claim of each, as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import numpy as np

import cvm
from cvm.audit import Claim, Recorder
from cvm.demo import MODEL
from cvm.program import VerifiedProgram, verify

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "models"
CYCLES = 3


def _folders() -> Iterator[tuple[str, Path]]:
    yield "demo", MODEL
    for name in ("lenet_digits", "lenet_digits_logw", "lenet_digits_qdat", "mlp_cancer", "mobilenet_digits"):
        yield name, SHARED / "digits" / name
    yield "rnn_digits", SHARED / "digits" / "rnn_digits"
    for name in ("hello_world", "micro_speech", "person_detect", "mobilenet_v2"):
        yield name, SHARED / "real" / name


FOLDERS = dict(_folders())
SMALL = tuple(name for name in FOLDERS if name not in ("person_detect", "mobilenet_v2"))
"""Models of which FORMAL computes every tensor in a second."""


@cache
def program(name: str) -> VerifiedProgram:
    """A model, compiled."""
    return verify(cvm.compile(FOLDERS[name]))


def inputs(name: str, samples: int) -> dict[str, np.ndarray]:
    """A pattern over the whole interval of each input; some cycles of it where there is state."""
    found = {}
    cycles = (CYCLES,) if program(name).program.state else ()
    for item in program(name).program.inputs:
        shape = (samples, *cycles, *item.value.shape)
        k = np.arange(int(np.prod(shape)))
        span = item.value.hi - item.value.lo + 1
        found[item.value.name] = (item.value.lo + (k * 7919 + k * k % 1009) % span).reshape(shape)
    return found


def claim(name: str, executor: str, threads: int | None = None, samples: int = 1) -> Claim:
    """The traced claim of runs on these inputs."""
    verified = program(name)
    recorder = Recorder(verified, trace=True)
    cycles = bool(verified.program.state)
    cvm.Session(verified, executor, threads).run(inputs(name, samples), cycles=cycles, witness=recorder, codes=True)
    return recorder.claim()


if __name__ == "__main__":
    executor, threads, samples, *names = sys.argv[1:]
    print(json.dumps({name: claim(name, executor, int(threads), int(samples)).id().hex() for name in names}))
