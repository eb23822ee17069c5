"""Reading the files of models: only regular files, and never more bytes than allowed."""

from __future__ import annotations

import os
import stat

from cvm.errors import Invalid, Location, Malformed

__all__ = ["read_regular"]


def read_regular(path: str, most: int, code: str, offset: int = 0) -> bytes:
    """At most ``most`` bytes of a regular file from ``offset`` on. Raises `Invalid` and `Malformed`, with
    ``code``.<rule>.
    """
    where = Location(file=path)
    try:
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise Malformed(f"{code}.file", "this is not a regular file", where)
            file.seek(offset)
            return file.read(most)
    except OSError as error:
        raise Invalid(f"{code}.unreadable", f"cannot be read: {error.strerror or error}", where) from None
    except ValueError as error:  # the path contains a NUL
        if isinstance(error, Malformed):
            raise
        raise Invalid(f"{code}.unreadable", f"cannot be read: {error}", Location(file=repr(path))) from None
