"""Fast roots are the roots."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from cvm.audit import hashing
from cvm.audit.hashing import LITTLE, tensor_roots
from cvm.executors.native.emit.machine import MACHINES
from cvm.program.commitments import tensor_root
from cvm.program.merkle import root as merkle_root

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
    monkeypatch.setattr(hashing, "fast_hasher", cache(lambda: None))
    assert tensor_roots(TENSORS) == {name: tensor_root(tensor) for name, tensor in TENSORS.items()}


@pytest.fixture
def fresh(monkeypatch):
    """As in a process that has hashed nothing yet."""
    monkeypatch.setattr(hashing, "fast_hasher", cache(hashing.fast_hasher.__wrapped__))


def test_little_data_does_not_wait_for_the_code_generator(fresh):
    little, much = {"x": np.zeros(9, np.int32)}, {"x": np.zeros(LITTLE // 4, np.int32)}
    expected = {"x": tensor_root(little["x"])}
    assert tensor_roots(little) == expected
    assert hashing.fast_hasher.cache_info().misses == 0
    assert tensor_roots(much) == {"x": tensor_root(much["x"])}
    assert hashing.fast_hasher.cache_info().misses == 1
    assert tensor_roots(little) == expected
    assert hashing.fast_hasher.cache_info().hits == 1


def test_the_constants_are_those_of_the_standard():
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    assert sha256.K[0] == 0x428A2F98
    assert sha256.K[63] == 0xC67178F2
    assert (sha256.A, sha256.H) == (0x6A09E667, 0x5BE0CD19)


def test_a_processor_with_instructions_for_sha_256_has_a_hasher():
    """Without it the other tests would be skipped, and roots would be right but slow."""
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    if not (sha256.store.host().has("sha") and sha256.available()):
        pytest.skip("this processor has no instructions for SHA-256")
    assert sha256.hasher() is not None


def test_code_of_a_machine_that_states_its_features_has_the_instructions():
    """Some processors have them and AVX2, but not AVX-512. LLVM ends the process where it cannot select one."""
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    foreign = pytest.importorskip("cvm.executors.native.runtime.foreign")
    (avx2,) = (one for one in MACHINES if one.name == "avx2")
    machine = sha256._with_instructions(avx2)
    assert replace(machine, features=avx2.features) == avx2, "nothing else differs"
    text = foreign.assembly_for("x86_64-unknown-linux-gnu", machine, sha256._module())
    assert all(name in text for name in ("sha256rnds2", "sha256msg1", "sha256msg2"))


def test_every_size_and_count_of_messages_agrees_with_hashlib():
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    run = sha256.hasher()
    if run is None:
        pytest.skip("this processor has no instructions for SHA-256")
    data = RANDOM.integers(0, 256, 9 * 1024, dtype=np.uint8)
    for size in range(64, 1025, 64):
        for count in range(9):
            for prefix in (0, 1, 255):
                digests = np.full(32 * count + 32, 7, np.uint8)
                run.messages(prefix, data.ctypes.data, size, count, digests.ctypes.data)
                messages = [bytes([prefix]) + data[k * size : (k + 1) * size].tobytes() for k in range(count)]
                expected = b"".join(hashlib.sha256(message).digest() for message in messages)
                assert digests.tobytes() == expected + bytes([7]) * 32


def test_every_tree_agrees_with_the_definition():
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    run = sha256.hasher()
    if run is None:
        pytest.skip("this processor has no instructions for SHA-256")
    data = RANDOM.integers(0, 256, 70 * 64, dtype=np.uint8)
    leaves = [data[64 * k : 64 * (k + 1)].tobytes() for k in range(70)]
    for count in range(69):
        for more in (0, 1):
            if count + more == 0:
                continue
            nodes = np.full(32 * (count + more) + 32, 7, np.uint8)
            if more:
                nodes[32 * count : 32 * count + 32] = list(hashlib.sha256(b"\0" + leaves[count]).digest())
            run.tree(data.ctypes.data, 64, count, more, nodes.ctypes.data)
            assert nodes[:32].tobytes() == merkle_root(leaves[: count + more])
            assert nodes[-32:].tobytes() == bytes([7]) * 32


def test_pieces_and_shares_do_not_change_a_root(monkeypatch):
    expected = {name: tensor_root(tensor) for name, tensor in TENSORS.items()}
    for piece in (2**10, 2**12, 2**20):
        for shares in (1, 4, 1000):
            monkeypatch.setattr(hashing, "PIECE", piece)
            monkeypatch.setattr(hashing, "SHARES", shares)
            assert tensor_roots(TENSORS, 2) == expected


@pytest.mark.parametrize("lost", ["messages", "tree"])
def test_a_hasher_that_is_wrong_once_is_not_used(lost):
    sha256 = pytest.importorskip("cvm.executors.native.runtime.sha256")
    run = sha256.hasher()
    if run is None:
        pytest.skip("this processor has no instructions for SHA-256")
    assert sha256._agrees(run)
    which = {"messages": 3, "tree": 2}[lost]

    def lazy(*arguments):
        """Forgets the last message or leaf."""
        getattr(run, lost)(*(value - 1 if k == which else value for k, value in enumerate(arguments)))

    assert not sha256._agrees(replace(run, **{lost: lazy}))
