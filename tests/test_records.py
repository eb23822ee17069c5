"""`cvm.records.dataclass` makes the classes that `dataclasses.dataclass` makes."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import itertools
import math
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field, fields, replace
from functools import cached_property
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from cvm import records

T = TypeVar("T")
FLAGS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "repr": shown}
    for frozen, slots, eq, shown in itertools.product((False, True), repeat=4)
]
MAKERS: list[Callable[..., Any]] = [dataclasses.dataclass, records.dataclass]


def shapes(maker: Callable[..., Any], **flags: bool) -> list[type]:
    """Classes with fields of every kind."""

    class Empty:
        """Nothing."""

    class One:
        """One field."""

        only: float

    class Point:
        """A point."""

        counted: ClassVar[int] = 3
        x: int
        y: int = 7
        tags: list[str] = field(default_factory=list)
        note: str = field(default="", compare=False)
        secret: bytes = field(default=b"k", repr=False)

        def far(self) -> int:
            """Use the fields."""
            return self.x + self.y

    class Named:
        """Arguments by name alone."""

        name: str
        low: int = field(kw_only=True)
        high: int = field(default=9, kw_only=True)

    class Checked:
        """Looks at itself when it is made."""

        value: int

        def __post_init__(self) -> None:
            if self.value < 0:
                raise ValueError("negative")

    class Own:
        """Has methods of its own."""

        a: int
        b: int = 2

        def __repr__(self) -> str:
            return "own"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, type(self)) and self.a == other.a

        def __hash__(self) -> int:
            return self.a

    class Equal:
        """Says what is equal, and nothing of hashes."""

        a: int

        def __eq__(self, other: object) -> bool:
            return True

    return [maker(**flags)(one) for one in (Empty, One, Point, Named, Checked, Own, Equal)]


ARGUMENTS: dict[str, list[tuple[tuple[Any, ...], dict[str, Any]]]] = {
    "Empty": [((), {}), ((1,), {})],
    "One": [((1.5,), {}), ((math.nan,), {}), ((), {}), ((1.0, 2.0), {}), ((), {"only": 2.0})],
    "Point": [
        ((1,), {}),
        ((1, 2), {}),
        ((1, 2, ["a"], "n"), {"secret": b"s"}),
        ((1,), {"note": "other"}),
        ((), {"y": 3, "x": 2}),
        ((1,), {"z": 3}),
        ((1,), {"x": 3}),
    ],
    "Named": [(("n",), {"low": 1}), (("n",), {"low": 1, "high": 2}), (("n", 1), {}), (("n",), {})],
    "Checked": [((1,), {}), ((-1,), {})],
    "Own": [((1,), {}), ((1, 5), {}), ((3,), {})],
    "Equal": [((1,), {}), ((2,), {})],
}


def outcome(what: Callable[[], Any]) -> Any:
    """The result, or the class of the error."""
    try:
        return what()
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("flags", FLAGS, ids=lambda flags: "-".join(name for name, on in flags.items() if on))
def test_objects_behave_like_those_of_dataclasses(flags: dict[str, bool]) -> None:
    seen = []
    for maker in MAKERS:
        found: list[Any] = []
        for kind in shapes(maker, **flags):
            made = [outcome(lambda kind=kind, a=a, k=k: kind(*a, **k)) for a, k in ARGUMENTS[kind.__name__]]
            objects = [one for one in made if not isinstance(one, type)]
            assert objects
            found += [one if isinstance(one, type) else "made" for one in made]
            found += [dataclasses.asdict(one) for one in objects if kind.__name__ != "One"]
            if flags["repr"]:
                found += [repr(one) for one in objects]
            found += [[a == b for b in objects] + [a != b for b in objects] for a in objects]
            found += [[outcome(lambda a=a, b=b: hash(a) == hash(b)) for b in objects] for a in objects]
            found += [outcome(lambda one=one: hash(one) is None) for one in objects]
            names = [one.name for one in fields(kind)]
            if not flags["frozen"]:
                names.append("unknown")  # of which Python's own frozen classes with slots say that it has a wrong type
            for name in names:
                found += [outcome(lambda one=one, name=name: setattr(one, name, 4)) for one in objects]
                found += [outcome(lambda one=one, name=name: delattr(one, name)) for one in objects]
            found += [(kind.__doc__, kind.__name__, kind.__match_args__, "__slots__" in vars(kind))]
            found += [(one.name, one.type, one.init, one.repr, one.compare, one.kw_only) for one in fields(kind)]
            found += [str(inspect.signature(kind)), inspect.signature(kind).parameters.keys()]
            found += [kind.__init__.__qualname__.rpartition("<locals>.")[2], kind.__init__.__annotations__]
        seen.append(found)
    assert seen[0] == seen[1]


def test_a_single_field_is_compared_as_in_a_tuple() -> None:
    one, other = (shapes(maker, frozen=True, slots=True)[1] for maker in MAKERS)
    for kind in (one, other):
        same = kind(math.nan)
        assert same == same  # the same object, although nan differs from nan
        assert kind(math.nan) == kind(math.nan)
        assert kind(float("nan")) != kind(float("nan"))
        assert hash(kind(2.0)) == hash((2.0,))


def test_objects_of_different_classes_are_never_equal() -> None:
    first, second = shapes(records.dataclass)[1], shapes(records.dataclass)[1]
    assert first(1.0) != second(1.0)
    assert first(1.0).__eq__(second(1.0)) is NotImplemented


@records.dataclass(frozen=True, slots=True)
class Frozen:
    a: int
    b: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True)
class Longer(Frozen):
    c: str = "c"


@records.dataclass(frozen=True)
class Remembering:
    a: int

    @cached_property
    def double(self) -> int:
        return 2 * self.a


@records.dataclass(slots=True)
class Changing(Generic[T]):
    item: T
    seen: list[T] = field(default_factory=list)


@records.dataclass
class Bare:
    a: int = 1


@records.dataclass(frozen=True, slots=True, order=True)
class Ordered:
    a: int


@records.dataclass(frozen=True)
class Loop:
    other: list[Loop]


def test_frozen_objects_refuse_every_change() -> None:
    for one in (Frozen(1), Longer(1), Remembering(1)):
        for name in ("a", "b", "new"):
            with pytest.raises(FrozenInstanceError, match=f"cannot assign to field '{name}'"):
                setattr(one, name, 5)
            with pytest.raises(FrozenInstanceError, match=f"cannot delete field '{name}'"):
                delattr(one, name)
        assert one.a == 1
    assert not hasattr(Frozen(1), "__dict__")


@pytest.mark.parametrize(
    "one", [Frozen(1, (2,)), Longer(1, (2,), "d"), Remembering(4), Changing(3, [1]), Bare(2), Ordered(3)]
)
def test_copies_are_equal(one: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        assert pickle.loads(pickle.dumps(one, protocol)) == one
    assert copy.copy(one) == copy.deepcopy(one) == replace(one) == one


def test_replace_takes_the_names_of_fields() -> None:
    assert replace(Longer(1, (2,)), a=5) == Longer(5, (2,), "c")
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        replace(Frozen(1), z=5)  # type: ignore[call-arg]


def test_subclasses_have_the_fields_of_their_base() -> None:
    assert [one.name for one in fields(Longer)] == ["a", "b", "c"]
    assert repr(Longer(1)) == "Longer(a=1, b=(), c='c')"
    assert Longer(1) != Frozen(1)


def test_values_are_remembered_where_there_are_no_slots() -> None:
    one = Remembering(4)
    assert one.double == one.double == 8
    assert one == Remembering(4)
    assert hash(one) == hash(Remembering(4))


def test_each_object_gets_a_list_of_its_own() -> None:
    one, other = Changing(1), Changing(1)
    one.seen.append(2)
    one.item = 9
    assert (one.item, one.seen, other.item, other.seen) == (9, [2], 1, [])
    assert Changing.__hash__ is None


def test_the_decorator_needs_no_arguments() -> None:
    assert repr(Bare()) == "Bare(a=1)"
    assert Bare() == Bare(1) != Bare(2)


def test_other_arguments_are_for_pythons_own() -> None:
    assert sorted([Ordered(3), Ordered(1)]) == [Ordered(1), Ordered(3)]
    with pytest.raises(TypeError, match="unexpected keyword argument"):
        records.dataclass(unknown=True)(type("Some", (), {}))  # type: ignore[call-overload]


def test_an_object_may_hold_itself() -> None:
    one = Loop([])
    one.other.append(one)
    assert repr(one) == "Loop(other=[...])"


def test_objects_match_patterns() -> None:
    match Longer(1, (2,)):
        case Longer(a, b, c):
            assert (a, b, c) == (1, (2,), "c")
        case _:
            pytest.fail("no match")


def test_a_class_without_a_docstring_gets_its_name() -> None:
    assert Frozen.__doc__ == "Frozen"


def test_fields_that_are_no_arguments_are_refused() -> None:
    with pytest.raises(TypeError, match=r"Some\.a: every field must be an argument"):

        @records.dataclass
        class Some:
            a: int = field(init=False, default=1)


def test_a_default_before_a_field_without_one_is_refused() -> None:
    for maker in MAKERS:
        with pytest.raises((TypeError, SyntaxError)):
            maker(type("Some", (), {"__annotations__": {"a": int, "b": int}, "a": 1}))


def test_defaults_are_taken_as_they_are() -> None:
    default = object()

    @records.dataclass(frozen=True, slots=True)
    class Some:
        a: object = default
        b: object = None

    assert Some().a is default
    assert Some().b is None
