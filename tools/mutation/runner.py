"""Running tests in a folder of their own: a copy of the tree in which one module at a time is changed.

The working tree is never changed. Beside the copy stands a link to the ``shared`` folder beside the tree, which some
tests read. Each run has its own empty folders for compiled native code and for examples of hypothesis.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Copy", "Finished", "run_tests"]

TOOLS = Path(__file__).resolve().parent.parent
_SKIPPED = ("__pycache__", "*.egg-info", "build", "dist", "bench-results")


@dataclass(frozen=True)
class Finished:
    """How a run of tests ended. ``code`` is pytest's exit code; None: it took too long."""

    code: int | None
    seconds: float
    passed: Mapping[str, float]
    """The seconds of each test that passed."""
    failed: tuple[str, ...]
    lines: Mapping[str, Mapping[str, list[str]]]
    """For each file and line, the tests that ran it, if lines were recorded."""
    output: str


def run_tests(
    folder: Path,
    arguments: Sequence[str],
    timeout: float,
    memory: int | None = None,
    cover: Sequence[Path] = (),
) -> Finished:
    """Run pytest in ``folder`` on ``arguments``, which are files, tests or options of pytest."""
    with tempfile.TemporaryDirectory(prefix="mutation-run-") as scratch:
        result = Path(scratch) / "result.json"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(folder), str(TOOLS), *filter(None, [os.environ.get("PYTHONPATH")])]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONHASHSEED": "0",
            "COVERAGE_CORE": "ctrace",
            "CVM_CACHE": str(Path(scratch) / "cache"),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(scratch) / "hypothesis"),
            "MUTATION_RESULT": str(result),
            "MUTATION_MEMORY": "" if memory is None else str(memory),
            "MUTATION_COVER": "\n".join(map(str, cover)),
        }
        seed = ["--hypothesis-seed=0"] if importlib.util.find_spec("hypothesis") else []
        parallel = ["-n0"] if importlib.util.find_spec("xdist") else []
        command = [sys.executable, "-m", "pytest", *parallel, *seed, "-q", "-p", "no:cacheprovider"]
        command += ["-p", "mutation.recorder", *arguments]
        log = Path(scratch) / "output.txt"
        start = time.monotonic()
        with log.open("wb") as output:
            process = subprocess.Popen(
                command,
                cwd=folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            try:
                code: int | None = process.wait(timeout)
            except subprocess.TimeoutExpired:
                code = None
            finally:
                _end(process)
        seconds = time.monotonic() - start
        found = json.loads(result.read_text("utf-8")) if result.is_file() else {}
        return Finished(
            code,
            seconds,
            found.get("seconds", {}),
            tuple(found.get("failed", ())),
            found.get("lines", {}),
            log.read_text("utf-8", "replace"),
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the process and those that it started; they are one process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    finally:
        process.wait()


class Copy:
    """A copy of the tree that exists until the end of the ``with`` block."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __enter__(self) -> Copy:
        self._directory = tempfile.TemporaryDirectory(prefix="mutation-tree-")
        above = Path(self._directory.name)
        self.folder = above / "tree"
        hidden = [path.name for path in self._root.iterdir() if path.name.startswith(".")]
        shutil.copytree(self._root, self.folder, ignore=shutil.ignore_patterns(*_SKIPPED, *hidden))
        shared = self._root.parent / "shared"
        if shared.is_dir():
            (above / "shared").symlink_to(shared)
        subprocess.run([sys.executable, "-m", "compileall", "-q", str(self.folder)], check=False, capture_output=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._directory.cleanup()

    def run(
        self, tests: Sequence[str], timeout: float, memory: int | None, changed: tuple[str, bytes] | None = None
    ) -> Finished:
        """Run tests, with the text of one module replaced; a run with a change ends at the first failure."""
        if changed is None:
            return run_tests(self.folder, tests, timeout, memory)
        path = self.folder / changed[0]
        original = path.read_bytes()
        # Python detects a stale compiled module only by size and second of change, which a mutant may share.
        for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
            compiled.unlink()
        path.write_bytes(changed[1])
        try:
            return run_tests(self.folder, ["-x", *tests], timeout, memory)
        finally:
            path.write_bytes(original)
