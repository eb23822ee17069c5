"""Files of traces: one trace, one file, in its canonical bytes (`cvm.audit.codec`)."""

from __future__ import annotations

import os
from os import PathLike

from cvm.audit.codec import decode_trace, encode_trace
from cvm.audit.trace import Trace
from cvm.errors import CvmError, Invalid, Location
from cvm.formats import diagnosed, refuse_folder
from cvm.limits import DEFAULT, Limits, require
from cvm.program.reading import read_bytes
from cvm.writing import write_file

__all__ = ["read_trace", "write_trace"]


def write_trace(trace: Trace, path: str | PathLike[str], limits: Limits = DEFAULT) -> None:
    """Write a trace file, see `cvm.writing`.

    Raises `LimitExceeded` for a trace that `read_trace` would refuse, and OSError.
    """
    data = encode_trace(trace)
    require("trace_bytes", len(data), limits.receipt_bytes, "bytes of a trace")
    write_file(path, data)


def read_trace(path: str | PathLike[str], limits: Limits = DEFAULT) -> Trace:
    """Read and decode a trace file; nothing that it says is verified.

    Raises `CvmError` with the file in its location: `Malformed` for bytes that are no trace in canonical form,
    `LimitExceeded` before anything too large is read, `Invalid` (``trace.unreadable``) for a file that does not exist.
    """
    where = os.fspath(path)
    refuse_folder(path, "a trace")
    try:
        return decode_trace(read_bytes(path, limits.receipt_bytes, "trace"), limits)
    except OSError as error:
        message = f"cannot be read: {error.strerror or error}"
        raise Invalid("trace.unreadable", message, Location(where)) from None
    except CvmError as error:
        raise diagnosed(error.at(file=where), path, "a trace", ("trace",)) from None
