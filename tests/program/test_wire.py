"""The subset of msgpack, against the library: what is packed, what is read, where the reader stops."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import LimitExceeded, Malformed
from cvm.program.wire import APART, Reader, pack, packs_to

EDGES = sorted({sign * 2**bits + step for sign in (1, -1) for bits in (5, 7, 8, 15, 16, 31, 32) for step in (-1, 0)})
INTEGERS = (
    st.integers(-(2**63), 2**64 - 1) | st.sampled_from([*EDGES, -(2**63), 2**63, 2**64 - 1]) | st.integers(-40, 140)
)
BINARIES = st.binary(max_size=300) | st.integers(APART - 1, 70_000).map(lambda n: bytes([n % 251]) * n)
TREES = st.recursive(
    INTEGERS | st.booleans() | st.text(max_size=40) | BINARIES,
    lambda item: st.lists(item, max_size=20) | st.dictionaries(st.text(max_size=8), item, max_size=20),
    max_leaves=20,
)


def ordered(tree: Any) -> Any:
    """The tree with its keys in order, for the library."""
    if isinstance(tree, dict):
        return {key: ordered(tree[key]) for key in sorted(tree)}
    return [ordered(item) for item in tree] if isinstance(tree, list) else tree


def read(reader: Reader) -> Any:
    """The next item, whatever it is."""
    kinds = {
        "integer": reader.integer,
        "boolean": reader.boolean,
        "string": reader.text,
        "binary": reader.binary,
        "array": lambda: list(reader.array(lambda: read(reader))),
        "map": lambda: reader.table(lambda: read(reader)),
    }
    kind = reader.kind()
    if kind not in kinds:
        raise reader.malformed("type", kind)
    return kinds[kind]()


@given(TREES)
def test_what_is_packed_is_what_the_library_packs(tree: Any) -> None:
    assert pack(tree, "test") == msgpack.packb(ordered(tree), use_bin_type=True)


@given(TREES)
def test_what_is_read_is_what_was_packed(tree: Any) -> None:
    data = pack(tree, "test")
    reader = Reader(data, "test", 100)
    assert read(reader) == tree
    assert reader.offset == len(data)
    reader.end()
    assert packs_to(tree, data, "test")


@given(TREES, st.data())
def test_no_other_bytes_are_those_of_a_tree(tree: Any, draw: st.DataObject) -> None:
    data = pack(tree, "test")
    index = draw.draw(st.integers(0, len(data) - 1))
    other = draw.draw(st.integers(0, 255).filter(lambda byte: byte != data[index]))
    for changed in (
        data[:index] + bytes([other]) + data[index + 1 :],
        data[:index],
        data[:index] + data[index + 1 :],
        data + b"\0",
    ):
        assert changed == data or not packs_to(tree, changed, "test")


@given(TREES, st.data())
def test_what_ends_too_early_is_truncated(tree: Any, draw: st.DataObject) -> None:
    data = pack(tree, "test")
    index = draw.draw(st.integers(0, len(data) - 1))
    with pytest.raises(Malformed, match="ends too early") as caught:
        read(Reader(data[:index], "test", 100))
    assert caught.value.code == "test.truncated"


@given(st.binary(max_size=40))
def test_of_any_bytes_the_reader_says_what_the_library_says_or_refuses(data: bytes) -> None:
    reader = Reader(data, "test", 100)
    try:
        found = read(reader)
    except (Malformed, LimitExceeded):
        return
    assert found == msgpack.unpackb(data[: reader.offset], raw=False)


@pytest.mark.parametrize("lead", ["c6", "db", "dd", "df"])
def test_a_length_beyond_the_data_takes_no_memory(lead: str) -> None:
    with pytest.raises(Malformed) as caught:
        read(Reader(bytes.fromhex(lead + "ffffffff"), "test", 2**32))
    assert caught.value.code == "test.truncated"
