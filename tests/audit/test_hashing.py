"""Fast roots are the roots."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from cvm.audit import hashing
from cvm.audit.hashing import LITTLE, tensor_roots
from cvm.program.commitments import tensor_root

RANDOM = np.random.default_rng(3)
SIZES = [1, 255, 256, 257, 512, 513, 3 * 256, 7 * 256 + 1, 2**12, 2**12 + 1, 100_003, LITTLE // 4, LITTLE + 5]
TENSORS = {
    str(size): RANDOM.integers(-(2**31) + 1, 2**31 - 1, size, dtype=np.int32, endpoint=True) for size in SIZES
} | {
    "shaped": np.arange(24, dtype=np.int32).reshape(2, 3, 4),
    "turned": np.arange(2400, dtype=np.int32).reshape(60, 40).T,
    "foreign": np.arange(999).astype(">i4"),
    "every second": np.arange(5000, dtype=np.int32)[::2],
}


@pytest.mark.parametrize("threads", [None, 1, 3])
def test_roots_of_many_tensors_are_those_of_each(threads):
    assert sum(tensor.nbytes for tensor in TENSORS.values()) > LITTLE
    found = tensor_roots(TENSORS, threads)
    assert list(found) == list(TENSORS)
    assert found == {name: tensor_root(tensor) for name, tensor in TENSORS.items()}


def test_without_a_hasher_they_are_the_same(monkeypatch):
    monkeypatch.setattr(hashing, "fast_hasher", lambda: None)
    assert tensor_roots(TENSORS) == {name: tensor_root(tensor) for name, tensor in TENSORS.items()}


def test_little_data_does_not_wait_for_the_code_generator(monkeypatch):
    monkeypatch.setattr(hashing, "fast_hasher", lambda: pytest.fail("it was asked for"))
    assert tensor_roots({"x": np.zeros(9, np.int32)}) == {"x": tensor_root(np.zeros(9, np.int32))}


def test_the_constants_are_those_of_the_standard():
    sha256 = pytest.importorskip("cvm.executors.native.sha256")
    assert sha256.K[0] == 0x428A2F98
    assert sha256.K[63] == 0xC67178F2
    assert (sha256.A, sha256.H) == (0x6A09E667, 0x5BE0CD19)


def test_every_size_and_count_of_messages_agrees_with_hashlib():
    sha256 = pytest.importorskip("cvm.executors.native.sha256")
    run = sha256.hasher()
    if run is None:
        pytest.skip("this processor has no instructions for SHA-256")
    data = RANDOM.integers(0, 256, 9 * 1024, dtype=np.uint8)
    for size in range(64, 1025, 64):
        for count in range(9):
            for prefix in (0, 1, 255):
                digests = np.full(32 * count + 32, 7, np.uint8)
                run(prefix, data.ctypes.data, size, count, digests.ctypes.data)
                messages = [bytes([prefix]) + data[k * size : (k + 1) * size].tobytes() for k in range(count)]
                expected = b"".join(hashlib.sha256(message).digest() for message in messages)
                assert digests.tobytes() == expected + bytes([7]) * 32


def test_a_hasher_that_is_wrong_once_is_not_used():
    sha256 = pytest.importorskip("cvm.executors.native.sha256")

    def lazy(prefix, data, size, count, digests):
        """Forgets the last message."""
        run = sha256.hasher()
        if run is not None:
            run(prefix, data, size, count - 1, digests)

    assert not sha256._agrees(lazy)
