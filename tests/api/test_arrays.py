import io
import os
import struct
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from cvm.arrays import kind_of, npz_bytes, npz_members, read_npy, read_npz
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.limits import Limits

DTYPES = [
    *(f"{order}{kind}" for order in "<>" for kind in ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8")),
    "|b1", "|i1", "|u1",
]  # fmt: skip


def npy(array, version=None):
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, array, version)
    return buffer.getvalue()


def with_header(text, data=b"", version=1):
    raw = text.encode("latin-1")
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(raw)) + raw + data


def saved(tmp_path, data, name="file"):
    path = tmp_path / name
    path.write_bytes(data)
    return path


def archived(members, compression=zipfile.ZIP_STORED):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return buffer.getvalue()


@given(st.data())
def test_what_numpy_writes_is_read(tmp_path_factory, data):
    dtype = data.draw(st.sampled_from(DTYPES))
    array = data.draw(npst.arrays(dtype, npst.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=3)))
    array = np.asfortranarray(array) if data.draw(st.booleans()) else array
    version = data.draw(st.sampled_from([None, (1, 0), (2, 0), (3, 0)]))
    path = saved(tmp_path_factory.mktemp("npy"), npy(array, version))
    found = read_npy(path)
    assert found.dtype == array.dtype.newbyteorder("=")
    assert found.shape == array.shape
    assert found.tobytes() == array.astype(found.dtype).tobytes()


def test_what_is_written_is_read_by_numpy_and_here(tmp_path):
    arrays = {"conv1/filter": np.arange(6).reshape(2, 3), "file": np.zeros((1,), np.int32), "ä b": np.eye(2)}
    path = saved(tmp_path, npz_bytes(arrays))
    assert npz_members(path) == tuple(arrays)
    with np.load(path) as loaded:
        for name, array in arrays.items():
            assert (loaded[name] == array).all()
            assert (read_npz(path, name) == array).all()
            assert read_npz(path, name).dtype == array.dtype


def test_equal_arrays_give_equal_bytes():
    one = np.arange(12, dtype=np.int32).reshape(3, 4)
    views = [one, np.asfortranarray(one), one.astype(">i4"), one.repeat(2, axis=1)[:, ::2]]
    assert len({npz_bytes({"x": view}) for view in views}) == 1


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_every_truncation_is_refused(tmp_path, compression):
    array = np.arange(10, dtype=np.int16)
    for data, read in (
        (npy(array), read_npy),
        (archived([("x.npy", npy(array))], compression), lambda path: read_npz(path, "x")),
    ):
        for length in range(len(data)):
            with pytest.raises((Malformed, Invalid)):
                read(saved(tmp_path, data[:length]))


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_changed_byte_gives_an_array_or_an_error_of_cvm(tmp_path, compression):
    array = np.arange(10, dtype=np.int16)
    for data, read in (
        (npy(array), read_npy),
        (archived([("x.npy", npy(array))], compression), lambda path: read_npz(path, "x")),
    ):
        for index in range(len(data)):
            for change in (0x01, 0x80, 0xFF):
                changed = bytearray(data)
                changed[index] ^= change
                try:
                    read(saved(tmp_path, bytes(changed)))
                except CvmError as error:
                    assert error.location.file  # noqa: PT017 - most changes raise, not all


HEADER = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }"


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (npy(np.array([{}, []], object)), Invalid),
        (npy(np.zeros(2, "i4,f4")), Invalid),
        (npy(np.zeros(2, "U3")), Invalid),
        (npy(np.zeros(2, complex)), Invalid),
        (npy(np.zeros(2, "datetime64[s]")), Invalid),
        (npy(np.zeros(2)) + b"\0", Malformed),
        (with_header(HEADER.replace("(2,)", "(3,)"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("(2,)", "(-2,)"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("(2,)", "(2**9,)"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("(2,)", "(" + "9" * 30 + ",)"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("(2,)", "((((2))))"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("False", "0"), b"\0" * 4), Malformed),
        (with_header(HEADER.replace("<i2", "=i2"), b"\0" * 4), Invalid),
        (with_header(HEADER.replace("<i2", "|i2"), b"\0" * 4), Invalid),
        (with_header(HEADER + "; import os", b"\0" * 4), Malformed),
        (with_header(HEADER[:-1] + "'more': 1}", b"\0" * 4), Malformed),
        (with_header(HEADER.replace("'shape': (2,)", "'descr': '<i2'"), b"\0" * 4), Malformed),
        (with_header("(" * 9000), Malformed),
        (with_header(" " * 20_000 + HEADER, version=2), Malformed),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff", Malformed),
        (with_header(HEADER, b"\0" * 4, version=4), Malformed),
        (with_header(HEADER.replace("(2,)", f"({2**40},)")), LimitExceeded),
        (with_header(HEADER.replace("(2,)", f"({2**20}, {2**20}, {2**20}, {2**20})")), LimitExceeded),
        (with_header(HEADER.replace("(2,)", f"({'1, ' * 11})")), LimitExceeded),
        (b"", Malformed),
        (b"version 1.0;", Malformed),
    ],
)
def test_hostile_array_files_are_refused_before_anything_is_allocated(tmp_path, data, error):
    path = saved(tmp_path, data)
    with pytest.raises(error) as caught:
        read_npy(path)
    assert caught.value.location.file == str(path)
    with pytest.raises(error):
        read_npz(saved(tmp_path, archived([("x.npy", data)])), "x")


def test_an_accepted_header_is_what_numpy_would_read(tmp_path):
    for text in (HEADER, HEADER + " " * 20 + "\n", HEADER.replace(", }", "}"), HEADER.replace(" ", "")):
        assert read_npy(saved(tmp_path, with_header(text, b"\1\0\2\0"))).tolist() == [1, 2]


def test_hostile_archives_are_refused(tmp_path):
    array = npy(np.zeros(2))
    bomb = archived([("x.npy", npy(np.zeros(2**22)))], zipfile.ZIP_DEFLATED)
    with pytest.raises(LimitExceeded, match="inflated bytes per byte"):
        read_npz(saved(tmp_path, bomb), "x")
    with pytest.raises(LimitExceeded, match="members"):
        npz_members(saved(tmp_path, archived([(f"{i}.npy", b"") for i in range(5)])), Limits("few", archive_members=4))
    large = archived([("x.npy", npy(np.zeros(10_000)))], zipfile.ZIP_DEFLATED)
    with pytest.raises(LimitExceeded, match="bytes of all members, inflated"):
        npz_members(saved(tmp_path, large), Limits("small", archive_bytes=50_000))
    with pytest.warns(UserWarning, match="Duplicate name"):
        twice = archived([("x.npy", array), ("x.npy", array)])
    with pytest.raises(Malformed, match="two members"):
        npz_members(saved(tmp_path, twice))
    with pytest.raises(Malformed, match=r"holds .npy members only"):
        npz_members(saved(tmp_path, archived([("x.pkl", array)])))
    with pytest.raises(Malformed, match="oddly compressed"):
        npz_members(saved(tmp_path, archived([("x.npy", array)], zipfile.ZIP_LZMA)))
    with pytest.raises(Invalid, match="there is no array 'y'; there are x"):
        read_npz(saved(tmp_path, archived([("x.npy", array)])), "y")


def test_an_array_of_zeros_may_be_compressed_well(tmp_path):
    path = saved(tmp_path, archived([("x.npy", npy(np.zeros(10**6, np.uint8)))], zipfile.ZIP_DEFLATED))
    assert path.stat().st_size * 200 < 10**6
    assert read_npz(path, "x").shape == (10**6,)


def test_what_is_no_regular_file_is_refused_without_waiting(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "nothing", "/dev/zero"):
        with pytest.raises(Invalid, match="cannot be read"):
            kind_of(path)


def test_the_kind_of_a_file_is_told_by_its_first_bytes(tmp_path):
    assert kind_of(saved(tmp_path, npy(np.zeros(2)), "a.npz")) == "npy"
    assert kind_of(saved(tmp_path, npz_bytes({}), "b.npy")) == "npz"
    assert kind_of(saved(tmp_path, npz_bytes({"x": np.zeros(1)}))) == "npz"
    assert kind_of(saved(tmp_path, b"N\xef\1\0")) == "dat"
