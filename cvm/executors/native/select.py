"""Which machine to compile for: the best one of this computer that passes its trial."""

from __future__ import annotations

import ctypes
import os
import sys
from dataclasses import dataclass
from functools import cache

import llvmlite.binding as llvm

from cvm.errors import Invalid
from cvm.executors.native.machine import MACHINES, Machine
from cvm.executors.native.tiles import permitted
from cvm.executors.native.trial import failure

__all__ = ["Choice", "available", "choice", "features", "named"]


@dataclass(frozen=True, slots=True)
class Choice:
    """The machine to use (None: there is none), and why not a faster one."""

    machine: Machine | None
    reason: str


_AUXILIARY = {"dotprod": (16, 1 << 20), "i8mm": (26, 1 << 13)}
"""Of Linux on AArch64: in which word of the auxiliary vector (AT_HWCAP, AT_HWCAP2) a feature is said, and as which bit.
"""


def features() -> dict[str, bool]:
    """LLVM's features of this processor, and ``aarch64``, whose features LLVM hardly knows: Linux is asked for them."""
    found = dict(llvm.get_host_cpu_features())
    if sys.platform == "linux" and llvm.get_process_triple().startswith("aarch64"):
        ask = ctypes.CDLL(None).getauxval
        ask.argtypes, ask.restype = [ctypes.c_ulong], ctypes.c_ulong
        found |= {"aarch64": True} | {name: bool(ask(word) & bit) for name, (word, bit) in _AUXILIARY.items()}
    return found


@cache
def available() -> tuple[Machine, ...]:
    """The machines that this processor can be, the fastest first."""
    found = features()

    def can(machine: Machine) -> bool:
        return all(found.get(feature, False) for feature in machine.needs) and (not machine.tiles or permitted())

    return tuple(machine for machine in MACHINES if can(machine))


def named(name: str) -> Machine:
    """A machine by name. Raises `Invalid` (``executors.machine``) for one that this processor is not."""
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
    """The machine that ``CVM_MACHINE`` names, or the fastest that passes its trial."""
    wish = os.environ.get("CVM_MACHINE")
    return _tried((named(wish),) if wish else available())
