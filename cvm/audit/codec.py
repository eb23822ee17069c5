"""The canonical bytes of receipts and traces: one receipt, one file.

A receipt file is the canonical msgpack (`cvm.program.wire`) of ``["cvm-receipt", 1, receipt]``, a trace that of
``["cvm-trace", 1, trace]``. The maps mirror the data classes; what is None is a missing key. A reader refuses whatever
does not encode to the same bytes, and no digest is carried along: identities are recomputed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from os import PathLike
from typing import Any, TypeVar

from cvm.audit.receipt import Claim, Host, Receipt, Roots, Run, Signature
from cvm.audit.trace import Trace
from cvm.errors import CvmError, Malformed
from cvm.formats import diagnosed
from cvm.limits import DEFAULT, Limits, require
from cvm.program.files import read_bytes
from cvm.program.wire import Reader, Tree, pack
from cvm.writing import write_file

__all__ = ["decode_receipt", "decode_trace", "encode_receipt", "encode_trace", "load_receipt", "save_receipt"]

VERSION = 1
_ITEMS = 2**20
"""The most runs of a receipt, steps of a trace, roots of a list."""

_T = TypeVar("_T")


def encode_receipt(receipt: Receipt) -> bytes:
    """The canonical bytes of ``receipt``."""
    claim, host = receipt.claim, receipt.host
    body: Tree = {
        "claim": {
            "program": claim.program,
            "op_set": claim.op_set,
            "limits": claim.limits,
            "gas": claim.gas,
            "runs": [_run(run) for run in claim.runs],
        },
        "host": {
            "executor": host.executor,
            "version": host.version,
            "machine": host.machine,
            "time": host.time,
        },
        "signatures": [{"key": item.key, "signature": item.signature} for item in receipt.signatures],
    }
    return pack(["cvm-receipt", VERSION, body], "receipt")


def _run(run: Run) -> Tree:
    parts: dict[str, Tree] = {
        "inputs": list(run.inputs),
        "before": list(run.before),
        "outputs": list(run.outputs),
        "after": list(run.after),
    }
    return parts if run.trace is None else {**parts, "trace": run.trace}


def encode_trace(trace: Trace) -> bytes:
    """The canonical bytes of ``trace``."""
    body: Tree = {
        "program": trace.program,
        "inputs": list(trace.inputs),
        "before": list(trace.before),
        "steps": [list(step) for step in trace.steps],
    }
    return pack(["cvm-trace", VERSION, body], "trace")


def decode_receipt(data: bytes, limits: Limits = DEFAULT) -> Receipt:
    """The receipt that ``data`` encodes; what it claims is not verified.

    Raises `Malformed` for bytes that are not the canonical bytes of any receipt, `Invalid` for impossible values and
    `LimitExceeded`, each with a code that begins with ``receipt.`` or ``limit.``.
    """
    return _decoded(data, "receipt", limits, _receipt, encode_receipt)


def decode_trace(data: bytes, limits: Limits = DEFAULT) -> Trace:
    """The trace that ``data`` encodes. Raises as `decode_receipt`, with codes that begin with ``trace.``."""
    return _decoded(data, "trace", limits, _trace, encode_trace)


def _decoded(data: bytes, kind: str, limits: Limits, read: Callable[[Reader], _T], encode: Callable[[_T], bytes]) -> _T:
    require("receipt_bytes", len(data), limits.receipt_bytes, f"bytes of a {kind}")
    reader = Reader(data, kind, _ITEMS)
    if reader.array_header() != 3 or reader.text() != f"cvm-{kind}":
        raise reader.malformed("format", f"this is not a cvm {kind}")
    version = reader.integer()
    if version != VERSION:
        raise reader.malformed("version", f"expected version {VERSION} of the format, found {version}")
    found = read(reader)
    reader.end()
    if encode(found) != data:
        raise Malformed(f"{kind}.canonical", f"these are not the canonical bytes of the {kind} that they describe")
    return found


def _receipt(reader: Reader) -> Receipt:
    fields = {
        "claim": lambda: _claim(reader),
        "host": lambda: Host(**reader.record(dict.fromkeys(("executor", "machine", "time", "version"), reader.text))),
        "signatures": lambda: reader.array(lambda: _signature(reader)),
    }
    return Receipt(**reader.record(fields))


def _claim(reader: Reader) -> Claim:
    run_fields: Mapping[str, Callable[[], Any]] = {
        **dict.fromkeys(("after", "before", "inputs", "outputs"), lambda: _roots(reader)),
        "trace": reader.binary,
    }
    fields = {
        "gas": reader.integer,
        "limits": reader.text,
        "op_set": reader.integer,
        "program": reader.binary,
        "runs": lambda: reader.array(lambda: Run(**reader.record(run_fields, ["trace"]))),
    }
    return Claim(**reader.record(fields))


def _signature(reader: Reader) -> Signature:
    return Signature(**reader.record({"key": reader.binary, "signature": reader.binary}))


def _trace(reader: Reader) -> Trace:
    fields = {
        "before": lambda: _roots(reader),
        "inputs": lambda: _roots(reader),
        "program": reader.binary,
        "steps": lambda: reader.array(lambda: _roots(reader)),
    }
    return Trace(**reader.record(fields))


def _roots(reader: Reader) -> Roots:
    return reader.array(reader.binary)


def load_receipt(path: str | PathLike[str], limits: Limits = DEFAULT) -> Receipt:
    """Read and decode a receipt file. Raises `CvmError` (with the file in its location) or OSError."""
    try:
        return decode_receipt(read_bytes(path, limits.receipt_bytes, "receipt"), limits)
    except CvmError as error:
        raise diagnosed(error.at(file=os.fspath(path)), path, "a receipt", ("receipt",)) from None


def save_receipt(path: str | PathLike[str], receipt: Receipt) -> None:
    """Write a receipt file, see `cvm.writing`. Raises OSError."""
    write_file(path, encode_receipt(receipt))
