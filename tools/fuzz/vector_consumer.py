"""Fuzzer of the stand-alone consumer of vectors (tools/consume_vectors.py), in time and in memory.

    python -m tools.fuzz.vector_consumer --count 10000 --seed 1

A case is a file of the project's vectors that is damaged or enlarged: vast shapes and attributes, deep and long
msgpack. The tool reads it as a folder of one file, in a process of its own. It must end with exit code 0 or 1 and
without a traceback, within `MEBIBYTES` and `SECONDS`.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

import msgpack

from tools.fuzz.harness import SECONDS, Fuzzer, main
from tools.fuzz.mutation import changed_tree, enlarged_tree, mutate_bytes, packed_tree, with_long_list

__all__ = ["FUZZER", "MEBIBYTES"]

ROOT = Path(__file__).parents[2]
MEBIBYTES = 256
"""The most memory of the tool."""


@lru_cache(maxsize=1)
def _sources() -> list[bytes]:
    """The project's files of vectors of ops."""
    return [path.read_bytes() for path in sorted((ROOT / "spec_vectors" / "ops").rglob("*.msgpack"))]


def make(random_: random.Random) -> bytes:
    """One damaged file of vectors."""
    data = random_.choice(_sources())
    kind = random_.random()
    if kind < 0.2:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    if kind < 0.3:
        return with_long_list(random_, data)
    tree = msgpack.unpackb(data, strict_map_key=False)
    if kind < 0.7:
        for _ in range(random_.choice((1, 1, 2))):
            tree = enlarged_tree(random_, tree)
        return packed_tree(tree)
    for _ in range(random_.choice((1, 1, 2, 3))):
        tree = changed_tree(random_, tree)
    return packed_tree(tree)


def examine(case: bytes) -> str:
    """Let the tool read the file."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "case.msgpack").write_bytes(case)
        command = [sys.executable, "-I", str(ROOT / "tools" / "consume_vectors.py"), folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            assert process.stdout is not None
            said = process.stdout.read()
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode in (0, 1), f"exit code {process.returncode}: {said[-300:]}"
    assert "Traceback" not in said, said[-1000:]
    used = usage.ru_maxrss // 1024
    assert used <= MEBIBYTES, f"{used} MiB"
    took = usage.ru_utime + usage.ru_stime
    assert took <= SECONDS, f"{took} s"
    return "not read" if "no vectors" in said else "failed" if process.returncode else "valid, passed"


FUZZER = Fuzzer("tools.fuzz.vector_consumer", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
