"""The final module from the one object file that the code generator writes for WebAssembly.

The object imports its memory and its stack pointer, and defines every function that it calls. So linking it means: to
define both, to move its data to where they shall lie, and to export functions. Function, type and global numbers stay
what they are. The format is that of the WebAssembly core specification (binary format) and of the tool conventions
(Linking.md), of which only what the code generator writes for one module is accepted.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from cvm.export.wasm.binary import PAGE, Cursor, item, listed, signed, text, unsigned
from cvm.records import dataclass

__all__ = ["Linked", "Unlinkable", "linked"]

_MAGIC = b"\0asm\1\0\0\0"
_CUSTOM, _TYPE, _IMPORT, _FUNCTION, _, _MEMORY, _GLOBAL, _EXPORT, _, _, _CODE, _DATA, _COUNT = range(13)
_KEPT = frozenset({_TYPE, _FUNCTION, _CODE})
_READ = _KEPT | {_IMPORT, _DATA, _COUNT, _CUSTOM}
_FUNCTION_INDEX, _ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32, _TYPE_INDEX, _GLOBAL_INDEX = 0, 3, 4, 5, 6, 7
_ADDRESSES = frozenset({_ADDRESS_LEB, _ADDRESS_SLEB, _ADDRESS_I32})
_UNCHANGED = frozenset({_FUNCTION_INDEX, _TYPE_INDEX, _GLOBAL_INDEX})
_SYMBOL_TABLE = 8
_SYMBOL_FUNCTION, _UNDEFINED, _EXPLICIT_NAME = 0, 0x10, 0x40


class Unlinkable(ValueError):
    """An object file holds something that one self-contained module has no use for."""


@dataclass(frozen=True, slots=True)
class Linked:
    """What a module is made of: ``data`` is the content of its memory by address, the rest are whole sections."""

    sections: Mapping[int, bytes]
    functions: Mapping[str, int]
    data: Mapping[int, bytes]

    def module(self, memory: int, stack: int, exports: Sequence[str], custom: Mapping[str, bytes]) -> bytes:
        """The module: ``memory`` bytes of memory, the stack below address ``stack``, these functions exported."""
        pages = -(-memory // PAGE)
        given = [text("memory") + b"\2" + unsigned(0)]
        given += [text(name) + b"\0" + unsigned(self.functions[name]) for name in exports]
        data = [b"\0\x41" + signed(at) + b"\x0b" + item(content) for at, content in sorted(self.data.items())]
        made = {
            **self.sections,
            _MEMORY: listed([b"\1" + unsigned(pages) + unsigned(pages)]),
            _GLOBAL: listed([b"\x7f\1\x41" + signed(stack) + b"\x0b"]),
            _EXPORT: listed(given),
            _DATA: listed(data),
        }
        order = (_TYPE, _FUNCTION, _MEMORY, _GLOBAL, _EXPORT, _CODE, _DATA)
        named = b"".join(b"\0" + item(text(name) + content) for name, content in custom.items())
        return _MAGIC + b"".join(bytes([kind]) + item(made[kind]) for kind in order) + named


def linked(code: bytes, base: int) -> Linked:
    """The parts of an object file, with its data from address ``base`` on. Raises `Unlinkable`."""
    if not code.startswith(_MAGIC):
        raise Unlinkable("the code generator wrote no object file of WebAssembly")
    numbered = list(_sections(code))
    sections = {kind: bytearray(body) for kind, body in numbered if kind != _CUSTOM}
    if not sections.keys() <= _READ:
        raise Unlinkable(f"the object file has sections of the kinds {sorted(sections.keys() - _READ)}")
    _require_no_imports(sections.get(_IMPORT, b"\0"))
    functions: dict[str, int] = {}
    for kind, body in numbered:
        if kind == _CUSTOM:
            cursor = Cursor(body)
            name = cursor.text()
            if name == "linking":
                functions = _functions(cursor)
            elif name.startswith("reloc."):
                number = cursor.unsigned()
                _relocate(cursor, sections[numbered[number][0]], base)
    data = {base + at: content for at, content in _data(sections.get(_DATA, b"\0"))}
    return Linked({kind: bytes(sections[kind]) for kind in _KEPT}, functions, data)


def _sections(code: bytes) -> Iterator[tuple[int, bytes]]:
    cursor = Cursor(code, len(_MAGIC))
    while not cursor.done():
        kind = cursor.byte()
        yield kind, cursor.take(cursor.unsigned())


def _require_no_imports(body: bytes | bytearray) -> None:
    """Refuse imports other than the memory and the stack pointer, which `Linked.module` defines."""
    cursor = Cursor(bytes(body))
    for _ in range(cursor.unsigned()):
        module, name, kind = cursor.text(), cursor.text(), cursor.byte()
        if kind == 2 and name == "__linear_memory":
            flags = cursor.unsigned()
            cursor.unsigned()
            if flags & 1:
                cursor.unsigned()
        elif kind == 3 and name == "__stack_pointer":
            cursor.take(2)
        else:
            raise Unlinkable(f"the code calls {module}.{name}")


def _functions(cursor: Cursor) -> dict[str, int]:
    """The numbers of the functions by name, from the symbol table."""
    if cursor.unsigned() != 2:
        raise Unlinkable("the linking section has another version")
    found: dict[str, int] = {}
    while not cursor.done():
        kind, body = cursor.byte(), Cursor(cursor.take(cursor.unsigned()))
        if kind != _SYMBOL_TABLE:
            continue
        for _ in range(body.unsigned()):
            symbol, flags = body.byte(), body.unsigned()
            if symbol == _SYMBOL_FUNCTION:
                number = body.unsigned()
                if flags & _UNDEFINED:
                    raise Unlinkable("a function is not defined")
                found[body.text()] = number
            elif symbol == 1:  # data
                body.text()
                if not flags & _UNDEFINED:
                    for _ in range(3):
                        body.unsigned()
            elif symbol == 3:  # a section
                body.unsigned()
            else:  # a global, a table, a tag
                body.unsigned()
                if not flags & _UNDEFINED or flags & _EXPLICIT_NAME:
                    body.text()
    return found


def _relocate(cursor: Cursor, target: bytearray, base: int) -> None:
    """Add ``base`` to every address of data in a section. Other numbers in it are already those of the module."""
    for _ in range(cursor.unsigned()):
        kind, offset, _ = cursor.byte(), cursor.unsigned(), cursor.unsigned()
        if kind in _ADDRESSES:
            cursor.signed()  # the addend, which the place holds already
            if kind == _ADDRESS_I32:
                value = int.from_bytes(target[offset : offset + 4], "little") + base
                target[offset : offset + 4] = value.to_bytes(4, "little")
            else:
                place = Cursor(bytes(target[offset : offset + 5]))
                value = base + (place.unsigned() if kind == _ADDRESS_LEB else place.signed())
                target[offset : offset + 5] = _padded(value)
        elif kind not in _UNCHANGED:
            raise Unlinkable(f"a relocation is of the kind {kind}")


def _padded(value: int) -> bytes:
    """A number below 2^31 as LEB128 of five bytes; signed and unsigned are the same for it."""
    digits = [value >> shift & 127 for shift in range(0, 35, 7)]
    return bytes([*(digit | 128 for digit in digits[:-1]), digits[-1]])


def _data(body: bytes | bytearray) -> Iterator[tuple[int, bytes]]:
    cursor = Cursor(bytes(body))
    for _ in range(cursor.unsigned()):
        if cursor.unsigned() != 0 or cursor.byte() != 0x41:
            raise Unlinkable("data have no fixed address")
        at = cursor.signed()
        if cursor.byte() != 0x0B:
            raise Unlinkable("data have no fixed address")
        yield at, cursor.take(cursor.unsigned())
