"""Vector files: what is written is read back; what is not of the format is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgpack
import numpy as np
import pytest

from cvm.errors import Malformed
from cvm.vectors import VectorFile, VectorTensor, decode, encode
from tests.spec_vectors.shipped import FOLDER, files

ABS = (FOLDER / "ops" / "elemwise" / "abs.msgpack").read_bytes()
STATE = (FOLDER / "programs" / "accumulator.msgpack").read_bytes()


def test_all_shipped_files_survive_reading_and_writing() -> None:
    for path, file in files().items():
        assert encode(file) == (FOLDER / path).read_bytes()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_tensors_hold_little_endian_elements_row_major(dtype: str) -> None:
    array = np.array([[1, -2], [3, 2**31 - 1]], dtype)
    tensor = VectorTensor.of(array.T)
    assert tensor.data == array.T.astype(array.dtype.newbyteorder("<")).tobytes(order="C")
    np.testing.assert_array_equal(tensor.array(), array.T, strict=True)
    assert not tensor.array().flags.writeable


def changed(data: bytes, change: Callable[[Any], object]) -> bytes:
    tree = msgpack.unpackb(data)
    change(tree)
    packed: bytes = msgpack.packb(tree, use_bin_type=True)
    return packed


def put(*path: Any) -> Callable[[Any], None]:
    """Set the item at a path; the last entry is the new value, and nothing stands for removal."""

    def change(tree: Any) -> None:
        *steps, key, value = path
        for step in steps:
            tree = tree[step]
        if value is None:
            del tree[key]
        else:
            tree[key] = value

    return change


CASE = (3, 0)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "vectors.truncated"),
        (ABS[:-1], "vectors.truncated"),
        (ABS + b"\x00", "vectors.trailing"),
        (changed(ABS, put(0, "cvm-program")), "vectors.format"),
        (changed(ABS, put(1, 2)), "vectors.version"),
        (changed(ABS, put(2, "kind", "program")), "vectors.header"),
        (changed(ABS, put(2, "op", None)), "vectors.header"),
        (changed(ABS, put(2, "kind", "graph")), "vectors.value"),
        (changed(ABS, put(2, "seed", None)), "vectors.key"),
        (changed(ABS, put(*CASE, "verdict", "maybe")), "vectors.value"),
        (changed(ABS, put(*CASE, "outputs", None)), "vectors.case"),
        (changed(ABS, put(*CASE, "verdict", "invalid")), "vectors.case"),
        (changed(ABS, put(*CASE, "inputs", 0, 0, "int16")), "vectors.value"),
        (changed(ABS, put(*CASE, "inputs", 0, 1, [8])), "vectors.tensor"),
        (changed(ABS, put(*CASE, "inputs", 0, 1, [])), "vectors.tensor"),
        (changed(ABS, put(*CASE, "inputs", 0, 1, [0])), "vectors.tensor"),
        (changed(ABS, put(*CASE, "inputs", 0, 1, [2**40, 2**40])), "vectors.tensor"),
        (changed(ABS, put(*CASE, "inputs", 0, ["int32", [7]])), "vectors.tensor"),
        (changed(ABS, put(*CASE, "attributes", {"a": {}})), "vectors.attribute"),
        (changed(STATE, put(*CASE, "digest", None)), "vectors.case"),
        (changed(STATE, put(*CASE, "runs", 1, "values", "cut", None)), "vectors.case"),
        (ABS.replace(b"\xa4seed\x01", b"\xa4seed\xcc\x01"), "vectors.canonical"),
    ],
)
def test_what_is_not_of_the_format_is_malformed(data: bytes, code: str) -> None:
    with pytest.raises(Malformed) as caught:
        decode(data)
    assert caught.value.code == code


def test_no_prefix_of_a_file_is_a_file() -> None:
    for length in range(0, len(STATE), 7):
        with pytest.raises(Malformed):
            decode(STATE[:length])


def test_a_file_without_cases_is_a_file() -> None:
    file = VectorFile(1, "a test", 0, ())
    assert decode(encode(file)) == file
