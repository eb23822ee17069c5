"""The subset of JSON that cvm-runtime reads.

There are objects, arrays, strings and integers; no null, no logical values, no other numbers. In strings, a backslash
may precede only r, n, t, a backslash or a quotation mark.
"""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

from cvm.errors import LimitExceeded, Location, Malformed
from cvm.limits import DEFAULT, Limits, require

__all__ = ["read_text"]

_DIGITS = 20
"""The most characters of a number: those of 64 bits."""
_ESCAPE = re.compile(r"\\(.?)", re.DOTALL)


def read_text(data: bytes | str, limits: Limits = DEFAULT) -> Any:
    """The value of a text: dicts, lists, strings and integers.

    Raises `Malformed` (``cvm_runtime.json``), with line and column where they are known, and `LimitExceeded`.
    """
    text = _decoded(data, limits)
    for escape in _ESCAPE.finditer(text):
        if escape[1] not in tuple('rnt\\"'):
            _fail(text, escape.start(), f'the reader knows no {escape[0]!r}: only \\r \\n \\t \\\\ and \\"')
    try:
        value = json.loads(
            text, object_pairs_hook=_object, parse_int=_integer, parse_float=_float, parse_constant=_float
        )
    except json.JSONDecodeError as error:
        _fail(text, error.pos, error.msg)
    except RecursionError:
        raise LimitExceeded("limit.nesting", f"brackets are nested deeper than {limits.nesting}") from None
    _require_plain(value, limits)
    return value


def _decoded(data: bytes | str, limits: Limits) -> str:
    size = len(data)
    require("text", size, limits.text_bytes, "bytes of a model's text")
    if isinstance(data, str):
        return data
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("cvm_runtime.json", f"byte {error.start} is not UTF-8") from None


def _fail(text: str, offset: int, message: str) -> NoReturn:
    line = text.count("\n", 0, offset) + 1
    column = offset - text.rfind("\n", 0, offset)
    raise Malformed("cvm_runtime.json", message, Location(line=line, column=column))


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Malformed("cvm_runtime.json", f"the key {name[:80]!r} is given twice")
        found[name] = value
    return found


def _integer(digits: str) -> int:
    if len(digits) > _DIGITS:
        raise Malformed("cvm_runtime.json", f"a number of {len(digits)} characters; expected at most {_DIGITS}")
    return int(digits)


def _float(text: str) -> NoReturn:
    raise Malformed("cvm_runtime.json", f"expected integers, found {text[:40]}")


def _require_plain(value: Any, limits: Limits) -> None:
    """Refuse null and logical values, and nesting beyond the limit."""
    level = [value]
    depth = 0
    while level:
        depth += 1
        require("nesting", depth, limits.nesting, "depth of brackets")
        below: list[Any] = []
        for item in level:
            if item is None or isinstance(item, bool):
                found = "null" if item is None else str(item).lower()
                raise Malformed("cvm_runtime.json", f"expected a string, an integer or brackets, found {found}")
            if isinstance(item, dict):
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = below
