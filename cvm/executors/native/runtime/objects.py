"""Loading of object files without the code generator, which takes longer to import than most networks take to run.

`placed` loads ELF files for x86-64 on Linux in which code and constants refer to one another, and to a few functions of
the C library, by 32-bit distances. For all other files it returns None, and LLVM must load them.
"""

from __future__ import annotations

import ctypes
import mmap
import platform
import struct
import sys
from collections.abc import Mapping
from functools import cache

__all__ = ["Placed", "placed"]

_HEADER = struct.Struct("<16s2HI3QI6H")
_SECTION = struct.Struct("<2I4Q2I2Q")
_SYMBOL = struct.Struct("<I2BH2Q")
_RELOCATION = struct.Struct("<QIIq")
_DISTANCE = struct.Struct("<i")
_MAGIC = b"\x7fELF\x02\x01\x01"
"""The first bytes of an ELF file of 64 bits, little-endian, version 1."""

_RELOCATABLE, _X86_64 = 1, 62
_PROGBITS, _SYMBOLS, _RELOCATIONS, _RELOCATIONS_WITHOUT_ADDENDS = 1, 2, 4, 9
_WRITES, _TAKES_MEMORY, _THREADS = 1, 2, 0x400
_PC32, _PLT32 = 2, 4
_UNDEFINED = 0
_FUNCTION = 2
_LIBRARY = ("memcpy", "memmove", "memset", "sched_yield")
"""The functions of the C library that compiled code may call."""
_JUMP = b"\xff\x25\x00\x00\x00\x00"
"""The instruction that jumps to the address stored behind it."""


class Placed:
    """Code in memory that cannot be written to. The memory is freed with this object."""

    def __init__(self, memory: mmap.mmap, address: int, functions: Mapping[str, int]) -> None:
        self._memory, self._address, self._functions = memory, address, functions

    def address(self, name: str) -> int:
        """The address of a function, or 0 if there is no function of this name."""
        return self._address + self._functions[name] if name in self._functions else 0


def placed(code: bytes) -> Placed | None:
    """Load an object file. Returns None if the file or this system is of another kind than the module supports."""
    protect = _protect()
    if protect is None:
        return None
    try:
        image = _Image(code)
        memory = mmap.mmap(-1, image.size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, mmap.PROT_READ | mmap.PROT_WRITE)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        image.fill(memory)
    except (struct.error, IndexError, KeyError, OverflowError, ValueError, OSError):
        return None
    if protect(address, image.size, mmap.PROT_READ | mmap.PROT_EXEC):
        return None
    return Placed(memory, address, image.functions)


@cache
def _protect() -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    """The C library's function that makes memory executable; None on systems other than Linux on x86-64."""
    if sys.platform != "linux" or platform.machine() != "x86_64" or sys.maxsize < 2**32:
        return None
    return ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(_library("mprotect"))


def _library(name: str) -> int:
    """The address of a function of the C library."""
    found = ctypes.cast(getattr(ctypes.CDLL(None), name), ctypes.c_void_p).value
    assert found is not None
    return found


class _Image:
    """An object file as it will lie in memory.

    For a file of another kind, it raises ValueError, or the exceptions of `struct` and of the tables' indices.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code
        magic, kind, machine, _, _, _, sections, _, _, _, _, size, count, _ = _HEADER.unpack_from(code)
        if not magic.startswith(_MAGIC) or (kind, machine, size) != (_RELOCATABLE, _X86_64, _SECTION.size):
            raise ValueError("the file is of another kind")
        self._sections = [_SECTION.unpack_from(code, sections + size * number) for number in range(count)]
        self._starts: dict[int, int] = {}
        self.size = 0
        for number, (_, kind, flags, _, offset, length, _, _, alignment, _) in enumerate(self._sections):
            if flags & _TAKES_MEMORY and length:
                if kind != _PROGBITS or flags & (_WRITES | _THREADS) or not 1 <= alignment <= mmap.PAGESIZE:
                    raise ValueError("a section is neither code nor constants")
                if offset + length > len(code):
                    raise ValueError("a section extends beyond the end of the file")
                self.size += -self.size % alignment
                self._starts[number] = self.size
                self.size += length
        self.size += -self.size % 16
        self._jumps = self.size
        self.size += 16 * len(_LIBRARY)
        self._symbols = self._read_symbols()
        self.functions = {name: start for name, start, kind in self._symbols if kind == _FUNCTION and start is not None}

    def _content(self, number: int) -> bytes:
        offset, size = self._sections[number][4:6]
        return self._code[offset : offset + size]

    def _read_symbols(self) -> list[tuple[str, int | None, int]]:
        """(name, offset in memory, kind) of every symbol. The offset is None if code does not use the symbol."""
        (table,) = (number for number, section in enumerate(self._sections) if section[1] == _SYMBOLS)
        names = self._content(self._sections[table][6])
        found = []
        for at, info, _, section, value, _ in _SYMBOL.iter_unpack(self._content(table)):
            name = names[at : names.index(0, at)].decode("ascii")
            start = None
            if section == _UNDEFINED and name:
                start = self._jumps + 16 * _LIBRARY.index(name)
            elif section in self._starts:
                start = self._starts[section] + value
            found.append((name, start, info & 15))
        return found

    def fill(self, memory: mmap.mmap) -> None:
        """Write code and constants into memory, with the distances between them."""
        for number, start in self._starts.items():
            content = self._content(number)
            memory[start : start + len(content)] = content
        for number, name in enumerate(_LIBRARY):
            start = self._jumps + 16 * number
            memory[start : start + 14] = _JUMP + _library(name).to_bytes(8, "little")
        for number, section in enumerate(self._sections):
            if section[1] == _RELOCATIONS and section[7] in self._starts:
                self._relocate(memory, self._content(number), section[7])
            elif section[1] == _RELOCATIONS_WITHOUT_ADDENDS:
                raise ValueError("the relocations have another form")

    def _relocate(self, memory: mmap.mmap, entries: bytes, section: int) -> None:
        """Write the distances that the relocations of a section ask for."""
        start, length = self._starts[section], self._sections[section][5]
        for offset, kind, symbol, addend in _RELOCATION.iter_unpack(entries):
            target = self._symbols[symbol][1]
            if kind not in (_PC32, _PLT32) or target is None or not 0 <= offset <= length - 4:
                raise ValueError("a relocation is of another kind")
            _DISTANCE.pack_into(memory, start + offset, target + addend - (start + offset))
