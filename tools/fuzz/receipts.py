"""Fuzzer of receipts and traces: those of the test vectors, with damaged bytes or parts of their tree.

    python -m tools.fuzz.receipts --count 100000 --seed 1

A receipt or trace that is decoded must encode to the same bytes. A receipt of a program that has a vector is also
verified with it: if its claim differs from the true one, it must not be reproduced. The same holds for a trace of such
a program, verified with its receipt.
"""

from __future__ import annotations

import random
import sys
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.audit import (
    Recorder,
    Trace,
    decode_receipt,
    decode_trace,
    encode_receipt,
    encode_trace,
    verify,
)
from cvm.program import VerifiedProgram, decode
from cvm.program import verify as verify_program
from cvm.session import Session
from cvm.vectors.format import ProgramCase, VectorTensor
from cvm.vectors.format import decode as decode_vectors
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import changed_file

__all__ = ["FUZZER"]

Array: TypeAlias = npt.NDArray[Any]

_VECTORS = Path(__file__).parents[2] / "spec_vectors"
_MAGIC = b"\x93\xabcvm-receipt"


@lru_cache(maxsize=1)
def _subjects() -> dict[bytes, tuple[VerifiedProgram, dict[str, Array], bytes]]:
    """Programs by digest, each with the inputs of all its runs and its true receipt."""
    found = {}
    for path in sorted(_VECTORS.glob("receipts/*.receipt")):
        (case,) = decode_vectors((_VECTORS / "programs" / f"{path.stem}.msgpack").read_bytes()).cases
        assert isinstance(case, ProgramCase)
        inputs = {name: np.stack([_array(run.inputs[name]) for run in case.runs]) for name in case.runs[0].inputs}
        found[bytes.fromhex(case.digest)] = (verify_program(decode(case.program)), inputs, path.read_bytes())
    return found


def _array(tensor: VectorTensor) -> Array:
    return np.frombuffer(tensor.data, "<i4").reshape(tensor.shape)


@lru_cache(maxsize=1)
def _files() -> tuple[bytes, ...]:
    receipts = [data for *_, data in _subjects().values()]
    return (*receipts, *map(encode_trace, (trace for traces in _traces().values() for trace in traces)))


@lru_cache(maxsize=1)
def _traces() -> dict[bytes, tuple[Trace, ...]]:
    """The true traces of the runs, by the digest of the program."""
    found = {}
    for program, (verified, inputs, _) in _subjects().items():
        recorder = Recorder(verified, keep_traces=True)
        Session(verified, "numpy").run(inputs, codes=True, cycles=bool(verified.program.state), witness=recorder)
        found[program] = recorder.traces
    return found


def make(random_: random.Random) -> bytes:
    """A receipt or a trace with damaged bytes, or written again after one part was changed."""
    return changed_file(random_, random_.choice(_files()))


def examine(case: bytes) -> str:
    """Decode a receipt or a trace, and verify a receipt of a known program."""
    if not case.startswith(_MAGIC):
        trace = decode_trace(case)
        assert encode_trace(trace) == case, "a trace does not encode to the bytes that it was decoded from"
        return _examine_trace(trace)
    receipt = decode_receipt(case)
    assert encode_receipt(receipt) == case, "a receipt does not encode to the bytes that it was decoded from"
    if receipt.claim.program not in _subjects():
        return "valid, of an unknown program"
    verified, inputs, true = _subjects()[receipt.claim.program]
    expected = decode_receipt(true).claim
    assert (expected.id() == receipt.claim.id()) == (expected == receipt.claim), "two claims have one id"
    cycles = bool(verified.program.state)
    verdict = verify(replace(receipt, signatures=()), verified, inputs, cycles=cycles, codes=True, executor="numpy")
    untraced = replace(expected, runs=tuple(replace(run, trace=None) for run in expected.runs))
    is_true = receipt.claim in (expected, untraced)
    assert (verdict.answer == "REPRODUCED") == is_true, f"{verdict.answer}, though it is {is_true}"
    return f"valid, {verdict.answer}"


def _examine_trace(trace: Trace) -> str:
    if trace.program not in _subjects():
        return "valid trace of an unknown program"
    verified, inputs, true = _subjects()[trace.program]
    cycles = bool(verified.program.state)
    verdict = verify(
        decode_receipt(true), verified, inputs, traces=[trace], cycles=cycles, codes=True, executor="numpy"
    )
    is_true = trace in _traces()[trace.program]
    assert (verdict.answer == "REPRODUCED") == is_true, f"{verdict.answer}, though it is {is_true}"
    return f"valid trace, {verdict.answer}"


FUZZER = Fuzzer("tools.fuzz.receipts", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
