"""Any function of one quantised tensor, given by a table of codes that the front end has made."""

from __future__ import annotations

import numpy as np

from cvm.lowering.claims import exact
from cvm.lowering.context import Coded, Lowering, Result, rule

__all__: list[str] = []


@rule("lookup", claim=exact("a table that says the code of the result for every code of the operand"))
def lookup(lowering: Lowering) -> list[Result]:
    """Entry q - ``first`` of ``codes``, where q is the code of x. The table has an entry for every code of x."""
    value, _, _, _ = lowering.coded("x")
    codes = np.array(lowering.operation.attributes["codes"], dtype=np.int64)
    lo, hi = value.range.hull()
    first = lowering.integer("first")
    table = lowering.tensor_constant(codes[lo - first : hi - first + 1], "table")
    if lo:
        least = lowering.tensor_constant(np.array([lo]), "least")
        value = value - least
    found = lowering.emit("cvm_lut", table, value)
    return [Coded(found, note=f"table of {hi - lo + 1} entries", any_rounding=True)]
