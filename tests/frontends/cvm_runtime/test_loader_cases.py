"""All outcomes that the C++ library had, one by one: reproduced, or different for the reason that stands beside."""

from __future__ import annotations

import ast
import dataclasses
import json
import re
from pathlib import Path

import pytest

from cvm.errors import CvmError, LimitExceeded
from cvm.frontends import cvm_runtime

from .loader_cases import CASES, Case
from .models import codes, loaded
from .page import PAGE, markdown
from .reader_cases import FILES, READER_CASES

FILE = Path(__file__).parents[4] / "shared" / "cvm_runtime" / "models" / "loader_cases.txt"
LINES: dict[str, str] = (
    dict(re.findall(r"^## (.*?): rc=0 \| (.*)$", FILE.read_text("utf-8"), re.M)) if FILE.is_file() else {}
)
"""What the library made of each model."""

needs_file = pytest.mark.skipif(not LINES, reason="../shared/cvm_runtime/models is not there")

NOT_RUN = ("dim 2^24", "gas limit", "gas limit exceeded", "gas nms / gvc")
"""Too large, or not run there either."""


@needs_file
def test_every_outcome_has_its_case() -> None:
    assert [case.name for case in CASES] == list(LINES)
    assert len(CASES) == 61


@pytest.mark.parametrize("case", [*CASES, *READER_CASES], ids=lambda case: case.name)
def test_the_outcome_is_the_stated_one(case: Case) -> None:
    if case.error is None:
        _require_result(case, "correct", case.result)
    else:
        with pytest.raises(CvmError) as caught:
            _require_result(case, "correct", None)
        assert (type(caught.value).__name__, caught.value.code) == case.error


@pytest.mark.parametrize("case", [*CASES, *READER_CASES], ids=lambda case: case.name)
def test_the_outcome_under_cvm_1_is_the_stated_one(case: Case) -> None:
    if isinstance(case.formal, str):
        with pytest.raises(CvmError) as caught:
            _require_result(case, "cvm-1", None)
        assert (type(caught.value).__name__, caught.value.code) == ("Unsupported", case.formal)
    elif case.formal is not None or case.error is None:
        _require_result(case, "cvm-1", case.result if case.formal is None else case.formal)
    else:
        with pytest.raises(CvmError) as caught:
            _require_result(case, "cvm-1", None)
        assert (type(caught.value).__name__, caught.value.code) == case.error


MODELS = Path(__file__).parents[4] / "shared" / "findings" / "cvm_runtime"
"""Models that the library and an earlier reader of cvm understood differently, as files."""


@pytest.mark.skipif(not MODELS.is_dir(), reason="../shared/findings/cvm_runtime is not there")
def test_every_model_with_an_unusual_spelling_has_its_case() -> None:
    assert {path.stem for path in MODELS.glob("*.json")} == set(FILES)


@pytest.mark.parametrize("compat", ["correct", "cvm-1"])
@pytest.mark.parametrize("name", FILES)
def test_a_model_with_an_unusual_spelling_has_the_outcome_of_its_case(name: str, compat: str) -> None:
    path = MODELS / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"../shared/findings/cvm_runtime/{name}.json is not there")
    case = dataclasses.replace(FILES[name], text=path.read_bytes(), params=path.with_suffix(".params").read_bytes())
    if compat == "correct":
        test_the_outcome_is_the_stated_one(case)
    else:
        test_the_outcome_under_cvm_1_is_the_stated_one(case)


def test_an_accepted_spelling_means_the_result_of_every_executor() -> None:
    for case in READER_CASES:
        if case.error is None:
            imported = loaded(case.text, case.params)
            assert {tuple(codes(imported, case.inputs, name)) for name in ("formal", "numpy")} == {tuple(case.result)}


def _require_result(case: Case, compat, result) -> None:
    if case.name in NOT_RUN:
        cvm_runtime.read_model(case.text, compat)
        return
    imported = loaded(case.text, case.params, compat)
    assert case.inputs is not None
    found = codes(imported, case.inputs)
    assert result is None or found == list(result)


def _figures(outcome: str) -> list[dict[str, object]]:
    return [ast.literal_eval(found) for found in re.findall(r"\{'GetInputLength.*?\}", outcome)]


UNSAFE = {"head out of range", "input node id out of range", "conv weight kernel mismatch graph"}
"""Models that the library reads beyond its own memory for: there is nothing to have these sizes here."""

MEASURED = [case for case in CASES if _figures(LINES.get(case.name, "")) and case.name not in UNSAFE]


@needs_file
@pytest.mark.parametrize("case", MEASURED, ids=lambda case: case.name)
def test_lengths_gas_and_storage_are_theirs(case: Case) -> None:
    model = cvm_runtime.read_model(case.text, "cvm-1")
    interface, metering = model.interface, model.metering
    assert _figures(LINES[case.name])[0] == {
        "GetInputLength": interface.input_length,
        "GetInputTypeSize": interface.input_size,
        "GetOutputLength": interface.output_length,
        "GetOutputTypeSize": interface.output_size,
        "GetStorageSize": metering.storage,
        "GetGasFromModel": metering.gas,
        "PostprocessMethod": interface.postprocess,
    }


@needs_file
def test_results_are_theirs_where_the_case_says_the_same() -> None:
    compared = 0
    for case in CASES:
        found = re.findall(r"infer rc 0 (\[.*?\])", LINES[case.name])
        if case.kind == "same" and case.result is not None and found:
            compared += 1
            assert json.loads(found[-1]) == list(case.result), case.name
        if isinstance(case.formal, list):
            compared += 1
            assert json.loads(found[-1]) == case.formal, case.name
    assert compared == 12


@needs_file
def test_a_case_is_the_same_exactly_if_the_library_refuses_what_is_refused_here() -> None:
    for case in CASES:
        refused = "Check failed" in LINES[case.name] or "load rc 2" in LINES[case.name] or "/ 1 |" in LINES[case.name]
        if case.kind == "same" and case.name != "gas limit exceeded":
            assert refused == (case.error is not None), case.name
        if case.kind == "stricter":
            assert not refused, case.name
            assert case.error is not None, case.name


def test_gas_beyond_the_limits_is_refused_when_it_is_asked_for() -> None:
    by_name = {case.name: case for case in CASES}
    assert cvm_runtime.read_model(by_name["gas limit"].text).metering.gas == 206_410_088_448
    metering = cvm_runtime.read_model(by_name["gas limit exceeded"].text).metering
    assert metering.ops == 13_194_139_533_312
    with pytest.raises(LimitExceeded) as caught:
        _ = metering.gas
    assert caught.value.code == "limit.cvm_runtime.ops"


def test_trailing_bytes_of_parameters_are_noted() -> None:
    case = next(case for case in CASES if case.name == "params trailing bytes")
    assert loaded(case.text, case.params).notes == ("5 bytes after the last parameter were ignored",)


def test_the_page_is_the_one_that_the_table_gives() -> None:
    assert PAGE.read_text("utf-8") == markdown(), "run python -m tests.frontends.cvm_runtime.page"
