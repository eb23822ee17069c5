"""Receipts as data and as bytes: one form, no field that does not count, nothing hostile that gets through."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.audit import (
    Claim,
    Host,
    Receipt,
    Run,
    Signature,
    decode_receipt,
    decode_trace,
    encode_receipt,
    encode_trace,
    load_receipt,
    save_receipt,
)
from cvm.audit.trace import Trace
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.program.wire import pack
from tests.audit.examples import SUBJECTS, subject

RECEIPT = replace(
    subject("counter").receipt(), signatures=(Signature(bytes(32), bytes(64)), Signature(b"\1" * 32, bytes(64)))
)
BYTES = encode_receipt(RECEIPT)

_roots = st.lists(st.binary(min_size=32, max_size=32), max_size=3).map(tuple)
_texts = st.text(max_size=9)
_runs = st.builds(Run, _roots, _roots, _roots, _roots, st.one_of(st.none(), st.binary(min_size=32, max_size=32)))
_claims = st.builds(
    Claim,
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32 - 1),
    _texts,
    st.integers(0, 2**63 - 1),
    st.lists(_runs, min_size=1, max_size=3).map(tuple),
)
_signatures = st.dictionaries(st.binary(min_size=32, max_size=32), st.binary(min_size=64, max_size=64), max_size=2).map(
    lambda found: tuple(Signature(key, found[key]) for key in sorted(found))
)
_receipts = st.builds(Receipt, _claims, st.builds(Host, _texts, _texts, _texts, _texts), _signatures)
_traces = st.builds(Trace, st.binary(min_size=32, max_size=32), _roots, _roots, st.lists(_roots, max_size=4).map(tuple))


@given(_receipts)
def test_a_receipt_is_read_as_it_was_written(receipt):
    data = encode_receipt(receipt)
    assert decode_receipt(data) == receipt
    assert encode_receipt(decode_receipt(data)) == data


@given(_traces)
def test_a_trace_is_read_as_it_was_written(trace):
    assert decode_trace(encode_trace(trace)) == trace


@given(_claims, _claims)
def test_different_claims_have_different_preimages(one, other):
    assert (one == other) == (one.preimage() == other.preimage())


def test_the_host_and_signatures_are_not_part_of_the_id():
    assert replace(RECEIPT, host=Host("other", "other", "other", "other"), signatures=()).id == RECEIPT.id


@given(st.data())
def test_a_changed_byte_is_another_receipt_or_none(data):
    index = data.draw(st.integers(0, len(BYTES) - 1))
    changed = bytearray(BYTES)
    changed[index] ^= data.draw(st.integers(1, 255))
    try:
        found = decode_receipt(bytes(changed))
    except CvmError:
        return
    assert found != RECEIPT
    assert encode_receipt(found) == bytes(changed)


def test_every_truncation_is_malformed():
    for length in range(len(BYTES)):
        with pytest.raises(Malformed) as caught:
            decode_receipt(BYTES[:length])
        assert caught.value.code.startswith("receipt.")


def tree() -> dict:
    return msgpack.unpackb(BYTES)[2]


def refused(body) -> CvmError:
    with pytest.raises(CvmError) as caught:
        decode_receipt(pack(["cvm-receipt", 1, body], "receipt"))
    return caught.value


def paths(item, path=()) -> Iterator[tuple]:
    """The paths of a tree at which something stands."""
    yield path
    items = item.items() if isinstance(item, dict) else enumerate(item) if isinstance(item, list) else ()
    for key, part in items:
        yield from paths(part, (*path, key))


def at(body, path):
    for key in path:
        body = body[key]
    return body


@pytest.mark.parametrize("path", [path for path in paths(tree()) if path], ids=str)
def test_no_part_can_be_of_another_kind(path):
    for other in (0, "text", b"bytes", True, [], {}, [[]] * 3, -1):
        body = tree()
        if type(other) is type(at(body, path)):
            continue
        at(body, path[:-1])[path[-1]] = other
        assert refused(body).code.startswith("receipt.")


@pytest.mark.parametrize("path", [path for path in paths(tree()) if isinstance(at(tree(), path), dict)], ids=str)
def test_no_key_is_missing_and_none_is_unknown(path):
    for key in at(tree(), path):
        if key == "trace":
            continue
        body = tree()
        del at(body, path)[key]
        assert refused(body).code == "receipt.key"
    body = tree()
    at(body, path)["zz"] = 1
    assert refused(body).code == "receipt.key"


CHANGES = {
    "a root of 31 bytes": (("claim", "runs", 0, "inputs", 0), bytes(31), "receipt.root"),
    "a trace of 33 bytes": (("claim", "runs", 0, "trace"), bytes(33), "receipt.root"),
    "a program of no bytes": (("claim", "program"), b"", "receipt.root"),
    "no runs": (("claim", "runs"), [], "receipt.runs"),
    "negative gas": (("claim", "gas"), -1, "receipt.integer"),
    "gas of 64 bits": (("claim", "gas"), 2**63, "receipt.integer"),
    "an op-set of 33 bits": (("claim", "op_set"), 2**32, "receipt.integer"),
    "a long profile": (("claim", "limits"), "x" * 1025, "receipt.text"),
    "a long executor": (("host", "executor"), "é" * 513, "receipt.text"),
    "a short signature": (("signatures", 0, "signature"), bytes(63), "receipt.signature"),
    "two signatures of one key": (("signatures", 1, "key"), bytes(32), "receipt.signature"),
    "signatures out of order": (("signatures", 0, "key"), b"\2" * 32, "receipt.signature"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_impossible_values_are_invalid(name):
    path, value, code = CHANGES[name]
    body = tree()
    at(body, path[:-1])[path[-1]] = value
    error = refused(body)
    assert (type(error), error.code) == (Invalid, code)


HOSTILE = {
    "nothing": (b"", "receipt.truncated"),
    "another format": (encode_trace(Trace(bytes(32), (), (), ())), "receipt.format"),
    "a program": (subject("pair").verified.program.to_bytes(), "receipt.format"),
    "another version": (BYTES.replace(b"receipt\x01", b"receipt\x02", 1), "receipt.version"),
    "a byte more": (BYTES + b"\0", "receipt.trailing"),
    "a list that claims 2^32 - 1 runs": (BYTES.replace(b"\xa4runs\x92", b"\xa4runs\xdd\xff\xff\xff\xff", 1), None),
    "a binary that claims 2^32 - 1 bytes": (BYTES.replace(b"\xc4\x20", b"\xc6\xff\xff\xff\xff", 1), None),
    "an integer in its longer form": (BYTES.replace(b"op_set\x01", b"op_set\xcc\x01", 1), "receipt.canonical"),
    "a length in its longer form": (BYTES.replace(b"\xa4runs\x92", b"\xa4runs\xdc\x00\x02", 1), "receipt.canonical"),
    "nesting without end": (b"\x93\xabcvm-receipt\x01" + b"\x91" * 10_000, "receipt.type"),
    "a float": (BYTES.replace(b"op_set\x01", b"op_set\xca\x3f\x80\x00\x00", 1), "receipt.type"),
    "nil": (BYTES.replace(b"op_set\x01", b"op_set\xc0", 1), "receipt.type"),
    "text that is not UTF-8": (BYTES.replace(b"default", b"d\xff\xffault", 1), "receipt.text"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bytes_are_refused(name):
    data, code = HOSTILE[name]
    assert data != BYTES
    with pytest.raises(Malformed) as caught:
        decode_receipt(data)
    assert caught.value.code == (code or "receipt.truncated")


def test_a_list_beyond_the_limit_is_refused_before_it_is_read():
    count = 2**20 + 1
    data = BYTES.replace(b"\xa4runs\x92", b"\xa4runs\xdd" + count.to_bytes(4, "big") + b"\x80" * count, 1)
    with pytest.raises(LimitExceeded) as caught:
        decode_receipt(data)
    assert caught.value.code == "limit.items"


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "huge.receipt"
    with open(path, "wb") as file:
        file.truncate(2**40)
    with pytest.raises(LimitExceeded) as caught:
        load_receipt(path)
    assert caught.value.code == "limit.receipt_bytes"
    assert caught.value.location.file == str(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="named pipes exist on POSIX only")
def test_a_pipe_is_no_receipt(tmp_path):
    os.mkfifo(tmp_path / "pipe.receipt")
    with pytest.raises(Malformed) as caught:
        load_receipt(tmp_path / "pipe.receipt")
    assert caught.value.code == "receipt.file"


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_receipt_and_nothing_else(tmp_path, monkeypatch, step):
    path = tmp_path / "a.receipt"
    save_receipt(path, RECEIPT)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, fail)
    with pytest.raises(OSError, match="No space"):
        save_receipt(path, subject("pair").receipt())
    assert os.listdir(tmp_path) == ["a.receipt"]
    assert load_receipt(path) == RECEIPT


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_receipt_has_the_same_bytes_every_time(name):
    assert encode_receipt(subject(name).receipt()) == encode_receipt(subject(name).receipt())
