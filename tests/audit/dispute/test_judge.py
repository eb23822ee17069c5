"""One-step proofs: true ones are accepted, whatever op they are of; changed in any part, none is."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from cvm.audit.dispute.evidence import Evidence
from cvm.audit.dispute.judge import verify_step
from cvm.audit.dispute.proof import (
    PROOF_BYTES,
    ConstantSource,
    GivenSource,
    ResultSource,
    StepProof,
    decode_proof,
    encode_proof,
)
from cvm.audit.dispute.targets import auxiliary_count
from cvm.errors import CvmError, LimitExceeded, Malformed
from cvm.ops import REGISTRY
from tests.audit.dispute.games import op_programs, small_steps, vector_programs

SEVERAL_NODES = (
    "detection",
    "valid_rows",
    "movements",
    "tiny_cnn",
    "table",
    "powers",
    "argmax",
    "several_terms",
    "depthwise",
)


def proofs_of(true: Evidence, random: Random, most: int = 2) -> Iterator[tuple[str, StepProof]]:
    """Proofs about every target of every op: some elements, the first and the last step and one between."""
    for op, node in enumerate(true.program.program.nodes):
        for target in range(auxiliary_count(node.op) + len(node.outputs)):
            size = true.tensor(op, target).size
            for element in sorted({random.randrange(size) for _ in range(most)}):
                partials = true.partials(op, target, element)
                for step in {0, len(partials) // 2, len(partials) - 1}:
                    yield node.op, true.prove(op, target, element, step, partials)


def judged(proof: StepProof) -> tuple[bool, str]:
    verdict = verify_step(proof.claim, proof.witness)
    return verdict.accepted, verdict.reason


@pytest.mark.parametrize("terms", [256, 2])
def test_true_steps_are_accepted_and_have_one_encoding(monkeypatch, terms):
    small_steps(monkeypatch, terms)
    random, seen = Random(1), set()
    for name, true in (vector_programs() | op_programs()).items():
        for op, proof in proofs_of(true, random):
            data = encode_proof(proof)
            assert decode_proof(data) == proof
            assert judged(proof) == (True, "the step follows"), (name, op, proof.claim)
            seen.add(op)
    assert seen == set(REGISTRY)


# Mutations


def mutants(value: Any) -> Iterator[Any]:
    """All values that differ from this one in one part of it."""
    if value is None:
        yield from (0, 1)
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value + 2**32, -value - 1)
    elif isinstance(value, str):
        yield from (value + "x", value[:-1], value.upper()) if value != value.upper() else (value + "x",)
    elif isinstance(value, bytes):
        yield from (value[:-1], value + b"\0", b"")
        pairs = zip(offsets(len(value)), BITS, strict=False)
        yield from (value[:i] + bytes([value[i] ^ bit]) + value[i + 1 :] for i, bit in pairs)
    elif isinstance(value, tuple):
        yield from ((*value, item) for item in (value[-1:] or (bytes(32),)))
        for i, item in enumerate(value):
            yield value[:i] + value[i + 1 :]
            yield from ((*value[:i], changed, *value[i + 1 :]) for changed in mutants(item))
            if i and value[i - 1] != item:
                yield (*value[: i - 1], item, value[i - 1], *value[i + 1 :])
    elif dataclasses.is_dataclass(value):
        if isinstance(value, (GivenSource, ConstantSource, ResultSource)):
            others = (GivenSource(), ConstantSource("x", ()), ResultSource(0, b"", (), (), ()))
            yield from (other for other in others if type(other) is not type(value))
        for field in dataclasses.fields(value):
            yield from (replace(value, **{field.name: c}) for c in mutants(getattr(value, field.name)))
    else:
        raise AssertionError(f"{type(value)} is not changed")


BITS = (1, 128, 16, 2, 64) * 8


def offsets(size: int) -> list[int]:
    """Some offsets in bytes: ends, tags and what follows, the middle, and a few more."""
    return [index for index in (0, 10, 20, 40, 60, 80, size // 2, size - 5, size - 1) if 0 <= index < size]


@cache
def one_proof_of_each_op() -> dict[str, StepProof]:
    """Of every target of every op: from programs of several nodes where there are any."""
    found: dict[str, StepProof] = {}
    for true in (*(vector_programs()[name] for name in SEVERAL_NODES), *op_programs().values()):
        for op, proof in proofs_of(true, Random(2), 1):
            found.setdefault(f"{op} {proof.claim.target}", proof)
    return found


def test_no_part_of_a_proof_can_be_changed():
    count = 0
    for op, proof in one_proof_of_each_op().items():
        assert judged(proof)[0]
        for mutant in mutants(proof):
            assert mutant != proof
            accepted, _ = judged(mutant)
            assert not accepted, (op, mutant)
            count += 1
    assert count > 5_000


def refused(data: bytes) -> bool:
    try:
        proof = decode_proof(data)
    except CvmError:
        return True
    assert encode_proof(proof) == data
    return not judged(proof)[0]


def test_no_byte_of_a_proof_can_be_changed():
    random = Random(3)
    for proof in one_proof_of_each_op().values():
        data = encode_proof(proof)
        for index in random.sample(range(len(data)), 60):
            assert refused(data[:index] + bytes([data[index] ^ 1 << random.randrange(8)]) + data[index + 1 :])
        index = random.randrange(len(data))
        assert refused(data[:index])
        assert refused(data[:index] + data[index + 1 :])
        assert refused(data[:index] + b"\0" + data[index:])
        assert refused(data + b"\0")


@pytest.mark.long
def test_no_bit_of_any_byte_of_a_proof_can_be_changed():
    """`python -m pytest -m long tests/audit/dispute/test_judge.py`"""
    for proof in one_proof_of_each_op().values():
        data = encode_proof(proof)
        for index in range(len(data)):
            for bit in range(8):
                assert refused(data[:index] + bytes([data[index] ^ 1 << bit]) + data[index + 1 :])


def test_a_false_step_is_not_accepted_whatever_it_gives():
    random = Random(4)
    for op, node in enumerate((true := vector_programs()["detection"]).program.program.nodes):
        for target in range(auxiliary_count(node.op) + len(node.outputs)):
            element = random.randrange(true.tensor(op, target).size)
            partials = true.partials(op, target, element)
            for step in range(len(partials)):
                for wrong in {0, 1, -1, 2**32, partials[step] + 1, -partials[step]} - {partials[step]}:
                    said = [*partials[:step], wrong, *partials[step + 1 :]]
                    accepted, reason = judged(true.prove(op, target, element, step, said))
                    assert not accepted
                    assert "the step gives" in reason


def test_a_step_reads_the_operands_of_its_own_run():
    """The proof of a true step of another run is none of this run."""
    true = vector_programs()["tiny_cnn"]
    name = true.program.program.inputs[0].value.name
    other = Evidence(true.program, true.values | {name: true.values[name] + np.int32(1)})
    for op in range(len(true.program.program.nodes)):
        proof, foreign = (evidence.prove(op, 0, 0, 0) for evidence in (true, other))
        assert not judged(StepProof(proof.claim, foreign.witness))[0]
        assert not judged(StepProof(foreign.claim, proof.witness))[0]


# Hostile bytes


def test_more_than_the_limit_is_not_looked_at():
    with pytest.raises(LimitExceeded):
        decode_proof(bytes(PROOF_BYTES + 1))


def test_lengths_that_promise_too_much_are_refused_before_anything_is_allocated():
    proof = one_proof_of_each_op()["conv2d 0"]
    data = encode_proof(proof)
    for index in range(0, len(data) - 4, 3):
        huge = data[:index] + b"\xff\xff\xff\xff" + data[index + 4 :]
        assert huge == data or refused(huge)
    for size in (0, 1, 15, 16, 17, 40, 100):
        with pytest.raises(Malformed):
            decode_proof(data[:size])
        assert refused(b"cvm1:step-proof\0" + b"\xff" * size)
        assert refused(b"cvm1:step-proof\0cvm1:step-claim\0" + bytes(size * 10))


def records_of_invalid_programs() -> Iterator[tuple[str, dict[str, Any], tuple[tuple[int, ...], ...]]]:
    """Attributes and shapes that no valid program has, but that a hash can commit to."""
    big = 2**63 - 1
    yield "conv2d", {"padding": (0, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 4096}, ((1, 1, 1, 1),) * 2
    yield "conv2d", {"padding": (4096, 0), "stride": (1, 1), "dilation": (1, 1), "groups": 1}, ((1, big, big, big),) * 2
    yield "dense", {}, ((big, big), (big, 1))
    yield "dense", {}, ((1,), (1,))
    yield "sum", {"axes": (7, -8), "keepdims": False, "exclude": False}, ((big, big),)
    yield "max", {"axes": (), "keepdims": False, "exclude": False}, ((big,) * 8,)
    yield (
        "max_pool2d",
        {"pool_size": (4096, 4096), "padding": (0, 0), "strides": (1, 1), "ceil_mode": False},
        ((1,) * 4,),
    )
    yield "reshape", {"target_shape": (2**31 - 1,) * 8}, ((1,),)
    yield "repeat", {"axis": 5, "repeats": 4096}, ((1,),)
    yield "transpose", {"axes": (3, 3, 3)}, ((1, 1, 1),)
    yield "squeeze", {"axes": (9,)}, ((1,),)
    yield "concatenate", {"axis": 99}, ((1, 1),) * 3
    yield "take", {"axis": 77}, ((1,), (1,))
    yield "take", {}, ((1,), (1,))
    yield "tile", {"reps": (4096,) * 8}, ((1,) * 8,)
    yield "get_valid_count", {"score_threshold": 0}, ((1, 1, 1),)
    yield "get_valid_count", {"score_threshold": 0}, ((big, big, big),)
    suppression = {"iou_threshold": 1, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    yield "non_max_suppression", suppression, ((1, 1, 1), (1,))
    yield "requantize", {"rounding": "half_up", "lo": 0, "hi": 0}, ((1,),) * 4
    yield "where", {}, ((1, 1),) * 3
    yield "matmul", {"transpose_a": False, "transpose_b": True}, ((1,), (big, big))
    for terms in (1, 2, 6):  # a divisor of 0, and no divisor
        yield "quotient", {"terms": terms, "rounding": "half_even", "lo": 1, "hi": 0}, ((1,),) * 6
    yield "quotient", {"terms": 6, "rounding": "half_up", "lo": 0, "hi": 0}, ((1,), (big,)) * 10
    rows = {"statistic": "variance", "shift": 62, "rounding": "half_even", "lo": 2**31 - 1, "hi": 1 - 2**31}
    yield "normalize", {**rows, "axes": ()}, ((1,),) * 6
    yield "normalize", {**rows, "axes": (7, -8)}, ((big, big), *((1,),) * 5)
    yield "normalize", {**rows, "axes": (0, 1), "lo": 1 - 2**31, "hi": 2**31 - 1}, ((big, big), *((big,),) * 5)
    yield "normalize", {**rows, "axes": (0,)}, ((2**40,), *((1,),) * 5)
    yield "update_slice", {"axis": 99}, ((1,),) * 3
    yield "update_slice", {"axis": 0}, ((1,), (big, big), (big,))


@pytest.mark.parametrize("number", range(31))
def test_programs_that_no_verifier_passed_cannot_hurt(number):
    """The judge takes programs to be valid ones; about others it says something all the same, and soon."""
    from tests.audit.dispute.hostile import proof_about

    op, attributes, shapes = list(records_of_invalid_programs())[number]
    assert op in REGISTRY
    for target in range(3):
        for element in (0, 1, 2**64 - 1):
            for step in (0, 1, 2**32 - 1):
                assert isinstance(judged(proof_about(op, attributes, shapes, target, element, step))[0], bool)
