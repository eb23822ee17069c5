"""Compiled code on disk, so that a network is compiled once per machine.

The name of a file is a digest of everything that its code depends on. The file begins with a digest of its name and of
the rest, which is checked when it is read. Files are written under a temporary name and then renamed, so several
processes may share a folder. If the folder is missing, read-only or full, code is compiled again; nothing else happens.

The digest detects damage, but no attacker, who can compute it as well. So no other user may be able to write what is
read: the folder must belong to this user, and no other user but root may be able to change it or a folder above it
(`trouble` says what is wrong). In that folder only regular files of this user are read, and no link is followed.

LLVM's name of this processor and its features are stored too, with facts about the system and the files of LLVM by
which they are recognised. So LLVM is loaded only if there is code to compile.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import importlib.util
import io
import json
import mmap
import os
import re
import stat
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.executors.native.emit.machine import Machine
from cvm.records import dataclass

__all__ = [
    "Host",
    "clear",
    "folder",
    "host",
    "kept",
    "key",
    "made_once",
    "mapped",
    "new_host",
    "read",
    "trouble",
    "write",
]

LIMIT = 2**28
"""The largest size in bytes of a file whose size the reader does not know in advance."""
DIGEST = 32
PIECE = 2**20
"""The bytes of a file that are hashed by themselves."""
LONG = 4
"""Two threads hash a file of at least this many pieces."""
BINARY = getattr(os, "O_BINARY", 0)
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
LINKS = 40
"""The largest number of links in the path of the folder; Linux has the same limit."""
OWNED = hasattr(os, "geteuid") and os.open in os.supports_dir_fd
"""Whether files have owners and modes as in POSIX. Elsewhere, the user's profile folder keeps other users out."""


def folder() -> Path | None:
    """The folder for compiled code: ``CVM_CACHE``, or the user's cache folder. None if ``CVM_CACHE`` is empty."""
    given = os.environ.get("CVM_CACHE")
    if given is not None:
        return Path(given) / "native" if given else None
    base = os.environ.get("XDG_CACHE_HOME")
    try:
        return Path(base) / "cvm" / "native" if base else Path.home() / ".cache" / "cvm" / "native"
    except RuntimeError:  # the user has no home folder, so there is no folder for compiled code
        return None


PARTS = (
    "executors/cuda", "executors/cuda/emit", "executors/native", "executors/native/checker",
    "executors/native/descriptions", "executors/native/emit", "executors/native/kernels", "executors/native/plan",
    "executors/native/runtime", "executors/native/runtime/trial_programs", "ops", "program",
)  # fmt: skip
"""The folders of `cvm` on which compiled code depends. The range rules of ops, for example, decide about formats, and
stored code is believed since this checker has proven its plan and the trial has passed.
"""
FILES = ("bounds.py", "limits.py", "quantization/quantizer.py")
"""Further files on which it depends whether a program is valid."""


@cache
def _sources() -> bytes:
    """The digest of the source files of this package on which compiled code depends."""
    total = hashlib.sha256()
    root = Path(__file__).parents[3]
    for path in (*(path for part in PARTS for path in sorted((root / part).glob("*.py"))), *map(root.joinpath, FILES)):
        total.update(f"{path.relative_to(root).as_posix()}\0".encode() + path.read_bytes())
    return total.digest()


@dataclass(frozen=True, slots=True)
class Host:
    """The processor as the code generator sees it, and the generator's versions. Compiled code depends on all of it."""

    cpu: str
    features: str
    """LLVM's names of the features, each after a plus or minus sign."""
    versions: tuple[str, ...]

    def has(self, feature: str) -> bool:
        """Whether the processor has a feature."""
        return f"+{feature}" in self.features.split(",")


@cache
def host() -> Host:
    """The host of this process. Raises ImportError or OSError if it is not stored and LLVM cannot be loaded."""
    seen = _seen()
    name = _host_name(seen)
    known = read(name) if seen else None
    if known is not None:
        found = json.loads(known)
        return Host(found["cpu"], found["features"], tuple(found["versions"]))
    import llvmlite
    import llvmlite.binding as llvm

    versions = (llvmlite.__version__, ".".join(map(str, llvm.llvm_version_info)), llvm.get_process_triple())
    made = Host(llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten(), versions)
    if seen:
        write(name, json.dumps(asdict(made)).encode())
    return made


def new_host() -> bool:
    """Whether `host` would have to load LLVM because this processor and this LLVM are not described in the folder.

    Then no code for them can be found there. LLVM is not loaded for the answer, which is False if the system does not
    identify the processor.
    """
    if host.cache_info().currsize:
        return False
    seen = _seen()
    return bool(seen) and read(_host_name(seen)) is None


def _host_name(seen: tuple[str, ...]) -> str:
    return "host-" + hashlib.sha256(_sources() + "\0".join(seen).encode()).hexdigest()


CPUINFO = Path("/proc/cpuinfo")
_TELLING = frozenset({
    "vendor_id", "cpu family", "model", "model name", "stepping", "microcode", "flags", "Features", "CPU implementer",
    "CPU architecture", "CPU variant", "CPU part", "CPU revision",
})  # fmt: skip
"""The lines of the system's description of a processor that identify it."""


def _seen() -> tuple[str, ...]:
    """Facts that distinguish this processor and this LLVM from others. LLVM is not loaded for them.

    The result is empty if the system does not say enough.
    """
    try:
        with open(CPUINFO) as file:
            first = file.read(2**14).split("\n\n")[0]
        lines = tuple(line for line in first.splitlines() if line.split("\t")[0].split(":")[0].strip() in _TELLING)
        package = importlib.util.find_spec("llvmlite")
        if len(lines) < 3 or package is None or package.origin is None:
            return ()
        files = (Path(package.origin), *sorted((Path(package.origin).parent / "binding").glob("*llvmlite*")))
        facts = [(path, path.stat()) for path in files]
    except (OSError, ValueError):
        return ()
    return (*lines, *(f"{path} {status.st_size} {status.st_mtime_ns}" for path, status in facts))


def key(machine: Machine, parts: Iterable[str]) -> str:
    """The name of a file: a digest of this package's code, LLVM's version, the processor and ``parts``."""
    total = hashlib.sha256(_sources())
    this = host()
    processor = (machine.cpu or this.cpu, machine.features or this.features)
    for part in (machine.name, *processor, *this.versions, *parts):
        total.update(part.encode() + b"\0")
    return total.hexdigest()


class _Unsafe(OSError):
    """Another user could write to the folder. The message says why."""


def trouble() -> str | None:
    """The reason in one line why the folder is not used. None if it is used, or will be when there is code to store."""
    where = folder()
    if where is None:
        return "CVM_CACHE is empty" if "CVM_CACHE" in os.environ else "this user has no home folder"
    try:
        with _entered(create=True):
            return None
    except OSError as error:
        return str(error) if isinstance(error, _Unsafe) else f"{where} cannot be used: {error.strerror or error}"


@dataclass(frozen=True, slots=True)
class _Folder:
    """The folder, checked and held open, so that nobody can replace it by another one."""

    path: Path
    descriptor: int | None
    """None if the system cannot open files relative to a folder."""

    def path_of(self, name: str) -> str | Path:
        """The path of a file, for calls to which ``descriptor`` is passed too."""
        return self.path / name if self.descriptor is None else name


@contextlib.contextmanager
def _entered(create: bool = False) -> Iterator[_Folder]:
    """Open the folder; with ``create``, make it if it is missing.

    Raises OSError; in particular `_Unsafe` if another user could write to it.
    """
    where = folder()
    if where is None:
        raise FileNotFoundError("there is no folder for compiled code")
    if not OWNED:
        if create:
            where.mkdir(parents=True, exist_ok=True)
        yield _Folder(where, None)
        return
    real = _walked(where, create)
    descriptor = os.open(real, os.O_RDONLY | os.O_DIRECTORY | NO_LINK)
    try:
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid():
            raise _Unsafe(f"{real} belongs to another user")
        if status.st_mode & 0o022:
            raise _Unsafe(f"{real} can be written by other users; chmod go-w mends it")
        yield _Folder(real, descriptor)
    finally:
        os.close(descriptor)


def _walked(where: Path, create: bool) -> Path:
    """Resolve the links of a path, and check every folder and link on the way.

    With ``create``, missing folders are made with mode 0700. Raises `_Unsafe`.
    """
    left = list(reversed(where.absolute().parts))
    here, links = Path(left.pop()), 0
    while left:
        _require_safe(here, os.lstat(here))
        part = left.pop()
        step = here.parent if part == ".." else here / part  # ``here`` contains no links, so ".." is its parent
        try:
            status = os.lstat(step)
        except FileNotFoundError:
            if not create:
                raise
            with contextlib.suppress(FileExistsError):  # another process has just made it
                os.mkdir(step, 0o700)
            status = os.lstat(step)
        if not stat.S_ISLNK(status.st_mode):
            here = step
            continue
        links += 1
        if links > LINKS or status.st_uid not in (0, os.geteuid()):
            raise _Unsafe(f"{step} is a link that belongs to another user, or one of too many links")
        target = Path(os.readlink(step))
        left += reversed(target.parts)
        here = Path(left.pop()) if target.is_absolute() else here
    return here


def _require_safe(path: Path, status: os.stat_result) -> None:
    """Raise `_Unsafe` if another user than root can rename or replace the contents of a folder."""
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if status.st_uid not in (0, os.geteuid()):
        raise _Unsafe(f"{path} belongs to another user")
    if status.st_mode & 0o022 and not status.st_mode & stat.S_ISVTX:
        raise _Unsafe(f"{path} can be written by other users; chmod go-w mends it")


@contextlib.contextmanager
def _opened(name: str) -> Iterator[tuple[io.BufferedReader, int]]:
    """Open a file that belongs to this user, and give its size. Raises OSError."""
    # Opening must not block: the file may be a pipe that somebody put there.
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | NO_LINK | BINARY
    with _entered() as where, open(os.open(where.path_of(name), flags, dir_fd=where.descriptor), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{name} is not a regular file")
        if OWNED and (status.st_uid != os.geteuid() or status.st_mode & 0o022):
            raise OSError(f"another user could have written {name}, so it is not run")
        if OWNED and status.st_nlink > 1:  # a count of 0 means that another process has just replaced the file
            raise OSError(f"{name} has a second name (a hard link), through which it could be written")
        yield file, status.st_size


def read(name: str) -> bytes | None:
    """The content of a file, or None if it is missing, damaged, or another user could have written it."""
    try:
        with _opened(name) as (file, size):
            data = file.read(LIMIT) if size <= LIMIT else b""
    except OSError:
        return None
    content = data[DIGEST:]
    return content if _digest(name, content) == data[:DIGEST] else None


def mapped(name: str, size: int) -> npt.NDArray[np.uint8] | None:
    """The content of a file of ``size`` bytes, which stays on disk until it is used; processes share its memory.

    It cannot be written. Returns None if the file is missing, damaged, of another size, or another user could have
    written it. Files are replaced and deleted, but never changed, so that what is mapped stays as it was checked.
    """
    try:
        with _opened(name) as (file, found):
            if found != DIGEST + size:
                return None
            data = np.frombuffer(mmap.mmap(file.fileno(), found, access=mmap.ACCESS_READ), np.uint8)
    except (OSError, ValueError):  # ValueError: the file is empty
        return None
    content = data[DIGEST:]
    return content if _digest(name, content.data) == data[:DIGEST].tobytes() else None


def write(name: str, *content: bytes | memoryview, bounded: bool = True) -> None:
    """Store a file if that is possible. Its content is given in pieces.

    A file of more than `LIMIT` bytes is stored only if it is not ``bounded``; only `mapped` can read it.
    """
    if bounded and sum(map(len, content)) > LIMIT - DIGEST:
        return
    with contextlib.suppress(OSError), _entered(create=True) as where:
        _replace(where, name, _digest(name, *content), *content)


def made_once(name: str, make: Callable[[], bytes]) -> bytes:
    """The content of a file, or else what ``make`` returns, which is stored if that is possible."""
    content = read(name)
    if content is None:
        content = make()
        write(name, content)
    return content


def kept() -> tuple[int, int]:
    """The number of stored files and their size in bytes; (0, 0) if there is no folder."""
    try:
        with _entered() as where:
            return _counted(_files(where))
    except OSError:
        return 0, 0


def clear() -> tuple[int, int]:
    """Delete the stored files, and no others. Returns their number and their size in bytes. Raises OSError."""
    try:
        with _entered() as where:
            found = _files(where)
            for name, _ in found:
                with contextlib.suppress(FileNotFoundError):  # another process has deleted it
                    os.unlink(where.path_of(name), dir_fd=where.descriptor)
            return _counted(found)
    except FileNotFoundError:
        return 0, 0


_OWN = re.compile(r"(host-|constants-)?[0-9a-f]{64}|\.(host-|constants-)?[0-9a-f]{64}\.[0-9a-f]{16}\.tmp")
"""The names of files that `write` makes. `clear` deletes no others: CVM_CACHE may name a folder with more files."""


def _files(where: _Folder) -> list[tuple[str, int]]:
    """The names and sizes of the files in the folder that this module has written."""
    found = []
    with os.scandir(where.path if where.descriptor is None else where.descriptor) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                if _OWN.fullmatch(entry.name) and entry.is_file(follow_symlinks=False):
                    found.append((entry.name, entry.stat(follow_symlinks=False).st_size))
    return found


def _counted(files: list[tuple[str, int]]) -> tuple[int, int]:
    return len(files), sum(size for _, size in files)


def _replace(where: _Folder, name: str, *data: bytes | memoryview) -> None:
    """Write a file of the folder completely or not at all. Raises OSError."""
    new = f".{name}.{os.urandom(8).hex()}.tmp"
    temporary, held = where.path_of(new), where.descriptor
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | NO_LINK | BINARY
    try:
        with open(os.open(temporary, flags, 0o600, dir_fd=held), "wb") as file:
            for part in data:
                file.write(part)
        os.replace(temporary, where.path_of(name), src_dir_fd=held, dst_dir_fd=held)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary, dir_fd=held)
        raise


def _digest(name: str, *content: bytes | memoryview) -> bytes:
    """The digest of a file: SHA-256 of its name and of the SHA-256 of each `PIECE` bytes of its content.

    It covers the name, so a file under another name counts as damaged. Two threads hash the pieces of a long file.
    """
    pieces = list(_pieces(content))
    found = [b""] * len(pieces)

    def every_second(first: int) -> None:
        for number in range(first, len(pieces), 2):
            one = hashlib.sha256()
            for part in pieces[number]:
                one.update(part)
            found[number] = one.digest()

    helper = threading.Thread(target=every_second, args=(1,))
    helps = len(pieces) >= LONG and _starts(helper)
    every_second(0)
    if helps:
        helper.join()
    else:
        every_second(1)
    return hashlib.sha256(name.encode() + b"\0" + b"".join(found)).digest()


def _starts(helper: threading.Thread) -> bool:
    """Start a thread. Returns whether that was possible."""
    try:
        helper.start()
    except RuntimeError:  # the system has no more threads
        return False
    return True


def _pieces(content: Iterable[bytes | memoryview]) -> Iterator[list[memoryview]]:
    """The content of a file in pieces of `PIECE` bytes; the last one may be shorter. A piece is a list of its parts."""
    piece: list[memoryview] = []
    room = PIECE
    for part in content:
        rest = memoryview(part)
        while len(rest):
            piece.append(rest[:room])
            room -= len(piece[-1])
            rest = rest[len(piece[-1]) :]
            if not room:
                yield piece
                piece, room = [], PIECE
    if piece:
        yield piece
