"""The shipped vectors, read once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from cvm.vectors import OpCase, ProgramCase, VectorFile, VerdictCase, decode

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "spec_vectors"


@cache
def files() -> dict[str, VectorFile]:
    """All files by path, in the order of their paths."""
    paths = sorted(FOLDER.rglob("*.msgpack"))
    return {path.relative_to(FOLDER).as_posix(): decode(path.read_bytes()) for path in paths}


def op_cases(op: str) -> list[OpCase]:
    """All cases of an op."""
    return [case for file in files().values() if file.op == op for case in file.cases if isinstance(case, OpCase)]


def program_cases() -> list[ProgramCase]:
    """All cases that are programs."""
    return [case for file in files().values() for case in file.cases if isinstance(case, ProgramCase)]


def verdict_cases() -> list[VerdictCase]:
    """All cases that are verdicts of the verifier."""
    return [case for file in files().values() for case in file.cases if isinstance(case, VerdictCase)]
