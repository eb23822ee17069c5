"""Constants in the text of LLVM IR: numbers, vectors, and addresses of variables."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping

import numpy as np

from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.kinds import Array, Type, container
from tools.cuda_emulator.module import Variable
from tools.cuda_emulator.tokens import Cursor, unquoted

__all__ = ["array_of", "constant", "content", "open_value", "stride"]

_ESCAPED = re.compile(rb"\\(\\|[0-9A-Fa-f]{2})")


def array_of(type_: Type, lanes: list[int] | list[float]) -> Array:
    """One entry, for all threads. Integers may be signed or not."""
    dtype = container(type_)
    bits = type_.width
    if type_.element.kind == "int" and bits > 1:
        half = 1 << bits - 1
        lanes = [int(lane) % (2 * half) if bits > 64 else (int(lane) + half) % (2 * half) - half for lane in lanes]
    found = np.array(lanes, dtype)
    return found[None, :] if type_.kind == "vector" else found


def open_value(type_: Type) -> Array:
    """What stands for a value that LLVM leaves open (undef, poison): a pattern, so that its use shows in results."""
    pattern = int.from_bytes(b"\xa5" * 16, "little")
    if type_.element.kind == "double":
        return array_of(type_, [-1.2345e-99] * type_.lanes)
    return array_of(type_, [pattern % (1 << min(type_.width, 126))] * type_.lanes)


def constant(cursor: Cursor, type_: Type, variables: Mapping[str, Variable]) -> Array:
    """Read a constant of that type. Raises `NotEmulated` for expressions that the emulator does not know."""
    token = cursor.take()
    if token in ("undef", "poison"):
        return open_value(type_)
    if token in ("zeroinitializer", "null"):
        return array_of(type_, [0] * type_.lanes)
    if token == "splat":
        cursor.expect("(")
        lane = constant(cursor, cursor.type(), variables)
        cursor.expect(")")
        return np.repeat(lane, type_.lanes)[None, :]
    if token == "<":
        lanes = [constant(cursor, cursor.type(), variables)]
        while cursor.accept(","):
            lanes.append(constant(cursor, cursor.type(), variables))
        cursor.expect(">")
        return np.concatenate(lanes)[None, :]
    if token[0] in 'c"' and type_.kind == "vector":
        return array_of(type_, list(_bytes(token)))
    if type_.kind == "ptr":
        return array_of(type_, [_address(cursor, token, variables)])
    return array_of(type_, [_number(cursor, token, type_)])


def _number(cursor: Cursor, token: str, type_: Type) -> int | float:
    if type_.kind == "double":
        if token.startswith("0x"):
            return float(struct.unpack(">d", bytes.fromhex(token[2:].rjust(16, "0")))[0])
        return float(token)
    if token in ("true", "false"):
        return int(token == "true")
    if not token.lstrip("-").isdigit():
        raise unknown(f"the constant {token}", cursor.line)
    return int(token)


def _address(cursor: Cursor, token: str, variables: Mapping[str, Variable]) -> int:
    """The address of a variable, or a constant distance behind one."""
    if token[0] == "@":
        return variables[unquoted(token)].address
    if token == "addrspacecast":
        cursor.expect("(")
        found = constant(cursor, cursor.type(), variables)
        cursor.expect("to")
        cursor.type()
        cursor.expect(")")
        return int(found[0])
    if token != "getelementptr":
        raise unknown(f"the constant {token}", cursor.line)
    cursor.flags("inbounds", "nuw", "nusw")
    cursor.expect("(")
    kind = cursor.type()
    cursor.expect(",")
    address = int(constant(cursor, cursor.type(), variables)[0])
    indices = []
    while cursor.accept(","):
        indices.append(int(constant(cursor, cursor.type(), variables)[0]))
    cursor.expect(")")
    return address + sum(index * step for index, step in zip(indices, stride(kind, len(indices)), strict=True))


def stride(kind: Type, indices: int) -> list[int]:
    """The bytes that each index of a getelementptr counts."""
    steps = [kind.size]
    for _ in range(1, indices):
        kind = kind.parts[0]
        steps.append(kind.size)
    return steps


def content(cursor: Cursor, kind: Type) -> bytes:
    """The bytes of a variable's initial value: a string, zeros, or numbers."""
    token = cursor.next
    if token[:2] == 'c"':
        return _bytes(cursor.take())
    if token == "zeroinitializer":
        cursor.take()
        return bytes(kind.size)
    if token == "[":
        cursor.take()
        parts = [content(cursor, cursor.type())]
        while cursor.accept(","):
            parts.append(content(cursor, cursor.type()))
        cursor.expect("]")
        return b"".join(parts)
    if kind.kind in ("array", "struct", "ptr"):
        raise unknown(f"the initial value {token}", cursor.line)
    return constant(cursor, kind, {}).tobytes()


def _bytes(token: str) -> bytes:
    r"""The bytes of ``c"a\\00"``."""
    raw = token[2:-1].encode("latin-1")
    return _ESCAPED.sub(lambda found: b"\\" if found[1] == b"\\" else bytes.fromhex(found[1].decode()), raw)
