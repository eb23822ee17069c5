"""The check: our executors pass, and any difference is found and named."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import cvm.executors
from cvm.errors import Invalid, Malformed
from cvm.executors.numpy import step
from cvm.executors.numpy.step import single
from cvm.ops.ranges import Exact
from cvm.vectors import (
    Answer,
    ExecutorRunner,
    OpCase,
    ProgramCase,
    VectorFile,
    VectorTensor,
    VerdictCase,
    check,
    encode,
)
from tests.spec_vectors.shipped import FOLDER, files, op_cases, program_cases, verdict_cases


class Echo:
    """A runner that answers what each case expects, changed by a function."""

    name = "echo"

    def __init__(self, change: Any = lambda case, answer: answer) -> None:
        self._change = change

    def op(self, case: OpCase) -> Answer:
        return self._change(case, Answer(case.verdict, case.code, outputs=case.outputs))

    def program(self, case: ProgramCase) -> Answer:
        runs = tuple(run.values for run in case.runs)
        return self._change(case, Answer(case.verdict, case.code, digest=case.digest, runs=runs))

    def verdict(self, case: VerdictCase) -> Answer:
        return self._change(case, Answer(case.verdict, case.code, digest=case.digest, gas=case.gas, ranges=case.ranges))


def passes(executor: str, path: Path) -> None:
    report = check(path, ExecutorRunner(executor))
    assert report.first is None
    assert report.ok
    counts = [len(file.cases) for name, file in files().items() if path in (FOLDER, FOLDER / name)]
    assert counts
    assert sum(tally.passed for tally in report.tallies) == sum(counts)


@pytest.mark.slow
@pytest.mark.parametrize("executor", sorted(set(cvm.executors.EXECUTORS) - {"native"}))
def test_our_executors_pass_all_vectors(executor: str) -> None:
    passes(executor, FOLDER)


@pytest.mark.sweep  # every case is compiled
@pytest.mark.parametrize("name", files())
def test_the_native_executor_passes_all_vectors(name: str) -> None:
    passes("native", FOLDER / name)


def test_right_answers_pass_and_the_report_counts_them() -> None:
    report = check(FOLDER, Echo())
    assert report.ok
    assert [tally.cases for tally in report.tallies] == [len(file.cases) for file in files().values()]
    document = report.to_json()
    assert (document["version"], document["runner"], document["ok"]) == (1, "echo", True)
    assert document["ops"][0]["op"] == "broadcast_add"


def test_a_code_or_digest_that_is_not_said_is_not_compared() -> None:
    assert check(FOLDER, Echo(lambda case, answer: replace(answer, code="", digest=""))).ok


def test_values_that_are_not_outputs_may_be_left_out() -> None:
    def outputs_only(case: OpCase | ProgramCase | VerdictCase, answer: Answer) -> Answer:
        if not isinstance(case, ProgramCase):
            return answer
        return replace(answer, runs=tuple({name: run[name] for name in case.outputs} for run in answer.runs))

    assert check(FOLDER, Echo(outputs_only)).ok


def test_unsupported_cases_are_skipped_and_nothing_passed_is_no_success() -> None:
    report = check(FOLDER, Echo(lambda case, answer: Answer("unsupported")))
    assert not report.ok
    assert report.first is None
    assert all(tally.skipped == tally.cases for tally in report.tallies)


def test_other_verdicts_can_be_left_out() -> None:
    report = check(FOLDER, Echo(), ["value"])
    assert sum(tally.cases for tally in report.tallies) == sum(
        case.verdict == "value" for file in files().values() for case in file.cases
    )


def off_by_one(tensor: VectorTensor) -> VectorTensor:
    """The tensor with its last element one more."""
    (last,) = struct.unpack("<i", tensor.data[-4:])
    return replace(tensor, data=tensor.data[:-4] + struct.pack("<i", last + 1 if last < 2**31 - 1 else 0))


ELEMENTS = [path for path in files() if not path.startswith(("ops/unknown", "verdicts/"))]


@pytest.mark.parametrize("path", ELEMENTS)
def test_one_wrong_element_is_found_in_every_file_and_named(path: str) -> None:
    def wrong(case: OpCase | ProgramCase, answer: Answer) -> Answer:
        if answer.outputs:
            return replace(answer, outputs=(*answer.outputs[:-1], off_by_one(answer.outputs[-1])))
        if not isinstance(case, ProgramCase) or not answer.runs:
            return answer
        name = case.outputs[0]
        return replace(answer, runs=(*answer.runs[:-1], {**answer.runs[-1], name: off_by_one(answer.runs[-1][name])}))

    (tally,) = check(FOLDER / path, Echo(wrong)).tallies
    values = sum(case.verdict == "value" for case in files()[path].cases)
    assert (tally.passed, tally.failed) == (tally.cases - values, values)
    if values:
        assert tally.first is not None
        case = next(case for case in files()[path].cases if case.verdict == "value")
        expected = case.outputs[-1] if isinstance(case, OpCase) else case.runs[-1].values[case.outputs[0]]
        assert isinstance(expected, VectorTensor)
        assert tally.first.case == case.id
        assert tally.first.index == tuple(extent - 1 for extent in expected.shape)
        assert tally.first.expected == str(expected.array().ravel()[-1])
        assert f"case {case.id} " in str(tally.first)


@pytest.mark.parametrize("path", [path for path in files() if path.startswith("verdicts/")])
def test_one_wrong_bound_is_found_in_every_file_and_named(path: str) -> None:
    def wrong(case: VerdictCase, answer: Answer) -> Answer:
        if not answer.ranges:
            return answer
        name, bounds = list(answer.ranges.items())[-1]
        lo, hi, count = bounds[-1]
        return replace(answer, ranges={**answer.ranges, name: (*bounds[:-1], (lo, hi + 1, count))})

    (tally,) = check(FOLDER / path, Echo(wrong)).tallies
    values = [case for case in files()[path].cases if case.verdict == "value"]
    assert tally.op == path.removesuffix(".msgpack")
    assert (tally.passed, tally.failed) == (tally.cases - len(values), len(values))
    if values:
        assert tally.first is not None
        assert isinstance(values[0], VerdictCase)
        name, bounds = list(values[0].ranges.items())[-1]
        assert (tally.first.what, tally.first.index) == (f"range of {name}, run", (len(bounds) - 1,))
        assert tally.first.expected == str(bounds[-1])


def first(change: Any, case: OpCase | ProgramCase | VerdictCase) -> tuple[str, str, str]:
    """What the check says about a changed answer to one case."""
    from cvm.vectors.check import compare

    echo = Echo(change)
    ask: Any = {OpCase: echo.op, ProgramCase: echo.program, VerdictCase: echo.verdict}[type(case)]
    difference = compare(case, ask(case), "op")
    assert difference is not None
    return difference.what, difference.expected, difference.found


def test_every_kind_of_difference_is_named() -> None:
    valid = next(case for case in op_cases("get_valid_count") if case.verdict == "value")
    refused = next(case for case in op_cases("clip") if case.code == "ops.clip.C1")
    program = next(case for case in program_cases() if case.id == "accumulator")
    said = replace(valid.outputs[0], dtype="int64", data=bytes(8))
    assert first(lambda c, a: replace(a, verdict="limit"), refused) == (
        "verdict",
        "invalid ops.clip.C1",
        "limit ops.clip.C1",
    )
    assert first(lambda c, a: replace(a, code="ops.clip.C2"), refused) == ("code", "ops.clip.C1", "ops.clip.C2")
    assert first(lambda c, a: Answer("error", message="no idea"), valid) == ("verdict", "value", "error: no idea")
    assert first(lambda c, a: replace(a, outputs=a.outputs[:1]), valid) == ("outputs", "2", "1")
    assert first(lambda c, a: replace(a, outputs=(said, a.outputs[1])), valid)[0] == "output 0"
    assert first(lambda c, a: replace(a, digest="00"), program) == ("digest", program.digest, "00")
    assert first(lambda c, a: replace(a, runs=a.runs[:5]), program) == ("runs", "6", "5")
    assert first(lambda c, a: replace(a, runs=({}, *a.runs[1:])), program) == (
        "run 0, value total",
        "a tensor",
        "nothing",
    )


def test_every_kind_of_difference_of_a_verdict_is_named() -> None:
    cases = [case for case in verdict_cases() if case.id in ("broadcast_add_example", "attributes")]
    accepted, refused = sorted(cases, key=lambda case: case.code)
    assert (accepted.verdict, refused.code) == ("value", "ops.elemwise_add.attribute.axis")
    name = next(iter(accepted.ranges))
    left = {key: bounds for key, bounds in accepted.ranges.items() if key != name}
    assert first(lambda c, a: replace(a, gas=()), accepted) == ("nodes with gas", "1", "0")
    gas = accepted.gas[0]
    assert first(lambda c, a: replace(a, gas=(gas + 1,)), accepted) == ("gas of node 0", str(gas), str(gas + 1))
    assert first(lambda c, a: replace(a, ranges=left), accepted) == (f"range of {name}", "bounds", "nothing")
    longer = {**accepted.ranges, name: (*accepted.ranges[name], (0, 0, 1))}
    assert first(lambda c, a: replace(a, ranges=longer), accepted) == (f"range of {name}", "1 runs of bounds", "2")
    assert first(lambda c, a: replace(a, code="ops.unknown"), refused) == ("code", refused.code, "ops.unknown")
    assert first(lambda c, a: replace(a, verdict="value"), refused)[0] == "verdict"


def test_an_executor_that_differs_where_inputs_are_no_constants_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    right = step.KERNELS["relu"]

    def wrong(call: Any) -> Any:
        return right(call) if isinstance(call.ranges[0], Exact) else single(lambda x: x, "wrong")

    monkeypatch.setitem(step.KERNELS, "relu", wrong)
    report = check(FOLDER / "ops" / "nn" / "relu.msgpack", ExecutorRunner("numpy"))
    assert report.tallies[0].failed > 0
    assert "another result for inputs of the same values" in str(report.first)


def test_a_bug_in_an_executor_fails_the_case_and_not_the_check(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(call: Any) -> Any:
        raise ZeroDivisionError("a bug")

    monkeypatch.setitem(step.KERNELS, "abs", broken)
    report = check(FOLDER / "ops" / "elemwise" / "abs.msgpack", ExecutorRunner("numpy"))
    assert "ZeroDivisionError: a bug" in str(report.first)


def test_a_folder_without_vectors_and_a_file_that_is_none_are_named(tmp_path: Path) -> None:
    with pytest.raises(Invalid) as caught:
        check(tmp_path, Echo())
    assert caught.value.code == "vectors.none"
    with pytest.raises(Invalid):
        check(tmp_path / "missing", Echo())
    (tmp_path / "bad.msgpack").write_bytes(b"\x90")
    with pytest.raises(Malformed) as malformed:
        check(tmp_path, Echo())
    assert str(tmp_path / "bad.msgpack") in str(malformed.value)
    (tmp_path / "bad.msgpack").write_bytes(encode(VectorFile(1, "a test", 0, ())))
    assert not check(tmp_path, Echo()).ok
