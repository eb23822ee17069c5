"""Containers: a folder, a tar archive, or a single document. NNEF 1.0.1 section 5.1.

A name is looked up in the listing of a container; it is never opened as a path. A folder is searched entry by entry, an
archive is read as a stream. Nothing is extracted, and no link is followed out of a folder.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Protocol

from cvm.errors import CvmError
from cvm.frontends.nnef.archive import ArchiveMember, is_archive, read_archive
from cvm.frontends.nnef.faults import invalid
from cvm.frontends.nnef.tensor_file import HEADER_BYTES, read_header
from cvm.limits import DEFAULT, Limits, require
from cvm.records import dataclass

__all__ = [
    "DOCUMENT",
    "QUANTIZATION",
    "Container",
    "Member",
    "memory_container",
    "open_container",
    "open_file",
    "read_text_file",
]

DOCUMENT, QUANTIZATION = "graph.nnef", "graph.quant"
_VARIANT = re.compile(r"[A-Za-z0-9_.-]+")
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)


@dataclass(frozen=True, slots=True)
class Member:
    """One file of a container: its size, its first bytes, and a function that reads all of it."""

    size: int
    head: bytes
    read: Callable[[], bytes]


class Container(Protocol):
    """The interface of a container that a loader needs."""

    def find(self, name: str) -> Member | None:
        """The file with a name such as ``"conv1/filter.dat"``, in exactly this letter case; None if there is none."""
        ...

    def has_data(self) -> bool:
        """Whether there is any ``.dat`` file."""
        ...

    def origin(self, name: str) -> str:
        """The name of a file of the container in messages."""
        ...


def open_container(
    path: str | os.PathLike[str], limits: Limits = DEFAULT, weights: bool = True, variant: str | None = None
) -> Container:
    """The container at ``path``; the path itself may be a link.

    Without ``weights``, only the texts and the headers of tensors are read from an archive. With ``variant``, tensor
    files may have that further extension. Raises `Malformed`, `Invalid` or `LimitExceeded` for archives that break a
    rule; `OSError` for files that cannot be read.
    """
    root = Path(path)
    if "\0" in str(root):
        raise invalid("container.name", "the path has a NUL character")
    if variant is not None and not _VARIANT.fullmatch(variant):
        message = f"a variant is the end of a file's name, of the characters of labels; found {variant[:80]!r}"
        raise invalid("container.variant", message)
    if root.is_dir():
        return _Folder(root, limits)
    with open_file(root) as file:
        head = file.read(512)
        if not is_archive(head, root.name):
            return _Single(root, limits)
        file.seek(0)
        suffixes = (".dat",) if variant is None else (".dat", f".dat.{variant}")
        members: dict[str, Member] = {}
        deeper = ""
        for member in read_archive(file, limits):
            if member.name.endswith(f"/{DOCUMENT}"):
                deeper = f" at the top of the archive, only {member.name!r}"
            if member.name in (DOCUMENT, QUANTIZATION):
                require("text_bytes", member.size, limits.text_bytes, f"bytes of {member.name}")
                members[member.name] = _in_memory(member.read(member.size))
            elif member.name.endswith(suffixes):
                members[member.name] = _data_member(member, limits, weights)
        if DOCUMENT not in members:
            raise invalid("container.document", f"there is no {DOCUMENT}{deeper}")
        return _Archive(root, members)


def _data_member(member: ArchiveMember, limits: Limits, weights: bool) -> Member:
    """A tensor file of an archive. Where its header is wrong the rest is not read; the header's
    error is raised later.
    """
    head = member.read(HEADER_BYTES)
    try:
        read_header(head, member.size, limits)
    except CvmError:
        weights = False
    if not weights:
        return Member(member.size, head, lambda: head)
    return _in_memory(head + member.read(member.size))


def _in_memory(data: bytes) -> Member:
    return Member(len(data), data[:HEADER_BYTES], lambda: data)


def memory_container(name: str, files: Mapping[str, bytes]) -> Container:
    """A container with the given files; messages call it ``name``."""
    return _Archive(name, {key: _in_memory(data) for key, data in files.items()})


class _Archive:
    def __init__(self, root: Path | str, members: Mapping[str, Member]) -> None:
        self._root = root
        self._members = members

    def find(self, name: str) -> Member | None:
        return self._members.get(name)

    def has_data(self) -> bool:
        return any(name.endswith(".dat") for name in self._members)

    def origin(self, name: str) -> str:
        return f"{self._root}:{name}"


class _Single:
    """A single document, with neither data nor quantisation."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self._path = path
        self._limits = limits

    def find(self, name: str) -> Member | None:
        return _in_memory(read_text_file(self._path, self._limits)) if name == DOCUMENT else None

    def has_data(self) -> bool:
        return False

    def origin(self, name: str) -> str:
        return str(self._path)


class _Folder:
    def __init__(self, root: Path, limits: Limits) -> None:
        self._root = root
        self._limits = limits
        self._listings: dict[tuple[str, ...], dict[str, os.DirEntry[str]]] = {}

    def _list(self, folder: tuple[str, ...]) -> dict[str, os.DirEntry[str]]:
        if folder not in self._listings:
            with os.scandir(self._root.joinpath(*folder)) as entries:
                listing: dict[str, os.DirEntry[str]] = {}
                for entry in entries:
                    listing[entry.name] = entry
                    require("archive_members", len(listing), self._limits.archive_members, "files of a folder")
            self._listings[folder] = listing
        return self._listings[folder]

    def find(self, name: str) -> Member | None:
        parts = tuple(name.split("/"))
        for depth in range(len(parts)):
            entry = self._list(parts[:depth]).get(parts[depth])
            if entry is None:
                return None
            self._check_entry(entry, name, folder=depth < len(parts) - 1)
        path = self._root.joinpath(*parts)
        with _open_regular(path, name) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(HEADER_BYTES)

        def read() -> bytes:
            with _open_regular(path, name) as file:
                return file.read(size)

        return Member(size, head, read)

    def _check_entry(self, entry: os.DirEntry[str], name: str, folder: bool) -> None:
        if entry.is_symlink():
            raise invalid("container.special", f"{name!r} is behind a link, which is not followed")
        if not (entry.is_dir(follow_symlinks=False) if folder else entry.is_file(follow_symlinks=False)):
            raise invalid("container.special", f"{name!r} is not a regular file")

    def has_data(self) -> bool:
        pending: list[tuple[str, ...]] = [()]
        visited = 0
        while pending:
            folder = pending.pop()
            for name, entry in self._list(folder).items():
                visited += 1
                require("archive_members", visited, self._limits.archive_members, "files of the folder")
                if entry.is_dir(follow_symlinks=False):
                    pending.append((*folder, name))
                elif name.endswith(".dat"):
                    return True
        return False

    def origin(self, name: str) -> str:
        return str(self._root / name)


def open_file(path: str | os.PathLike[str]) -> BinaryIO:
    """Open a regular file for reading. Raises `Invalid` for a pipe or a device, which may block or never end."""
    return _regular(os.open(path, _FLAGS), os.path.basename(path))


def _open_regular(path: Path, name: str) -> BinaryIO:
    """Open a file that has just been listed. Raises `Invalid` if it has become a link or a special file since."""
    return _regular(os.open(path, _FLAGS | _NO_FOLLOW), name)


def _regular(descriptor: int, name: str) -> BinaryIO:
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise invalid("container.special", f"{name!r} is not a regular file")
    return os.fdopen(descriptor, "rb")


def read_text_file(path: str | os.PathLike[str], limits: Limits = DEFAULT) -> bytes:
    """The bytes of a text file. Raises `LimitExceeded` where they exceed the limit on text."""
    with open_file(path) as file:
        data = file.read(limits.text_bytes + 1)
    require("text_bytes", len(data), limits.text_bytes, f"bytes of {Path(path).name}")
    return data
