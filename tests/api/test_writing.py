"""Results are written to files as a whole, and to what is no file as a stream; nothing but a file is ever replaced."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cvm.audit import save_receipt, write_trace
from cvm.demo import MODEL
from cvm.writing import write_file
from tests.audit.examples import subject

DATA = bytes(range(256)) * 1000
"""More than a pipe holds."""
NULL, FULL = os.makedev(1, 3), os.makedev(1, 7)


def device(path: Path, number: int) -> Path:
    """A device of the tests' own, so that a mistake destroys nothing."""
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, number)
        path.open("wb").close()
    except OSError:
        pytest.skip("only root, and only on some file systems, can make devices")
    return path


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[tuple[Path, Callable[[], bytes]]]:
    """A named pipe, and what is written into it."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.append(path.read_bytes()), daemon=True)
    reader.start()

    def read() -> bytes:
        reader.join(10)
        return found[0]

    yield path, read
    if reader.is_alive():  # nobody has written: end the wait
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for data in (b"new", b"again", b""):
        write_file(path, data[:2], memoryview(data)[2:])
        assert path.read_bytes() == data
    assert os.listdir(tmp_path) == ["file"]


def test_a_pipe_is_written_into(pipe: tuple[Path, Callable[[], bytes]]) -> None:
    path, read = pipe
    write_file(path, DATA, memoryview(DATA))
    assert read() == DATA * 2
    assert stat.S_ISFIFO(path.lstat().st_mode)
    assert os.listdir(path.parent) == ["pipe"]


def test_a_pipe_behind_a_link_is_written_into(pipe: tuple[Path, Callable[[], bytes]]) -> None:
    path, read = pipe
    link = path.with_name("link")
    link.symlink_to("pipe")
    write_file(link, DATA)
    assert read() == DATA
    assert link.is_symlink()
    assert stat.S_ISFIFO(path.lstat().st_mode)


def test_a_device_is_written_into(tmp_path: Path) -> None:
    path = device(tmp_path / "null", NULL)
    write_file(path, DATA)
    assert (path.lstat().st_rdev, os.listdir(tmp_path)) == (NULL, ["null"])


def test_a_full_device_is_an_error_and_stays(tmp_path: Path) -> None:
    path = device(tmp_path / "full", FULL)
    with pytest.raises(OSError, match="No space left on device"):
        write_file(path, DATA)
    assert (path.lstat().st_rdev, os.listdir(tmp_path)) == (FULL, ["full"])


def test_a_block_device_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "disk"
    try:
        os.mknod(path, 0o600 | stat.S_IFBLK, os.makedev(7, 255))
    except OSError:
        pytest.skip("only root can make devices")
    with pytest.raises(OSError, match="it is a block device, expected a file, a pipe or a character device"):
        write_file(path, DATA)
    assert stat.S_ISBLK(path.lstat().st_mode)


def test_a_socket_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("socket")
        with pytest.raises(OSError, match="it is a socket"):
            write_file("socket", DATA)
    assert stat.S_ISSOCK(os.lstat("socket").st_mode)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path, Path("."), Path("/")):
        with pytest.raises(IsADirectoryError):
            write_file(path, DATA)


def test_a_link_stands_for_its_file(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    file, link, second = tmp_path / "there" / "file", tmp_path / "link", tmp_path / "second"
    file.write_bytes(b"old")
    link.symlink_to("there/file")
    second.symlink_to("link")
    write_file(second, b"new")
    assert file.read_bytes() == b"new"
    assert (os.readlink(second), os.readlink(link)) == ("link", "there/file")
    assert os.listdir(file.parent) == ["file"]


def test_a_link_to_nothing_makes_what_it_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_file(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


def test_links_in_a_ring_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "ring").symlink_to("ring")
    with pytest.raises(OSError, match="symbolic links"):
        write_file(tmp_path / "ring", b"new")
    assert (tmp_path / "ring").is_symlink()


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="open files have no names here")
def test_an_open_file_that_was_deleted_is_written_into(tmp_path: Path) -> None:
    with open(tmp_path / "file", "w+b") as file:
        (tmp_path / "file").unlink()
        write_file(f"/proc/self/fd/{file.fileno()}", b"new")
        assert file.read() == b"new"
    assert os.listdir(tmp_path) == []


def test_receipts_and_traces_are_written_into_pipes(pipe: tuple[Path, Callable[[], bytes]]) -> None:
    from cvm.audit import encode_receipt

    path, read = pipe
    save_receipt(path, subject("example").receipt())
    assert read() == encode_receipt(subject("example").receipt())
    device_path = device(path.with_name("null"), NULL)
    write_trace(subject("example").traces()[0], device_path)
    assert device_path.lstat().st_rdev == NULL


COMMANDS = [
    ("compile", str(MODEL)),
    ("run", "negated.cvm", "-i", "codes.npy", "--codes"),
    ("legalize", "negated.cvm"),
]


@pytest.mark.sweep
@pytest.mark.parametrize("arguments", COMMANDS, ids=lambda item: item[0])
def test_commands_write_into_devices_and_say_when_these_are_full(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    import numpy as np

    from tests.api import small

    null, full = device(tmp_path / "null", NULL), device(tmp_path / "full", FULL)
    small.negated().save(tmp_path / "negated.cvm")
    np.save(tmp_path / "codes.npy", np.zeros((2, 2, 3), np.int64))
    before = sorted(os.listdir(tmp_path))
    for path, code, said in ((null, 0, ""), (full, 3, "cvm: full: cannot be written: No space left on device")):
        result = subprocess.run(
            [sys.executable, "-m", "cvm", *arguments, "-o", path.name],
            cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert (result.returncode, result.stderr.startswith(said)) == (code, True), result.stderr
    assert (null.lstat().st_rdev, full.lstat().st_rdev) == (NULL, FULL)
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.skipif(not Path("/dev/stdout").exists(), reason="stdout has no name here")
def test_a_result_is_written_to_stdout_by_its_name(tmp_path: Path) -> None:
    from cvm.program import decode
    from tests.api import small

    small.negated().save(tmp_path / "negated.cvm")
    result = subprocess.run(
        [sys.executable, "-m", "cvm", "legalize", str(tmp_path / "negated.cvm"), "-o", "/dev/stdout", "--json"],
        capture_output=True, timeout=60, check=True,
    )  # fmt: skip
    program, _, document = result.stdout.partition(b'{"version"')
    assert decode(program).outputs == small.negated().outputs
    assert document.endswith(b"}\n")
