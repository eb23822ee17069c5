"""Runs a folder of vectors against an implementation: counts the cases that passed, and finds the first difference."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from cvm.errors import Invalid, Location, Malformed
from cvm.formats import diagnosed
from cvm.program.model import Shape
from cvm.records import dataclass
from cvm.vectors.answer import UNSUPPORTED, Answer, Runner
from cvm.vectors.format import EXPECTED, Case, OpCase, VectorFile, VectorTensor, VerdictCase, decode

__all__ = ["Difference", "Report", "Tally", "check", "compare", "files"]


@dataclass(frozen=True, slots=True)
class Difference:
    """Where an answer first differs from a case: the op (or file of programs), the case, what, the index, both values.

    ``what`` is ``verdict``, ``code``, ``digest``, ``outputs`` (their number), the number or name of an output, or a run
    and a value; ``index`` is the index of the first element that differs, empty if no elements are compared.
    """

    op: str
    case: str
    aim: str
    what: str
    index: tuple[int, ...]
    expected: str
    found: str

    def __str__(self) -> str:
        location = f"{self.what}{list(self.index)}" if self.index else self.what
        return f"{self.op}, case {self.case} ({self.aim}): {location}: expected {self.expected}, found {self.found}"


@dataclass(frozen=True, slots=True)
class Tally:
    """The results of one file. ``skipped`` cases were answered ``unsupported``."""

    op: str
    cases: int
    passed: int
    failed: int
    skipped: int
    first: Difference | None


@dataclass(frozen=True, slots=True)
class Report:
    """The results of all files, in the order of their names."""

    runner: str
    tallies: tuple[Tally, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing failed and something passed."""
        return not any(tally.failed for tally in self.tallies) and any(tally.passed for tally in self.tallies)

    @property
    def first(self) -> Difference | None:
        """The first difference in all files."""
        return next((tally.first for tally in self.tallies if tally.first is not None), None)

    def to_json(self) -> dict[str, Any]:
        """The report as plain data: ``version``, ``runner``, ``ok`` and a list of the tallies."""
        return {"version": 1, "runner": self.runner, "ok": self.ok, "ops": [asdict(tally) for tally in self.tallies]}


def check(directory: str | PathLike[str], runner: Runner, verdicts: Collection[str] = EXPECTED) -> Report:
    """Run all vectors under ``directory`` (or of one file) against ``runner``.

    Cases that expect another verdict than ``verdicts`` are left out: an implementation without a verifier is asked for
    values only. Raises `Invalid` (code ``vectors.none``) if there are no vectors,
    and `Malformed` for a file that is no vector file.
    """
    return Report(runner.name, tuple(_tally(name, file, runner, verdicts) for name, file in files(Path(directory))))


def files(root: Path) -> Iterator[tuple[str, VectorFile]]:
    """All vector files under a folder, in the order of their paths, each with the name under which it is reported."""
    paths = sorted(root.rglob("*.msgpack")) if root.is_dir() else [root]
    if not paths or not paths[0].is_file():
        raise Invalid("vectors.none", "there are no vectors here (files *.msgpack)", Location(file=str(root)))
    for path in paths:
        try:
            file = decode(path.read_bytes())
        except Malformed as error:
            raise diagnosed(error.at(file=str(path)), path, "vectors", ("vectors",)) from None
        yield file.op or f"{file.kind}s/{path.stem}", file


def _tally(name: str, file: VectorFile, runner: Runner, verdicts: Collection[str]) -> Tally:
    passed, failed, skipped = 0, 0, 0
    first: Difference | None = None
    cases = [case for case in file.cases if case.verdict in verdicts]
    for case in cases:
        answer = _asked(runner, case)
        if answer.verdict == UNSUPPORTED:
            skipped += 1
            continue
        found = compare(case, answer, name)
        passed, failed = passed + (found is None), failed + (found is not None)
        first = first or found
    return Tally(name, len(cases), passed, failed, skipped, first)


def _asked(runner: Runner, case: Case) -> Answer:
    if isinstance(case, OpCase):
        return runner.op(case)
    return runner.verdict(case) if isinstance(case, VerdictCase) else runner.program(case)


def compare(case: Case, answer: Answer, op: str) -> Difference | None:
    """The first difference between what a case expects and an answer, if there is one."""
    for what, index, expected, found in _differences(case, answer):
        return Difference(op, case.id, case.aim, what, index, expected, found)
    return None


_Found = tuple[str, Shape, str, str]


def _differences(case: Case, answer: Answer) -> Iterator[_Found]:
    if answer.verdict != case.verdict:
        said = f"{answer.verdict} {answer.code}".strip()
        expected = f"{case.verdict} {case.code}".strip()
        yield "verdict", (), expected, f"{said}: {answer.message}" if answer.message else said
        return
    if case.verdict != "value":
        if answer.code and answer.code != case.code:
            yield "code", (), case.code, answer.code
    elif isinstance(case, OpCase):
        yield from _counted("outputs", len(case.outputs), len(answer.outputs))
        for index, (output, given) in enumerate(zip(case.outputs, answer.outputs, strict=True)):
            yield from _different(f"output {index}", output, given)
    else:
        if answer.digest and answer.digest != case.digest:
            yield "digest", (), case.digest, answer.digest
        if isinstance(case, VerdictCase):
            yield from _proven(case, answer)
            return
        yield from _counted("runs", len(case.runs), len(answer.runs))
        for index, (run, values) in enumerate(zip(case.runs, answer.runs, strict=True)):
            yield from _values(f"run {index}, value ", case.outputs, run.values, values)


def _proven(case: VerdictCase, answer: Answer) -> Iterator[_Found]:
    """Compare gas and bounds, which an answer must contain if it accepts a program."""
    yield from _counted("nodes with gas", len(case.gas), len(answer.gas))
    for index, (expected, found) in enumerate(zip(case.gas, answer.gas, strict=True)):
        if expected != found:
            yield f"gas of node {index}", (), str(expected), str(found)
    for name, bounds in case.ranges.items():
        given = answer.ranges.get(name)
        if given is None:
            yield f"range of {name}", (), "bounds", "nothing"
        elif given != bounds:
            at = next((k for k, (a, b) in enumerate(zip(bounds, given, strict=False)) if a != b), None)
            if at is None:
                yield f"range of {name}", (), f"{len(bounds)} runs of bounds", str(len(given))
            else:
                yield f"range of {name}, run", (at,), str(bounds[at]), str(given[at])


def _counted(what: str, expected: int, found: int) -> Iterator[_Found]:
    if expected != found:
        yield what, (), str(expected), str(found)


def _values(
    prefix: str, required: tuple[str, ...], expected: Mapping[str, VectorTensor], found: Mapping[str, VectorTensor]
) -> Iterator[_Found]:
    """Compare tensors by name: the required ones must be present, others are compared if they are given."""
    for name in required:
        if name not in found:
            yield f"{prefix}{name}", (), "a tensor", "nothing"
    for name, tensor in found.items():
        if name in expected:
            yield from _different(f"{prefix}{name}", expected[name], tensor)


def _different(what: str, expected: VectorTensor, found: VectorTensor) -> Iterator[_Found]:
    if (expected.dtype, expected.shape) != (found.dtype, found.shape):
        yield what, (), f"{expected.dtype} {list(expected.shape)}", f"{found.dtype} {list(found.shape)}"
    elif expected.data != found.data:
        a, b = expected.array(), found.array()
        index = tuple(int(item) for item in np.argwhere(a != b)[0])
        yield what, index, str(a[index]), str(b[index])
