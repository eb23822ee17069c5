"""PTX: the assembly text of kernels, which the driver of a GPU translates to machine code when it loads them.

LLVM writes PTX for a compute capability. PTX for one capability runs on every later one, so a GPU that LLVM does not
know gets the text for the nearest lower capability that it knows. Texts are kept in the cache of the native executor,
by the same rules (`cvm.executors.native.runtime.cache`). The driver keeps its translations itself.
"""

from __future__ import annotations

from dataclasses import replace

from cvm.errors import Unsupported
from cvm.executors.cuda.launch import TRIPLE
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.foreign import assembly_for

__all__ = ["CAPABILITIES", "LEAST", "Capability", "assembled", "nearest"]

Capability = tuple[int, int]
"""A compute capability: major and minor."""

CAPABILITIES: tuple[Capability, ...] = ((8, 0), (8, 6), (8, 7), (8, 9), (9, 0), (10, 0), (12, 0))
"""The capabilities that every version of LLVM knows which llvmlite has had since 0.45, in rising order.

LLVM answers to a capability that it does not know with PTX for its oldest one, so this list must be right.
"""
LEAST = CAPABILITIES[0]
"""The least capability of a GPU that kernels run on: it has the instructions for products of 8 bits and copies that
they use."""


def nearest(capability: Capability) -> Capability:
    """The greatest capability that LLVM knows and a GPU of ``capability`` has.

    Raises `Unsupported` (``cuda.capability``) if the GPU is older than `LEAST`.
    """
    if capability < LEAST:
        found, needed = (".".join(map(str, one)) for one in (capability, LEAST))
        message = f"the GPU has compute capability {found}; the CUDA executor needs {needed} or later (Ampere, 2020)"
        raise Unsupported("cuda.capability", f"{message}: run the program with the executor native")
    return max(one for one in CAPABILITIES if one <= capability)


def assembled(ir: str, capability: Capability) -> bytes:
    """The PTX of a module for a GPU of ``capability``. ``ir`` is its text.

    Raises `Unsupported`: ``cuda.capability`` (see `nearest`), or ``cuda.code`` if LLVM refuses the module.
    """
    known = nearest(capability)
    machine = replace(CUDA, cpu=f"sm_{known[0]}{known[1]}")

    def make() -> bytes:
        try:
            text = assembly_for(TRIPLE, machine, ir)
        except RuntimeError as error:
            raise Unsupported("cuda.code", f"LLVM refuses a module of kernels: {str(error).splitlines()[0]}") from error
        if f".target {machine.cpu}" not in text:
            message = f"this LLVM writes no code for {machine.cpu}; another version of llvmlite may (0.45 or later)"
            raise Unsupported("cuda.code", message)
        return text.encode()

    return cache.made_once(cache.key(machine, ("ptx", ir)), make)
