"""Surroundings that must not matter, and the fingerprint of models in them.

Each `Environment` is a fresh Python process. What is not varied is fixed: nothing is inherited but what a process
needs to start.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cvm.demo import MODEL

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("fingerprint.py")
DIGITS = ROOT.parent / "shared" / "models" / "digits"

MODELS = (MODEL, *(path for path in (DIGITS / "lenet_digits", DIGITS / "mobilenet_digits") if path.is_dir()))
"""The model of the package, which is always there, and the two of ``../shared`` where they are."""

PROCESSES = 2
"""Processes at a time."""

_NEEDED = ("PATH", "HOME", "SYSTEMROOT", "TEMP", "TMP", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_PLAIN = {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "0", "TZ": "UTC0", "LC_ALL": "C.UTF-8"}

ASCII = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
"""A locale whose text encoding is ASCII: a file opened as text without an encoding would be read so."""


def threads(number: int) -> dict[str, str]:
    """The variables that tell BLAS how many threads to use."""
    return {"OPENBLAS_NUM_THREADS": str(number), "OMP_NUM_THREADS": str(number)}


@dataclass(frozen=True, eq=False)
class Environment:
    """A process: environment variables, options of Python, current directory; models by relative path, if so wished."""

    name: str
    variables: Mapping[str, str] = field(default_factory=dict)
    options: tuple[str, ...] = ()
    folder: Path = ROOT
    relative: bool = False


MIXED = (
    Environment("plain"),
    Environment(
        "hash seed 1, one thread, east, ASCII, other folder",
        {"PYTHONHASHSEED": "1", **threads(1), "TZ": "NPT-5:45", **ASCII},
        folder=Path(ROOT.anchor),
    ),
    Environment(
        "random hashes, two threads, west, optimised, relative paths",
        {"PYTHONHASHSEED": "random", **threads(2), "TZ": "NST3:30", "LC_ALL": "POSIX"},
        options=("-O",),
        folder=MODEL,
        relative=True,
    ),
    Environment(
        "random hashes, one thread, older BLAS kernels",
        {"PYTHONHASHSEED": "random", **threads(1), "OPENBLAS_CORETYPE": "Nehalem"},
        folder=Path(__file__).parent,
    ),
)
"""Few processes in which everything differs at least twice."""

SINGLE = (
    *(Environment(f"hash seed {seed}", {"PYTHONHASHSEED": seed}) for seed in ("1", "random")),
    *(Environment(f"{number} threads", threads(number)) for number in (1, 2)),
    *(Environment(f"zone {zone}", {"TZ": zone}) for zone in ("NPT-5:45", "NST3:30")),
    *(Environment(f"locale {name}", {**ASCII, "LC_ALL": name}) for name in ("C", "POSIX", "tr_TR.UTF-8")),
    *(Environment(" ".join(options), options=options) for options in (("-O",), ("-OO",), ("-X", "dev"))),
    *(Environment(f"folder {path}", folder=path) for path in (Path(ROOT.anchor), MODEL)),
    Environment("relative paths", folder=MODEL.parent, relative=True),
    *(
        Environment(f"BLAS kernels of {core}", {"OPENBLAS_CORETYPE": core})
        for core in ("Prescott", "Nehalem", "Sandybridge", "Haswell")
    ),
)
"""One difference from "plain" at a time: which one it was, should `MIXED` fail."""


@dataclass(frozen=True, eq=False)
class Fingerprint:
    """What `fingerprint` printed: hashes per model, in the order of the models, and where that was."""

    models: Sequence[Mapping[str, str]]
    circumstances: Mapping[str, Any]


def fingerprint(environment: Environment, models: Sequence[Path] = MODELS) -> Fingerprint:
    """The fingerprint of the models in an environment. Raises RuntimeError with all that was printed on a failure."""
    paths = [os.path.relpath(path, environment.folder) if environment.relative else str(path) for path in models]
    inherited = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    process = subprocess.run(
        [sys.executable, *environment.options, str(SCRIPT), *paths],
        cwd=environment.folder,
        env={**inherited, **_PLAIN, **environment.variables},
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    if process.returncode:
        raise RuntimeError(f"{environment.name}: exit code {process.returncode}\n{process.stdout}\n{process.stderr}")
    document = json.loads(process.stdout)
    return Fingerprint([document["models"][path] for path in paths], document["circumstances"])


def fingerprints(environments: Sequence[Environment]) -> dict[str, Fingerprint]:
    """The fingerprints in several environments, by name."""
    with ThreadPoolExecutor(PROCESSES) as pool:
        found = pool.map(fingerprint, environments)
        return {environment.name: item for environment, item in zip(environments, found, strict=True)}
