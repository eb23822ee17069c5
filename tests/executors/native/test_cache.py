"""Compiled code on disk: whole and ours, or not there; whatever happens to the folder, programs run."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from cvm.executors.native import NativeExecutor, cache
from cvm.executors.native.machine import Machine
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.executors.native.comparison import MACHINES, compare

NAME = "0" * 64
GENERIC = MACHINES[-1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "deep" / "cache"))
    where = cache.folder()
    assert where is not None
    return where


def small(value: int = 1) -> VerifiedProgram:
    builder = ProgramBuilder()
    x = builder.input("x", (3, 5), -100, 100)
    (y,) = builder.add("broadcast_add", [x, builder.constant([value])])
    return verify(builder.build([Output("y", y)]))


def cached(verified: VerifiedProgram) -> bool:
    return NativeExecutor(verified, 1, GENERIC)._main.cached


def test_what_is_written_is_read(folder: Path) -> None:
    assert cache.read(NAME) is None
    for content in (b"", b"code", bytes(range(256)) * 1000):
        cache.write(NAME, content)
        assert cache.read(NAME) == content
    assert [path.name for path in folder.iterdir()] == [NAME]


def test_a_network_is_compiled_once(folder: Path) -> None:
    assert [cached(small()) for _ in range(3)] == [False, True, True]
    assert not cached(small(2))
    compare(small(), machines=[GENERIC], threads=[1])


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-7] ^= 1
    path.write_bytes(data)


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _swapped(path: Path) -> None:
    """Another whole file under this name."""
    cache.write("1" * 64, b"other code")
    path.with_name("1" * 64).replace(path)


def _writable_by_others(path: Path) -> None:
    path.chmod(0o622)


def _writable_by_the_group(path: Path) -> None:
    path.chmod(0o660)


def _folder_there(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _pipe_there(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _device_there(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def _broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize(
    "harm",
    [_truncated, _one_bit, _longer, _empty, _swapped, _writable_by_others, _writable_by_the_group, _folder_there,
     _pipe_there, _device_there, _broken_link],
)  # fmt: skip
def test_a_file_that_is_not_whole_and_ours_is_not_there(folder: Path, harm: Callable[[Path], None]) -> None:
    cached(small())
    (path,) = folder.iterdir()
    harm(path)
    assert cache.read(path.name) is None
    assert not cached(small())
    compare(small(), machines=[GENERIC], threads=[1])
    if harm is not _folder_there:  # a folder cannot be replaced by a file
        assert cached(small())


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_not_run(folder: Path) -> None:
    cached(small())
    (path,) = folder.iterdir()
    os.chown(path, 12345, -1)
    assert cache.read(path.name) is None


def test_a_huge_file_is_not_read(folder: Path) -> None:
    cache.write(NAME, b"")
    with open(folder / NAME, "r+b") as file:
        file.truncate(2**40)  # sparse: reading it would take a terabyte of memory
    assert cache.read(NAME) is None


def test_what_is_larger_than_a_file_may_be_is_not_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "LIMIT", 100)
    cache.write(NAME, bytes(69))
    assert cache.read(NAME) is None
    cache.write(NAME, bytes(68))
    assert cache.read(NAME) == bytes(68)


def test_files_are_private_whatever_the_mask(folder: Path) -> None:
    before = os.umask(0o000)
    try:
        cache.write(NAME, b"code")
    finally:
        os.umask(before)
    assert (folder / NAME).stat().st_mode & 0o777 == 0o600
    assert cache.read(NAME) == b"code"


def test_no_folder_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    assert cache.folder() is None
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None
    assert [cached(small()) for _ in range(2)] == [False, False]


@pytest.mark.parametrize("obstacle", ["a file", "a link to nowhere", "no right to write"])
def test_a_folder_that_cannot_be_used_costs_time_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, obstacle: str
) -> None:
    place = tmp_path / "cache"
    if obstacle == "a file":
        place.write_bytes(b"")
    elif obstacle == "a link to nowhere":
        place.symlink_to(tmp_path / "nowhere" / "at" / "all")
        (tmp_path / "nowhere").write_bytes(b"")
    else:
        place.mkdir(mode=0o500)
        if os.access(place, os.W_OK):
            place = Path("/proc/cache")  # root may write anywhere but there
    monkeypatch.setenv("CVM_CACHE", str(place))
    assert [cached(small()) for _ in range(2)] == [False, False]
    compare(small(), machines=[GENERIC], threads=[1])


def test_the_folder_is_the_users(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CVM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.folder() == tmp_path / "cvm" / "native"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache.folder() == tmp_path / ".cache" / "cvm" / "native"


def test_a_key_depends_on_everything_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {cache.key(machine, parts) for machine in MACHINES for parts in (("a", "b"), ("a",), ("ab",), ("b", "a"))}
    other = Machine("other", 4, 16, GENERIC.dot4, GENERIC.dot2, frozenset(), "haswell", "+avx2")
    keys |= {cache.key(other, ("a",))}
    this = cache.host()
    others = (replace(this, cpu="x"), replace(this, features="+x"), replace(this, versions=("1", *this.versions[1:])))
    for found in others:
        with monkeypatch.context() as patch:
            patch.setattr(cache, "host", lambda found=found: found)
            keys.add(cache.key(GENERIC, ("a",)))
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_sources", lambda: b"another version of our code")
        keys.add(cache.key(GENERIC, ("a",)))
    assert len(keys) == 4 * len(MACHINES) + 5
    assert cache.key(GENERIC, ("a",)) == cache.key(GENERIC, ("a",))


def test_our_code_is_all_that_formats_and_places_follow_from() -> None:
    root = Path(cache.__file__).parents[2]
    for part in cache.PARTS:
        assert list((root / part).glob("*.py"))


PROCESS = """
import sys, time
from cvm.executors.native import cache
names = [str(k) * 64 for k in range(3)]
contents = {name: name.encode() * 2000 for name in names}
found, end = 0, time.monotonic() + float(sys.argv[1])
while time.monotonic() < end:
    for name in names:
        cache.write(name, contents[name])
        content = cache.read(name)
        assert content == contents[name], "part of a file was read"
        found += 1
print(found)
"""


def test_several_processes_share_a_folder(folder: Path) -> None:
    command = [sys.executable, "-c", PROCESS, "0.5"]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for process in processes:
        out, _ = process.communicate(timeout=60)
        assert process.returncode == 0
        assert int(out) > 0
    assert sorted(path.name for path in folder.iterdir()) == [str(k) * 64 for k in range(3)]


PLANNED = """
from cvm.executors.native import NativeExecutor
from cvm.executors.native.select import available
from cvm.program import verify
from tools.planted.networks import AIMS, network
for aim in list(AIMS)[1:4]:
    print(NativeExecutor(verify(network(aim, 3)), 2, available()[-1])._main.text())
"""


def test_code_does_not_depend_on_the_order_of_hashes() -> None:
    """What one process keeps fits what another one plans."""
    texts = []
    for seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        texts.append(subprocess.run(
            [sys.executable, "-c", PLANNED], env=environment, capture_output=True, text=True, check=True,
            cwd=Path(__file__).parents[3], timeout=300,
        ).stdout)  # fmt: skip
    assert len(texts[0]) > 10_000
    assert texts[0] == texts[1]


def test_reading_costs_little(folder: Path) -> None:
    cache.write(NAME, bytes(2**20))
    begin = time.perf_counter()
    cache.read(NAME)
    assert time.perf_counter() - begin < 1.0
