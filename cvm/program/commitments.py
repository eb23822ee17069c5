"""Commitments to tensors and programs: SHA-256 over tagged preimages of fixed layout.

``docs/commitments.md`` gives every preimage byte for byte; the functions here stand in the order of that page. All
integers are little-endian; a text is its length (u32) and its UTF-8 bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid
from cvm.program.encoding import ValueNumbers, value_numbers
from cvm.program.leaves import Hasher, data_root, fast_hasher
from cvm.program.merkle import Tree, chunks
from cvm.program.model import AttributeValue, Constant, Output, ProgramParts, Shape, State, Value
from cvm.program.preimage import i64, shape, text, u8, u32, u64
from cvm.program.wire import rational_text
from cvm.quantization.quantizer import LogarithmicQuantizer, Quantizer

__all__ = [
    "ProgramClaim",
    "Records",
    "TensorClaim",
    "constant_claim",
    "constant_tree",
    "counted_root",
    "list_root",
    "program_claim",
    "program_digest",
    "records",
    "tensor_claim",
    "tensor_root",
    "tensor_tree",
]

_DTYPES = {"int32": 1, "int64": 2}
_ITEM_BYTES = {"int32": 4, "int64": 8}
_ROUNDINGS = {"half_up": 0, "half_even": 1, "toward_zero": 2}
_BLOCK = 2**18
"""The number of elements of a constant that are expanded at a time, a multiple of the elements of a leaf."""
MUCH = 2**23
"""If the constants of a program have at least this many bytes, expanded, making the fast hasher saves time."""


# Tensors


@dataclass(frozen=True, slots=True)
class TensorClaim:
    """The data to which a tensor root commits: the type of the elements, the shape, and the Merkle root of the data."""

    dtype: str
    """``int32`` or ``int64``."""
    shape: Shape
    data_root: bytes

    @property
    def data_bytes(self) -> int:
        """The length of the data in bytes. Its leaves have 1,024 bytes each; the last one may be shorter."""
        size = _ITEM_BYTES[self.dtype]
        for extent in self.shape:
            size *= extent
        return size

    def preimage(self) -> bytes:
        """What is hashed."""
        return b"cvm1:tensor\0" + u8(_DTYPES[self.dtype]) + shape(self.shape) + u64(self.data_bytes) + self.data_root

    def root(self) -> bytes:
        """The tensor root."""
        return sha256(self.preimage()).digest()


def tensor_tree(tensor: npt.NDArray[Any]) -> Tree:
    """The Merkle tree over the row-major little-endian elements of an int32 or int64 array."""
    if tensor.dtype.name not in _DTYPES:
        raise TypeError(f"a tensor has dtype int32 or int64, found {tensor.dtype}")
    return Tree.of(chunks(tensor.astype(tensor.dtype.newbyteorder("<"), order="C", copy=False).tobytes()))


def tensor_claim(tensor: npt.NDArray[Any]) -> TensorClaim:
    """The claim of an int32 or int64 array."""
    return TensorClaim(tensor.dtype.name, tensor.shape, tensor_tree(tensor).root)


def tensor_root(tensor: npt.NDArray[Any]) -> bytes:
    """The root of an int32 or int64 array."""
    return tensor_claim(tensor).root()


def constant_tree(constant: Constant) -> Tree:
    """The Merkle tree over the data of a constant, expanded to int32 (a tensor) or int64 (a parameter)."""
    return Tree.of(leaf for block in _expanded(constant) for leaf in chunks(block.tobytes()))


def constant_claim(constant: Constant, run: Hasher | None = None) -> TensorClaim:
    """The claim of a constant, that is, of the tensor with its values. It does not depend on the stored width.

    ``run`` is the hasher to use, or None for `hashlib`.
    """
    root = data_root(_expanded(constant), _BLOCK * _ITEM_BYTES[_dtype(constant)], run)
    return TensorClaim(_dtype(constant), constant.shape, root)


def _expanded_bytes(constant: Constant) -> int:
    return len(constant.data) // constant.width * _ITEM_BYTES[_dtype(constant)]


def _dtype(constant: Constant) -> str:
    return "int32" if constant.kind == "tensor" else "int64"


def _expanded(constant: Constant) -> Iterator[npt.NDArray[np.uint8]]:
    target = f"<i{_ITEM_BYTES[_dtype(constant)]}"
    items = np.frombuffer(constant.data, f"<i{constant.width}")
    for start in range(0, items.size, _BLOCK):
        yield items[start : start + _BLOCK].astype(target).view(np.uint8)


# Records


def _value(value: Value) -> bytes:
    return text(value.name) + shape(value.shape) + i64(value.lo) + i64(value.hi)


def _quantizer(quantizer: Quantizer | None) -> bytes:
    if quantizer is None:
        return u8(0)
    if isinstance(quantizer, LogarithmicQuantizer):
        return u8(3) + i64(quantizer.top) + u8(quantizer.bits)
    if quantizer.rounding not in _ROUNDINGS:
        raise Invalid("program.quantizer", f"there is no rounding {quantizer.rounding!r}")
    pairs = zip(quantizer.scale, quantizer.offset, strict=True)
    return b"".join([
        u8(1) if quantizer.axis is None else u8(2) + u8(quantizer.axis),
        u8(_ROUNDINGS[quantizer.rounding]),
        i64(quantizer.lo),
        i64(quantizer.hi),
        u32(len(quantizer.scale)),
        *(text(rational_text(scale)) + text(rational_text(offset)) for scale, offset in pairs),
    ])  # fmt: skip


def _attribute(value: AttributeValue) -> bytes:
    if isinstance(value, bool):
        return u8(0) + u8(value)
    if isinstance(value, int):
        return u8(1) + i64(value)
    if isinstance(value, str):
        return u8(2) + text(value)
    return u8(3) + u32(len(value)) + b"".join(i64(item) for item in value)


def _attributes(attributes: Mapping[str, AttributeValue]) -> bytes:
    items = b"".join(text(key) + _attribute(attributes[key]) for key in sorted(attributes))
    return u32(len(attributes)) + items


def _constants(constants: Sequence[Constant]) -> Iterator[bytes]:
    run = fast_hasher() if sum(map(_expanded_bytes, constants)) >= MUCH else None
    for constant in constants:
        yield b"cvm1:constant\0" + text(constant.name) + constant_claim(constant, run).root()


def _output(output: Output, numbers: ValueNumbers) -> bytes:
    return b"cvm1:output\0" + text(output.name) + u32(numbers[output.value]) + _quantizer(output.quantizer)


def _state(state: State, numbers: ValueNumbers) -> bytes:
    return b"cvm1:state\0" + _value(state.value) + u32(numbers[state.initial]) + u32(numbers[state.update])


def _nodes(program: ProgramParts, numbers: ValueNumbers) -> Iterator[bytes]:
    number = len(program.inputs) + len(program.constants) + len(program.state)
    for node in program.nodes:
        yield b"".join([
            b"cvm1:op\0",
            text(node.op),
            _attributes(node.attributes),
            u32(len(node.inputs)),
            *(u32(numbers[name]) for name in node.inputs),
            u32(number),
            u32(len(node.outputs)),
            *(_value(value) for value in node.outputs),
        ])  # fmt: skip
        number += len(node.outputs)


@dataclass(frozen=True, slots=True)
class Records:
    """The preimages of the parts of a program: the leaves of its five lists."""

    nodes: tuple[bytes, ...]
    constants: tuple[bytes, ...]
    inputs: tuple[bytes, ...]
    outputs: tuple[bytes, ...]
    state: tuple[bytes, ...]


def records(program: ProgramParts) -> Records:
    """The records of ``program``. Raises `Invalid` for a program that has no digest: names unknown or not unique."""
    numbers = value_numbers(program)
    return Records(
        nodes=tuple(_nodes(program, numbers)),
        constants=tuple(_constants(program.constants)),
        inputs=tuple(b"cvm1:input\0" + _value(item.value) + _quantizer(item.quantizer) for item in program.inputs),
        outputs=tuple(_output(output, numbers) for output in program.outputs),
        state=tuple(_state(state, numbers) for state in program.state),
    )


# Lists and the digest


def list_root(items: Sequence[bytes]) -> bytes:
    """The root of a list of records."""
    return counted_root(len(items), Tree.of(items).root)


def counted_root(count: int, root: bytes) -> bytes:
    """The root of a list of ``count`` records, from their Merkle root."""
    return sha256(b"cvm1:list\0" + u64(count) + root).digest()


@dataclass(frozen=True, slots=True)
class ProgramClaim:
    """The data to which a program digest commits."""

    op_set: int
    limits: str
    nodes: bytes
    constants: bytes
    inputs: bytes
    outputs: bytes
    state: bytes

    def preimage(self) -> bytes:
        """What is hashed."""
        roots = self.nodes + self.constants + self.inputs + self.outputs + self.state
        return b"cvm1:program\0" + u32(self.op_set) + text(self.limits) + roots

    def digest(self) -> bytes:
        """The program digest."""
        return sha256(self.preimage()).digest()


def program_claim(program: ProgramParts) -> ProgramClaim:
    """The claim of ``program``."""
    parts = records(program)
    return ProgramClaim(
        op_set=program.op_set,
        limits=program.limits,
        nodes=list_root(parts.nodes),
        constants=list_root(parts.constants),
        inputs=list_root(parts.inputs),
        outputs=list_root(parts.outputs),
        state=list_root(parts.state),
    )


def program_digest(program: ProgramParts) -> bytes:
    """The digest of ``program``: its identity. Provenance is not part of it."""
    return program_claim(program).digest()
