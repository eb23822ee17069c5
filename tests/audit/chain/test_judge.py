"""The judge on a chain gives the verdicts of the judges in Python, names the same faults, and costs what it may."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

import cvm
from cvm.audit.chain.judges import FAMILIES
from cvm.audit.dispute import decode_proof, encode_proof, verify_step
from cvm.program import verify
from cvm.program.preimage import i64, listed, shape, text, u8, u32
from cvm.standalone.verify_step import judged
from tests.audit.dispute.games import MODELS, ROOT, op_programs, vector_programs
from tools import build_contracts, contract_judge
from tools.dispute_costs import evidence_of, language_program, narrow_program, wide_program
from tools.fuzz.mutation import mutate_bytes
from tools.fuzz.step_mutants import whole
from tools.fuzz.steps import make

pyrevm = pytest.importorskip("pyrevm", reason="the EVM of the tests is not installed (pip install pyrevm)")

STEPS = sorted((ROOT / "spec_vectors" / "steps").glob("*.step"))
MOST_GAS = 900_000
"""Of a transaction that proves a step of any model."""
GAS_BY_BYTE = 320
"""A judgement of any bytes whatsoever takes at most MOST_GAS and this for each byte."""
CONTRACT_BYTES = 24_576
"""The most code of a contract (EIP-170)."""
QUICK = ("demo", "digits/mlp_cancer", "real/hello_world")


@cache
def contract() -> contract_judge.ContractJudge:
    return contract_judge.ContractJudge()


def in_python(data: bytes) -> tuple[bool, str]:
    """The verdict of the judge that stands alone, and the kind of fault."""
    accepted, words = judged(data)
    return accepted, "" if accepted else words[words.rindex("[") + 1 : -1]


def on_chain(data: bytes) -> tuple[bool, str]:
    verdict = contract().verdict(data)
    assert verdict.gas <= MOST_GAS + GAS_BY_BYTE * len(data)
    assert verdict.accepted == (verdict.reason == "")
    assert verdict.accepted or not any(map(any, verdict.about))
    return verdict.accepted, verdict.reason


@pytest.mark.parametrize("path", STEPS, ids=lambda path: path.stem)
def test_every_vector_has_the_verdict_and_the_fault_of_python(path):
    data = path.read_bytes()
    assert on_chain(data) == in_python(data)
    proof = decode_proof(data) if not path.stem.startswith("refused_") else None
    if proof is not None:
        assert verify_step(proof.claim, proof.witness).accepted
        assert on_chain(data) == (True, "")


def test_an_accepted_proof_is_said_to_be_about_what_its_claim_says():
    data = (ROOT / "spec_vectors/steps/non_max_suppression_2_between.step").read_bytes()
    claim = decode_proof(data).claim
    program, head, partials, auxiliaries, *numbers = contract().verdict(data).about
    op, target, element, step, steps, after = (int.from_bytes(word, "big", signed=True) for word in numbers)
    assert (head, partials) == (claim.head, claim.partials)
    assert (op, target, element, step) == (claim.op, claim.target, claim.element, claim.step)
    assert steps == claim.element % decode_shape(data)[1] + 1  # `kept` of rank p takes p + 1 steps
    assert after == decode_proof(data).witness.partial_after
    words = judged(data)[1]
    assert re.search(rf"program +{program.hex()}\n", words)
    assert auxiliaries != bytes(32)


def decode_shape(data: bytes) -> tuple[int, ...]:
    return decode_proof(data).witness.operands[-1].shape


def compare(seed: int, count: int) -> Counter[str]:
    """Compares proofs with damaged bytes, and proofs about changed ops; returns how often a fault had another name."""
    names: Counter[str] = Counter()
    for number in range(count):
        data = make(random.Random(f"{seed}.{number}"))
        expected, found = in_python(data), on_chain(data)
        assert found[0] == expected[0], (seed, number, expected, found)
        names["another" if found != expected else "same"] += 1
    return names


def test_damaged_proofs_have_the_verdict_of_python():
    names = compare(random.randrange(2**30), 400)
    assert names["another"] <= 8


@pytest.mark.long
def test_twenty_thousand_damaged_proofs_have_the_verdict_of_python():
    """A program that no verifier passed can break two rules at once: then the judges may name either."""
    names = compare(21, 20_000)
    assert names["another"] <= 200


@pytest.mark.parametrize("count", [100, pytest.param(4_000, marks=pytest.mark.long)])
def test_a_proof_of_a_valid_program_with_damaged_bytes_has_the_same_fault(count):
    files = [path.read_bytes() for path in STEPS]
    for number in range(count):
        random_ = random.Random(f"bytes.{number}")
        data = mutate_bytes(random_, random_.choice(files), random_.choice((1, 1, 2, 4)))
        assert on_chain(data) == in_python(data), number


def test_bytes_that_are_no_proof_get_a_verdict():
    data = STEPS[0].read_bytes()
    cases = [b"", b"\0", data[:16], data[:32], data + b"\0", bytes(10_000), b"\xff" * 10_000, b"cvm1:step-proof\0" * 9]
    for case in [*cases, *(data[:end] for end in range(0, len(data), 97))]:
        accepted, kind = on_chain(case)
        assert not accepted
        assert (accepted, kind) == in_python(case)


def test_a_proof_longer_than_the_limit_is_refused_unread():
    assert on_chain(bytes(2**20 + 1)) == (False, "proof_bytes")


@pytest.mark.parametrize("name", ["dense_0_first", "relu_0_last", "refused_false_step"])
def test_want_of_gas_is_never_a_verdict(name):
    """Whoever sends a proof chooses the gas: too little of it must not look like a refusal, nor change the fault."""
    data = (ROOT / f"spec_vectors/steps/{name}.step").read_bytes()
    enough = contract().verdict(data)
    failed = 0
    for share in range(20, 108, 4):
        try:
            verdict = contract().verdict(data, enough.gas * share // 100)
        except RuntimeError:
            failed += 1
        else:
            assert (verdict.accepted, verdict.reason) == (enough.accepted, enough.reason), share
    assert failed > 10


def hostile_proofs() -> dict[str, bytes]:
    """Proofs that are long lists of the smallest parts; the record of the op is in a program of its own."""
    proof = decode_proof((ROOT / "spec_vectors/steps/relu_0_last.step").read_bytes())
    witness, operand = proof.witness, proof.witness.operands[0]

    def about(record: bytes) -> bytes:
        return encode_proof(whole(replace(proof, witness=replace(witness, record=record))))

    begin, inputs = b"cvm1:op\0" + text("relu"), listed([u32(0)]) + u32(1)
    opened = tuple(replace(operand, position=number, leaves=(), path=()) for number in range(300))
    leaves = (replace(operand, leaves=tuple((number, b"1") for number in range(3_000))),)
    return {
        "attributes": about(begin + listed([text("") + u8(0) + u8(0)] * 3_000) + inputs + listed([])),
        "outputs": about(begin + listed([]) + inputs + listed([text("") + shape((1,)) + i64(0) + i64(0)] * 1_000)),
        "operands": encode_proof(replace(proof, witness=replace(witness, operands=opened))),
        "leaves": encode_proof(replace(proof, witness=replace(witness, operands=leaves))),
        "text": encode_proof(replace(proof, witness=replace(witness, limits="é" * 20_000))),
    }


@pytest.mark.parametrize("name", ["attributes", "outputs", "operands", "leaves", "text"])
def test_the_gas_of_hostile_lists_grows_with_their_bytes(name):
    data = hostile_proofs()[name]
    accepted, _ = on_chain(data)
    assert not accepted
    assert not in_python(data)[0]


def require_judged(true: object, elements: int) -> set[str]:
    """All proofs are accepted by all judges, within the gas; returns the names of the ops."""
    seen = set()
    for op, data in contract_judge.proofs_of(true, elements):
        verdict = contract().verdict(data)
        assert (verdict.accepted, verdict.reason) == in_python(data) == (True, "")
        assert verdict.gas <= MOST_GAS, (op, verdict.gas)
        seen.add(op)
    return seen


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MODELS]
)
def test_every_layer_of_a_model_is_judged_within_the_gas(name):
    if not MODELS[name].is_dir():
        pytest.skip("the models are not here (../shared)")
    true = evidence_of(verify(cvm.compile(MODELS[name])))
    assert require_judged(true, 0 if name in QUICK else 1) == {node.op for node in true.program.program.nodes}


@pytest.mark.long
def test_every_op_and_every_program_of_the_vectors_is_judged_within_the_gas():
    for true in (*op_programs().values(), *vector_programs().values()):
        require_judged(true, 1)


@pytest.mark.long
@pytest.mark.parametrize("program", [wide_program, language_program])
def test_awkward_shapes_are_judged_within_the_gas(program):
    require_judged(evidence_of(verify(program())), 2)


def test_long_thin_boxes_are_judged_within_the_gas():
    """The cost of a row or of a channel must not be paid for each of 256 elements."""
    require_judged(evidence_of(verify(narrow_program())), 0)


def test_a_proof_must_be_the_true_one():
    """The partial after a step is changed, and committed to: everything but the step is right."""
    for path in STEPS[::7]:
        if path.stem.startswith("refused_"):
            continue
        proof = decode_proof(path.read_bytes())
        witness = replace(proof.witness, partial_after=proof.witness.partial_after + 1)
        data = encode_proof(whole(replace(proof, witness=witness)))
        if in_python(data)[0]:  # `whole` has computed the true partial again
            assert decode_proof(data).witness.partial_after == proof.witness.partial_after
        assert on_chain(data) == in_python(data)


# What was compiled


def test_the_artifacts_are_of_their_sources():
    assert build_contracts.stale(["StepJudge", *FAMILIES]) == []


@pytest.mark.parametrize("name", ["StepJudge", *FAMILIES])
def test_a_contract_fits_and_has_no_storage(name):
    item = build_contracts.artifact(name)
    assert len(item["deployedBytecode"]) // 2 <= CONTRACT_BYTES
    opcodes = set(operations(bytes.fromhex(item["deployedBytecode"])))
    forbidden = {0x54, 0x55, 0x5C, 0x5D, 0xF0, 0xF1, 0xF2, 0xF4, 0xF5, 0xFF, 0x32, 0x33}
    assert not opcodes & forbidden, "storage, a call that changes something, or a look at who asks"


def operations(code: bytes) -> list[int]:
    """The operations of a contract's code, without what PUSH carries."""
    found, place = [], 0
    while place < len(code):
        found.append(code[place])
        place += 1 + (code[place] - 0x5F if 0x60 <= code[place] <= 0x7F else 0)
    return found


@pytest.mark.long
@pytest.mark.skipif(build_contracts.compiler() is None, reason="solc is not installed (tools/build_contracts.py)")
def test_the_compiler_gives_the_bytecode_again():
    command = [sys.executable, "tools/build_contracts.py", "--compare", "StepJudge", *FAMILIES]
    assert subprocess.run(command, cwd=ROOT, check=False).returncode == 0
