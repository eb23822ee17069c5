"""The attributes of ops: what each kind takes, what is said of other values, and the typed attributes of a call."""

from __future__ import annotations

import copy
import enum
import pickle
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

from cvm.errors import Invalid
from cvm.ops import get
from cvm.ops.attributes import Attribute, Integer, Integers, Kind, Truth, TypedAttributes, Word, WrongAttribute


class Pair(NamedTuple):
    first: int
    second: int


class One(enum.IntEnum):
    ONE = 1


class Text(str):
    pass


SMALL = Integer(-2, 5)
SOME = Integers(SMALL, 1, 3)
TWO = Integers(SMALL, 2, 2, repeats=True)
WORDS = Word("up", "down", "even")

TAKEN: list[tuple[Kind, Any, Any]] = [
    *((SMALL, value, value) for value in (-2, 0, 5)),
    (SMALL, One.ONE, 1),
    *((SOME, value, tuple(value)) for value in ((-2,), (1, 2, 3), [5], [1, 2])),
    (SOME, (One.ONE, 2), (1, 2)),
    (SOME, Pair(1, 2), (1, 2)),
    (TWO, 3, (3, 3)),
    (TWO, [1, 2], (1, 2)),
    *((WORDS, word, word) for word in ("up", "down", "even")),
    (WORDS, Text("up"), "up"),
    (Truth(), True, True),
    (Truth(), False, False),
]

NO_INTEGERS: list[Any] = [True, False, None, 1.0, "1", b"1", np.int64(1), np.bool_(True), 1j, {}, set(), object()]

REFUSED: list[tuple[Kind, Any]] = [
    *((SMALL, value) for value in (-3, 6, 2**31, -(2**64), 10**30, (1,), [1], *NO_INTEGERS)),
    *((SOME, value) for value in ((), [], (1, 2, 3, 4), [0] * 5000, 1, range(2), np.array([1, 2]), *NO_INTEGERS)),
    *((SOME, (1, value)) for value in (-3, 6, (1,), *NO_INTEGERS)),
    *((TWO, value) for value in (6, -3, True, (1,), (1, 2, 3), 1.0)),
    *((WORDS, value) for value in ("", "Up", "upward", b"up", 0, None, ("up",), ["up"])),
    *((Truth(), value) for value in (0, 1, 1.0, None, "True", np.bool_(True), ())),
]


@pytest.mark.parametrize(("kind", "value", "expected"), TAKEN)
def test_a_kind_takes_its_values_and_gives_plain_types(kind: Kind, value: Any, expected: Any) -> None:
    found: Any = kind.typed(value)
    assert found == expected
    assert type(found) is type(expected)
    if isinstance(found, tuple):
        assert {type(item) for item in found} == {int}


@pytest.mark.parametrize(("kind", "value"), REFUSED)
def test_a_kind_takes_no_other_value(kind: Kind, value: Any) -> None:
    assert kind.typed(value) is None


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (SMALL, "an integer from -2 to 5"),
        (SOME, "a tuple of 1 to 3 integers from -2 to 5"),
        (TWO, "a tuple of 2 integers from -2 to 5"),
        (WORDS, "'up', 'down' or 'even'"),
        (Word("up", "down"), "'up' or 'down'"),
        (Truth(), "True or False"),
    ],
)
def test_kinds_in_words(kind: Kind, words: str) -> None:
    assert str(kind) == words


def test_a_tuple_of_plain_integers_is_shared_with_the_caller() -> None:
    given = (1, 2, 3)
    assert SOME.typed(given) is given


class Window(TypedAttributes):
    size = Attribute(SOME, "the extents")
    rounding = Attribute(WORDS, "how to round", default="up")
    axis = Attribute(SMALL, "an axis, or none", default=None)


class Nothing(TypedAttributes):
    pass


def test_values_stand_in_the_declared_order_with_defaults() -> None:
    window = Window({"axis": 3, "size": [1, 2]})
    assert list(window) == [("size", (1, 2)), ("rounding", "up"), ("axis", 3)]
    assert vars(window) == {"size": (1, 2), "rounding": "up", "axis": 3}

    assert list(Nothing({})) == []


@pytest.mark.parametrize("axis", [{}, {"axis": None}])
def test_an_attribute_without_a_value_may_be_given_as_none(axis: dict[str, Any]) -> None:
    assert dict(Window({"size": (1,), **axis}))["axis"] is None


@pytest.mark.parametrize(
    ("given", "name", "what"),
    [
        ({}, "size", "it must be given"),
        ({"size": None}, "size", "expected a tuple of 1 to 3 integers from -2 to 5"),
        ({"size": (1,), "rounding": None}, "rounding", "expected 'up', 'down' or 'even'"),
        ({"size": (1,), "axis": 9}, "axis", "expected an integer from -2 to 5"),
        ({"size": (1,), "sizes": 1}, "sizes", "there is no such attribute, there are size, rounding, axis"),
        ({"size": (1,), 3: 1}, 3, "there is no such attribute, there are size, rounding, axis"),
        ({"other": 1, "axis": 9}, "size", "it must be given"),
    ],
)
def test_the_first_wrong_attribute_is_named(given: dict[Any, Any], name: object, what: str) -> None:
    with pytest.raises(WrongAttribute) as caught:
        Window(given)
    assert (caught.value.name, caught.value.what) == (name, what)


def test_an_op_without_attributes_takes_none() -> None:
    with pytest.raises(WrongAttribute, match="there are none"):
        Nothing({"size": 1})


def test_attributes_do_not_change_and_are_equal_by_class_and_values() -> None:
    window = Window({"size": (1, 2)})
    with pytest.raises(AttributeError, match="size"):
        window.size = (2, 2)  # type: ignore[assignment]
    assert window == Window({"size": [1, 2], "rounding": "up"})
    assert hash(window) == hash(Window({"size": [1, 2]}))
    assert window not in (Window({"size": (2, 2)}), Nothing({}), (1, 2))
    assert Nothing({}) != TypedAttributes({})


def test_attributes_are_copied_and_sent_to_other_processes() -> None:
    attributes = get("conv2d").parse({"padding": [1, 2]})
    for again in (copy.copy(attributes), copy.deepcopy(attributes), pickle.loads(pickle.dumps(attributes))):
        assert again == attributes
        assert dict(again) == dict(attributes)


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        (
            "conv2d",
            {"stride": (0, 1)},
            "conv2d: attribute stride: expected a tuple of 2 integers from 1 to 4096, found (0, 1)",
        ),
        ("clip", {"a_min": 0}, "clip: attribute a_max: it must be given"),
        ("relu", {"slope": 1}, "relu: attribute slope: there is no such attribute, there are none, found 1"),
        ("take", {"axis": "0"}, "take: attribute axis: expected an integer from -2147483648 to 2147483647, found '0'"),
        (
            "requantize",
            {"rounding": "up", "lo": 0, "hi": 1},
            "requantize: attribute rounding: expected 'half_up', 'half_even' or 'toward_zero', found 'up'",
        ),
    ],
)
def test_what_an_op_says_of_wrong_attributes(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(Invalid) as caught:
        get(op).parse(attributes)
    assert message in str(caught.value)


def test_programs_are_checked_without_a_library_of_validators() -> None:
    code = "import sys, cvm.program, cvm.ops; print([name for name in sys.modules if name.startswith('pydantic')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
