"""How long the first results of a program file take: on a machine that has never seen it, and from the cache.

Each measurement is a new Python process, which imports cvm, opens a session of the file and runs it twice. "first" is
the time from the beginning of the imports to the first result, with the processor time of that process; "second" is the
time to the second result, with the processor time of all processes, those that make machine code too; "cached" is the
time to the first result of a further process. With ``--executor native``, the session makes the machine code itself, so
that the first result is native too.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from tools.bench.networks import NETWORKS
from tools.bench.programs import program_of

__all__ = ["main"]

_PROCESS = """
import sys, time
begin = time.perf_counter()
import json, resource, numpy as np, cvm
session = cvm.Session(sys.argv[1], sys.argv[2] or None)
feed = {item.name: np.zeros(item.shape, np.int32) for item in session.inputs}
session.run(feed, codes=True)
first, cpu = time.perf_counter() - begin, time.process_time()
session.run(feed, codes=True)
second = time.perf_counter() - begin
used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
total = sum(one.ru_utime + one.ru_stime for one in used)
print(json.dumps({"first": first, "cpu": cpu, "second": second, "total": total}))
"""


def _measured(path: Path, executor: str, cache: str) -> Mapping[str, float]:
    environment = {**os.environ, "CVM_CACHE": cache}
    command = [sys.executable, "-P", "-c", _PROCESS, str(path), executor]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def _row(path: Path, executor: str) -> list[float]:
    """Seconds: first result, its processor time, second result, processor time of all, cached result."""
    with tempfile.TemporaryDirectory() as cache:
        cold = _measured(path, executor, cache)
        cached = _measured(path, executor, cache)
    return [cold["first"], cold["cpu"], cold["second"], cold["total"], cached["first"]]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the least of some measurements for each network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="*", default=["lenet", "mobilenet_v2", "resnet50"], metavar="NETWORK")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--executor", default="", help="the executor (default: the session decides)")
    given = parser.parse_args(arguments)
    titles = ("first", "cpu", "second", "cpu", "cached")
    print(f"{'network':16}" + "".join(f"{title:>8}" for title in titles) + f"   seconds, the least of {given.rounds}")
    with tempfile.TemporaryDirectory() as folder:
        for name in given.networks:
            path = Path(folder) / f"{name}.cvm"
            program_of(NETWORKS[name]()).save(path)
            rows = [_row(path, given.executor) for _ in range(given.rounds)]
            print(f"{name:16}" + "".join(f"{min(column):8.2f}" for column in zip(*rows, strict=True)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
