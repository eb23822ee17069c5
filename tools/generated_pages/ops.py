"""The page ``docs/ops.md``: the catalogue of ops."""

from __future__ import annotations

import inspect
from itertools import groupby
from typing import Any

from cvm.ops import REGISTRY
from cvm.ops.catalogue import catalogue
from cvm.ops.specification import STATEMENTS, Each
from cvm.ops.specification.statement import gas_line
from formal import broadcast, reduce
from formal.registry import OPS
from formal.tensor import flatten_index
from tools.generated_pages.page import Page
from tools.generated_pages.parts.op_examples import example_lines

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# Ops

Generated from the declarations in `cvm/ops` by `tools/generate_pages.py`; do not edit.

<!-- not run on this page: formulas, which formal/ has as code -->

All tensors are int32, row-major, of 1 to 8 dimensions, each of extent 1 or more; no element is -2^31. A *parameter* is
an int64 constant. The {count} ops stand in the order of the document "Operator Math Formalization"; extension ops come
last. A call that breaks a rule is invalid: `ops.<op>.arity` (number of inputs), `ops.<op>.shape` (an input of a shape
that no tensor can have), `ops.<op>.attribute.<name>`, or `ops.<op>.C<n>`, the rules below. In the rules, N is the
number of dimensions of the first input and M that of the second; n_i and m_i are their extents, unless said otherwise.

This page says what each op computes and what a verifier derives from it; [verifier.md](verifier.md) says what a
verifier does with a whole program. Both suffice to write a verifier: `tests/independent/verifier.py` was written so.

## How to read this page

**Formula** is the definition of FORMAL, the reference, which also computes it; labels such as (E13) are decisions of
`formal/ERRATA.md`. All integers are unbounded.

**Shape** and **gas** are lines of Python. `X.shape` is the shape of the operand X and `X.size` the number of its
elements, 0 for an operand that is absent; attributes stand under their names. `a // b` is the floor of the quotient
and `a % b` the remainder, at least 0 for b > 0. `broadcast` aligns shapes at the right and takes the larger extent of
each axis; a missing axis has extent 1. The gas of an op is 1, the elements read, the elements written, and work. It
depends on shapes and attributes only. Tests evaluate these lines on drawn calls and compare them with the declarations.

**Interval** says which interval a verifier derives for each element of the result. R(X) is the range of the operand
X: its bounds, as [verifier.md](verifier.md#5-ranges) defines them, with the words *hull*, *per channel*, *made to
fit*. If lines of Python give the interval, `X.lo` and `X.hi` are the bounds of an element, and the lines hold for each
bound of the operands' broadcast. Before that, the operands are made to fit 2^18 bounds, or the number of bounds of all
operands together if that is more; the bounds of their broadcast are counted. `clip(x, lo, hi)` is max(lo, min(x, hi)),
`quotient(a, b)` the quotient truncated toward zero, `rounded(v, s, rounding)` is v / 2^s and `ratio(a, b, rounding)`
a / b, rounded as `requantize` and `quotient` say. If the result of the lines exceeds int32, the call is refused with
`program.range`.

**Checks** are in order: the first one that fails is reported. Checks that all ops share are left out. After the arity,
a verifier checks that inputs exist (`program.undefined`) and are tensors or parameters as declared (`program.kind`);
after the constraints on shapes, sizes and gas (`limit.*`); last, `program.range` ([verifier.md](verifier.md#4-nodes)).

**Example** is computed by FORMAL and verified when this page is made. "By channel" lists the bounds along the channel
axis.

### Common formulas

All reduce ops share these:

```text
{reduce}
```

All broadcast ops share these; the second one is the index that aligns an operand with the result:

```text
{broadcast}

{aligned}
```

`flatten`, `reshape` and `take` use the number of an index among all indices:

```text
{flatten_index}
```
"""


_WHY_NOT_RUN = {
    "text": [],  # the page says it once
    "python": ["<!-- not run: a rule in the names of this page; tests/independent/verifier.py runs what it says -->"],
}
"""Why the blocks of a language are not run, as tools/run_pages.py reads it."""


def markdown() -> str:
    """The catalogue as a page."""
    entries = catalogue()
    common = {
        function.__name__: inspect.cleandoc(function.__doc__ or "")
        for function in (reduce.reduce, broadcast.broadcast, broadcast.aligned, flatten_index)
    }
    parts = [_INTRODUCTION.format(count=len(entries), **common)]
    for family, group in groupby(entries, key=lambda entry: entry["family"]):
        parts.append(f"## {family}\n")
        parts.extend(_section(entry) for entry in group)
    return "\n".join(parts)


def _section(entry: dict[str, Any]) -> str:
    lines = [f"### {entry['name']}", "", entry["doc"], ""]
    lines += [f"Source: {entry['source']}.", "", f"Inputs ({_arity(entry)}): {_inputs(entry)}.", ""]
    if entry["outputs"] != ["Y"]:
        lines += ["Outputs: " + ", ".join(f"`{name}`" for name in entry["outputs"]) + ".", ""]
    if entry["attributes"]:
        lines += ["| attribute | type | default | |", "|---|---|---|---|"]
        lines += [_row(attribute) for attribute in entry["attributes"]]
        lines.append("")
    if entry["constraints"]:
        lines += [f"* **{rule['label']}** {_rule(rule)}" for rule in entry["constraints"]]
        lines.append("")
    lines += _stated(entry)
    return "\n".join(lines)


def _stated(entry: dict[str, Any]) -> list[str]:
    """What is stated for verifiers: formula, shape, interval, gas, checks, example."""
    op, statement = REGISTRY[entry["name"]], STATEMENTS[entry["name"]]
    formula = inspect.cleandoc(OPS[op.name].__doc__ or "").splitlines()
    if statement.formulas:
        formula += ["", *statement.formulas]
    shapes = [f"{name}.shape = {text}" for name, text in zip(op.outputs, statement.shapes, strict=True)]
    return [
        *_block("Formula:", "text", formula),
        *_block("Shape:", "python", [*statement.where, *shapes]),
        *_interval(statement.interval),
        f"Gas: `{gas_line(statement, op)}`",
        "",
        f"Checks: {', '.join(f'`{code}`' for code in _checks(entry))}.",
        "",
        *_block("Example:", "text", example_lines(op.name, statement.example)),
    ]


def _block(title: str, language: str, lines: list[str]) -> list[str]:
    return [title, "", *_WHY_NOT_RUN[language], f"```{language}", *lines, "```", ""]


def _interval(stated: Each | tuple[str, ...]) -> list[str]:
    if isinstance(stated, Each):
        return _block("Interval:", "python", [*stated.where, f"lo = {stated.lo}", f"hi = {stated.hi}"])
    return ["Interval:", "", *(f"* {line[0].upper()}{line[1:]}" for line in stated), ""]


def _checks(entry: dict[str, Any]) -> list[str]:
    """The codes of the refusals that are the op's own, in the order of the checks."""
    parts = [f"attribute.{attribute['name']}" for attribute in entry["attributes"]]
    parts += ["arity", *(rule["label"] for rule in entry["constraints"])]
    return [f"ops.{entry['name']}.{part}" for part in parts]


def _arity(entry: dict[str, Any]) -> str:
    """How many inputs there are."""
    least, largest = entry["arity"]["least"], entry["arity"]["largest"]
    if least == largest:
        return str(least)
    return f"{least} to {largest}" if largest is not None else f"{least} or more"


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
