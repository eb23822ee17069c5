"""The canonical bytes of traces: the canonical msgpack (`cvm.program.wire`) of ``["cvm-trace", 1, trace]``.

The map mirrors the data class. A reader refuses bytes that do not encode to themselves again. No digest is stored:
identities are recomputed.
"""

from __future__ import annotations

from cvm.audit.coding import VERSION, decoded, roots
from cvm.audit.trace import Trace
from cvm.limits import DEFAULT, Limits
from cvm.program.wire import Reader, Tree, pack

__all__ = ["decode_trace", "encode_trace"]


def encode_trace(trace: Trace) -> bytes:
    """The canonical bytes of ``trace``."""
    body: Tree = {
        "program": trace.program,
        "inputs": list(trace.inputs),
        "before": list(trace.before),
        "steps": [list(step) for step in trace.steps],
    }
    return pack(["cvm-trace", VERSION, body], "trace")


def decode_trace(data: bytes, limits: Limits = DEFAULT) -> Trace:
    """The trace that ``data`` encodes. Raises as the reader of receipts, with codes that begin with ``trace.``."""
    return decoded(data, "trace", limits, _trace, encode_trace)


def _trace(reader: Reader) -> Trace:
    fields = {
        "before": lambda: roots(reader),
        "inputs": lambda: roots(reader),
        "program": reader.binary,
        "steps": lambda: reader.array(lambda: roots(reader)),
    }
    return Trace(**reader.record(fields))
