"""Compilation: IR text to an object file, and an object file to addresses."""

from __future__ import annotations

import llvmlite.binding as llvm

from cvm.executors.native.machine import Machine

__all__ = ["Loaded", "compiled", "loaded"]

llvm.initialize_native_target()
llvm.initialize_native_asmprinter()


def _target(machine: Machine) -> llvm.TargetMachine:
    target, features = llvm.Target.from_default_triple(), machine.features
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
        if target.name.startswith("x86"):  # other processors have no such preference, and LLVM complains
            features += ",-prefer-256-bit"
    return target.create_target_machine(
        cpu=machine.cpu or llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="default"
    )


def compiled(text: str, machine: Machine) -> bytes:
    """The object file of a module."""
    module = llvm.parse_assembly(text)
    module.verify()
    return bytes(_target(machine).emit_object(module))


class Loaded:
    """An object file in memory, for as long as this object lives."""

    def __init__(self, code: bytes, machine: Machine) -> None:
        # The engine owns its target machine: it must be one of its own.
        self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target(machine))
        self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
        self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function."""
        return int(self._engine.get_function_address(name))


def loaded(code: bytes, machine: Machine) -> Loaded:
    """An object file, ready to call."""
    return Loaded(code, machine)
