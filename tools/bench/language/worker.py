"""The process of one engine: ``python -m tools.bench.language.worker``, asked by `tools.bench.language.contest`.

The first line of stdin is the job. The engine opens its file, reads the tokens once, and its logits are compared with
the float network's. Every further line is a number of seconds to time for. Answers are lines of JSON; one with
``error`` is the last. What libraries print goes to stderr.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import numpy.typing as npt

from cvm.errors import CvmError
from tools.bench.language.contest import Job
from tools.bench.language.engines import ENGINES, Player

__all__ = ["LEAST_DECIBELS", "compared", "main"]

LEAST_DECIBELS = 12.0
"""An engine whose logits are farther from the float network's computes another network. Rounding to 8 bits leaves 20
to 40, and a wrong or missing part of the network less than 10."""


def compared(found: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> dict[str, float]:
    """How near logits (k, vocabulary) are to the last k rows of those of the float network."""
    wanted = wanted[len(wanted) - len(found) :].astype(np.float64)
    noise = float(np.square(found - wanted).sum())
    decibels = 10 * math.log10(float(np.square(wanted).sum()) / noise) if noise else math.inf
    return {"decibels": decibels, "argmax": float((found.argmax(-1) == wanted.argmax(-1)).mean())}


def main() -> int:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        _serve(answers)
    except CvmError as error:
        _say(answers, {"error": str(error)})
        return error.exit_code
    except Exception as error:  # an engine's error is its answer
        _say(answers, {"error": " ".join(f"{type(error).__name__}: {error}".split())[:300]})
        return 1
    return 0


def _serve(answers: TextIO) -> None:
    document = json.loads(sys.stdin.readline())
    job = Job(**document)
    prompt, following = (np.array(tokens, np.int64) for tokens in (job.prompt, job.following))
    player = ENGINES[job.engine].open(Path(job.file), job.task, job.threads)
    check = None
    if job.reference:
        check = compared(player.logits(np.concatenate([prompt, following])), np.load(job.reference))
        if not check["decibels"] >= LEAST_DECIBELS:
            raise ValueError(f"another network: its logits are {check['decibels']:.1f} dB from the float network's")
    player.spent(prompt, following)
    _say(answers, {"check": check, "facts": dict(player.facts)})
    for line in sys.stdin:
        _say(answers, _passes(player, prompt, following, float(line)))


def _passes(player: Player, prompt: Any, following: Any, seconds: float) -> dict[str, Any]:
    spent = []
    end = time.perf_counter() + seconds
    while True:
        spent.append(player.spent(prompt, following))
        if time.perf_counter() >= end:
            return {"spent": spent}


def _say(answers: TextIO, document: dict[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


if __name__ == "__main__":
    sys.exit(main())
