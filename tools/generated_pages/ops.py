"""The page ``docs/ops.md``: the catalogue of ops."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from cvm.ops.catalogue import catalogue
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# Ops

Generated from the declarations in `cvm/ops` by `tools/generate_pages.py`; do not edit.

All tensors are int32, row-major, of 1 to 8 dimensions, each of extent 1 or more; no element is -2^31. A *parameter* is
an int64 constant. The {count} ops stand in the order of the document "Operator Math Formalization"; extension ops come
last. A call that breaks a rule is invalid: `ops.<op>.arity` (number of inputs), `ops.<op>.shape` (an input
that no tensor can be), `ops.<op>.attribute.<name>`, or `ops.<op>.C<n>`, the rules below. In them N is the number of
dimensions of the first input and M that of the second, n_i and m_i are their extents, unless said otherwise.
"""


def markdown() -> str:
    """The catalogue as a page."""
    entries = catalogue()
    parts = [_INTRODUCTION.format(count=len(entries))]
    for family, group in groupby(entries, key=lambda entry: entry["family"]):
        parts.append(f"## {family}\n")
        parts.extend(_section(entry) for entry in group)
    return "\n".join(parts)


def _section(entry: dict[str, Any]) -> str:
    lines = [f"### {entry['name']}", "", entry["doc"], ""]
    lines += [f"Source: {entry['source']}.", "", f"Inputs: {_inputs(entry)}.", ""]
    if entry["outputs"] != ["Y"]:
        lines += ["Outputs: " + ", ".join(f"`{name}`" for name in entry["outputs"]) + ".", ""]
    if entry["attributes"]:
        lines += ["| attribute | type | default | |", "|---|---|---|---|"]
        lines += [_row(attribute) for attribute in entry["attributes"]]
        lines.append("")
    if entry["constraints"]:
        lines += [f"* **{rule['label']}** {_rule(rule)}" for rule in entry["constraints"]]
        lines.append("")
    return "\n".join(lines)


def _inputs(entry: dict[str, Any]) -> str:
    described = []
    for spec in entry["inputs"]:
        notes = [spec["kind"]] if spec["kind"] == "parameter" else []
        notes += ["optional"] if spec["optional"] else []
        marks = f" ({', '.join(notes)})" if notes else ""
        described.append(f"`{spec['name']}{', ..' if spec['many'] else ''}`{marks} {spec['what']}")
    return "; ".join(described)


def _row(attribute: dict[str, Any]) -> str:
    default = "required" if attribute["required"] else f"`{_literal(attribute['default'])}`"
    what = attribute["what"].replace("|", "\\|")
    return f"| `{attribute['name']}` | {_kind(attribute)} | {default} | {what} |"


def _literal(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({', '.join(map(str, value))})"
    return "none" if value is None else str(value).lower()


def _kind(attribute: dict[str, Any]) -> str:
    if attribute["type"] == "word":
        return " or ".join(f"`{value}`" for value in attribute["values"])
    if attribute["type"] == "boolean":
        return "boolean"
    interval = f"[{_power(attribute['minimum'])}, {_power(attribute['maximum'])}]"
    if attribute["type"] == "integer":
        return f"integer in {interval}" + (", or none" if attribute.get("optional") else "")
    least, most = attribute["least_length"], attribute["most_length"]
    return f"{least if least == most else f'{least} to {most}'} integers in {interval}"


def _power(bound: int) -> str:
    """The bound as a reader knows it: powers of two from 2^31 on."""
    named = {2**31 - 1: "2^31 - 1", 1 - 2**31: "-(2^31 - 1)", -(2**31): "-2^31"}
    return named.get(bound, str(bound))


def _rule(rule: dict[str, Any]) -> str:
    return str(rule["text"]) + ("" if rule["on"] == "shapes" else " (of proven ranges)")


PAGE = Page("ops.md", markdown)
