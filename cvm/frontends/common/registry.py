"""Tables of functions, filled by decorators."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

__all__ = ["entering"]

_Key = TypeVar("_Key")
_Function = TypeVar("_Function", bound=Callable[..., Any])


def entering(table: dict[_Key, _Function]) -> Callable[..., Callable[[_Function], _Function]]:
    """A decorator factory: ``@enter(*keys)`` enters the function into ``table`` under each key."""

    def under(*keys: _Key) -> Callable[[_Function], _Function]:
        def enter(function: _Function) -> _Function:
            table.update(dict.fromkeys(keys, function))
            return function

        return enter

    return under
