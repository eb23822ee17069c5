"""Loads and stores of elements of tensors, which are converted from and to the format of the tensor."""

from __future__ import annotations

from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.emit.ir import Code, V, vector

__all__ = ["decoded", "encoded", "load", "store"]


def load(code: Code, format_: Format, pointer: V, count: int) -> V:
    """Load ``count`` values that lie side by side, as i32 (as i64 if the format has 64 bits)."""
    return decoded(code, format_, code.load(vector(format_.bits, count), pointer))


def decoded(code: Code, format_: Format, raw: V) -> V:
    """The values of stored integers."""
    if format_.raw:
        return raw
    wide = code.cast("sext" if format_.signed else "zext", raw, max(32, format_.bits))
    return code.binary("sub", wide, format_.bias) if format_.bias else wide


def encoded(code: Code, format_: Format, value: V) -> V:
    """The stored integers of values."""
    if format_.raw:
        return value
    moved = code.binary("add", value, format_.bias) if format_.bias else value
    return code.cast("trunc", moved, format_.bits)


def store(code: Code, format_: Format, value: V, pointer: V) -> None:
    """Store values side by side."""
    code.store(encoded(code, format_, value), pointer)
