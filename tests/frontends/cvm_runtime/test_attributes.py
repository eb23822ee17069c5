"""Attribute strings in the syntax of the library."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.frontends.cvm_runtime.attributes import boolean, integer, integer_or_none, integers, parse_attributes, written
from cvm.frontends.cvm_runtime.operators import OPERATORS, operator
from cvm.frontends.cvm_runtime.reshaping import target_shape

from .models import DATA, Op, Variable, codes, document, loaded

INT32 = st.integers(-(2**31), 2**31 - 1)


@given(INT32)
def test_integers_are_read_as_they_are_written(value: int) -> None:
    assert integer(written(value)) == integer(f"  {value} ") == integer_or_none(str(value)) == value


@given(st.lists(INT32, max_size=9))
def test_tuples_are_read_as_they_are_written(values: list[int]) -> None:
    assert integers(written(tuple(values))) == tuple(values)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1,2)", (1, 2)),
        ("[4, 6]", (4, 6)),
        ("(5)", (5,)),
        ("3", (3,)),
        ("(4294967296)", (2**32,)),
        ("(-9223372036854775808, 9223372036854775807)", (-(2**63), 2**63 - 1)),
        ("()", ()),
        ("[]", ()),
        (" ( -5 , ) ", (-5,)),
        ("(3L, 2)", (3, 2)),
    ],
)
def test_forms_of_a_tuple(text: str, value: tuple[int, ...]) -> None:
    assert integers(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "(",
        ")",
        "(1",
        "1)",
        "(1 2)",
        "(,)",
        "(1,,)",
        "None",
        "(None)",
        "((1))",
        "(1.0)",
        "(9223372036854775808)",
        "(-9223372036854775809)",
        "1" * 100_000,
        "(" + " " * 100_000,
        "(" + "1," * 100_000,
    ],
)
def test_what_is_no_tuple(text: str) -> None:
    with pytest.raises(ValueError, match="tuple"):
        integers(text)


@pytest.mark.parametrize("text", ["", "1.5", "1e3", "0x10", "4294967296", "2147483648", "١", "1 2", "None", "True"])
def test_what_is_no_integer(text: str) -> None:
    with pytest.raises(ValueError, match="integer"):
        integer(text)


def test_logical_values_in_any_case() -> None:
    assert [boolean(text) for text in ("true", "TRUE", "1", "False", "fAlSe", "0")] == [True] * 3 + [False] * 3
    with pytest.raises(ValueError, match="true"):
        boolean("yes")


@pytest.mark.parametrize("executor", ["formal", "numpy"])
def test_entries_of_a_slice_beyond_32_bits_take_what_the_nearest_of_32_bits_take(executor: str) -> None:
    attributes = {"begin": "(-4294967296, 4294967296)", "end": "(4294967296, -4294967296)", "stride": "(1, -1)"}
    imported = loaded(document(DATA, Op("strided_slice", [0], [(2, 3)], attributes)))
    assert codes(imported, [1, 2, 3, 4, 5, 6], executor) == [3, 2, 1, 6, 5, 4]
    far = {"stride": "(9223372036854775807, -9223372036854775807)", "begin": "(0, 2)", "end": "(2, -4)"}
    imported = loaded(document(DATA, Op("strided_slice", [0], [(1, 1)], far)))
    assert codes(imported, [1, 2, 3, 4, 5, 6], executor) == [3]


@pytest.mark.parametrize(
    ("op", "attribute", "shape"),
    [("sum", "axis", (2, 3)), ("squeeze", "axis", (2, 1)), ("transpose", "axes", (2, 3)), ("reshape", "shape", (2, 3))],
)
def test_items_beyond_32_bits_are_refused_where_they_name_no_axis_and_no_extent(
    op: str, attribute: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(Invalid):
        operator(op).use({attribute: "(4294967296, 1)"}, (shape,))


SCORES = [[0, score, 1] for score in (-(2**31 - 1), -(2**31 - 2), -1, 2**31 - 1)]


def _counted(threshold: int, precision: int, output: int) -> Any:
    shapes = [(1,), (1, 4, 3)]
    op = Op("get_valid_counts", [0], shapes, {"score_threshold": str(threshold)})
    return loaded(document(Variable("data", (1, 4, 3), precision), op, heads=[(1, output)]))


@pytest.mark.parametrize("executor", ["formal", "numpy"])
def test_every_score_is_above_a_threshold_of_the_least_integer_of_32_bits(executor: str) -> None:
    rows = [item for row in SCORES for item in row]
    assert codes(_counted(-(2**31), 32, 0), rows, executor) == [4]
    assert codes(_counted(-(2**31), 32, 1), rows, executor) == rows
    assert codes(_counted(-(2**31) + 1, 32, 0), rows, executor) == [3]
    assert codes(_counted(-(2**31) + 1, 32, 1), rows, executor) == rows[3:] + [-1] * 3


def test_a_threshold_of_the_least_integer_needs_no_further_ops_below_32_bits() -> None:
    def ops(precision: int) -> list[str]:
        return [node.op for node in _counted(-(2**31), precision, 0).program.nodes]

    assert ops(31) == ["cvm_clip", "get_valid_count"]
    assert ops(32) == ["cvm_clip", "clip", "get_valid_count", "cvm_clip"]


def test_names_between_underscores_are_ignored_where_there_are_attributes() -> None:
    declared = OPERATORS["clip"].attributes
    found = parse_attributes("clip", declared, {"a_min": "0", "a_max": "5", "__anything__": "x"})
    assert found == {"a_min": 0, "a_max": 5}
    for name in ("____", "__", "__a", "a__", "_____x"):
        with pytest.raises(Invalid, match="there is no such attribute"):
            parse_attributes("clip", declared, {"a_min": "0", "a_max": "5", name: "x"})
    with pytest.raises(Invalid, match="there is no such attribute"):
        parse_attributes("relu", OPERATORS["relu"].attributes, {"__anything__": "x"})


@pytest.mark.parametrize(
    ("codes", "shape", "target"),
    [
        ((0, -1), (2, 3, 4), (2, 12)),
        ((-2,), (2, 3), (2, 3)),
        ((2, -2), (2, 3, 4), (2, 3, 4)),
        ((-3, 0), (2, 3, 4), (6, 4)),
        ((-3, -1), (2, 3, 4), (6, 4)),
        ((-4, 2, -1, 0), (6, 5), (2, 3, 5)),
        ((-4, -1, 2, -2), (6, 5), (3, 2, 5)),
        ((-1, -2), (4, 5), (4, 5)),
        ((-2, -1), (4, 1), (4, 1, 1)),
    ],
)
def test_codes_of_a_shape(codes: tuple[int, ...], shape: tuple[int, ...], target: tuple[int, ...]) -> None:
    assert target_shape(codes, shape) == target


@pytest.mark.parametrize(
    ("codes", "shape"),
    [
        ((), (4, 5)),
        ((1,) * 65, (1,)),
        ((-1, -1), (4, 5)),
        ((3, -1), (4, 5)),
        ((-5, 4), (4, 5)),
        ((0, 0, 0), (4, 5)),
        ((-3,), (4,)),
        ((-4, 2), (4, 5)),
        ((-4,), (4,)),
        ((-4, -1, -1), (4, 5)),
        ((-4, 0, 2, 5), (4, 5)),
        ((-4, 3, -1, 5), (4, 5)),
        ((-2, -1), (4, 5)),
        ((-4, 2, 2, -1), (4, 6, 5)),
        ((2**31 - 1, 2), (4, 5)),
    ],
)
def test_codes_that_stand_for_no_shape_or_for_another_one_there(codes: tuple[int, ...], shape: tuple[int, ...]) -> None:
    with pytest.raises(Invalid) as caught:
        target_shape(codes, shape)
    assert caught.value.code == "cvm_runtime.reshape"


def test_aliases_are_refused_by_name() -> None:
    with pytest.raises(Invalid, match="its executors know it as relu"):
        operator("nn.relu")
