"""A copy of a file of TFLite with other outputs, so that an interpreter shows tensors that it would not keep."""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["with_outputs"]

_SUBGRAPHS, _OUTPUTS = 2, 2
"""The numbers of two fields in the schema: ``Model.subgraphs`` and ``SubGraph.outputs``."""


def with_outputs(data: bytes, indices: Sequence[int]) -> bytes:
    """The file with the tensors ``indices`` as the outputs of its first subgraph.

    ``data`` is a file that the reader accepted. The new list stands at the end; nothing else moves.
    """
    file = bytearray(data)
    file += bytes(-len(file) % 4)
    (root,) = struct.unpack_from("<I", file, 0)
    vector = _target(file, _field(file, root, _SUBGRAPHS))
    subgraph = _target(file, vector + 4)
    field = _field(file, subgraph, _OUTPUTS)
    struct.pack_into("<I", file, field, len(file) - field)
    file += struct.pack(f"<I{len(indices)}i", len(indices), *indices)
    return bytes(file)


def _field(file: bytearray, table: int, number: int) -> int:
    """Where a field of a table is. A file that the reader accepted has the fields that are asked for."""
    (distance,) = struct.unpack_from("<i", file, table)
    (offset,) = struct.unpack_from("<H", file, table - distance + 4 + 2 * number)
    return table + int(offset)


def _target(file: bytearray, where: int) -> int:
    """Where the offset at a position points to."""
    (offset,) = struct.unpack_from("<I", file, where)
    return where + int(offset)
