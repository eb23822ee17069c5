"""Section 5.2: what is written is read, at any width, and nothing else is read."""

from __future__ import annotations

import struct
from fractions import Fraction
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends.nnef.tensor_file import ItemType, read_header, read_tensor, write_tensor
from cvm.limits import Limits
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from tests.frontends.nnef.documents import SHARED, corpus, error_of

SMALL = write_tensor(np.array([[1, -2, 3], [-4, 5, -6]], np.int8), bits=5)
ORDERS = ("lsb", "msb")


@given(st.data(), st.integers(1, 64), st.booleans(), st.sampled_from(ORDERS))
def test_integers_of_every_width_survive(
    data: st.DataObject, bits: int, signed: bool, order: Literal["lsb", "msb"]
) -> None:
    lowest, highest = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    items = data.draw(
        st.lists(st.integers(lowest, highest) | st.sampled_from([lowest, highest]), min_size=1, max_size=40)
    )
    values = np.array(items, np.int64 if signed else np.uint64)
    stored = read_tensor(write_tensor(values, bits=bits, bit_order=order), bit_order=order)
    assert stored.data.values.tolist() == items
    assert (stored.header.bits, stored.header.signed, stored.codes) == (bits, signed, False)
    assert stored.data.values.dtype.itemsize == next(n for n in (1, 2, 4, 8) if 8 * n >= bits)


FLOATS = st.floats(-(2.0**100), 2.0**100, width=32)


@given(st.integers(1, 64), st.binary(min_size=1, max_size=30), FLOATS, FLOATS.map(abs))
def test_linear_codes_keep_the_exact_range(bits: int, raw: bytes, minimum: float, span: float) -> None:
    codes = np.frombuffer(raw, np.uint8).astype(np.uint64) & np.uint64(2**bits - 1)
    maximum = float(np.float32(minimum + span))
    if not minimum < maximum:
        return
    data = read_tensor(write_tensor(codes, bits, ItemType.LINEAR, minimum, maximum)).data
    assert data.values.tolist() == codes.tolist()
    assert isinstance(data.quantizer, LinearQuantizer)
    assert (data.quantizer.lo, data.quantizer.hi) == (0, 2**bits - 1)
    assert data.quantizer.offset == (Fraction(minimum),)
    assert data.quantizer.offset[0] + data.quantizer.scale[0] * (2**bits - 1) == Fraction(maximum)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floats_survive_as_they_are(dtype: Any) -> None:
    values = np.array([[0.1, -0.0, np.inf], [np.nan, 6e-8, -3.5]], dtype)
    read = read_tensor(write_tensor(values)).data.values
    assert read.dtype == dtype
    assert read.tobytes() == values.tobytes()


@pytest.mark.parametrize(
    ("item", "bits", "values"),
    [
        (ItemType.UNSIGNED_CODE, 8, np.array([0, 255], np.uint8)),
        (ItemType.SIGNED_CODE, 32, np.array([-5, 7], np.int32)),
        (ItemType.SIGNED, 16, np.array([-5, 7], np.int16)),
        (ItemType.LOGICAL, 1, np.array([True, False, True])),
        (ItemType.LOGICAL, 8, np.array([True, False, True])),
    ],
)
def test_item_types_of_the_current_tools_are_read(item: ItemType, bits: int, values: Any) -> None:
    stored = read_tensor(write_tensor(values, bits, item))
    assert stored.data.values.tolist() == values.tolist()
    assert stored.codes == (item in (ItemType.UNSIGNED_CODE, ItemType.SIGNED_CODE))


def test_single_logical_bits_are_most_significant_first() -> None:
    data = write_tensor(np.array([True, False, False]), 1, ItemType.LOGICAL)
    assert data[128:] == b"\x80"
    assert write_tensor(np.array([1, 0, 0], np.uint8), 1)[128:] == b"\x01"


def test_logarithmic_items_are_powers_of_two() -> None:
    stored = read_tensor(write_tensor(np.array([0, 3, 7, 15], np.uint8), 4, ItemType.LOGARITHMIC, -0.7, 0.7))
    assert stored.data.values.tolist() == [2.0**-7, 2.0**-4, 1.0, -1.0]
    stored = read_tensor(write_tensor(np.array([0, 15], np.uint8), 4, ItemType.LOGARITHMIC, 0.0, 1.0))
    assert stored.data.values.tolist() == [2.0**-15, 1.0]


@pytest.mark.parametrize(
    ("bits", "signed"), [(bits, signed) for bits in range(1, 65) for signed in (False, True) if bits > signed]
)
@pytest.mark.parametrize("order", ORDERS)
def test_logarithmic_items_of_every_width_are_read(bits: int, signed: bool, order: Literal["lsb", "msb"]) -> None:
    """Section 5.2, where all items are powers of two that float64 has."""
    steps = 2 ** (bits - signed) - 1
    below = sorted({min(distance, steps) for distance in (0, 1, 5, 1075, steps)} - {steps if steps > 1075 else -1})
    items = [steps - distance for distance in below]
    items += [item + 2 ** (bits - 1) for item in items] if signed else []
    expected = [2.0 ** (1 - distance) for distance in below]
    expected += [-power for power in expected] if signed else []
    data = write_tensor(np.array(items, np.uint64), bits, ItemType.LOGARITHMIC, -2.0 if signed else 0.0, 2.0, order)
    stored = read_tensor(data, bit_order=order)
    assert stored.data.quantizer is None
    assert stored.data.values.tolist() == expected


@pytest.mark.parametrize("bits", [17, 40, 64])
def test_wide_logarithmic_items_that_float64_does_not_hold_are_refused(bits: int) -> None:
    for item in (0, 2**bits - 1 - 1075):
        data = write_tensor(np.array([item], np.uint64), bits, ItemType.LOGARITHMIC, 0.0, 1.0)
        assert isinstance(error_of(lambda data=data: read_tensor(data)), Unsupported)  # type: ignore[misc]


def test_logarithmic_items_that_float64_does_not_hold_are_codes() -> None:
    data = read_tensor(write_tensor(np.array([0, 4095], np.uint16), 12, ItemType.LOGARITHMIC, 0.0, 1.0)).data
    assert isinstance(data.quantizer, LogarithmicQuantizer)
    assert [data.quantizer.value(code) for code in data.values.tolist()] == [Fraction(1, 2**4095), Fraction(1)]
    near = read_tensor(write_tensor(np.array([4000, 4095], np.uint16), 12, ItemType.LOGARITHMIC, 0.0, 1.0)).data
    assert near.values.tolist() == [2.0**-95, 1.0]


def header(**changes: int) -> bytes:
    """A file of three uint8 items, with fields replaced."""
    fields = {"magic": 0xEF4E, "version": 1, "length": 3, "rank": 1, "extent": 3, "bits": 8, "code": 1} | changes
    head = struct.pack("<HHII", fields["magic"], fields["version"], fields["length"], fields["rank"])
    head += struct.pack("<8I", fields["extent"], *[fields.get("second", 0)] * 1, *[0] * 6)
    head += struct.pack("<II", fields["bits"], fields["code"]) + bytes(31) + bytes([fields.get("parameter", 0)])
    return head + bytes(43) + bytes([fields.get("reserved", 0)]) + b"abc"


@pytest.mark.parametrize(
    ("changes", "kind", "rule"),
    [
        ({"magic": 0x4E4E}, Malformed, "magic"),
        ({"rank": 9}, Malformed, "rank"),
        ({"rank": 2**32 - 1}, Malformed, "rank"),
        ({"second": 1}, Malformed, "extents"),
        ({"reserved": 1}, Malformed, "reserved"),
        ({"extent": 0, "length": 0}, Invalid, "extents"),
        ({"extent": 4}, Malformed, "length"),
        ({"length": 4}, Malformed, "length"),
        ({"bits": 7}, Malformed, "padding"),
        ({"bits": 0}, Invalid, "bits"),
        ({"bits": 65}, Invalid, "bits"),
        ({"code": 0}, Invalid, "bits"),
        ({"code": 0x0F}, Unsupported, "item"),
        ({"code": 0x10001}, Unsupported, "vendor"),
        ({"code": 0x10}, Invalid, "range"),
        ({"code": 0x11}, Invalid, "range"),
        ({"code": 5}, Invalid, "logical"),
    ],
)
def test_a_header_that_breaks_a_rule_is_refused(changes: dict[str, int], kind: type[CvmError], rule: str) -> None:
    assert read_tensor(header()).data.values.tolist() == list(b"abc")
    error = error_of(lambda: read_tensor(header(**changes)))
    assert isinstance(error, kind)
    assert error.code == f"nnef.tensor-file.{rule}"


def test_version_1_0_and_no_other_is_read() -> None:
    head = bytearray(SMALL[:128])
    accepted = []
    for version in range(2**16):
        head[2:4] = version.to_bytes(2, "little")
        try:
            read_header(bytes(head), len(SMALL))
            accepted.append(version)
        except Unsupported:
            pass
    assert accepted == [1]


@pytest.mark.parametrize("extents", [(65536,) * 4, (2**32 - 1,) * 8, (2**31,), (2**28 + 1,)])
def test_sizes_are_checked_before_anything_is_allocated(extents: tuple[int, ...]) -> None:
    head = bytearray(SMALL[:128])
    struct.pack_into("<I8I", head, 8, len(extents), *extents, *(0,) * (8 - len(extents)))
    assert isinstance(error_of(lambda: read_header(bytes(head), 2**40)), LimitExceeded)


def test_the_limit_on_elements_is_that_of_the_profile() -> None:
    assert isinstance(error_of(lambda: read_tensor(SMALL, Limits("test", elements=5))), LimitExceeded)


def test_every_truncation_is_malformed() -> None:
    for length in range(len(SMALL)):
        assert isinstance(error_of(lambda length=length: read_tensor(SMALL[:length])), Malformed)
    assert isinstance(error_of(lambda: read_tensor(SMALL + b"\0")), Malformed)


def test_every_flipped_bit_is_read_or_refused() -> None:
    refused = 0
    for bit in range(len(SMALL) * 8):
        damaged = bytearray(SMALL)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            read_tensor(bytes(damaged))
        except CvmError:
            refused += 1
    assert refused > 700


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_refused(data: bytes) -> None:
    for candidate in (data, SMALL[:128] + data, SMALL[:4] + data):
        if candidate != SMALL:
            try:
                read_tensor(candidate)
            except CvmError:
                continue
            assert len(candidate) == len(SMALL)


def test_values_that_do_not_fit_are_not_written() -> None:
    for bits, values in ((4, [8]), (4, [-9]), (65, [0])):
        assert isinstance(error_of(lambda v=values, b=bits: write_tensor(np.array(v, np.int64), b)), Invalid)
    assert isinstance(error_of(lambda: write_tensor(np.array(["a"]))), Invalid)
    assert isinstance(error_of(lambda: write_tensor(np.zeros((0, 2), np.uint8))), Invalid)


READ_THOUGH_NEWER = {"dat/invalid/code_0002.dat", "dat/invalid/code_0004.dat"}
"""Item types 2 to 5 are not of 1.0.1, but current tools write them, so they are read."""


@pytest.mark.parametrize("entry", corpus("dat-valid"))
def test_valid_tensor_files_have_their_expected_values(entry: dict[str, Any]) -> None:
    """Bit for bit; where the manifest says which bit order it took, that is the one to read with."""
    folder = SHARED / "nnef" / "corpus"
    data = (folder / entry["file"]).read_bytes()
    stored = read_tensor(data, bit_order=entry.get("bit_order") or "lsb", dialect="1.0.1")
    expected = np.load(folder / entry["expected"])
    extra = {name: np.load(folder / file).ravel() for name, file in entry.get("extra", {}).items()}
    values, quantizer = stored.data.values, stored.data.quantizer
    assert values.shape == expected.shape
    if stored.header.item is ItemType.LOGARITHMIC:
        exact = [
            (-1) ** int(s) * Fraction(2) ** int(e) for s, e in zip(extra["signs"], extra["exponents"], strict=True)
        ]
        value = quantizer.value if isinstance(quantizer, LogarithmicQuantizer) else Fraction
        same = [value(item) == wanted for item, wanted in zip(values.ravel().tolist(), exact, strict=True)]
        assert all(same)
    elif quantizer is None:
        assert values.astype(expected.dtype).tobytes() == expected.tobytes()
    else:
        assert isinstance(quantizer, LinearQuantizer)
        np.testing.assert_array_equal(values.ravel(), extra["codes"])
        scale, offset = quantizer.scale[0], quantizer.offset[0]
        assert [float(offset + scale * code) for code in values.ravel().tolist()] == expected.ravel().tolist()


@pytest.mark.parametrize("entry", corpus("dat-invalid"))
def test_invalid_tensor_files_are_refused(entry: dict[str, Any]) -> None:
    data = (SHARED / "nnef" / "corpus" / entry["file"]).read_bytes()
    if entry["file"] in READ_THOUGH_NEWER:
        read_tensor(data)
    error_of(lambda: read_tensor(data, dialect="1.0.1"))
