"""The process that runs candidates: ``python -m cvm.reduction.worker COMPARISON``.

COMPARISON is a document of JSON. Every line on stdin is a document that names a model and its data; the answer is one
line with the ``outcome``: how it fails, "" if it does not. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvm import agreement, api
from cvm.arrays import read_npz
from cvm.comparison.engines import Request, Setting
from cvm.errors import CvmError
from cvm.executors import create
from cvm.inputs import Intake, arrange
from cvm.program import verify
from cvm.program.files import load_verified
from cvm.reduction.network import Array

__all__ = ["executors_differ", "main"]


def main(arguments: list[str]) -> int:
    """Say that it is ready, and answer until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    document = json.loads(arguments[0])
    answers.write(json.dumps({"ready": True}) + "\n")
    answers.flush()
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            outcome = _outcome(document, asked)
        except CvmError as error:
            outcome = f"error {error.code}"
        except Exception as error:  # an error of another engine, or of an executor, is a failure
            outcome = f"error {type(error).__name__}"
        answers.write(json.dumps({"outcome": outcome}) + "\n")
        answers.flush()
    return 0


def _arrays(asked: dict[str, Any]) -> dict[str, Array]:
    return {name: read_npz(asked["inputs"], name) for name in asked["names"]}


def _outcome(document: dict[str, Any], asked: dict[str, Any]) -> str:
    if document["engine"] is None:
        return executors_differ(document["executors"], asked)
    return _engine(document["engine"], asked)


def executors_differ(names: Sequence[str], asked: dict[str, Any]) -> str:
    """Whether executors differ on any tensor, as `cvm check` compares them."""
    path = Path(asked["model"])
    verified = load_verified(path) if path.suffix == ".cvm" else verify(api.compile(path))
    _, samples = arrange(verified.program, _arrays(asked), asked["cycles"], Intake(True, "clamp"))
    executors = [create(name, verified) for name in names]
    found = agreement.compare(verified.program, executors, samples)
    return "" if found.difference is None else "differs"


def _engine(how: dict[str, Any], asked: dict[str, Any]) -> str:
    """Whether an engine's outputs differ from the exact codes; it runs the file as it is."""
    setting = Setting.of(how)
    request = Request(Path(asked["model"]), [], {}, _arrays(asked), setting)
    made = setting.runner.run(request, bool(setting.command))
    for number, name in enumerate(asked["outputs"]):
        exact = read_npz(asked["expected"], f"output{number}")
        if name in made and not np.array_equal(made[name].reshape(-1), exact.reshape(-1)):
            return "differs"
    return ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
