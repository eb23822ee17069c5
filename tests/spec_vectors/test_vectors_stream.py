"""The numbers of the vectors do not depend on any library."""

from __future__ import annotations

from tools.vector_cases.stream import Stream

from tools import make_vectors  # noqa: F401 - puts the folder of tools on the path


def test_the_words_are_those_of_splitmix64() -> None:
    stream = Stream("")
    stream._state = 0
    assert [stream.word() for _ in range(3)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]


def test_the_key_is_the_fnv_hash_of_seed_and_label() -> None:
    key = 0xCBF29CE484222325
    for byte in b"1/conv2d/table_00":
        key = ((key ^ byte) * 0x100000001B3) % 2**64
    assert Stream("conv2d/table_00")._state == key


def test_streams_of_other_labels_are_others() -> None:
    assert Stream("a").word() != Stream("b").word()


def test_elements_stay_within_their_interval_and_reach_both_ends() -> None:
    elements = Stream("ends").tensor((400,), -3, 11).elements
    assert (min(elements), max(elements)) == (-3, 11)
    assert sorted(Stream("order").shuffled(range(20))) == list(range(20))
