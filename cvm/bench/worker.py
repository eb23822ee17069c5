"""The process of one contestant: ``python -m cvm.bench.worker ENGINE FILE THREADS BATCH``.

It opens the model, runs it once, and reports on stdout. Then it answers requests on stdin, one line each, until stdin
ends. A request is the number of seconds to time for. All lines are JSON documents; a line with ``error`` is the last.
Output of libraries goes to stderr.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from cvm.bench.engines import ENGINES, Opened
from cvm.bench.timing import timed
from cvm.errors import CvmError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Serve until stdin ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        _serve(arguments[0], Path(arguments[1]), int(arguments[2]), int(arguments[3]), answers)
    except CvmError as error:
        _say(answers, {"error": error.to_json()})
        return error.exit_code
    except Exception as error:  # an error of another engine is its answer
        what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
        _say(answers, {"error": {"class": "Failed", "code": "bench.failed", "message": what, "location": {}}})
        return 1
    return 0


def _serve(name: str, path: Path, threads: int, batch: int, answers: TextIO) -> None:
    engine = ENGINES[name]
    for module in engine.modules:
        import_module(module)
    _forget_peak()
    before = _resident()
    start = time.perf_counter()
    opened = engine.open(path, threads, batch)
    ready = time.perf_counter()
    opened.run()
    cpu, first = time.process_time(), time.monotonic()
    if opened.later is not None:
        opened = opened.later()
    _say(
        answers,
        {
            "open_seconds": ready - start,
            "cpu_seconds": cpu,
            "first_result": first,
            "roots": None if opened.outputs is None else _roots(opened.outputs()),
            "facts": dict(opened.facts),
        },
    )
    for line in sys.stdin:
        _say(answers, _timings(opened, float(line)) | {"memory": _added(before)})


def _timings(opened: Opened, seconds: float) -> dict[str, Any]:
    run = asdict(timed(opened.run, seconds))
    return {"run": run, "bound": None if opened.bound is None else asdict(timed(opened.bound, seconds))}


def _say(answers: TextIO, document: Mapping[str, Any]) -> None:
    answers.write(json.dumps(document) + "\n")
    answers.flush()


def _roots(outputs: Mapping[str, Any]) -> dict[str, str]:
    """The roots of the outputs, by name: two are equal exactly if the codes are."""
    return {
        name: hashlib.sha256(f"{array.shape}".encode() + np.ascontiguousarray(array, "<i4").tobytes()).hexdigest()
        for name, array in outputs.items()
    }


# Memory -------------------------------------------------------------------------------------------------------------


def _added(before: int) -> dict[str, int]:
    """The bytes of memory beyond ``before``: those used now, and the peak."""
    now = _resident()
    return {"now": now - before, "peak": max(_status("VmHWM:") or _high_water(), now) - before}


def _resident() -> int:
    """The bytes of memory that this process uses; if the system does not tell, its peak."""
    return _status("VmRSS:") or _high_water()


def _forget_peak() -> None:
    """Reset the peak memory that Linux records for this process."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # elsewhere the peak includes the memory of imports


def _status(field: str) -> int:
    """The value of a field of /proc/self/status, in bytes; 0 if there is no such field."""
    try:
        with open("/proc/self/status") as file:
            return next((int(line.split()[1]) * 1024 for line in file if line.startswith(field)), 0)
    except OSError:
        return 0


def _high_water() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
