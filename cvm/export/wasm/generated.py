"""The code of a proven plan as an object file for WebAssembly."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cvm.executors.native.emit.machine import WASM
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.foreign import compiled_for
from cvm.executors.native.runtime.networks import network_text, stage_name

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


def generated(plan: Plan, bounds: Sequence[tuple[int, int, int]], memory: Sequence[int]) -> bytes:
    """The object file of a plan; its function `RUN` takes no arguments.

    ``memory`` are the addresses of arena, constants and table of arrays, and ``bounds`` the elements, least and largest
    number of each array that is read.
    """
    text = network_text(plan, WASM, 1, bounds, [(0, len(plan.calls))])
    # An address is below 2^32, and so is the sum of an address and an offset: said so, offsets become parts of loads.
    text = _OFFSET.sub(r"getelementptr nuw i8, \1, i64 \2", text)
    return compiled_for(_TRIPLE, WASM, "\n".join((text, _PRODUCT, _run(memory))), "static")


def _run(memory: Sequence[int]) -> str:
    arena, constants, table = (f"ptr inttoptr (i32 {address} to ptr)" for address in memory)
    return f"""define i32 @{RUN}() nounwind {{
entry:
  %bad = call i64 @check({table})
  %refused = icmp sge i64 %bad, 0
  br i1 %refused, label %refuse, label %compute
refuse:
  %result = trunc i64 %bad to i32
  ret i32 %result
compute:
  call void @{stage_name(0)}({arena}, {constants}, {table}, ptr null, i64 1)
  ret i32 -1
}}"""
