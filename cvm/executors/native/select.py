"""Which machine to compile for: the best one of this computer that passes its trial."""

from __future__ import annotations

import os
from functools import cache

import llvmlite.binding as llvm

from cvm.errors import Invalid
from cvm.executors.native.machine import MACHINES, Machine

__all__ = ["available", "machine_of_this_computer", "named"]


@cache
def available() -> tuple[Machine, ...]:
    """The machines that this processor can be, the fastest first."""
    features = llvm.get_host_cpu_features()
    return tuple(machine for machine in MACHINES if all(features.get(feature, False) for feature in machine.needs))


def named(name: str) -> Machine:
    """A machine by name. Raises `Invalid` (``executors.machine``) for one that this processor is not."""
    for machine in available():
        if machine.name == name:
            return machine
    names = ", ".join(machine.name for machine in available())
    raise Invalid("executors.machine", f"this processor is no {name!r}; it can be {names}")


def machine_of_this_computer() -> Machine:
    """The machine that ``CVM_MACHINE`` names, else the fastest."""
    wish = os.environ.get("CVM_MACHINE")
    return named(wish) if wish else available()[0]
