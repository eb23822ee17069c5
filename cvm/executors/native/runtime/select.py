"""The choice of the machine to compile for: the fastest one of this computer whose kernels pass their trial.

A class of kernels is tried when the first network needs it (`require`). A machine that fails is not used again in this
process (`candidate`). `choice` tries all classes at once.
"""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from functools import cache

from cvm.errors import Invalid
from cvm.executors.native.emit.machine import MACHINES, Machine
from cvm.executors.native.runtime.cache import host
from cvm.executors.native.runtime.distrust import Failed
from cvm.records import dataclass

__all__ = ["Choice", "available", "candidate", "choice", "named", "permitted", "require", "told_by_linux"]


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
def _verdict(machine: Machine, used: frozenset[str] | None) -> str | None:
    """The class of kernels in which a machine fails its trial, or None. ``used`` are the kinds to try (None: all)."""
    from cvm.executors.native.runtime.trial import failure  # only compiling needs the planner

    return failure(machine, used)


_FAILED: dict[Machine, str] = {}
"""The machines that have failed in this process, and what is said of each."""


def _failure(machine: Machine, used: frozenset[str] | None) -> str | None:
    """Try kinds of kernels. Returns what is said of the failure, or None."""
    wrong = _verdict(machine, used)
    if wrong is None:
        return None
    _FAILED.setdefault(machine, f"{machine.name} FAILED its trial ({wrong})")
    return _FAILED[machine]


def require(machine: Machine, kinds: frozenset[str]) -> None:
    """Try the classes of some kinds of kernels, unless they were tried before. Raises `Failed`."""
    failure = _failure(machine, kinds)
    if failure is not None:
        raise Failed(failure)


def _candidates() -> tuple[Machine, ...]:
    wish = os.environ.get("CVM_MACHINE")
    return (named(wish),) if wish else available()


def candidate() -> Choice:
    """The machine that ``CVM_MACHINE`` names, or the fastest one, unless it has failed a trial in this process."""
    failures: list[str] = []
    for machine in _candidates():
        if machine not in _FAILED:
            said = f"{machine.name}, each class of whose kernels passes a trial before it is used"
            return Choice(machine, "; ".join((*failures, said)))
        failures.append(_FAILED[machine])
    return Choice(None, "; ".join(failures))


def choice() -> Choice:
    """The machine that ``CVM_MACHINE`` names, or the fastest one that passes its trial in every class of kernels."""
    failures: list[str] = []
    for machine in _candidates():
        failure = _failure(machine, None)
        if failure is None:
            return Choice(machine, "; ".join((*failures, f"{machine.name} passed its trial")))
        failures.append(failure)
    return Choice(None, "; ".join(failures))
