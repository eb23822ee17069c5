"""The choice of the machine to compile for: the fastest one of this computer that passes its trial."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from dataclasses import dataclass
from functools import cache

from cvm.errors import Invalid
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.runtime.cache import host
from cvm.executors.native.runtime.trial import failure

__all__ = ["Choice", "available", "choice", "named", "permitted", "told_by_linux"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The machine to use, or None if no machine can be used, and the reason why faster ones are not used."""

    machine: Machine | None
    reason: str


_AUXILIARY = {"dotprod": (16, 1 << 20), "i8mm": (26, 1 << 13)}
"""For Linux on AArch64: the entry of the auxiliary vector (AT_HWCAP, AT_HWCAP2) that reports a feature, and its bit."""


def told_by_linux() -> frozenset[str]:
    """On AArch64, ``aarch64`` and the features that Linux reports, since LLVM misses most. Elsewhere, nothing."""
    if sys.platform != "linux" or platform.machine() != "aarch64":
        return frozenset()
    ask = ctypes.CDLL(None).getauxval
    ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
    return frozenset({"aarch64", *(name for name, (word, bit) in _AUXILIARY.items() if ask(word) & bit)})


@cache
def permitted() -> bool:
    """Whether the operating system lets this process use tile registers. A process must ask Linux for them once."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return False
    arch_prctl, request, tile_data = 158, 0x1023, 18  # arch_prctl(2): ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
    return int(ctypes.CDLL(None, use_errno=True).syscall(arch_prctl, request, tile_data)) == 0


@cache
def available() -> tuple[Machine, ...]:
    """The machines whose features this processor has, the fastest first."""
    told = told_by_linux()

    def can(machine: Machine) -> bool:
        has = all(feature in told or host().has(feature) for feature in machine.needs)
        return has and (not machine.tiles or permitted())

    return tuple(machine for machine in MACHINES if can(machine))


def named(name: str) -> Machine:
    """A machine by name. Raises `Invalid` (``executors.machine``) if this processor lacks its features."""
    for machine in available():
        if machine.name == name:
            return machine
    names = ", ".join(machine.name for machine in available())
    raise Invalid("executors.machine", f"this processor is no {name!r}; it can be {names}")


@cache
def _tried(candidates: tuple[Machine, ...]) -> Choice:
    complaints: list[str] = []
    for machine in candidates:
        wrong = failure(machine)
        if wrong is None:
            return Choice(machine, "; ".join((*complaints, f"{machine.name} passed its trial")))
        complaints.append(f"{machine.name} FAILED its trial ({wrong})")
    return Choice(None, "; ".join(complaints))


def choice() -> Choice:
    """The machine that ``CVM_MACHINE`` names, or the fastest one that passes its trial."""
    wish = os.environ.get("CVM_MACHINE")
    return _tried((named(wish),) if wish else available())
