"""Reading tar archives as streams: NNEF 1.0.1 chapter 5 recommends them as containers.

This small reader replaces `tarfile`: it never extracts a file, allocates nothing without a bound, and accepts regular
files and folders only. It refuses links, devices, sparse files, and every name that is not a plain relative path.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from cvm.errors import LimitExceeded
from cvm.frontends.nnef.faults import invalid, malformed
from cvm.limits import Limits, require

__all__ = ["ArchiveMember", "is_archive", "read_archive"]

_BLOCK = 512
_CHUNK = 1 << 16
_METADATA = 1 << 16  # the most bytes of one long name or extended header
_RATIO_FREE = 1 << 20  # inflated bytes from which on the compression ratio is checked
_REGULAR, _FOLDER = (b"0", b"\0", b"7"), b"5"
_GZIP = b"\x1f\x8b"


class _Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


class _Inflater:
    """The content of a gzip stream, inflated only as far as it is read, and within the limits."""

    def __init__(self, file: BinaryIO, limits: Limits) -> None:
        self._file = file
        self._limits = limits
        self._decompressor = zlib.decompressobj(31)
        self._compressed = 0
        self._inflated = 0
        self._pending = b""

    def read(self, count: int) -> bytes:
        parts = []
        while count > 0:
            part = self._inflate(min(count, _CHUNK))
            if not part:
                break
            parts.append(part)
            count -= len(part)
        return b"".join(parts)

    def _inflate(self, count: int) -> bytes:
        """At least one and at most ``count`` bytes; none at the end of the stream."""
        while True:
            if self._decompressor.eof:
                rest = self._decompressor.unused_data.lstrip(b"\0") or self._file.read(_CHUNK).lstrip(b"\0")
                if not rest:
                    return b""
                if not rest.startswith(_GZIP):
                    raise malformed("container.gzip", "there are bytes after the end of the gzip stream")
                self._decompressor, self._pending = zlib.decompressobj(31), rest
            if not self._pending:
                self._pending = self._file.read(_CHUNK)
                self._compressed += len(self._pending)
                if not self._pending:
                    raise malformed("container.truncated", "the gzip stream ends too early")
            try:
                part = self._decompressor.decompress(self._pending, count)
            except zlib.error as error:
                raise malformed("container.gzip", f"the gzip stream is damaged: {error}") from None
            self._pending = self._decompressor.unconsumed_tail
            if part:
                self._inflated += len(part)
                self._check()
                return part

    def _check(self) -> None:
        require("archive_bytes", self._inflated, self._limits.archive_bytes, "inflated bytes")
        if self._inflated > _RATIO_FREE and self._inflated > self._limits.archive_ratio * self._compressed:
            message = f"the archive inflates by more than a factor of {self._limits.archive_ratio}"
            raise LimitExceeded("limit.archive_ratio", message)


class ArchiveMember:
    """One regular file of an archive. Its content can be read once, in order, before the next member is requested."""

    def __init__(self, name: str, size: int, source: _Source) -> None:
        self.name = name
        self.size = size
        self._source = source
        self._left = size

    def read(self, count: int) -> bytes:
        """The next ``count`` bytes, fewer at the end of the file."""
        data = _exactly(self._source, min(count, self._left))
        self._left -= len(data)
        return data

    def skip(self) -> None:
        """Skip the rest of this member and its padding, up to the next member."""
        while self._left:
            self.read(_CHUNK)
        _exactly(self._source, -self.size % _BLOCK)


def is_archive(head: bytes, name: str) -> bool:
    """Whether a file that begins with ``head`` is a container rather than a text."""
    return head.startswith(_GZIP) or head[257:262] == b"ustar" or name.lower().endswith((".tar", ".tgz", ".tar.gz"))


def read_archive(file: BinaryIO, limits: Limits) -> Iterator[ArchiveMember]:
    """The regular files of a ``.tar`` or ``.tgz``, in order.

    Raises `Malformed` for bytes that are not an archive or are damaged, `Invalid` for members that a container must not
    have, `LimitExceeded` for more members, bytes or compression than ``limits`` admits.
    """
    compressed = file.read(2) == _GZIP
    file.seek(0)
    source: _Source = _Inflater(file, limits) if compressed else file
    total = entries = 0
    seen: set[str] = set()
    overrides: dict[str, str] = {}
    while True:
        block = source.read(_BLOCK)
        if block == bytes(_BLOCK):
            break
        entries += 1
        require("archive_members", entries, 2 * limits.archive_members, "entries of the archive")
        raw_name, size, kind = _parse_header(block)
        if kind in (b"L", b"x", b"g", b"K"):
            _read_metadata(source, size, kind, overrides)
            continue
        name = _clean(overrides.get("path", raw_name), limits)
        size = int(overrides["size"]) if "size" in overrides else size
        overrides = {}
        if kind not in (*_REGULAR, _FOLDER):
            message = f"member {name!r} is a link, a device or another special file"
            raise invalid("container.special", message)
        if not name or kind == _FOLDER or raw_name.endswith("/"):
            if size:
                raise malformed("container.tar", f"folder {name!r} has content")
            continue
        if name in seen:
            raise invalid("container.duplicate", f"there are two members {name!r}")
        seen.add(name)
        require("archive_members", len(seen), limits.archive_members, "members of the archive")
        total += size
        require("archive_bytes", total, limits.archive_bytes, "bytes of all members")
        member = ArchiveMember(name, size, source)
        yield member
        member.skip()
    while rest := source.read(_CHUNK):
        if rest.strip(b"\0"):
            raise malformed("container.trailing", "there are bytes after the end of the archive")


def _exactly(source: _Source, count: int) -> bytes:
    """Read ``count`` bytes in chunks, so that no memory is allocated for bytes that do not exist."""
    parts = []
    while count > 0:
        part = source.read(min(count, _CHUNK))
        if not part:
            raise malformed("container.truncated", "the archive ends too early")
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


def _number(field: bytes) -> int:
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big")
    text = field.strip(b" \0")
    if not text.isdigit() or set(text) & set(b"89"):
        if text:
            raise malformed("container.tar", "a number of a tar header is not octal")
        return 0
    return int(text, 8)


def _parse_header(block: bytes) -> tuple[str, int, bytes]:
    """The name, the size and the kind of the entry that a header block describes."""
    if len(block) < _BLOCK:
        raise malformed("container.truncated", "the archive ends too early")
    if sum(block) - sum(block[148:156]) + 8 * 32 != _number(block[148:156]):
        raise malformed("container.tar", "the checksum of a tar header is wrong; this is not a tar archive, or damaged")
    name = block[:100].partition(b"\0")[0]
    prefix = block[345:500].partition(b"\0")[0]
    if block[257:263] == b"ustar\0" and prefix:
        name = prefix + b"/" + name
    return _text(name), _number(block[124:136]), block[156:157]


def _text(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise malformed("container.name", f"the member name {name[:40]!r} is not UTF-8") from None


def _read_metadata(source: _Source, size: int, kind: bytes, overrides: dict[str, str]) -> None:
    """Read a long name or an extended header, which overrides fields of the next entry."""
    require("archive_name", size, _METADATA, "bytes of an extended tar header")
    data = _exactly(source, size + -size % _BLOCK)[:size]
    if kind == b"L":
        overrides["path"] = _text(data.rstrip(b"\0"))
    while kind in (b"x", b"g") and data:
        length, _, _ = data.partition(b" ")
        if not length.isdigit() or len(length) > 6 or not len(length) < int(length) <= len(data):
            raise malformed("container.tar", "an extended tar header is damaged")
        record, data = data[len(length) + 1 : int(length)], data[int(length) :]
        key, equals, value = record.removesuffix(b"\n").partition(b"=")
        if not equals or key.startswith(b"GNU.sparse"):
            raise invalid(
                "container.special",
                "the archive has sparse files, which are not supported, or a damaged extended header",
            )
        if key in (b"path", b"size"):
            if kind == b"g" or (key == b"size" and not (value.isdigit() and len(value) < 20)):
                raise invalid(
                    "container.special", f"the extended header sets {key.decode()!r} in a way that is not allowed"
                )
            overrides[key.decode()] = _text(value)


def _clean(name: str, limits: Limits) -> str:
    """The normalised member name. Raises `Invalid` for a name that leaves the archive or that has a second spelling."""
    require("name_bytes", len(name.encode()), limits.name_bytes, "bytes of a member name")
    while name.startswith("./"):
        name = name[2:]
    name = name.removesuffix("/")
    if name in ("", "."):
        return ""
    if "\\" in name or "\0" in name or any(part in ("", ".", "..") for part in name.split("/")):
        raise invalid("container.name", f"the member name {name[:80]!r} is not a plain relative path")
    return name
