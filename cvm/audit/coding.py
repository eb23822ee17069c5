"""Shared by the readers of receipts and traces: canonical msgpack, where only one encoding of the content is valid."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from cvm.errors import Malformed
from cvm.limits import Limits, require
from cvm.program.wire import Reader

__all__ = ["VERSION", "decoded", "roots"]

VERSION = 1
_ITEMS = 2**20
"""The most runs of a receipt, steps of a trace, roots of a list."""

_T = TypeVar("_T")


def decoded(data: bytes, kind: str, limits: Limits, read: Callable[[Reader], _T], encode: Callable[[_T], bytes]) -> _T:
    """The content of canonical bytes of ``["cvm-<kind>", 1, ...]``. Raises `Malformed` and `LimitExceeded`."""
    require("receipt_bytes", len(data), limits.receipt_bytes, f"bytes of a {kind}")
    reader = Reader(data, kind, _ITEMS)
    if reader.array_header() != 3 or reader.text() != f"cvm-{kind}":
        raise reader.malformed("format", f"this is not a cvm {kind}")
    version = reader.integer()
    if version != VERSION:
        raise reader.malformed("version", f"expected version {VERSION} of the format, found {version}")
    found = read(reader)
    reader.end()
    if encode(found) != data:
        raise Malformed(f"{kind}.canonical", f"these are not the canonical bytes of the {kind} that they describe")
    return found


def roots(reader: Reader) -> tuple[bytes, ...]:
    """A list of roots."""
    return reader.array(reader.binary)
