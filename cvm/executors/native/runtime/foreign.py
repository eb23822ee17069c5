"""Compilation of IR text for other processors and systems than this one."""

from __future__ import annotations

from functools import cache
from typing import Any

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime.jit import own_addresses

__all__ = ["compiled_for"]


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    return llvm


def compiled_for(triple: str, machine: Machine, text: str, reloc: str) -> bytes:
    """The object file of a module for a target triple. ``reloc`` is ``static`` or ``pic``.

    Raises RuntimeError with what LLVM says of a triple that it does not know, or of code that it refuses.
    """
    llvm = _llvm()
    target = llvm.Target.from_triple(triple)
    made = target.create_target_machine(
        cpu=machine.cpu or "", features=machine.features or "", opt=3, reloc=reloc, codemodel="default"
    )
    head = f'target datalayout = "{made.target_data}"\ntarget triple = "{triple}"\n'
    module = llvm.parse_assembly(head + text)
    module.verify()
    with own_addresses(machine.packs or machine.name == "wasm"):
        return bytes(made.emit_object(module))
