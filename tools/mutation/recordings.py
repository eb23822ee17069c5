"""Which tests run which lines: one recording per test file, valid until the file or a line's module changes.

A test that runs the code in another process records no lines, so it is not found for them. Lines that a fixture of a
module or session runs count for the first test that uses it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tools.mutation.runner import run_tests

__all__ = ["Recording", "digest", "needs_coverage", "recordings", "test_files"]

needs_coverage = "the package coverage is not installed: install the extra `mutation`"
"""The reason why no lines can be recorded."""


@dataclass(frozen=True)
class Recording:
    """The lines that the tests of one file ran."""

    file: str
    source: str
    """The digest of the file."""
    sources: Mapping[str, str]
    """The digest of each module that has lines here."""
    seconds: Mapping[str, float]
    """The seconds of each test that passed."""
    lines: Mapping[str, Mapping[str, list[str]]]
    """For each module and line, the tests that run it; the empty name stands for imports."""
    complete: bool = True
    """Whether the run ended in time."""

    def tests(self, module: str, lines: Iterable[int]) -> set[str]:
        """The tests that run one of the lines; the empty name is among them if a line runs on import."""
        known = self.lines.get(module, {})
        return {name for line in lines for name in known.get(str(line), ())}


def digest(source: bytes) -> str:
    """The digest of the text of a file."""
    return hashlib.sha256(source).hexdigest()


def _digest(path: Path) -> str:
    """The digest of a file; an empty text for a missing file."""
    return digest(path.read_bytes()) if path.is_file() else ""


def test_files(root: Path, names: Sequence[str]) -> list[str]:
    """The test files in these files and folders, which are named from the root."""
    found: set[Path] = set()
    for name in names:
        path = root / name
        found |= {path} if path.is_file() else set(path.rglob("test_*.py"))
    return sorted(path.relative_to(root).as_posix() for path in found)


def recordings(
    root: Path,
    packages: Sequence[str],
    files: Sequence[str],
    store: Path,
    workers: int,
    timeout: float,
    say: Callable[[str], None],
) -> list[Recording]:
    """The recordings of test files. Those that are missing from ``store``, or no longer valid there, are made.

    Raises RuntimeError if one must be made and coverage is missing.
    """
    store.mkdir(parents=True, exist_ok=True)
    kept = {file: _kept(root, packages, file, store) for file in files}
    missing = [file for file in files if kept[file] is None]
    if missing and importlib.util.find_spec("coverage") is None:
        raise RuntimeError(needs_coverage)

    def make(file: str) -> Recording:
        made = _made(root, packages, file, timeout)
        _path(packages, file, store).write_text(json.dumps(asdict(made)), "utf-8")
        lines = sum(map(len, made.lines.values()))
        end = "" if made.complete else "; the time was over, so that it is left out"
        say(f"recorded {file}: {len(made.seconds)} tests, {lines} lines{end}")
        return made

    with ThreadPoolExecutor(workers) as pool:
        fresh = dict(zip(missing, pool.map(make, missing), strict=True))
    return [kept[file] or fresh[file] for file in files]


def _path(packages: Sequence[str], file: str, store: Path) -> Path:
    name = hashlib.sha256("\n".join([file, *packages]).encode()).hexdigest()[:24]
    return store / f"{name}.json"


def _kept(root: Path, packages: Sequence[str], file: str, store: Path) -> Recording | None:
    """The recording in the store, if neither the test file nor a module that it ran has changed."""
    path = _path(packages, file, store)
    if not path.is_file():
        return None
    found = Recording(**json.loads(path.read_text("utf-8")))
    current = {module: _digest(root / module) for module in found.sources}
    return found if found.source == _digest(root / file) and current == found.sources else None


def _made(root: Path, packages: Sequence[str], file: str, timeout: float) -> Recording:
    finished = run_tests(root, [file], timeout, cover=[root / package for package in packages])
    lines = {
        Path(path).relative_to(root).as_posix(): {
            line: [name for name in names if not name or name in finished.passed] for line, names in table.items()
        }
        for path, table in finished.lines.items()
    }
    sources = {module: _digest(root / module) for module in lines}
    return Recording(file, _digest(root / file), sources, finished.passed, lines, finished.code is not None)
