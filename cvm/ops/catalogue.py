"""The catalogue of ops: the contents of all declarations as data, from which ``docs/ops.md`` is made."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Collection
from typing import Any

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
    schema = op.Attributes.model_json_schema()
    required = schema.get("required", [])
    return [
        {"name": name, "what": item.get("description", ""), "required": name in required}
        | ({} if name in required else {"default": item.get("default")})
        | _type(item)
        for name, item in schema.get("properties", {}).items()
    ]


def _type(item: dict[str, Any]) -> dict[str, Any]:
    """The type of an attribute with its bounds: bool, int, one of some words, or a list of integers."""
    if "enum" in item:
        return {"type": "word", "values": item["enum"]}
    if "anyOf" in item:
        return {**_type(item["anyOf"][0]), "optional": True}
    if item["type"] == "array":
        elements = item["items"] if "items" in item else item["prefixItems"][0]
        bounds = {key: value for key, value in _type(elements).items() if key != "type"}
        return {"type": "integers", **bounds, "least_length": item.get("minItems", 0), "most_length": item["maxItems"]}
    if item["type"] == "integer":
        return {"type": "integer", "minimum": item["minimum"], "maximum": item["maximum"]}
    return {"type": "boolean"}
