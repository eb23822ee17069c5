"""A verifier that was written from the pages alone comes to the verdicts of ours, with the same gas and intervals."""

from __future__ import annotations

import random
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.ops import REGISTRY, Op
from cvm.program import Output, ProgramBuilder, decode, verify
from cvm.program.encoding import encode
from cvm.vectors import CommandRunner, check
from cvm.vectors.own import accepted
from tests.independent import verifier
from tests.ops.strategies import proven_call
from tests.program.mutations import mutations
from tests.random_programs.strategies import Sample, samples
from tests.selection import examples
from tests.spec_vectors.shipped import FOLDER, program_cases, verdict_cases
from tools.fuzz.programs import make

HERE = Path(__file__).parent
FILE, ANSWERS = HERE / "verifier.py", HERE / "answers.py"
VERDICTS: dict[type[CvmError], str] = {Invalid: "invalid", LimitExceeded: "limit", Malformed: "malformed"}


def ours(data: bytes) -> dict[str, Any]:
    """What our verifier says."""
    try:
        found = accepted(verify(decode(data)))
    except CvmError as error:
        return {"verdict": VERDICTS[type(error)], "code": error.code}
    ranges = {name: [list(run) for run in bounds] for name, bounds in found.ranges.items()}
    return {"verdict": "value", "gas": list(found.gas), "ranges": ranges}


def test_it_is_short_and_uses_the_standard_library_only() -> None:
    text = FILE.read_text("utf-8")
    assert len(text.splitlines()) < 650  # 50 of them for op-set 2
    imports = {line.split()[1] for line in text.splitlines() if line.startswith(("import ", "from "))}
    assert imports <= {"re", "struct", "fractions", "itertools", "math", "types"}
    assert "import_module" not in text
    assert "__import__" not in text


def test_it_comes_to_the_verdict_of_every_vector() -> None:
    for case in verdict_cases():
        found = verifier.verdict(case.program)
        expected: dict[str, Any] = {"verdict": case.verdict, "code": case.code}
        if case.verdict == "value":
            ranges = {name: [list(run) for run in bounds] for name, bounds in case.ranges.items()}
            expected = {"verdict": "value", "gas": list(case.gas), "ranges": ranges}
        assert found == expected, case.id


def test_it_comes_to_the_verdict_on_every_program_that_vectors_run() -> None:
    for case in program_cases():
        found = verifier.verdict(case.program)
        assert (found["verdict"], found.get("code", "")) == (case.verdict, case.code), case.id


def test_it_answers_the_questions_of_the_protocol() -> None:
    with CommandRunner(shlex.join([sys.executable, "-I", str(ANSWERS), "--serve"])) as runner:
        report = check(FOLDER, runner)
    assert report.first is None
    judged = {tally.op: tally for tally in report.tallies if not tally.skipped}
    assert sum(tally.passed for tally in judged.values()) == len(verdict_cases())
    assert {name.partition("/")[0] for name in judged} == {"verdicts"}


@settings(deadline=None, max_examples=examples(40), suppress_health_check=list(HealthCheck))
@given(samples())
def test_it_accepts_random_programs_with_the_same_intervals(sample: Sample) -> None:
    data = sample.program.to_bytes()
    assert verifier.verdict(data) == ours(data)


@pytest.mark.parametrize("op", REGISTRY.values(), ids=REGISTRY)
@settings(deadline=None, max_examples=25, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_it_derives_the_same_range_from_any_ranges(op: Op, data: st.DataObject) -> None:
    call = data.draw(proven_call(op))
    try:
        proven = op.prove(call)
    except Invalid:
        return
    ranges = [
        (bounds.shape, list(zip(bounds.lo.ravel().tolist(), bounds.hi.ravel().tolist(), strict=True)))
        for bounds in call.ranges
    ]
    theirs = SimpleNamespace(s=list(call.shapes), r=ranges, y=op.infer(call)[0], **dict(call.attributes))
    found = verifier.OPS[op.name][-1](theirs)
    for bounds, (extents, pairs) in zip(proven, found if isinstance(found, list) else [found], strict=True):
        kept = bounds.per_channel()
        extents, pairs = verifier.per_channel((extents, pairs))
        assert tuple(extents) == kept.shape
        assert pairs == list(zip(kept.lo.ravel().tolist(), kept.hi.ravel().tolist(), strict=True))


def judge_damaged(count: int, seed: int) -> set[str]:
    """Compare both verifiers on damaged programs. Returns the codes that occurred."""
    draws, codes = random.Random(seed), set()
    for _ in range(count):
        data = make(draws)
        expected = ours(data)
        assert verifier.verdict(data) == expected
        codes.add(expected.get("code", ""))
    return codes


def test_it_refuses_damaged_programs_for_the_same_reason() -> None:
    assert len(judge_damaged(2_000, 1)) > 20


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8))
def test_it_refuses_many_damaged_programs_for_the_same_reason(seed: int) -> None:
    assert len(judge_damaged(100_000, seed + 2)) > 100


@pytest.mark.parametrize("name", ["accumulator", "quantised", "tiny_cnn", "detection", "several_terms", "powers"])
def test_it_says_the_same_of_programs_with_one_field_changed(name: str) -> None:
    (case,) = (case for case in program_cases() if case.id == name)
    codes, count = set(), 0
    for path, program in mutations(decode(case.program)):
        try:
            data = encode(program)
        except CvmError:
            continue
        expected = ours(data)
        assert verifier.verdict(data) == expected, path
        codes.add(expected.get("code", ""))
        count += 1
    assert count > 50
    assert len(codes) > 10


def test_windows_of_very_many_taps_count_each_as_one_that_may_fall_on_the_padding() -> None:
    builder = ProgramBuilder()
    x = builder.input("x", (1, 1, 513, 512), 1, 2)
    taps = np.arange(513 * 512).reshape(1, 1, 513, 512) % 7 - 3
    (y,) = builder.add("conv2d", [x, builder.constant(taps)], {})
    data = builder.build([Output(y, y)]).to_bytes()
    expected = ours(data)
    assert expected["ranges"][y][0][0] == 2 * int(taps[taps < 0].sum())
    assert verifier.verdict(data) == expected


def test_operands_of_a_broadcast_may_be_combined_up_to_the_bounds_that_they_have_together() -> None:
    """2^18 + 2 bounds are made of 2^18 + 5: the product with m is known for every row, so that it cancels with c."""
    rows = 2**17 + 1
    builder = ProgramBuilder()
    x = builder.input("x", (rows, 2), 1, 1)
    sparse = np.zeros((rows, 1), np.int64)
    sparse[0] = 100
    parameters = [builder.parameter(items) for items in (sparse, -sparse, np.array([[0, 1]], np.int64))]
    attributes = {"rounding": "half_up", "lo": -1000, "hi": 1000}
    (y,) = builder.add("requantize", [x, *parameters], attributes)
    data = encode(builder.build([Output("y", y)]))
    assert verifier.verdict(data) == ours(data)
    ((lo, hi, _),) = ours(data)["ranges"][y]
    assert (lo, hi) == (0, 0)
