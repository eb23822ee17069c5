"""Parameter files: what is written is read, and no file, however broken, does more than be refused."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.frontends.cvm_runtime import read_parameters, write_parameters

from .models import ARRAY_MAGIC, LIST_MAGIC, parameters

ARRAYS = st.one_of(
    arrays(np.int8, array_shapes(max_dims=6, max_side=3)), arrays(np.int32, array_shapes(max_dims=6, max_side=3))
)
GOOD = parameters(("w", np.array([[1, -2], [3, 4]], np.int8)), ("bias", np.array([1000, -1000], np.int32)))
HEADER = struct.pack("<QQQ", LIST_MAGIC, 0, 1) + struct.pack("<Q", 1) + b"w" + struct.pack("<Q", 1)


@given(st.dictionaries(st.text(max_size=8), ARRAYS, max_size=4))
def test_what_is_written_is_read(items: dict[str, np.ndarray]) -> None:
    data = write_parameters(items)
    found = read_parameters(data)
    assert list(found.arrays) == list(items)
    assert found.trailing == 0
    for name, array in items.items():
        assert found.arrays[name].dtype == array.dtype
        assert np.array_equal(found.arrays[name], array)
        assert not found.arrays[name].flags.writeable
    assert write_parameters(found.arrays) == data == parameters(*items.items())


def test_an_empty_list_has_32_bytes() -> None:
    assert len(write_parameters({})) == 32
    assert read_parameters(write_parameters({})).arrays == {}


@pytest.mark.parametrize("length", range(len(GOOD)))
def test_every_truncation_is_malformed(length: int) -> None:
    with pytest.raises(Malformed) as caught:
        read_parameters(GOOD[:length])
    assert caught.value.code == "cvm_runtime.params.truncated"


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), min_size=1, max_size=4))
def test_no_damage_ends_in_anything_but_an_error_of_ours(changes: list[tuple[int, int]]) -> None:
    data = bytearray(GOOD)
    for place, value in changes:
        data[place] = value
    try:
        found = read_parameters(bytes(data))
    except CvmError:
        return
    assert sum(array.nbytes for array in found.arrays.values()) <= len(GOOD)


def array_bytes(
    device: int = 1,
    rank: int = 1,
    code: int = 0,
    bits: int = 8,
    lanes: int = 1,
    shape: tuple[int, ...] = (2,),
    size: int = 2,
    magic: int = ARRAY_MAGIC,
    reserved: int = 0,
    data: bytes = b"ab",
) -> bytes:
    head = struct.pack("<QQiiiBBH", magic, reserved, device, 0, rank, code, bits, lanes)
    return HEADER + head + struct.pack(f"<{len(shape)}qq", *shape, size) + data


@pytest.mark.parametrize(
    ("data", "error", "code"),
    [
        (b"\0" * 32, Malformed, "cvm_runtime.params.magic"),
        (struct.pack("<QQQQ", LIST_MAGIC, 1, 0, 0), Malformed, "cvm_runtime.params.reserved"),
        (struct.pack("<QQQQ", LIST_MAGIC, 0, 0, 1), Malformed, "cvm_runtime.params.count"),
        (struct.pack("<QQQ", LIST_MAGIC, 0, 2**64 - 1), LimitExceeded, "limit.nodes"),
        (struct.pack("<QQQ", LIST_MAGIC, 0, 10**6), Malformed, "cvm_runtime.params.truncated"),
        (struct.pack("<QQQQ", LIST_MAGIC, 0, 1, 2**63), LimitExceeded, "limit.name"),
        (struct.pack("<QQQQ", LIST_MAGIC, 0, 1, 2) + b"\xff\xfe", Malformed, "cvm_runtime.params.name"),
        (array_bytes(magic=7), Malformed, "cvm_runtime.params.magic"),
        (array_bytes(reserved=7), Malformed, "cvm_runtime.params.reserved"),
        (array_bytes(device=2), Invalid, "cvm_runtime.params.device"),
        (array_bytes(code=2, bits=32), Invalid, "cvm_runtime.params.dtype"),
        (array_bytes(code=1), Invalid, "cvm_runtime.params.dtype"),
        (array_bytes(bits=16), Invalid, "cvm_runtime.params.dtype"),
        (array_bytes(bits=64), Invalid, "cvm_runtime.params.dtype"),
        (array_bytes(lanes=2), Invalid, "cvm_runtime.params.dtype"),
        (array_bytes(rank=0, shape=()), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(rank=7, shape=(1,) * 7), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(rank=-1, shape=()), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(rank=2**31 - 1), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(shape=(0,), size=0), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(shape=(-2,), size=-2), Invalid, "cvm_runtime.params.shape"),
        (array_bytes(shape=(2**62,), size=2**62), LimitExceeded, "limit.extent"),
        (array_bytes(rank=3, shape=(2**30,) * 3, size=0), LimitExceeded, "limit.elements"),
        (array_bytes(shape=(2**28,), size=2**28), Malformed, "cvm_runtime.params.truncated"),
        (array_bytes(size=3), Malformed, "cvm_runtime.params.length"),
        (array_bytes(size=-1), Malformed, "cvm_runtime.params.length"),
    ],
)
def test_hostile_files_are_refused_before_anything_is_allocated(data: bytes, error: type[CvmError], code: str) -> None:
    with pytest.raises(CvmError) as caught:
        read_parameters(data)
    assert (type(caught.value), caught.value.code) == (error, code)


def test_bytes_behind_the_last_array_are_counted() -> None:
    assert read_parameters(GOOD + b"xyz").trailing == 3
