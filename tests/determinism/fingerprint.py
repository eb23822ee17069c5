"""What a machine makes of models, as SHA-256: the program's bytes, its digest, and every value of several runs.

    python fingerprint.py MODEL..

A program of its own that imports nothing but cvm, NumPy and the standard library, so that it runs wherever cvm is
installed. Prints one JSON document: ``models`` has the four hashes of each model by the path given, and must be the
same everywhere; ``circumstances`` says where this was, and is what may differ. Inputs are made with integers only.
"""

from __future__ import annotations

import hashlib
import json
import locale
import os
import platform
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

import cvm

DRAWN = 6
"""Inputs of drawn codes and of drawn real numbers, each; the two extremes come on top."""
FORMAL = 1
"""Inputs that FORMAL computes."""


def drawn(seed: str, count: int, levels: int) -> npt.NDArray[np.int64]:
    """``count`` integers in [0, levels), from SHA-256 in counter mode."""
    blocks = (hashlib.sha256(f"{seed}/{index}".encode()).digest() for index in range(-(-count // 8)))
    words = np.frombuffer(b"".join(blocks), "<u4")[:count].astype(np.int64)
    return words % levels


def feeds(program: cvm.Program) -> Iterator[dict[str, npt.NDArray[Any]]]:
    """Inputs of a program: codes at both extremes, drawn codes, and real numbers in float32 and float64."""
    values = [item.value for item in program.inputs]
    yield {value.name: np.full(value.shape, value.lo, np.int32) for value in values}
    yield {value.name: np.full(value.shape, value.hi, np.int32) for value in values}
    for index in range(DRAWN):
        items = {
            value.name: drawn(f"{value.name}/{index}", int(np.prod(value.shape)), value.hi - value.lo + 1)
            for value in values
        }
        yield {value.name: (items[value.name] + value.lo).reshape(value.shape).astype(np.int32) for value in values}
        dtype = (np.float32, np.float64)[index % 2]  # correctly rounded quotients: the same numbers everywhere
        yield {value.name: (items[value.name] / 257).reshape(value.shape).astype(dtype) for value in values}


def hash_of(results: Iterator[Mapping[str, npt.NDArray[np.int32]]]) -> str:
    """SHA-256 over names, shapes and elements of all values of all runs."""
    state = hashlib.sha256()
    for result in results:
        for name in sorted(result):
            state.update(f"{name} {list(result[name].shape)} {result[name].dtype}\n".encode())
            state.update(result[name].astype("<i4").tobytes())
    return state.hexdigest()


def fingerprint(model: str) -> dict[str, str]:
    """The hashes of one model."""
    program = cvm.compile(model)
    inputs = list(feeds(program))
    numpy, formal = cvm.Session(program, executor="numpy"), cvm.Session(program, executor="formal")
    return {
        "bytes": hashlib.sha256(program.to_bytes()).hexdigest(),
        "digest": program.digest,
        "numpy": hash_of(numpy.run(feed, capture="all", codes=True) for feed in inputs),
        "formal": hash_of(formal.run(feed, capture="all", codes=True) for feed in inputs[-FORMAL:]),
    }


def circumstances() -> dict[str, Any]:
    """What may differ between two machines."""
    blas = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
    variables = ("OPENBLAS_CORETYPE", "OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "TZ", "LC_ALL")
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "blas": f"{blas['name']} {blas['version']}",
        "cvm": cvm.__file__,
        "hash": hash("cvm"),
        "optimize": sys.flags.optimize,
        "folder": os.getcwd(),
        "zone": time.tzname[0],
        "encoding": locale.getpreferredencoding(False),
        **{name: os.environ.get(name) for name in variables},
    }


if __name__ == "__main__":
    found = {model: fingerprint(model) for model in sys.argv[1:]}
    json.dump({"circumstances": circumstances(), "models": found}, sys.stdout, indent=1)
