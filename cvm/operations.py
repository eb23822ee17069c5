"""The operations of NNEF 1.0.1 chapter 4 and of the Khronos dialect, and what is claimed of each: data and a page.

``cvm ops --nnef`` shows `nnef_operations()`; ``docs/nnef-operations.md`` is `markdown()`, which
``tools/generate_nnef_operations_page.py`` writes.
"""

from __future__ import annotations

from typing import Any

from cvm.frontends.nnef.declarations import khronos_library, sections, standard_library
from cvm.lowering import CLAIMS, REFUSALS

__all__ = ["markdown", "nnef_operations"]

_INTRODUCTION = """\
# NNEF operations

Generated from the declarations beside the lowering rules in `cvm/lowering` by
`tools/generate_nnef_operations_page.py`; do not edit. `cvm ops --nnef` prints the same.

A quantised document has an exact meaning: arithmetic on reals, rounded once at every tensor that carries a quantiser.
*exact* says that the integer program computes exactly those codes, whatever the shapes, attributes and quantisers.
*bounded* says that the compiler reports for each such tensor by how many codes it may differ, and the last column why
there is no proof that it never does. *refused* says that a document with the operation does not compile.

Of the {count} operations {exact} are exact, {bounded} bounded{names}, {refused} refused.
"""

_REFUSALS = """
## What is refused

What cannot be lowered is refused when compiling, with the tensor, the place in the document and the reason; nothing is
approximated instead. The conditions of one operation, error code `lowering.operation`, stand in the table above. These
are the other codes, which any operation may lead to:

| code | when |
|---|---|
"""


def nnef_operations() -> list[dict[str, Any]]:
    """One entry per operation, in the order of the specification, then of the dialect; plain data, fit for JSON.

    ``claim`` is "exact", "bounded" or "refused"; ``reason`` says why it is not exact.
    """
    places, standard = sections(), standard_library()
    found = []
    for name in khronos_library():
        claim = CLAIMS.get(name)
        entry: dict[str, Any] = {"name": name, "section": places[name]}
        entry["dialect"] = "1.0.1" if name in standard else "khronos"
        if claim is None:
            entry |= {"claim": "refused", "how": "", "reason": "it has no lowering rule", "refused_if": []}
        else:
            entry |= {"claim": claim.kind, "how": claim.how, "reason": claim.reason, "refused_if": list(claim.refuses)}
        found.append(entry)
    return found


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
