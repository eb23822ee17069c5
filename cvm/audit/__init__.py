"""Evidence: receipts of runs, commitments to every tensor of a run, and their verification."""

from cvm.audit.codec import decode_trace, encode_trace
from cvm.audit.receipt import (
    Claim,
    Host,
    Receipt,
    Run,
    Signature,
    decode_receipt,
    encode_receipt,
    load_receipt,
    save_receipt,
)
from cvm.audit.record import Recorder, host_facts
from cvm.audit.signatures import sign
from cvm.audit.spot_check import Judged, Judging
from cvm.audit.trace import Trace, trace_bytes
from cvm.audit.trace_file import read_trace, write_trace
from cvm.audit.verify import LEVELS, Verdict, verify

__all__ = [
    "LEVELS",
    "Claim",
    "Host",
    "Judged",
    "Judging",
    "Receipt",
    "Recorder",
    "Run",
    "Signature",
    "Trace",
    "Verdict",
    "decode_receipt",
    "decode_trace",
    "encode_receipt",
    "encode_trace",
    "host_facts",
    "load_receipt",
    "read_trace",
    "save_receipt",
    "sign",
    "trace_bytes",
    "verify",
    "write_trace",
]
