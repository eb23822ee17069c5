"""Casts, and instructions that move lanes of vectors: the function of each, on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tools.cuda_emulator.arithmetic import Pure, narrowed, refuse, signed, unsigned
from tools.cuda_emulator.constants import open_value
from tools.cuda_emulator.defects import unknown
from tools.cuda_emulator.floats import rounded_integer, to_double
from tools.cuda_emulator.kinds import Array, Type, container
from tools.cuda_emulator.module import Instruction

__all__ = ["bytes_of", "cast", "decoder", "moved", "value_of"]


def bytes_of(a: Array, type_: Type) -> Array:
    """The bytes of values in memory: (n, size)."""
    count = a.shape[0]
    if type_.width == 1:
        return np.packbits(a.reshape(count, -1), axis=-1, bitorder="little")
    size = type_.element.size
    if a.dtype == object:
        flat = b"".join(int(x).to_bytes(size, "little") for x in a.reshape(-1))
        return np.frombuffer(flat, np.uint8).reshape(count, -1)
    raw = np.ascontiguousarray(a).reshape(count, -1).view(np.uint8)
    if a.dtype.itemsize != size:  # such as i24
        raw = np.ascontiguousarray(raw.reshape(-1, a.dtype.itemsize)[:, :size]).reshape(count, -1)
    return raw


def decoder(type_: Type) -> Pure:
    """The function from bytes in memory, (n, size), to values."""
    dtype, vector = container(type_), type_.kind == "vector"
    if type_.width not in (8, 16, 32, 64):
        return lambda raw: value_of(raw, type_)
    if vector:
        return lambda raw: np.ascontiguousarray(raw).view(dtype)
    return lambda raw: np.ascontiguousarray(raw).view(dtype).reshape(-1)


def value_of(raw: Array, type_: Type) -> Array:
    """The values of bytes in memory, (n, size)."""
    count, lanes = raw.shape[0], type_.lanes
    shape = (count, lanes) if type_.kind == "vector" else (count,)
    dtype = container(type_)
    if type_.width == 1:
        return np.unpackbits(raw, axis=-1, bitorder="little")[:, :lanes].astype(bool).reshape(shape)
    size = type_.element.size
    if dtype.kind == "O":
        parts = raw.reshape(-1, size)
        found = np.array([int.from_bytes(part.tobytes(), "little") for part in parts], object)
        return found.reshape(shape)
    if dtype.itemsize != size:
        padded = np.zeros((count * lanes, dtype.itemsize), np.uint8)
        padded[:, :size] = raw.reshape(-1, size)
        raw = padded.reshape(count, -1)
    found = np.ascontiguousarray(raw).view(dtype).reshape(shape)
    return found if type_.width in (8, 16, 32, 64) else narrowed(found, type_.width)


def cast(instruction: Instruction) -> Pure:
    """The function of a cast."""
    op, to, flags = instruction.op, instruction.type, instruction.flags
    (operand,) = instruction.operands
    bits = operand.type.width
    match op:
        case "trunc":
            return _checked_trunc(operand.type, to, flags) if flags else lambda a: _truncated(a, to)
        case "zext":
            dtype = container(to)
            return _checked_sign(lambda a: unsigned(a, bits).astype(dtype), "nneg" in flags)
        case "sext":
            return lambda a: _sign_extended(a, bits, to)
        case "bitcast":
            if operand.type.kind == "ptr" and to.kind == "ptr":
                return lambda a: a
            value = decoder(to)
            return lambda a: value(bytes_of(a, operand.type))
        case "sitofp" | "uitofp":
            return lambda a: to_double(a, bits, op == "sitofp")
        case "fptosi" | "fptoui":
            return lambda a: rounded_integer(a, to, op == "fptosi")
        case "addrspacecast":
            return lambda a: a
        case "ptrtoint":
            return lambda a: a if to.bits == 64 else _truncated(a, to)
    raise unknown(f"the cast {op}", instruction.text)


def _truncated(a: Array, to: Type) -> Array:
    if to.width == 1:
        return (a & 1).astype(bool)
    if a.dtype == object and container(to).kind != "O":
        a = signed(a % (1 << to.width), to.width)
    return narrowed(a.astype(container(to)), to.width)


def _checked_trunc(source: Type, to: Type, flags: frozenset[str]) -> Pure:
    def truncated(a: Array) -> Array:
        result = _truncated(a, to)
        if "nsw" in flags:
            refuse(np.asarray(_sign_extended(result, to.width, source) != a, bool), "the result is not nsw")
        if "nuw" in flags:
            refuse(np.asarray(_zero_extended(result, to.width, source) != a, bool), "the result is not nuw")
        return result

    return truncated


def _checked_sign(function: Pure, check: bool) -> Pure:
    def checked(a: Array) -> Any:
        refuse(a < 0, "the operand is negative, not nneg")
        return function(a)

    return checked if check else function


def _zero_extended(a: Array, bits: int, to: Type) -> Array:
    return unsigned(a, bits).astype(container(to))


def _sign_extended(a: Array, bits: int, to: Type) -> Array:
    if a.dtype == np.bool_:
        a = -a.astype(np.int8)
    if container(to).kind == "O":
        return signed(a.astype(object), bits) % (1 << to.width)
    return a.astype(container(to))


def moved(instruction: Instruction) -> Pure | None:
    """The function of an instruction that moves lanes or fields; None if there is none."""
    operands = instruction.operands
    match instruction.op:
        case "select":
            vectors = operands[0].type.kind != "vector" and instruction.type.kind == "vector"
            return lambda c, a, b: np.where(c[:, None] if vectors else c, a, b)
        case "freeze":
            return lambda a: a
        case "extractvalue":
            (number,) = instruction.numbers
            return lambda a: a[number]
        case "extractelement":
            return _extracted(instruction)
        case "insertelement":
            return _inserted(instruction)
        case "shufflevector":
            return _shuffled(instruction)
    return None


def _extracted(instruction: Instruction) -> Pure:
    vector, index = instruction.operands
    if index.value is not None:
        lane = _lane(instruction, index.known, vector.type.lanes)
        return lambda a, _: np.ascontiguousarray(a[:, lane])
    count = vector.type.lanes

    def extracted(a: Array, lanes: Array) -> Array:
        refuse((lanes < 0) | (lanes >= count), "a lane that the vector does not have")
        both = max(len(a), len(lanes))
        a, lanes = np.broadcast_to(a, (both, count)), np.broadcast_to(lanes, (both,))
        return a[np.arange(both), lanes]

    return extracted


def _inserted(instruction: Instruction) -> Pure:
    vector, _, index = instruction.operands
    if index.value is None:
        raise unknown("a lane that only a run knows", instruction.text)
    lane = _lane(instruction, index.known, vector.type.lanes)

    def inserted(a: Array, x: Array, _: Array) -> Array:
        found = np.array(np.broadcast_to(a, (max(len(a), len(x)), a.shape[1])))
        found[:, lane] = x
        return found

    return inserted


def _lane(instruction: Instruction, lane: int, count: int) -> int:
    if not 0 <= lane < count:
        raise unknown("a lane that the vector does not have", instruction.text)
    return lane


def _shuffled(instruction: Instruction) -> Pure:
    first, _ = instruction.operands
    count, element = first.type.lanes, first.type.element
    numbers = np.array(instruction.numbers)
    chosen = np.maximum(numbers, 0)
    left, gaps = numbers < 0, open_value(element)[0]
    single = bool((numbers < count).all())

    def shuffled(a: Array, b: Array) -> Array:
        if single:
            found = a[:, chosen]
        else:
            both = max(len(a), len(b))
            found = np.concatenate([np.broadcast_to(x, (both, count)) for x in (a, b)], axis=1)[:, chosen]
        if left.any():
            found[:, left] = gaps
        return found

    return shuffled
