"""Which machines code can be made for ahead of time, by target triple, and how a program asks for their features."""

from __future__ import annotations

import re
from dataclasses import replace

from cvm.errors import Invalid
from cvm.executors.native.emit.machine import MACHINES, Machine

__all__ = ["attributes", "machine_of", "supported"]

_ARCHITECTURES = {
    "x86_64": ("avx2", "vnni256", "vnni512", "ifma512", "generic"),
    "aarch64": ("neon_dot", "neon_i8mm", "generic"),
    "arm64": ("neon_dot", "neon_i8mm", "generic"),
}
_USUAL = {"riscv64": "+m,+a,+f,+d,+c"}
"""The instruction set for which the systems of an architecture are compiled. It also decides how functions are called,
so that a linker refuses objects without it.
"""
_LEVEL_3 = ("avx2", "bmi", "bmi2", "fma", "popcnt")
_LEVEL_4 = (*_LEVEL_3, "avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl")


def machine_of(triple: str, name: str) -> Machine:
    """The machine of this name, with the processor features that its code may use.

    Raises `Invalid` (``export.machine``) for a machine that the target does not have, or whose features no header can
    ask for on its system.
    """
    architecture = triple.split("-", 1)[0]
    known = _ARCHITECTURES.get(architecture, ("generic",))
    if name not in known or (name.startswith("neon") and not re.search("linux|apple", triple)):
        message = f"the target {triple} is no {name!r}; it can be {', '.join(known)}"
        raise Invalid("export.machine", message)
    machine = next(one for one in MACHINES if one.name == name)
    if name == "avx2":
        return replace(machine, cpu="x86-64-v3", features="")
    if machine.packs:
        wanted = ",".join(f"+{feature}" for feature in sorted(machine.needs))
        return replace(machine, cpu="x86-64-v4", features=f"{wanted},-prefer-256-bit")
    return replace(machine, features=_USUAL[architecture]) if architecture in _USUAL else machine


def supported(triple: str, machine: Machine) -> tuple[list[str], list[str]]:
    """The lines of C that include what the question needs, and those of the function that asks it.

    The function returns whether this processor, and its system, have the features of the machine.
    """
    if machine.packs and "windows" in triple:
        return ["#include <intrin.h>"], _by_cpuid(machine)
    if machine.packs:
        features = sorted({*(_LEVEL_3 if machine.name == "avx2" else _LEVEL_4), *machine.needs})
        asked = [f'__builtin_cpu_supports("{feature}")' for feature in features]
        return [], ["    __builtin_cpu_init();", f"    return {' && '.join(asked)};"]
    if machine.name == "neon_dot" and "apple" in triple:
        return [], ["    return 1; /* every Apple processor of 64-bit Macs has the dot product */"]
    if machine.name == "neon_i8mm" and "apple" in triple:
        lines = ["    int found = 0;", "    size_t size = sizeof found;"]
        ask = '    return sysctlbyname("hw.optional.arm.FEAT_I8MM", &found, &size, 0, 0) == 0 && found;'
        return ["#include <sys/types.h>", "#include <sys/sysctl.h>"], [*lines, ask]
    if machine.name.startswith("neon"):
        word, bit = ("AT_HWCAP2", 13) if machine.name == "neon_i8mm" else ("AT_HWCAP", 20)
        return ["#include <sys/auxv.h>"], [f"    return (getauxval({word}) >> {bit} & 1u) != 0;"]
    return [], ["    return 1;"]


_BITS = {
    "avx2": ("b", 5), "bmi": ("b", 3), "bmi2": ("b", 8), "avx512f": ("b", 16), "avx512dq": ("b", 17),
    "avx512ifma": ("b", 21), "avx512cd": ("b", 28), "avx512bw": ("b", 30), "avx512vl": ("b", 31),
    "avx512vbmi": ("c", 1), "avx512vnni": ("c", 11),
}  # fmt: skip
"""The register and the bit of a feature in leaf 7 of cpuid."""


def attributes(triple: str, machine: Machine) -> list[str]:
    """The lines of C before that function: gcc and clang read the system's registers only where they are told."""
    if not machine.packs or "windows" not in triple:
        return []
    return ["#if defined(__clang__) || defined(__GNUC__)", '__attribute__((target("xsave")))', "#endif"]


def _by_cpuid(machine: Machine) -> list[str]:
    """The question for compilers that have no function for it: cpuid, and whether the system keeps the registers."""
    features = {*(_LEVEL_3 if machine.name == "avx2" else _LEVEL_4), *machine.needs} & _BITS.keys()
    masks = {
        register: sum(1 << _BITS[feature][1] for feature in features if _BITS[feature][0] == register)
        for register in "bc"
    }
    state = 0x6 if machine.name == "avx2" else 0xE6
    return [
        "    int leaf[4];",
        "    __cpuid(leaf, 1);",
        "    if ((leaf[2] & 0x18801000) != 0x18801000) { /* fma, popcnt, osxsave, avx */",
        "        return 0;",
        "    }",
        f"    if ((_xgetbv(0) & {state:#x}) != {state:#x}) {{",
        "        return 0;",
        "    }",
        "    __cpuidex(leaf, 7, 0);",
        (
            f"    return ((unsigned)leaf[1] & {masks['b']:#x}u) == {masks['b']:#x}u && "
            f"((unsigned)leaf[2] & {masks['c']:#x}u) == {masks['c']:#x}u;"
        ),
    ]
