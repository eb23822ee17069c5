"""Samples: every kernel computes the samples of a batch, one for each index of the third direction of its grid.

The emitters write kernels of one sample. Each parameter ``%ak``, an address, becomes two: the address for the first
sample, ``%pk``, and the distance in bytes from one sample to the next, ``%tk``, an integer of 64 bits. The kernel
begins with the address for its own sample, which has the old name. Steps are multiples of the alignment of
allocations, so that all samples are aligned alike.
"""

from __future__ import annotations

import re

from cvm.executors.cuda.emit.threads import GLOBAL
from cvm.executors.native.emit.ir import Module

__all__ = ["with_samples"]

_REGISTER = "llvm.nvvm.read.ptx.sreg.ctaid.z"
_ADDRESS = re.compile(rf"{re.escape(GLOBAL)} %a(\d+)")


def with_samples(module: Module) -> None:
    """Let every kernel of a module compute any number of samples. No kernel may use the third direction itself."""
    for name, text in module.functions.items():
        if text.startswith("define ptx_kernel "):
            assert _REGISTER not in text, name
            module.functions[name] = _of_samples(text)
    module.declarations.add(f"declare i32 @{_REGISTER}()")


def _of_samples(text: str) -> str:
    header, body = text.split("\nentry:\n", 1)
    numbers = _ADDRESS.findall(header)
    if not numbers:
        return text
    header = _ADDRESS.sub(rf"{GLOBAL} %p\1", header)
    last = f"{GLOBAL} %p{numbers[-1]}"
    steps = ", ".join(f"i64 %t{number}" for number in numbers)
    header = header.replace(last, f"{last}, {steps}")
    lines = [f"  %sample = call i32 @{_REGISTER}()", "  %number = zext i32 %sample to i64"]
    for number in numbers:
        lines.append(f"  %m{number} = mul i64 %number, %t{number}")
        lines.append(f"  %a{number} = getelementptr i8, {GLOBAL} %p{number}, i64 %m{number}")
    return "\n".join([header, "entry:", *lines, body])
