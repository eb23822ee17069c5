"""Compiled code on disk: whole and ours, or not there; whatever happens to the folder, programs run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from cvm.executors.native import NativeExecutor
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache
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


@pytest.mark.parametrize("threads", [True, False])
@pytest.mark.parametrize("size", [1, cache.PIECE, 3 * cache.PIECE + 5, cache.LONG * cache.PIECE, 9 * cache.PIECE + 1])
def test_damage_anywhere_in_a_file_of_any_length_is_found(
    folder: Path, size: int, threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if not threads:
        monkeypatch.setattr(threading.Thread, "start", start)
    content = np.random.default_rng(size).integers(0, 256, size, np.uint8).tobytes()
    cuts = sorted({0, size // 7, min(size, cache.PIECE - 1), size // 2, size})
    cache.write(NAME, *(content[a:b] for a, b in pairwise(cuts)))
    assert cache.read(NAME) == content
    found = cache.mapped(NAME, size)
    assert found is not None
    assert found.tobytes() == content
    del found
    file = folder / NAME
    for place in {0, size // 3, size - 1, size - size % cache.PIECE - 1} - {-1}:
        whole = bytearray(file.read_bytes())
        whole[cache.DIGEST + place] ^= 1
        file.write_bytes(whole)
        assert cache.read(NAME) is None
        assert cache.mapped(NAME, size) is None
        whole[cache.DIGEST + place] ^= 1
        file.write_bytes(whole)
    assert cache.read(NAME) == content


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


def _link_to_a_whole_file(path: Path) -> None:
    """A file of this user, with content that another user chose: a download, say."""
    other = path.parent.parent / "download"
    path.rename(other)
    path.symlink_to(other)


def _hard_link(path: Path) -> None:
    os.link(path, path.parent.parent / "other name")


def _socket_there(path: Path) -> None:
    path.unlink()
    with socket.socket(socket.AF_UNIX) as made:
        before = os.getcwd()
        os.chdir(path.parent)  # the name of a socket is short
        made.bind(path.name)
        os.chdir(before)


def _broken_link(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("nowhere"))


@pytest.mark.parametrize(
    "harm",
    [_truncated, _one_bit, _longer, _empty, _swapped, _writable_by_others, _writable_by_the_group, _folder_there,
     _pipe_there, _device_there, _socket_there, _broken_link, _link_to_a_whole_file, _hard_link],
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


def _folder_of_another_user(folder: Path) -> None:
    os.chown(folder, 12345, -1)


def _folder_writable_by_others(folder: Path) -> None:
    folder.chmod(0o777)


def _folder_writable_by_the_group(folder: Path) -> None:
    folder.chmod(0o770)


def _sticky_folder_writable_by_others(folder: Path) -> None:
    folder.chmod(0o1777)


def _parent_writable_by_others(folder: Path) -> None:
    folder.parent.chmod(0o777)


def _parent_of_another_user(folder: Path) -> None:
    os.chown(folder.parent, 12345, -1)


def _link_of_another_user(folder: Path) -> None:
    real = folder.with_name("real")
    folder.rename(real)
    folder.symlink_to(real)
    os.lchown(folder, 12345, -1)


def _link_into_a_folder_writable_by_others(folder: Path) -> None:
    outside = folder.parent.parent / "outside"
    outside.mkdir()
    folder.rename(outside / "real")
    folder.symlink_to("../outside/real")
    outside.chmod(0o777)


UNSAFE = [
    (_folder_of_another_user, "belongs to another user"),
    (_folder_writable_by_others, "can be written by other users; chmod go-w mends it"),
    (_folder_writable_by_the_group, "can be written by other users"),
    (_sticky_folder_writable_by_others, "can be written by other users"),
    (_parent_writable_by_others, "can be written by other users"),
    (_parent_of_another_user, "belongs to another user"),
    (_link_of_another_user, "is a link that belongs to another user"),
    (_link_into_a_folder_writable_by_others, "outside can be written by other users"),
]
"""What makes a folder one that another user could write in, and what is said of it."""


@pytest.mark.parametrize(("harm", "words"), UNSAFE, ids=lambda item: getattr(item, "__name__", ""))
def test_a_folder_that_another_user_could_write_in_is_not_used(
    folder: Path, harm: Callable[[Path], None], words: str
) -> None:
    if "of_another_user" in harm.__name__ and (os.name != "posix" or os.getuid() != 0):
        pytest.skip("only root can give folders away")
    cache.write(NAME, b"code")
    assert (cache.read(NAME), cache.trouble()) == (b"code", None)
    harm(folder)
    found = sorted(os.listdir(folder))
    assert cache.read(NAME) is None
    assert cache.mapped(NAME, 4) is None
    cache.write("1" * 64, b"code")
    assert sorted(os.listdir(folder)) == found, "nothing is written there"
    said = cache.trouble()
    assert said is not None
    assert words in said
    assert "\n" not in said


def test_programs_run_where_the_folder_is_not_used(folder: Path) -> None:
    assert [cached(small()) for _ in range(2)] == [False, True]
    folder.chmod(0o777)
    assert [cached(small()) for _ in range(2)] == [False, False]
    compare(small(), machines=[GENERIC], threads=[1])


def test_a_link_of_this_user_on_the_way_is_followed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.write(NAME, b"code")
    link = folder.parents[2] / "link"
    link.symlink_to("deep/../deep/cache")
    monkeypatch.setenv("CVM_CACHE", str(link))
    assert (cache.read(NAME), cache.trouble()) == (b"code", None)


def test_links_in_a_ring_are_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ring").symlink_to("ring")
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "ring"))
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None
    assert "too many links" in str(cache.trouble())


def test_every_folder_that_is_made_is_private_whatever_the_mask(folder: Path) -> None:
    before = os.umask(0o000)
    try:
        cache.write(NAME, b"code")
    finally:
        os.umask(before)
    made = [folder, folder.parent, folder.parent.parent]
    assert [stat.S_IMODE(path.stat().st_mode) for path in made] == [0o700] * 3


STRANGER = """
import os, sys
import numpy as np
import cvm
from cvm.program.build import ProgramBuilder
from cvm.program.model import Output
def run():
    builder = ProgramBuilder()
    x = builder.input("x", (4,), 0, 255)
    (y,) = builder.add("broadcast_add", [x, builder.constant(np.array([10, 20, 30, 41]))], name="y")
    session = cvm.Session(builder.build([Output("y", y)]), executor="native", threads=1)
    return session.run({"x": np.zeros(4, np.int32)})["y"].tolist()
os.environ["CVM_CACHE"] = ""
run()  # what is imported may be out of reach of the other user
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
os.environ["CVM_CACHE"] = sys.argv[1]
print(run())
"""


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root can be several users")
def test_the_owner_of_a_shared_folder_cannot_choose_what_another_user_runs(folder: Path) -> None:
    """The owner of the folder links an entry to a file of the victim, the content of which the owner has chosen."""
    folder.mkdir(parents=True)
    owner, victim = 1001, 65534
    inbox = folder.parents[2] / "inbox"
    inbox.mkdir()
    with _as_user(victim, inbox):
        assert _printed_by_a_stranger(inbox / "own") == "[10, 20, 30, 41]"
        entries = (inbox / "own" / "native").iterdir()
        (entry,) = [path for path in entries if b'"y"' in path.read_bytes()[:3000]]
        content = entry.read_bytes()[cache.DIGEST :].replace(bytes([10, 20, 30, 41]), bytes([99, 98, 97, 96]))
        assert content != entry.read_bytes()[cache.DIGEST :]
        chosen = inbox / "photo"
        chosen.write_bytes(hashlib.sha256(entry.name.encode() + b"\0" + content).digest() + content)
        os.chown(chosen, victim, victim)
        for path in (folder, folder.parent):
            os.chown(path, owner, owner)
            path.chmod(0o777)
        (folder / entry.name).symlink_to(chosen)
        assert _printed_by_a_stranger(folder.parent) == "[10, 20, 30, 41]"


@contextlib.contextmanager
def _as_user(user: int, own: Path) -> Iterator[None]:
    """Another user has a folder, and may pass through the folders that it is in."""
    above = [path for path in own.parents if path.stat().st_uid == os.getuid() and path != Path("/")]
    modes = [stat.S_IMODE(path.stat().st_mode) for path in above]
    os.chown(own, user, user)
    for path, mode in zip(above, modes, strict=True):
        path.chmod(mode | 0o011)
    try:
        yield
    finally:
        for path, mode in zip(above, modes, strict=True):
            path.chmod(mode)


def _printed_by_a_stranger(path: Path) -> str:
    """What a network of four constants gives, in a process of another user with this cache."""
    result = subprocess.run(
        [sys.executable, "-c", STRANGER, str(path)],
        capture_output=True, text=True, check=False, cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


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
    path = tmp_path / "cache"
    if obstacle == "a file":
        path.write_bytes(b"")
    elif obstacle == "a link to nowhere":
        path.symlink_to(tmp_path / "nowhere" / "at" / "all")
        (tmp_path / "nowhere").write_bytes(b"")
    else:
        path.mkdir(mode=0o500)
        if os.access(path, os.W_OK):
            path = Path("/proc/cache")  # root may write anywhere but there
    monkeypatch.setenv("CVM_CACHE", str(path))
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


def test_our_code_is_all_that_formats_and_addresses_follow_from() -> None:
    root = Path(cache.__file__).parents[3]
    for part in cache.PARTS:
        assert list((root / part).glob("*.py"))


PROCESS = """
import sys, time
from cvm.executors.native.runtime import cache
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
from cvm.executors.native.runtime.select import available
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
    begin = time.process_time()
    cache.read(NAME)
    assert time.process_time() - begin < 1.0
