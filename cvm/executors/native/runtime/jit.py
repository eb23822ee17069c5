"""Compilation of IR text to an object file, and loading of an object file.

LLVM is imported only if there is code to compile, or an object file that only LLVM can load.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache as store
from cvm.executors.native.runtime.objects import placed

__all__ = ["Loaded", "compiled", "kept_or_compiled", "loaded", "own_addresses"]


@cache
def _llvm() -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    return llvm


def _target(machine: Machine) -> Any:
    llvm = _llvm()
    target, features = llvm.Target.from_default_triple(), machine.features
    if features is None:
        features = llvm.get_host_cpu_features().flatten()
        if target.name.startswith("x86"):  # LLVM warns about this preference on other processors
            features += ",-prefer-256-bit"
    # On x86, the second level only schedules instructions once more, which these processors do themselves: a tenth of
    # the time of the code generator, and kernels are as fast without it.
    level = 1 if machine.packs else 2
    return target.create_target_machine(
        cpu=machine.cpu or llvm.get_host_cpu_name(), features=features, opt=level, reloc="pic", codemodel="default"
    )


KNOWN = range(20, 23)
"""The versions of LLVM of which it is known that they have the options; LLVM ends the process for an unknown one."""
_OPTIONS = "-disable-lsr", "-disable-cgp"
_lock = threading.Lock()
_without = 0


@contextmanager
def own_addresses(kept: bool) -> Iterator[None]:
    """If they are to be ``kept``, let LLVM keep the addresses of loops as the emitter has written them.

    That serves machines with x86's addressing: LLVM's own search for them takes a quarter of the time of the code
    generator, its preparation of whole functions (which moves address computations to their uses) a sixth, and neither
    yields faster kernels. In WebAssembly the search hides offsets that are parts of loads otherwise. The options hold
    for the whole process; they are reset when the last block ends, so other users of LLVM keep theirs.
    """
    global _without
    llvm = _llvm()
    if not kept or llvm.llvm_version_info[0] not in KNOWN:
        yield
        return
    with _lock:
        _without += 1
        if _without == 1:
            for option in _OPTIONS:
                llvm.set_option("cvm", option)
    try:
        yield
    finally:
        with _lock:
            _without -= 1
            if _without == 0:
                for option in _OPTIONS:
                    llvm.set_option("cvm", f"{option}=false")


def compiled(text: str, machine: Machine) -> bytes:
    """Compile a module to an object file. ``text`` is its IR."""
    module = _llvm().parse_assembly(text)
    module.verify()
    with own_addresses(machine.packs):
        return bytes(_target(machine).emit_object(module))


def kept_or_compiled(what: str, text: str, machine: Machine) -> bytes:
    """The object file of a module from the cache, or else compiled and stored there."""
    return store.made_once(store.key(machine, (what, text)), lambda: compiled(text, machine))


class Loaded:
    """An object file in memory, for as long as this object lives."""

    def __init__(self, code: bytes, machine: Machine) -> None:
        self._placed = placed(code)
        if self._placed is None:
            llvm = _llvm()
            # The engine takes ownership of its target machine, so it gets a new one.
            self._engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), _target(machine))
            self._engine.add_object_file(llvm.ObjectFileRef.from_data(code))
            self._engine.finalize_object()

    def address(self, name: str) -> int:
        """The address of a function."""
        if self._placed is not None:
            return self._placed.address(name)
        return int(self._engine.get_function_address(name))


def loaded(code: bytes, machine: Machine) -> Loaded:
    """Load an object file, so that its functions can be called."""
    return Loaded(code, machine)
