"""The catalogue of ops: the contents of all declarations as data, from which ``docs/ops.md`` is made."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection
from typing import Any

from cvm.ops.attributes import Integer, Integers, Kind, Word
from cvm.ops.declaration import REGISTRY, Op

__all__ = ["catalogue", "meant"]

_LETTERS = 40
"""The largest length of a name for which similar names are searched."""
_ALIKE = 0.65
"""How similar they must be: a share of equal letters."""


def catalogue() -> list[dict[str, Any]]:
    """One entry per op, in the order of the document. Entries hold only data that JSON can represent."""
    return [_entry(op) for op in REGISTRY.values()]


def meant(name: str, names: Collection[str]) -> str:
    """The end of a message about an unknown name: a known name that is similar, also to spellings like MaxPool."""
    plain = {known.lower().replace("_", ""): known for known in names}
    word = name[:_LETTERS].lower().replace("_", "")
    close = difflib.get_close_matches(word, plain, 1, _ALIKE) or [key for key in plain if len(word) > 2 and word in key]
    return f"; did you mean {plain[close[0]]!r}?" if close else ""


def _entry(op: Op) -> dict[str, Any]:
    doc = inspect.cleandoc(op.__doc__ or "")
    least, largest = op.arity()
    return {
        "name": op.name,
        "family": op.family,
        "source": op.source,
        "op_set": op.op_set,
        "extension": op.extension,
        "summary": " ".join(doc.split("\n\n")[0].split()),
        "doc": doc,
        "arity": {"least": least, "largest": largest},
        "inputs": [
            {"name": spec.name, "what": spec.what, "kind": spec.kind, "optional": spec.optional, "many": spec.many}
            for spec in op.inputs
        ],
        "outputs": list(op.outputs),
        "attributes": _attributes(op),
        "constraints": [{"label": rule.label, "text": rule.text, "on": rule.on} for rule in op.constraints],
    }


def _attributes(op: Op) -> list[dict[str, Any]]:
    return [
        {"name": name, "what": item.what, "required": item.required}
        | ({} if item.required else {"default": _plain(item.default)})
        | _type(item.kind)
        | ({"optional": True} if item.default is None else {})
        for name, item in op.Attributes.declared.items()
    ]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _type(kind: Kind) -> dict[str, Any]:
    """The type of an attribute with its bounds: boolean, integer, one of some words, or a list of integers."""
    match kind:
        case Word():
            return {"type": "word", "values": list(kind.words)}
        case Integers():
            bounds = {"minimum": kind.item.least, "maximum": kind.item.most}
            return {"type": "integers", **bounds, "least_length": kind.shortest, "most_length": kind.longest}
        case Integer():
            return {"type": "integer", "minimum": kind.least, "maximum": kind.most}
        case _:
            return {"type": "boolean"}
