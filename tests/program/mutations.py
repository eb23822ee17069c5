"""Programs, each with one field changed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from fractions import Fraction
from typing import Any

from cvm.errors import CvmError
from cvm.quantization.quantizer import LinearQuantizer

ABSENT: dict[str, Any] = {"quantizer": LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 15), "axis": 0}
"""What may be None, with another value for it."""


def mutations(thing: Any) -> Iterator[tuple[str, Any]]:
    """``thing`` with one field changed, for every field: (path of the field, mutated thing)."""
    if is_dataclass(thing) and not isinstance(thing, type):
        for item in fields(thing):
            present = getattr(thing, item.name)
            changes = list(mutations(present))
            if item.name in ABSENT:
                changes.append((" absent or not", ABSENT[item.name] if present is None else None))
            for path, other in changes:
                try:
                    yield f".{item.name}{path}", replace(thing, **{item.name: other})
                except CvmError:
                    continue  # such a quantiser does not exist
    elif isinstance(thing, dict):
        yield "[more]", {**thing, "more": 1}
        for key, value in thing.items():
            yield f"[-{key}]", {name: item for name, item in thing.items() if name != key}
            for path, other in mutations(value):
                yield f"[{key}]{path}", {**thing, key: other}
    elif isinstance(thing, tuple):
        if thing:
            yield "[last twice]", (*thing, thing[-1])
            yield "[no last]", thing[:-1]
        if thing[::-1] != thing:
            yield "[reversed]", thing[::-1]
        for index, item in enumerate(thing):
            for path, other in mutations(item):
                yield f"[{index}]{path}", (*thing[:index], other, *thing[index + 1 :])
    elif isinstance(thing, bytes):
        yield " flipped", bytes([thing[0] ^ 1]) + thing[1:]
    elif isinstance(thing, str):
        yield " + x", thing + "x"
        if thing != "x":
            yield " = x", "x"
    elif isinstance(thing, bool):
        yield " negated", not thing
    elif isinstance(thing, int):
        yield " + 1", thing + 1
    elif isinstance(thing, Fraction):
        yield " + 1/7", thing + Fraction(1, 7)
