"""Run cases in an engine, all in one process of its own, and again behind a case that ends the process."""

from __future__ import annotations

import contextlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.arrays import npz_bytes, read_npz
from cvm.comparison import Model, Samples, Setting, opened, samples
from cvm.conformance.cases import Case
from cvm.records import dataclass

__all__ = ["Prepared", "answers", "prepared"]

Array = npt.NDArray[Any]
_SECONDS = 3600


@dataclass(frozen=True, eq=False, slots=True)
class Prepared:
    """A case with its exact codes."""

    case: Case
    model: Model
    samples: Samples


def prepared(case: Case, folder: Path, number: int) -> Prepared:
    """Write the file of a case into a folder, and compile it. Raises the errors of the front ends and of lowering."""
    path = folder / f"case-{number}.{case.kind}"
    path.write_bytes(case.model)
    model = opened(path, executor="numpy")
    # Codes of inputs are integers of the file, which NumPy may hold in narrower types.
    given = {name: np.asarray(array)[np.newaxis] for name, array in case.inputs.items()}
    return Prepared(case, model, samples(model, given, codes=True))


def answers(cases: Sequence[Prepared], setting: Setting, folder: Path) -> list[Mapping[str, Array] | str]:
    """For each case what the engine showed, by the names of tensors, or the message with which it failed.

    "crashed" stands for a case that ended the engine's process. ``folder`` is the one of `prepared`.
    """
    asked = {
        "setting": setting.document(),
        "cases": [
            {
                "model": item.model.path.name,
                "indices": {place.name: place.index for place in item.model.places},
                "inputs": list(item.samples.inputs),
            }
            for item in cases
        ],
    }
    (folder / "requests.json").write_text(json.dumps(asked), "utf-8")
    for number, item in enumerate(cases):
        arrays = {f"input{place}": array for place, array in enumerate(item.samples.inputs.values())}
        (folder / f"inputs-{number}.npz").write_bytes(npz_bytes(arrays))
    found: list[Mapping[str, Array] | str] = []
    while len(found) < len(cases):
        found += _lines(folder, len(found), setting)
        if len(found) < len(cases):
            found.append("crashed")
    return found


def _lines(folder: Path, first: int, setting: Setting) -> list[Mapping[str, Array] | str]:
    """The answers from case ``first`` on, until the process ends."""
    words, environment = setting.process("cvm.conformance.worker", str(folder), str(first))
    with (
        (folder / "errors.txt").open("wb") as errors,
        (folder / "answers.txt").open("wb") as lines,
        contextlib.suppress(subprocess.TimeoutExpired),  # a case without end counts as one that ends the process
    ):
        subprocess.run(
            words,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=lines,
            stderr=errors,
            timeout=_SECONDS,
            check=False,
        )
    found: list[Mapping[str, Array] | str] = []
    for line in (folder / "answers.txt").read_text("utf-8").splitlines():
        answer = json.loads(line)
        if "error" in answer:
            found.append(answer["error"])
        else:
            path = folder / f"shown-{answer['case']}.npz"
            found.append({name: read_npz(path, f"tensor{n}") for n, name in enumerate(answer["names"])})
    return found
