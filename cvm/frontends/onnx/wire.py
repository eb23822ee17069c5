"""A count of the messages in the bytes of a model, made before a library allocates an object for each message.

A message of two bytes becomes an object of a hundred bytes, so the size of a file does not bound the memory that it
takes. Only fields that hold messages or strings are followed (protocol buffers, "Encoding"; onnx.proto).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from cvm.errors import Malformed
from cvm.frontends.common.files import Buffer
from cvm.limits import require
from cvm.records import dataclass

__all__ = ["Contents", "require_few_messages", "without_contents"]

_MOST = 4_000_000
_NESTING = 64

_VARINT, _FIXED64, _LENGTH, _START, _END, _FIXED32 = range(6)

_Fields: TypeAlias = "dict[int, Any]"

_RAW_DATA = 9
"""The field of a tensor that holds its items as they are in memory."""

_TENSOR: _Fields = {6: {}, 8: {}, 12: {}, 13: {1: {}, 2: {}}, 16: {}}
_TYPE: _Fields = {1: {2: {1: {2: {}, 3: {}}}}, 6: {}}
_SPARSE = {1: _TENSOR, 2: _TENSOR}
_VALUE = {1: {}, 2: _TYPE, 3: {}, 4: {}}
_GRAPH: _Fields = {}
_ATTRIBUTE = {
    1: {}, 4: {}, 5: _TENSOR, 6: _GRAPH, 9: {}, 10: _TENSOR, 11: _GRAPH, 13: {}, 14: _TYPE, 15: _TYPE, 21: {},
    22: _SPARSE, 23: _SPARSE,
}  # fmt: skip
_NODE = {1: {}, 2: {}, 3: {}, 4: {}, 5: _ATTRIBUTE, 6: {}, 7: {}, 8: {}, 9: {}, 10: {}}
_GRAPH |= {
    1: _NODE,
    2: {},
    5: _TENSOR,
    10: {},
    11: _VALUE,
    12: _VALUE,
    13: _VALUE,
    14: {1: {}, 2: {}},
    15: _SPARSE,
    16: {},
}
_FUNCTION = {1: {}, 4: {}, 5: {}, 6: {}, 7: _NODE, 8: {}, 9: {}, 10: {}, 11: _ATTRIBUTE, 12: _VALUE, 13: {}, 14: {}}
_MODEL = {
    2: {}, 3: {}, 4: {}, 6: {}, 7: _GRAPH, 8: {1: {}}, 14: {1: {}, 2: {}},
    20: {1: _GRAPH, 2: _GRAPH, 3: {}, 4: {}}, 25: _FUNCTION, 26: {},
}  # fmt: skip
"""For each message type, its fields that hold messages or strings, and the message types of those."""


def _malformed(at: int, what: str) -> Malformed:
    return Malformed("onnx.bytes", f"byte {at}: {what}: this is no model of ONNX")


def _varint(data: Buffer, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end and shift < 70:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _malformed(at, "a number ends too late" if shift >= 70 else "the bytes end within a number")


def require_few_messages(data: Buffer) -> None:
    """Raise `Malformed` for bytes that are not messages, `LimitExceeded` for more than 4,000,000 messages."""
    count = 0
    pending = [(0, len(data), _MODEL, 1)]
    while pending:
        at, end, fields, depth = pending.pop()
        require("nesting", depth, _NESTING, "depth of nested messages of the model")
        while at < end:
            tag, at = _varint(data, at, end)
            number, kind = tag >> 3, tag & 7
            if kind == _VARINT:
                _, at = _varint(data, at, end)
                continue
            if kind in (_FIXED64, _FIXED32):
                at += 8 if kind == _FIXED64 else 4
            elif kind == _LENGTH:
                length, at = _varint(data, at, end)
                if number in fields:
                    count += 1
                    require("messages", count, _MOST, "messages and strings of the model")
                    if fields[number]:
                        pending.append((at, min(at + length, end), fields[number], depth + 1))
                at += length
            else:  # groups have never been part of the format
                raise _malformed(at, f"wire type {kind}")
            if number == 0 or at > end:
                raise _malformed(min(at, end), "the bytes end within a field" if at > end else "field number 0")


@dataclass(frozen=True, eq=False, slots=True)
class Contents:
    """The raw data of all tensors in the bytes of a model: the first byte and the number of bytes of each."""

    data: Buffer
    places: Sequence[tuple[int, int]]

    def of(self, number: bytes) -> Buffer:
        """The raw data for which the number of it stands in a parsed model."""
        start, size = self.places[int.from_bytes(number, "little")]
        return self.data[start : start + size]


def without_contents(data: Buffer) -> tuple[bytes, Contents]:
    """The bytes of the same model in which the raw data of every tensor are replaced by their number in `Contents`.

    ``data`` must have passed `require_few_messages`. A library that parses a model copies the raw data; of this one, it
    copies 8 bytes for each tensor.
    """
    places: list[tuple[int, int]] = []
    return bytes(_shortened(data, 0, len(data), _MODEL, places)), Contents(data, places)


def _shortened(data: Buffer, at: int, end: int, fields: _Fields, places: list[tuple[int, int]]) -> bytearray:
    """The fields of a message with shorter tensors. Messages are nested at most `_NESTING` deep."""
    made, copied = bytearray(), at
    while at < end:
        tag, at = _varint(data, at, end)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            _, at = _varint(data, at, end)
        elif kind != _LENGTH:
            at += 8 if kind == _FIXED64 else 4
        else:
            length, body = _varint(data, at, end)
            head, at = at, body + length
            if fields is _TENSOR and number == _RAW_DATA:
                inner = bytearray(len(places).to_bytes(8, "little"))
                places.append((body, length))
            elif fields.get(number):
                inner = _shortened(data, body, at, fields[number], places)
            else:
                continue
            made += bytes(data[copied:head]) + _encoded(len(inner)) + inner
            copied = at
    return made + bytes(data[copied:end])


def _encoded(number: int) -> bytes:
    """A number as a varint."""
    made = bytearray()
    while number > 127:
        made.append(number & 127 | 128)
        number >>= 7
    return bytes([*made, number])
