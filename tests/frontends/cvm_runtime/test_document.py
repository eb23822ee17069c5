"""The text of a model: less than JSON, known keys, and structure that holds before anything is derived from it."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends.cvm_runtime import read_model
from tests.selection import examples

from .models import DATA, Op, Variable, document

GOOD = document(DATA, Variable("w", (2, 3)), Op("elemwise_add", [0, 1], [(2, 3)]), Op("relu", [2], [(2, 3)]))


def refusal(text: Any) -> CvmError:
    with pytest.raises(CvmError) as caught:
        read_model(text if isinstance(text, str | bytes) else json.dumps(text))
    return caught.value


def changed(change: Callable[[Any], Any]) -> Any:
    made = copy.deepcopy(GOOD)
    change(made)
    return made


def test_the_model_without_a_fault_is_read() -> None:
    model = read_model(json.dumps(GOOD))
    assert model.inferred.precisions == (8, 8, 9, 9)


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("", 1, 1),
        ('{\n "nodes": [1,]}', 2, 14),
        ('{"nodes": 1} x', 1, 14),
        ('{"a": "\\u0041"}', 1, 8),
        ('{"a": "\\/"}', 1, 8),
        ('{"a": "\n"}', 1, 8),
        ("{'a': 1}", 1, 2),
    ],
)
def test_what_is_no_json_of_theirs_is_malformed_with_its_place(text: str, line: int, column: int) -> None:
    error = refusal(text)
    assert (type(error), error.code) == (Malformed, "cvm_runtime.json")
    assert (error.location.line, error.location.column) == (line, column)


@pytest.mark.parametrize(
    "text",
    [
        "null",
        "true",
        '{"a": null}',
        '{"a": [false]}',
        "1.0",
        "1e3",
        "NaN",
        "-Infinity",
        "9" * 30,
        b"\xff",
        '{"a": 1, "a": 2}',
    ],
)
def test_values_that_their_reader_does_not_have_are_malformed(text: str | bytes) -> None:
    error = refusal(text)
    assert (type(error), error.code) == (Malformed, "cvm_runtime.json")


@pytest.mark.parametrize("text", ["1", "[]", '"x"', "{}", '{"nodes": {}, "heads": [], "attrs": {}}'])
def test_another_structure_is_malformed(text: str) -> None:
    error = refusal(text)
    assert (type(error), error.code) == (Malformed, "cvm_runtime.structure")


@pytest.mark.parametrize("depth", [65, 5_000, 500_000])
def test_deep_nesting_is_a_limit(depth: int) -> None:
    assert refusal("[" * depth + "]" * depth).code == "limit.nesting"
    assert refusal('{"a":' * depth + "1" + "}" * depth).code == "limit.nesting"


def test_a_long_text_is_a_limit() -> None:
    error = refusal(" " * (16 * 2**20 + 1))
    assert (type(error), error.code) == (LimitExceeded, "limit.text")


MALFORMED = "cvm_runtime.structure"


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda m: m.pop("nodes"), MALFORMED),
        (lambda m: m.pop("heads"), MALFORMED),
        (lambda m: m.pop("attrs"), MALFORMED),
        (lambda m: m["attrs"].pop("shape"), MALFORMED),
        (lambda m: m["attrs"].pop("op_attrs"), MALFORMED),
        (lambda m: m["nodes"][2].pop("inputs"), MALFORMED),
        (lambda m: m["nodes"][0].pop("inputs"), MALFORMED),
        (lambda m: m["nodes"][0].pop("name"), MALFORMED),
        (lambda m: m["nodes"][2]["attrs"].pop("func_name"), MALFORMED),
        (lambda m: m["nodes"][2]["attrs"].update(num_inputs=2), MALFORMED),
        (lambda m: m["nodes"][2]["attrs"].update(other="2"), MALFORMED),
        (lambda m: m["nodes"][2].update(other=[]), MALFORMED),
        (lambda m: m["nodes"][2].update(inputs=[[0]]), MALFORMED),
        (lambda m: m["nodes"][2].update(inputs=[[0, 0, 0, 0]]), MALFORMED),
        (lambda m: m["nodes"][2].update(inputs=[["0", 0]]), MALFORMED),
        (lambda m: m["attrs"].update(shape=["list_int", [1]]), MALFORMED),
        (lambda m: m["attrs"].update(shape=["list_shape"]), MALFORMED),
        (lambda m: m["attrs"].update(shape="list_shape"), MALFORMED),
        (lambda m: m["attrs"].update(dtype=["list_str", ["int32"]]), MALFORMED),
        (lambda m: m["attrs"]["op_attrs"][1].__setitem__(2, "[]"), MALFORMED),
        (lambda m: m["attrs"]["op_attrs"][1].__setitem__(2, '{"a": {}}'), MALFORMED),
        (lambda m: m["attrs"]["op_attrs"][1].__setitem__(2, "{"), "cvm_runtime.json"),
        (lambda m: m["nodes"][2].pop("attrs"), "cvm_runtime.node"),
        (lambda m: m["nodes"][1].update(inputs=[[0, 0, 0]]), "cvm_runtime.node"),
        (lambda m: m["nodes"][2].update(inputs=[[0, 0]]), "cvm_runtime.arity"),
        (lambda m: m["nodes"][2].update(inputs=[[0, 0]] * 3), "cvm_runtime.arity"),
        (lambda m: m["nodes"][2].update(inputs=[[0, 1], [1, 0]]), "cvm_runtime.order"),
        (lambda m: m["nodes"][2].update(inputs=[[-1, 0], [1, 0]]), "cvm_runtime.order"),
        (lambda m: m["nodes"][2].update(inputs=[[3, 0], [1, 0]]), "cvm_runtime.order"),
        (lambda m: m.update(heads=[]), "cvm_runtime.heads"),
        (lambda m: m.update(heads=[[3, 1, 0]]), "cvm_runtime.order"),
        (lambda m: m.update(heads=[[-1, 0, 0]]), "cvm_runtime.order"),
        (lambda m: m.update(arg_nodes=[0]), "cvm_runtime.index"),
        (lambda m: m.pop("arg_nodes"), "cvm_runtime.index"),
        (lambda m: m.update(node_row_ptr=[0, 1, 2, 3]), "cvm_runtime.index"),
        (lambda m: m.pop("node_row_ptr"), "cvm_runtime.index"),
        (lambda m: m["attrs"].pop("dltype"), "cvm_runtime.type"),
        (lambda m: m["attrs"]["dltype"][1].pop(), "cvm_runtime.length"),
        (lambda m: m["attrs"]["shape"][1].pop(), "cvm_runtime.length"),
        (lambda m: m["attrs"]["storage_id"][1].append(0), "cvm_runtime.length"),
        (lambda m: m["attrs"]["precision"][1].pop(), "cvm_runtime.length"),
        (lambda m: m["attrs"]["op_attrs"][1].pop(), "cvm_runtime.length"),
        (lambda m: m["attrs"]["shape"][1].__setitem__(0, []), "cvm_runtime.shape"),
        (lambda m: m["attrs"]["shape"][1].__setitem__(0, [2, -3]), "cvm_runtime.shape"),
        (lambda m: m["attrs"]["shape"][1].__setitem__(3, [6]), "cvm_runtime.shape"),
        (lambda m: m["attrs"]["precision"][1].__setitem__(2, 33), "cvm_runtime.precision"),
        (lambda m: m["attrs"]["precision"][1].__setitem__(1, -1), "cvm_runtime.variable"),
        (lambda m: m.update(postprocess="softmax"), "cvm_runtime.postprocess"),
        (lambda m: m.update(postprocess="detection"), "cvm_runtime.heads"),
        (lambda m: m["attrs"]["op_attrs"][1].__setitem__(2, '{"__x__": "1"}'), "cvm_runtime.attribute"),
    ],
)
def test_every_rule_of_the_structure_is_checked(change: Callable[[Any], Any], code: str) -> None:
    assert refusal(changed(change)).code == code


@pytest.mark.parametrize(
    "change",
    [
        lambda m: m["attrs"]["precision"][1].__setitem__(2, 3),
        lambda m: m["nodes"][2].update(inputs=[[0, 0], [1, 0, 9]]),
        lambda m: m["nodes"][2].update(precision=99),
        lambda m: m["nodes"][2]["attrs"].update(func_name="elemwise_add_"),
        lambda m: m["nodes"][2]["attrs"].update(func_name="elemwise_add_0012"),
        lambda m: m["attrs"].update(device_index=["list_int", []]),
        lambda m: m["nodes"][0].update(attrs={"func_name": "null"}),
        lambda m: m["attrs"]["op_attrs"][1].__setitem__(0, "anything"),
        lambda m: m.update(version="cvm_1.0.0"),
        lambda m: m.update(postprocess="argmax"),
    ],
)
def test_what_is_ignored_is_ignored(change: Callable[[Any], Any]) -> None:
    assert read_model(json.dumps(changed(change))).metering.gas == 5 * 24 + 12


def test_version_1_1_needs_less_and_still_the_row_pointers() -> None:
    newer = changed(lambda m: (m.update(version="cvm_1.1.0"), m.pop("arg_nodes"), m["attrs"].pop("dltype")))
    assert read_model(json.dumps(newer)).graph.version == "cvm_1.1.0"
    newer["arg_nodes"] = [7]
    assert read_model(json.dumps(newer)).metering.gas == 5 * 24 + 12
    del newer["node_row_ptr"]
    error = refusal(newer)
    assert (type(error), error.code) == (Invalid, "cvm_runtime.index")
    assert "does not survive" in error.message


def test_only_32_characters_of_a_postprocess_count() -> None:
    error = refusal(changed(lambda m: m.update(postprocess="argmax" + " " * 26 + "x")))
    assert (type(error), error.code) == (Unsupported, "cvm_runtime.postprocess")


def test_an_error_names_the_node_and_the_op() -> None:
    error = refusal(changed(lambda m: m["attrs"]["op_attrs"][1].__setitem__(3, '{"x": "1"}')))
    assert (error.location.tensor, error.location.op) == ("relu_3", "relu")


SCRAP = st.recursive(
    st.integers(-3, 40) | st.sampled_from(["", "data", "relu", "list_int", "cvm_op", "null"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["op", "name", "attrs"]), inner),
    max_leaves=6,
)


@settings(max_examples=examples(200))
@given(st.data())
def test_no_damage_ends_in_anything_but_an_error_of_ours(data: st.DataObject) -> None:
    made = copy.deepcopy(GOOD)
    place: Any = made
    while True:
        keys = sorted(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            return
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], dict | list) or data.draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    if data.draw(st.booleans()):
        place[key] = data.draw(SCRAP)
    else:
        del place[key]
    with suppress(Malformed, Invalid, Unsupported, LimitExceeded):
        read_model(json.dumps(made))
