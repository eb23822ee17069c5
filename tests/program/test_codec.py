"""The canonical bytes of programs: one program, one file, and nothing else is a file."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import msgpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.limits import DEFAULT
from cvm.program import Program, decode, encode, verify
from tests.program.examples import example, programs
from tests.selection import examples

BYTES = example().to_bytes()


def same(a: Program, b: Program) -> bool:
    return all(getattr(a, name) == getattr(b, name) for name in Program.__dataclass_fields__)


def test_the_example_survives_a_round_trip():
    assert same(decode(BYTES), example())


@settings(max_examples=examples(200))
@given(programs())
def test_programs_survive_a_round_trip_and_verify_afterwards(program):
    data = encode(program)
    again = decode(data)
    assert same(again, program)
    assert encode(again) == data
    assert again.digest == program.digest
    verify(again)


def test_msgpack_reads_the_file_as_the_page_describes_it():
    name, version, body = msgpack.unpackb(BYTES)
    assert (name, version) == ("cvm-program", 1)
    assert list(body) == sorted(body)
    assert body["nodes"][2] == {
        "attributes": {"a_max": 100, "a_min": -100},
        "inputs": [5],
        "op": "clip",
        "outputs": [{"hi": 100, "lo": -100, "name": "sum", "shape": [1, 2, 3]}],
    }


def test_the_order_of_attributes_has_no_meaning():
    program = example()
    last = program.nodes[-1]
    reversed_ = replace(last, attributes=dict(reversed(last.attributes.items())))
    other = replace(program, nodes=(*program.nodes[:-1], reversed_))
    assert other.to_bytes() == BYTES
    assert other.digest == program.digest


def verdict(data: bytes) -> str:
    """How a file is judged: its digest, or the code of the error. Any other exception is a failure."""
    try:
        program = decode(data)
        verify(program)
    except (Malformed, Invalid, LimitExceeded) as error:
        return error.code
    assert program.to_bytes() == data
    return program.digest


def test_a_file_cut_short_anywhere_is_malformed():
    for size in range(len(BYTES)):
        with pytest.raises(Malformed):
            decode(BYTES[:size])


def test_a_flipped_bit_is_refused_or_gives_another_program():
    original = example()
    for bit in range(8 * len(BYTES)):
        data = bytearray(BYTES)
        data[bit // 8] ^= 1 << bit % 8
        if verdict(bytes(data)) == original.digest:
            assert same(replace(decode(bytes(data)), provenance=original.provenance), original)


@given(st.binary(max_size=300))
def test_random_bytes_are_refused(data):
    with pytest.raises(CvmError):
        decode(data)


@given(st.binary(max_size=300))
def test_random_bytes_after_a_good_beginning_are_refused(data):
    for start in (13, 14, 15, 200):
        assert verdict(BYTES[:start] + data) != example().digest


@settings(max_examples=examples(300))
@given(st.data())
def test_random_edits_are_refused_or_give_another_program(data):
    edited = bytearray(BYTES)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(edited)))
        edited[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
    if verdict(bytes(edited)) == example().digest:
        assert same(replace(decode(bytes(edited)), provenance=example().provenance), example())


HOSTILE = {
    "arrays in arrays": b"\x91" * 100_000,
    "maps in maps": b"\x81\xa1a" * 100_000,
    "arrays in a place for a program": BYTES[:14] + b"\x91" * 100_000,
    "long arrays in long arrays": b"\xdd\x00\x0f\xff\xff" * 20_000,
    "a long array": b"\x93\xabcvm-program\x01\xdd\xff\xff\xff\xff",
    "a long map": b"\x93\xabcvm-program\x01\xdf\xff\xff\xff\xff",
    "a long list of constants": b"\x93\xabcvm-program\x01\x88\xa9constants\xdd\xff\xff\xff\xff",
    "a long string": b"\x93\xdb\xff\xff\xff\xff",
    "a long binary": b"\x93\xabcvm-program\x01\x88\xa9constants\x91\x85\xa4data\xc6\xff\xff\xff\xff",
    "a long extension": b"\x93\xc9\xff\xff\xff\xff\x01",
    "a long key": b"\x93\xabcvm-program\x01\x88\xdb\xff\xff\xff\xff",
    "a huge integer": b"\x93\xabcvm-program\x01\x88\xcf" + b"\xff" * 8,
    "a timestamp": b"\x93\xabcvm-program\xd6\xff\x00\x00\x00\x00",
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_files_cost_no_more_than_their_size(data):
    decode(BYTES)
    tracemalloc.start()
    try:
        with pytest.raises(Malformed):
            decode(data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * 2**20 + 2 * len(data)


def test_a_file_larger_than_the_limit_is_not_looked_at():
    with pytest.raises(LimitExceeded):
        decode(BYTES, replace(DEFAULT, program_bytes=len(BYTES) - 1))


OTHER_FORMS = {
    "an integer with a byte more": (b"\xabcvm-program\x01", b"\xabcvm-program\xcc\x01"),
    "a signed form of a positive integer": (b"\xa6op_set\x01", b"\xa6op_set\xd0\x01"),
    "a string length with a byte more": (b"\xa4clip", b"\xd9\x04clip"),
    "an array length with a byte more": (b"\xa5shape\x93\x01\x02\x03", b"\xa5shape\xdc\x00\x03\x01\x02\x03"),
    "a map length with a byte more": (b"attributes\x80", b"attributes\xde\x00\x00"),
    "a binary length with a byte more": (b"\xc4\x06\xfd", b"\xc5\x00\x06\xfd"),
}


@pytest.mark.parametrize(("one", "other"), OTHER_FORMS.values(), ids=OTHER_FORMS.keys())
def test_a_longer_form_is_refused(one, other):
    assert BYTES.count(one) >= 1
    with pytest.raises(Malformed) as caught:
        decode(BYTES.replace(one, other, 1))
    assert caught.value.code == "program.canonical"


@pytest.mark.parametrize("text", ["-0/1", "0/2", "1/-10", "2/20", "1", "1/", "/1", "1/0", "+1/9", "1/1_0", "01/9",
                                  " 1/9", "1/9\n", "١/٩", "1.0/9", "9" * 700 + "/1", ""])  # fmt: skip
def test_a_rational_has_one_form(text):
    written = text.encode()
    length = bytes([0xA0 + len(written)]) if len(written) < 32 else b"\xda" + len(written).to_bytes(2, "big")
    with pytest.raises(Malformed) as caught:
        decode(BYTES.replace(b"\xa41/10", length + written, 1))
    assert caught.value.code == "program.rational"


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.program.examples import example
from tests.program.test_codec import BYTES, verdict
flips = (BYTES[:at] + bytes([BYTES[at] ^ 0x15]) + BYTES[at + 1:] for at in range(0, len(BYTES), 2))
print(example().to_bytes().hex(), example().digest, [verdict(data) for data in flips])
"""


def test_bytes_digest_and_verdicts_do_not_depend_on_hash_seed_or_on_msgpack_being_compiled():
    environments = [
        {"PYTHONHASHSEED": "0"},
        {"PYTHONHASHSEED": "1", "PYTHONINTMAXSTRDIGITS": "640"},
        {"PYTHONHASHSEED": "random", "MSGPACK_PUREPYTHON": "1"},
    ]
    folder = str(Path(__file__).parents[1])
    printed = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT, folder], env={**os.environ, **extra}, check=True, capture_output=True
        ).stdout
        for extra in environments
    }
    assert len(printed) == 1
    assert hashlib.sha256(printed.pop().split()[0]).hexdigest() == hashlib.sha256(BYTES.hex().encode()).hexdigest()
