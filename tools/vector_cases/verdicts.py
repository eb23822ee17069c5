"""From programs to vectors of the verifier's verdicts.

The verdicts are those of `cvm.program.verify`; `tests/independent` has a verifier that shares nothing with it and must
reach the same verdicts. A refused program must be refused with the code that its author expected.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby

from cvm.errors import CvmError
from cvm.ops import REGISTRY
from cvm.program import decode, verify
from cvm.program.encoding import encode
from cvm.program.model import OP_SET
from cvm.vectors.format import VectorFile, VerdictCase
from cvm.vectors.own import accepted
from tools.vector_cases.answers import GENERATOR, VERDICTS
from tools.vector_cases.stream import SEED
from tools.vector_cases.verdict_edges import applied, at_edges, quantisers_at_edges
from tools.vector_cases.verdict_order import refused_in_order
from tools.vector_cases.verdict_programs import (
    Accepted,
    drawn_programs,
    exact_programs,
    example_program,
    network_programs,
    refused_cases,
    resolutions,
)

__all__ = ["verdict_files"]


def verdict_files() -> dict[str, VectorFile]:
    """The files of verdicts by their paths under the folder of vectors."""
    files: dict[str, list[VerdictCase]] = {}
    for family, ops in groupby(REGISTRY, key=lambda op: REGISTRY[op].family):
        files[family] = [case for op in ops for case in _of_op(op)]
    files["quantisers"] = [_judged(*edge) for edge in quantisers_at_edges()]
    files["order"] = [_refused(*refusal) for refusal in refused_in_order()]
    files["programs"] = _accepted(network_programs())
    files["resolution"] = _accepted(resolutions())
    versions = {op.family: op.op_set for op in REGISTRY.values()}
    return {
        f"verdicts/{name}.msgpack": VectorFile(versions.get(name, OP_SET), GENERATOR, SEED, tuple(cases), verdicts=True)
        for name, cases in files.items()
    }


def _of_op(op: str) -> list[VerdictCase]:
    """The example of an op, the op on drawn ranges, what breaks its rules, and the edges of its attributes."""
    found = _accepted([example_program(op), *drawn_programs(op), *exact_programs(op)])
    for item in refused_cases(op):
        assert item.code is not None, "it is a refusal"
        found.append(_refused(f"{op}_{item.name}", item.code, item.aim, applied(op, item)))
    if REGISTRY[op].op_set > 1:
        stated = encode(replace(example_program(op)[2], op_set=1))
        found.append(_refused(f"{op}_op_set", "program.op_set", f"{op} in a program of op-set 1", stated))
    return found + [_judged(*edge) for edge in at_edges(op)]


def _accepted(programs: Iterable[Accepted]) -> list[VerdictCase]:
    cases = []
    for name, aim, program in programs:
        data = program.to_bytes()
        answer = accepted(verify(decode(data)))
        cases.append(VerdictCase(name, aim, data, "value", digest=answer.digest, gas=answer.gas, ranges=answer.ranges))
    return cases


def _refused(name: str, code: str, aim: str, data: bytes) -> VerdictCase:
    try:
        verify(decode(data))
    except CvmError as error:
        if error.code != code:
            raise SystemExit(f"verdict {name}: expected {code}, found {error}") from None
        return VerdictCase(name, aim, data, VERDICTS[type(error)], code)
    raise SystemExit(f"verdict {name}: expected {code}, found a valid program")


def _judged(name: str, code: str, aim: str, data: bytes) -> VerdictCase:
    """The vector of a program: refused with ``code`` or, without one, the verdict of the verifier."""
    if code:
        return _refused(name, code, aim, data)
    try:
        answer = accepted(verify(decode(data)))
    except CvmError as error:
        return VerdictCase(name, aim, data, VERDICTS[type(error)], error.code)
    return VerdictCase(name, aim, data, "value", digest=answer.digest, gas=answer.gas, ranges=answer.ranges)
