"""The code of a proven plan as an object file for WebAssembly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cvm.executors.native.emit.machine import WASM
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.calls import DIRECT
from cvm.executors.native.runtime.foreign import compiled_for
from cvm.executors.native.runtime.networks import network_text

__all__ = ["RUN", "generated"]

RUN = "run"
"""The function of a module that checks the inputs and runs the program. It returns -1, or the number of the first
input (then state) with an element outside its interval."""

_TRIPLE = "wasm32-unknown-unknown"
_OFFSET = re.compile(r"getelementptr i8, (ptr \S+), i64 (\d+)$", re.MULTILINE)

_PRODUCT = """
define void @__multi3(ptr %to, i64 %a, i64 %a.high, i64 %b, i64 %b.high) nounwind {
entry:
  %a0 = and i64 %a, 4294967295
  %a1 = lshr i64 %a, 32
  %b0 = and i64 %b, 4294967295
  %b1 = lshr i64 %b, 32
  %p00 = mul i64 %a0, %b0
  %p01 = mul i64 %a0, %b1
  %p10 = mul i64 %a1, %b0
  %p11 = mul i64 %a1, %b1
  %carry0 = lshr i64 %p00, 32
  %p10.low = and i64 %p10, 4294967295
  %middle = add i64 %p01, %p10.low
  %sum = add i64 %middle, %carry0
  %carry1 = lshr i64 %sum, 32
  %p10.high = lshr i64 %p10, 32
  %top0 = add i64 %p11, %p10.high
  %top1 = add i64 %top0, %carry1
  %low = mul i64 %a, %b
  %cross0 = mul i64 %a, %b.high
  %cross1 = mul i64 %a.high, %b
  %top2 = add i64 %top1, %cross0
  %high = add i64 %top2, %cross1
  store i64 %low, ptr %to, align 8
  %high.at = getelementptr i8, ptr %to, i64 8
  store i64 %high, ptr %high.at, align 8
  ret void
}"""
"""The product of two integers of 128 bits, which the code generator calls and no library is there to define: schoolbook
multiplication in digits of 32 bits, modulo 2^128."""


def generated(
    plan: Plan, bounds: Sequence[tuple[int, int, int]], memory: Sequence[int], arrays: Sequence[int]
) -> bytes:
    """The object file of a plan; its function `RUN` takes no arguments.

    ``memory`` are the addresses of arena, constants and table of arrays, ``arrays`` those of the arrays of the plan,
    and ``bounds`` the elements, least and largest number of each array that is read.
    """
    text = network_text(plan, WASM, 1, bounds)
    # An address is below 2^32, and so is the sum of an address and an offset: said so, offsets become parts of loads.
    text = _OFFSET.sub(r"getelementptr nuw i8, \1, i64 \2", text)
    return compiled_for(_TRIPLE, WASM, "\n".join((text, _PRODUCT, _run(plan, memory, arrays))), "static")


def _run(plan: Plan, memory: Sequence[int], arrays: Sequence[int]) -> str:
    arena, constants, table = memory
    given = list(arrays) if len(arrays) <= DIRECT else [table]
    pointers = [f"ptr inttoptr (i32 {address} to ptr)" for address in (arena, constants, table, 0, *given)]
    pointers.insert(4, "i64 1")
    return (
        f"define i32 @{RUN}() nounwind {{\nentry:\n  %bad = call i64 @start({', '.join(pointers)})\n"
        "  %result = trunc i64 %bad to i32\n  ret i32 %result\n}"
    )
