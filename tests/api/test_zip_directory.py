"""Directories of archives are bounded and counted before `zipfile` makes an object of every entry."""

from __future__ import annotations

import io
import random
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_arrays, npz_bytes, npz_members, read_npz
from cvm.errors import CvmError, LimitExceeded, Malformed
from cvm.limits import DEFAULT, Limits
from cvm.zip_directory import require_directory
from tools.fuzz.mutation import mutate_bytes

ENTRY = struct.Struct("<4s6H3L5H2L")


def directory(names: list[bytes], offset: int = 0) -> bytes:
    """Entries of empty members, all of which begin at one offset."""
    fixed = (b"PK\x01\x02", 20, 20, 0, 0, 0, 0, 0, 0, 0)
    return b"".join(ENTRY.pack(*fixed, len(name), 0, 0, 0, 0, 0, offset) + name for name in names)


def end(count: int, size: int, start: int, comment: bytes = b"") -> bytes:
    return struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, count, count, size, start, len(comment)) + comment


def end_64(count: int, size: int, start: int) -> bytes:
    """A zip64 record behind a directory, its locator, and a record of an end that says nothing."""
    record = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, count, count, size, start)
    return record + struct.pack("<4sLQL", b"PK\x06\x07", 0, start + size, 1) + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def checked(data: bytes, limits: Limits = DEFAULT) -> None:
    require_directory(io.BytesIO(data), len(data), limits)


HEAD = b"PK\x03\x04" + bytes(26)
"""The head of a member, at the beginning of the archives of these tests."""


@pytest.mark.slow
@pytest.mark.parametrize("count", [1_000_000, 65_000])
def test_a_directory_of_many_entries_is_refused_at_once(tmp_path: Path, count: int) -> None:
    listed = directory([b"%x" % number for number in range(count)])
    ends = [end_64(count, len(listed), len(HEAD)), end_64(1, len(listed), len(HEAD))]
    if count < 2**16:
        ends += [end(count, len(listed), len(HEAD)), end(1, len(listed), len(HEAD)), end(0, len(listed), len(HEAD))]
    for record in ends:
        data = HEAD + listed + record
        (tmp_path / "many.npz").write_bytes(data)
        for read in (
            lambda: npz_members(tmp_path / "many.npz"),
            lambda: read_npz(tmp_path / "many.npz", "0"),
            lambda data=data: npz_arrays(data),
        ):
            begin = time.process_time()
            with pytest.raises((LimitExceeded, Malformed)):
                read()
            assert time.process_time() - begin < 1.0


def test_a_directory_that_claims_few_entries_is_counted() -> None:
    listed = directory([b"%x.npy" % number for number in range(5000)])
    assert len(listed) < 4096 * 1070
    for count in (1, 4096):
        with pytest.raises(Malformed, match=f"does not have the {count} entries that it claims"):
            checked(HEAD + listed + end(count, len(listed), len(HEAD)))
    with pytest.raises(LimitExceeded, match="members of the archive: 5000"):
        checked(HEAD + listed + end(5000, len(listed), len(HEAD)))


def test_a_directory_of_long_entries_is_bounded() -> None:
    listed = directory([bytes(65_535)] * 100)
    with pytest.raises(LimitExceeded, match="bytes of the directory of the archive"):
        checked(HEAD + listed + end(100, len(listed), len(HEAD)))


def test_as_many_entries_as_the_limit_are_read() -> None:
    arrays = {f"a{number}": np.array([number]) for number in range(DEFAULT.archive_members)}
    assert len(npz_arrays(npz_bytes(arrays))) == DEFAULT.archive_members
    with pytest.raises(LimitExceeded):
        npz_arrays(npz_bytes({**arrays, "one more": np.array([0])}))


def test_a_zip64_directory_is_read() -> None:
    plain = npz_bytes({"x": np.arange(3), "y": np.arange(2)})
    *_, count, size, start, _ = struct.unpack("<4s4H2LH", plain[-22:])
    data = plain[:-22] + end_64(count, size, start)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.namelist() == ["x.npy", "y.npy"]
    assert npz_arrays(data)["x"].tolist() == [0, 1, 2]


PLAIN = npz_bytes({"x": np.arange(3)})
ODD = {
    "a comment": PLAIN[:-2] + b"\1\0c",
    "bytes before": b"\0" * 9 + PLAIN,
    "bytes behind": PLAIN + b"\0",
    "bytes between": PLAIN[:-22] + b"\0" * 9 + PLAIN[-22:],
    "another disk": PLAIN[:-18] + b"\1\0" + PLAIN[-16:],
    "fewer entries on this disk": PLAIN[:-14] + b"\0\0" + PLAIN[-12:],
    "a directory that is cut off": HEAD + directory([b"x.npy"])[:-1] + end(1, 46 + 4, len(HEAD)),
    "no entry": HEAD + b"\0" * 51 + end(1, 51, len(HEAD)),
    "nothing": b"",
    "a zip64 record elsewhere": (HEAD + directory([b"x"]) + end_64(1, 47, len(HEAD) + 1)),
}


@pytest.mark.parametrize("what", ODD)
def test_what_could_be_understood_in_two_ways_is_refused(what: str) -> None:
    with pytest.raises(Malformed, match=r"this is not a whole \.npz file"):
        npz_arrays(ODD[what])


def test_zipfile_finds_the_entries_that_were_counted() -> None:
    """Of archives with damaged ends, `zipfile` never makes more objects than the directory that was counted has."""
    few = Limits("few", archive_members=3)
    sources = [npz_bytes({name: np.arange(2) for name in names}) for names in ("", "x", "xyz", "abcde")]
    for data in list(sources):
        *_, count, size, start, _ = struct.unpack("<4s4H2LH", data[-22:])
        sources += [data[:-22] + end_64(count, size, start), data[:-22] + end_64(count, size, start)[:-22] + data]
    made = random.Random(1)
    accepted = 0
    for _ in range(20_000):
        data = made.choice(sources)
        keep = max(0, len(data) - made.choice((30, 120, 400)))
        data = data[:keep] + mutate_bytes(made, data[keep:], made.choice((0, 1, 2)))
        try:
            checked(data, few)
        except CvmError:
            continue
        try:
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                assert len(archive.infolist()) <= few.archive_members
                accepted += 1
        except (zipfile.BadZipFile, NotImplementedError, ValueError):
            continue
    assert accepted > 500
