"""Compilers of C and the machines that their programs run on, here or under QEMU's emulation."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

__all__ = ["GCC", "TARGETS", "Target", "compilers"]

FIRMWARE = Path(__file__).parent / "firmware"


@dataclass(frozen=True, slots=True)
class Target:
    """A compiler, the options that make it compile for a machine, and the emulator of that machine."""

    name: str
    compiler: tuple[str, ...]
    emulator: tuple[str, ...] = ()
    note: str = ""
    bare: bool = False
    """Whether there is no operating system: files and streams are the emulator's, by semihosting."""
    sanitizers: bool = False

    def missing(self) -> str:
        """What this machine lacks; empty if nothing."""
        missing = next((f"no {tool}" for tool in self._tools() if shutil.which(tool) is None), "")
        return missing or _without_headers(self.compiler)

    def _tools(self) -> list[str]:
        return [self.compiler[0], *self.emulator[:1]]

    def command(self, options: Sequence[str], sources: Sequence[str], binary: Path) -> list[str]:
        """The command that compiles sources into an executable file."""
        if self.bare:
            return self.linked(options, sources, binary)
        static = ["-static"] if self.emulator else []
        return [*self.compiler, *options, *static, *sources, "-o", str(binary)]

    def linked(self, options: Sequence[str], files: Sequence[str], binary: Path) -> list[str]:
        """The command that links files for a machine without an operating system, with the emulator's streams."""
        linked = ["-T", str(FIRMWARE / "cortex_m.ld"), "-nostartfiles", "--specs=rdimon.specs", "-Wl,--gc-sections"]
        start = ["-x", "c", str(FIRMWARE / "startup.c"), "-x", "none", "-DSEMIHOSTED", _crt0(self.compiler)]
        return [*self.compiler, *options, *linked, *start, *files, "-o", str(binary)]

    def run(self, binary: Path) -> list[str]:
        """The command that runs an executable file."""
        return [*self.emulator, *(["-kernel"] if self.bare else []), str(binary)]


@cache
def _without_headers(compiler: tuple[str, ...]) -> str:
    """What a compiler says if it has no headers of C for the machine, such as gcc -m32 on its own; empty if it has."""
    command = [*compiler, "-E", "-x", "c", "-"]
    done = subprocess.run(command, input="#include <stdint.h>\n", capture_output=True, text=True, check=False)
    return f"no headers for {' '.join(compiler)}" if done.returncode else ""


@cache
def _crt0(compiler: tuple[str, ...]) -> str:
    """The file with the start of newlib's programs that use semihosting."""
    found = subprocess.run([*compiler, "-print-file-name=rdimon-crt0.o"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


_BOARD = ("qemu-system-arm", "-nographic", "-monitor", "none", "-serial", "none",
          "-semihosting-config", "enable=on,target=native", "-M")  # fmt: skip


def _zig(triple: str) -> tuple[str, ...]:
    return ("python-zig", "cc", "-target", triple)


GCC = Target("gcc", ("gcc",), sanitizers=True)
TARGETS = {
    target.name: target
    for target in (
        GCC,
        Target("clang", ("clang",), sanitizers=True),
        Target("i686", ("gcc", "-m32"), note="32 bits, little-endian"),
        Target("arm", ("arm-linux-gnueabihf-gcc",), ("qemu-arm",), "32 bits, little-endian"),
        Target("aarch64", ("aarch64-linux-gnu-gcc",), ("qemu-aarch64",), "64 bits, NEON"),
        Target("s390x", ("s390x-linux-gnu-gcc",), ("qemu-s390x",), "64 bits, big-endian"),
        Target(
            "mips", _zig("mips-linux-musleabi"), ("qemu-mips",), "32 bits, big-endian; clang of the package ziglang"
        ),
        Target("riscv64", _zig("riscv64-linux-musl"), ("qemu-riscv64",), "64 bits; clang of the package ziglang"),
        Target("ppc64le", _zig("powerpc64le-linux-musl"), ("qemu-ppc64le",), "64 bits; clang of the package ziglang"),
        Target("cortex_m3", ("arm-none-eabi-gcc", "-mcpu=cortex-m3", "-mthumb"), (*_BOARD, "mps2-an385"), bare=True),
        Target("cortex_m4", ("arm-none-eabi-gcc", "-mcpu=cortex-m4", "-mthumb"), (*_BOARD, "mps2-an386"), bare=True),
    )
}
"""The targets by name."""


def compilers() -> list[str]:
    """The compilers of C for this machine that it has."""
    return [name for name in ("gcc", "clang") if shutil.which(name) is not None]
