"""Compilation of IR text for other processors and systems than this one, and for GPUs."""

from __future__ import annotations

from functools import cache
from typing import Any

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime.jit import own_addresses

__all__ = ["assembles", "assembly_for", "compiled_for"]


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()
    return llvm


def assembles(triple: str) -> bool:
    """Whether LLVM reads text for the assembler of a target, which it does for processors of the kind that runs it.

    Raises RuntimeError for a triple that LLVM does not know.
    """
    targets = _llvm().Target
    return bool(targets.from_triple(triple).name == targets.from_default_triple().name)


def compiled_for(triple: str, machine: Machine, text: str, reloc: str) -> bytes:
    """The object file of a module for a target triple. ``reloc`` is ``static`` or ``pic``.

    Raises RuntimeError with what LLVM says of a triple that it does not know, or of code that it refuses.
    """
    made = _target(triple, machine, reloc)
    head = f'target datalayout = "{made.target_data}"\ntarget triple = "{triple}"\n'
    module = _llvm().parse_assembly(head + text)
    module.verify()
    with own_addresses(machine.packs or machine.name == "wasm"):
        return bytes(made.emit_object(module))


def assembly_for(triple: str, machine: Machine, text: str) -> str:
    """The assembly text of a module for a target triple, which ``text`` may name itself. Raises as `compiled_for`."""
    made = _target(triple, machine, "static")
    module = _llvm().parse_assembly(text)
    module.triple, module.data_layout = triple, str(made.target_data)
    module.verify()
    return str(made.emit_assembly(module))


def _target(triple: str, machine: Machine, reloc: str) -> Any:
    return (
        _llvm()
        .Target.from_triple(triple)
        .create_target_machine(
            cpu=machine.cpu or "", features=machine.features or "", opt=3, reloc=reloc, codemodel="default"
        )
    )
