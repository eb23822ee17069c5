"""Receipts: claims about runs, in a form that anyone can recompute.

A claim binds a program to roots: for every run, those of its inputs, of the state before it, of its outputs and of the
state after it. It also holds the op-set version, the limits profile, the gas of one run and, if asked for, the root of
the trace. Its hash is the receipt's id. What the host says of itself (executor, version, machine, time) is outside the
claim: the id does not cover it, and it never changes a verdict. ``docs/commitments.md`` gives every byte.

A valid program cannot fail at run time, so a claim has no status: a program that is refused leaves no receipt.

A receipt file is the canonical msgpack (`cvm.program.wire`) of ``["cvm-receipt", 1, receipt]``. The maps mirror the
data classes; a field that is None has no key. A reader refuses bytes that do not encode to themselves again. No digest
is stored: identities are recomputed.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from os import PathLike
from typing import Any

from cvm.arguments import checked_path
from cvm.audit.coding import VERSION, decoded, roots
from cvm.errors import CvmError, Invalid
from cvm.formats import diagnosed, refuse_folder
from cvm.limits import DEFAULT, Limits
from cvm.program.commitments import list_root
from cvm.program.preimage import listed, text, u8, u32, u64
from cvm.program.reading import read_bytes
from cvm.program.wire import Reader, Tree, pack
from cvm.records import dataclass
from cvm.writing import write_file

__all__ = [
    "HASH_BYTES",
    "Claim",
    "Host",
    "Receipt",
    "Roots",
    "Run",
    "Signature",
    "decode_receipt",
    "encode_receipt",
    "load_receipt",
    "save_receipt",
]

HASH_BYTES = 32
KEY_BYTES = 32
SIGNATURE_BYTES = 64

Roots = tuple[bytes, ...]
"""Tensor roots, in the order in which the program declares the tensors."""


def _require_roots(what: str, roots: Sequence[bytes]) -> None:
    for root in roots:
        if len(root) != HASH_BYTES:
            raise Invalid("receipt.root", f"{what}: a root has {HASH_BYTES} bytes, found {len(root)}")


def _require_text(what: str, value: str) -> None:
    try:
        size = len(value.encode("utf-8"))
    except UnicodeEncodeError:
        raise Invalid("receipt.text", f"{what} holds a code point that UTF-8 has no form for") from None
    if size > DEFAULT.name_bytes:
        raise Invalid("receipt.text", f"{what} has {size} bytes; {DEFAULT.name_bytes} are the most")


def _require_integer(what: str, value: int, bits: int) -> None:
    if not 0 <= value < 2**bits:
        raise Invalid("receipt.integer", f"{what} is {value}, not an unsigned integer of {bits} bits")


@dataclass(frozen=True, slots=True)
class Run:
    """The claim about one run. State stands in the order of the program's state, before the run and after it."""

    inputs: Roots
    before: Roots
    outputs: Roots
    after: Roots
    trace: bytes | None = None
    """The root of the trace (`cvm.audit.trace`), if it was taken."""

    def __post_init__(self) -> None:
        for what in ("inputs", "before", "outputs", "after"):
            _require_roots(what, getattr(self, what))
        if self.trace is not None:
            _require_roots("trace", (self.trace,))

    def preimage(self) -> bytes:
        """The record of this run: a leaf of the claim's list."""
        parts = (self.inputs, self.before, self.outputs, self.after)
        traced = u8(0) if self.trace is None else u8(1) + self.trace
        return b"cvm1:run\0" + b"".join(map(listed, parts)) + traced


@dataclass(frozen=True, slots=True, repr=False)
class Claim:
    """The content of a receipt: these runs of this program."""

    program: bytes
    """The digest of the program."""
    op_set: int
    limits: str
    """The name of the limits profile."""
    gas: int
    """The gas of one run."""
    runs: tuple[Run, ...]

    def __post_init__(self) -> None:
        _require_roots("program", (self.program,))
        _require_integer("op_set", self.op_set, 32)
        _require_integer("gas", self.gas, 63)
        _require_text("limits", self.limits)
        if not self.runs:
            raise Invalid("receipt.runs", "a receipt is that of one run or more")

    def __repr__(self) -> str:
        traced = ", traced" if any(run.trace is not None for run in self.runs) else ""
        return f"Claim({len(self.runs)} runs of program {self.program.hex()}{traced})"

    def preimage(self) -> bytes:
        """The bytes that are hashed."""
        runs = list_root([run.preimage() for run in self.runs])
        return b"cvm1:receipt\0" + self.program + u32(self.op_set) + text(self.limits) + u64(self.gas) + runs

    def id(self) -> bytes:
        """The identity of the receipt, recomputed from the claim at each access."""
        return sha256(self.preimage()).digest()


@dataclass(frozen=True, slots=True)
class Host:
    """The facts that a host states about itself: outside the claim, not authenticated, without effect on verdicts."""

    executor: str = ""
    version: str = ""
    machine: str = ""
    time: str = ""

    def __post_init__(self) -> None:
        for what in ("executor", "version", "machine", "time"):
            _require_text(what, getattr(self, what))


@dataclass(frozen=True, slots=True)
class Signature:
    """An Ed25519 signature (RFC 8032) of a claim's id."""

    key: bytes
    """The public key, 32 bytes."""
    signature: bytes

    def __post_init__(self) -> None:
        if len(self.key) != KEY_BYTES or len(self.signature) != SIGNATURE_BYTES:
            sizes = f"{len(self.key)} and {len(self.signature)}"
            message = f"a key has {KEY_BYTES} bytes and a signature {SIGNATURE_BYTES}, found {sizes}"
            raise Invalid("receipt.signature", message)


@dataclass(frozen=True, slots=True, repr=False)
class Receipt:
    """A claim, what the host says of itself, and signatures in ascending order of their keys, one per key."""

    claim: Claim
    host: Host = field(default_factory=Host)
    signatures: tuple[Signature, ...] = ()

    def __post_init__(self) -> None:
        keys = [signature.key for signature in self.signatures]
        if keys != sorted(set(keys)):
            raise Invalid("receipt.signature", "signatures stand in ascending order of their keys, one per key")

    def __repr__(self) -> str:
        return f"Receipt({self.id}: {self.claim!r}, {len(self.signatures)} signatures)"

    @staticmethod
    def load(path: str | PathLike[str]) -> Receipt:
        """The receipt in a file; what it claims is not verified (`cvm.verify`). Raises `CvmError` or OSError."""
        return load_receipt(checked_path(path, "a receipt"))

    def save(self, path: str | PathLike[str]) -> None:
        """Write the receipt to a file, whole or not at all. Raises OSError."""
        save_receipt(checked_path(path, "a file"), self)

    @property
    def id(self) -> str:
        """The identity of the receipt, in hexadecimal."""
        return self.claim.id().hex()

    @property
    def traced(self) -> bool:
        """Whether a run has a trace root."""
        return any(run.trace is not None for run in self.claim.runs)


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


def decode_receipt(data: bytes, limits: Limits = DEFAULT) -> Receipt:
    """The receipt that ``data`` encodes; what it claims is not verified.

    Raises `Malformed` for bytes that are not the canonical bytes of any receipt, `Invalid` for impossible values and
    `LimitExceeded`, each with a code that begins with ``receipt.`` or ``limit.``.
    """
    return decoded(data, "receipt", limits, _receipt, encode_receipt)


def _receipt(reader: Reader) -> Receipt:
    fields = {
        "claim": lambda: _claim(reader),
        "host": lambda: Host(**reader.record(dict.fromkeys(("executor", "machine", "time", "version"), reader.text))),
        "signatures": lambda: reader.array(lambda: _signature(reader)),
    }
    return Receipt(**reader.record(fields))


def _claim(reader: Reader) -> Claim:
    run_fields: Mapping[str, Callable[[], Any]] = {
        **dict.fromkeys(("after", "before", "inputs", "outputs"), lambda: roots(reader)),
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


def load_receipt(path: str | PathLike[str], limits: Limits = DEFAULT) -> Receipt:
    """Read and decode a receipt file. Raises `CvmError` (with the file in its location) or OSError."""
    refuse_folder(path, "a receipt")
    try:
        return decode_receipt(read_bytes(path, limits.receipt_bytes, "receipt"), limits)
    except CvmError as error:
        raise diagnosed(error.at(file=os.fspath(path)), path, "a receipt", ("receipt",)) from None


def save_receipt(path: str | PathLike[str], receipt: Receipt) -> None:
    """Write a receipt file, see `cvm.writing`. Raises OSError."""
    write_file(path, encode_receipt(receipt))
