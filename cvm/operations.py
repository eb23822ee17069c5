"""The operations of NNEF 1.0.1 chapter 4 and of the Khronos dialect, with the claim about each.

``cvm ops --nnef`` prints them, and ``docs/nnef-operations.md`` is generated from them.
"""

from __future__ import annotations

from typing import Any

from cvm.frontends.nnef.declarations import khronos_library, sections, standard_library
from cvm.lowering import CLAIMS

__all__ = ["nnef_operations"]


def nnef_operations() -> list[dict[str, Any]]:
    """One entry per operation, in the order of the specification, then of the dialect; plain data, fit for JSON.

    ``claim`` is "exact", "bounded" or "refused"; ``reason`` says why it is not exact.
    """
    section_of, standard = sections(), standard_library()
    found = []
    for name in khronos_library():
        claim = CLAIMS.get(name)
        entry: dict[str, Any] = {"name": name, "section": section_of[name]}
        entry["dialect"] = "1.0.1" if name in standard else "khronos"
        if claim is None:
            entry |= {"claim": "refused", "how": "", "reason": "it has no lowering rule", "refused_if": []}
        else:
            entry |= {"claim": claim.kind, "how": claim.how, "reason": claim.reason, "refused_if": list(claim.refuses)}
        found.append(entry)
    return found
