"""Dataclasses that Python makes in a quarter of the time.

`dataclasses.dataclass` compiles up to six methods for every class, which takes about a millisecond. A process that runs
a stored program makes fifty such classes, and one that compiles a model three hundred. Here only ``__init__`` is
compiled; all other methods are the same functions for all classes. Type checkers see `dataclasses.dataclass` itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, NoReturn

__all__ = ["dataclass"]


class _Factory:
    """What an argument is if nobody gives it and its default is made anew for each object."""

    def __repr__(self) -> str:
        return "<factory>"


_FACTORY = _Factory()
Values = Callable[[Any], tuple[Any, ...]]
"""A function that gives the values of some fields of an object."""


def _dataclass(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    repr: bool = True,
    **others: Any,
) -> Any:
    """Make a dataclass, as `dataclasses.dataclass` with these arguments does, but for two things.

    An instance of a frozen class, or of any subclass of one, refuses all assignments. A class without a docstring gets
    its name for one. With ``others``, arguments that few classes have, Python makes the class.
    """
    if others:
        return dataclasses.dataclass(cls, frozen=frozen, slots=slots, eq=eq, repr=repr, **others)

    def made(cls: type) -> type:
        # Where a class has ``__eq__`` alone, Python gives it a ``__hash__`` that is None.
        own = {name for name, what in vars(cls).items() if what is not None}
        if "__doc__" not in own:
            cls.__doc__ = cls.__name__  # else Python would take the time to describe the arguments
        cls = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots)(cls)  # finds the fields
        fields = dataclasses.fields(cls)
        found: dict[str, Any] = {"__init__": _init(cls, fields, frozen)}
        if repr:
            found["__repr__"] = _repr(tuple(one.name for one in fields if one.repr))
        if eq:
            values = _values([one.name for one in fields if one.compare])
            found |= {"__eq__": _eq(values), "__hash__": _hash(values) if frozen else None}
        if frozen:
            found |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
            if slots:
                found |= {"__getstate__": _state, "__setstate__": _set_state}
        for name, method in found.items():
            if name not in own:
                setattr(cls, name, method)
        return cls

    return made if cls is None else made(cls)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _dataclass


def _init(cls: type, fields: tuple[Field[Any], ...], frozen: bool) -> Callable[..., None]:
    """Compile ``__init__``, which takes one argument for every field."""
    names: dict[str, Any] = {"_set": object.__setattr__, "_factory": _FACTORY}
    arguments: dict[bool, list[str]] = {False: ["self"], True: ["*"]}
    lines = ["  pass"]
    for one in fields:
        if not one.init:
            raise TypeError(f"{cls.__qualname__}.{one.name}: every field must be an argument")
        given, default = one.name, ""
        if one.default is not MISSING:
            default, names[f"_default_{one.name}"] = f"=_default_{one.name}", one.default
        elif one.default_factory is not MISSING:
            default, names[f"_make_{one.name}"] = "=_factory", one.default_factory
            given = f"_make_{one.name}() if {one.name} is _factory else {one.name}"
        arguments[one.kw_only is True].append(one.name + default)
        lines.append(f"  _set(self, {one.name!r}, {given})" if frozen else f"  self.{one.name} = {given}")
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    listed = [*arguments[False], *(arguments[True] if len(arguments[True]) > 1 else ())]
    exec("\n".join([f"def __init__({', '.join(listed)}):", *lines]), names)
    init: Callable[..., None] = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = {**{one.name: one.type for one in fields}, "return": None}
    return init


def _values(names: list[str]) -> Values:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda one: tuple(getattr(one, name) for name in names)


def _eq(values: Values) -> Callable[[Any, object], Any]:
    def equal(self: Any, other: object) -> Any:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return equal


def _hash(values: Values) -> Callable[[Any], int]:
    def hashed(self: Any) -> int:
        return hash(values(self))

    return hashed


def _repr(names: tuple[str, ...]) -> Callable[[Any], str]:
    @recursive_repr()
    def shown(self: Any) -> str:
        return f"{self.__class__.__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    return shown


def _refuse_to_set(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, one.name) for one in dataclasses.fields(self)]


def _set_state(self: Any, state: list[Any]) -> None:
    for one, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, one.name, value)
