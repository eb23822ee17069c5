"""Receipts as test vectors: one for every program that has a vector, of all its runs, with traces.

They are computed by the product's recorder from the tensors of the program's vector, that is, from FORMAL's.
"""

from __future__ import annotations

import numpy as np

from cvm.audit import Recorder, encode_receipt
from cvm.executors import RunResult, initial_state
from cvm.program import decode, verify
from cvm.vectors.format import ProgramCase, VectorFile, VectorTensor

__all__ = ["receipt_files"]


def receipt_files(files: dict[str, VectorFile]) -> dict[str, bytes]:
    """The receipt files by their paths under the folder of vectors, from the vector files."""
    made = {}
    for path, file in files.items():
        case = file.cases[0]
        if isinstance(case, ProgramCase) and case.verdict == "value":
            made[path.replace("programs/", "receipts/").replace(".msgpack", ".receipt")] = _receipt(case)
    return made


def _receipt(case: ProgramCase) -> bytes:
    verified = verify(decode(case.program))
    program = verified.program
    recorder = Recorder(verified, trace=True)
    constants = {constant.name: constant.array() for constant in program.constants}
    state = initial_state(program)
    for run in case.runs:
        feed = {name: _array(tensor) for name, tensor in run.inputs.items()}
        values = feed | {name: _array(tensor) for name, tensor in run.values.items()}
        left = {kept.value.name: {**constants, **values}[kept.update] for kept in program.state}
        observer = recorder.begin(feed, state)
        assert observer.watch is not None
        observer.watch(values)
        recorder.keep([observer.end(RunResult(values, left))])
        state = left
    return encode_receipt(recorder.receipt())


def _array(tensor: VectorTensor) -> np.ndarray:
    return np.frombuffer(tensor.data, "<i4").astype(np.int32).reshape(tensor.shape)
