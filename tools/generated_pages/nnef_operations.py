"""The page ``docs/nnef-operations.md``, from the claims beside the lowering rules."""

from __future__ import annotations

from cvm.lowering import REFUSALS
from cvm.operations import nnef_operations
from tools.generated_pages.page import Page

__all__ = ["PAGE", "markdown"]

_INTRODUCTION = """\
# NNEF operations

Generated from the declarations beside the lowering rules in `cvm/lowering` by
`tools/generate_pages.py`; do not edit. `cvm ops --nnef` prints the same.

A quantised document has an exact meaning: arithmetic on reals, rounded once at every tensor that carries a quantiser.
*exact* means that the integer program computes exactly those codes, whatever the shapes, attributes and quantisers.
*bounded* means that the compiler reports for each such tensor by how many codes it may differ; the last column says why
it is not proven to be exact. *refused* means that a document with the operation does not compile.

Of the {count} operations, {exact} are exact, {bounded} bounded{names} and {refused} refused.
"""

_REFUSALS = """
## What is refused

A document that cannot be lowered exactly or within a bound is refused when compiling, with the tensor, the location in
the document and the reason; nothing is approximated instead. The table above has the conditions of each operation,
error code `lowering.operation`. Any operation may lead to these other codes:

| code | when |
|---|---|
"""


def markdown() -> str:
    """The page."""
    entries = nnef_operations()
    counts = {kind: [e["name"] for e in entries if e["claim"] == kind] for kind in ("exact", "bounded", "refused")}
    bounded = counts["bounded"]
    names = f" ({', '.join(f'`{name}`' for name in bounded)})" if bounded else ""
    lines = [
        _INTRODUCTION.format(
            count=len(entries), exact=len(counts["exact"]), bounded=len(bounded), names=names,
            refused=len(counts["refused"]),
        )
    ]  # fmt: skip
    titles = ("operation", "section", "claim", "how", "refused if", "why not exact")
    lines += [_row(titles), "|---" * len(titles) + "|"]
    lines += [
        _row((f"`{e['name']}`", e["section"], e["claim"], e["how"], "; ".join(e["refused_if"]), e["reason"]))
        for e in entries
    ]
    return "\n".join(lines) + "\n" + _REFUSALS + "".join(f"| `{code}` | {when} |\n" for code, when in REFUSALS.items())


def _row(cells: tuple[str, ...]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


PAGE = Page("nnef-operations.md", markdown)
