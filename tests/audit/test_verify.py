"""Verification: what is true is reproduced at every level; no field can be changed without notice."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cvm.audit import LEVELS, Receipt, Run, sign, verify
from cvm.errors import Invalid
from cvm.executors import EXECUTORS
from cvm.program import verify as verify_program
from cvm.session import Session
from tests.api import small
from tests.audit.examples import SUBJECTS, subject

ROOT = bytes(range(32))


def verdict(name: str, receipt: Receipt, **options):
    item = subject(name)
    return verify(receipt, item.verified, item.inputs, cycles=item.cycles, **options, codes=True)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("level", LEVELS)
def test_a_true_receipt_is_reproduced_at_every_level(name, level):
    found = verdict(name, subject(name).receipt(), level=level)
    assert (found.answer, found.level) == ("REPRODUCED", level)


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("trace", [False, True])
def test_by_default_all_that_is_claimed_is_recomputed(name, trace):
    found = verdict(name, subject(name).receipt(trace))
    assert (found.answer, found.level) == ("REPRODUCED", "trace" if trace else "outputs")


@pytest.mark.parametrize("name", SUBJECTS)
def test_formal_judges_samples(name):
    found = verdict(name, subject(name).receipt(), level="formal", sample=2)
    assert (found.answer, found.level) == ("REPRODUCED", "formal")


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("executor", EXECUTORS)
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_claims_are_equal_for_every_executor_and_number_of_threads(name, executor, threads):
    assert subject(name).receipt(executor=executor, threads=threads).claim == subject(name).receipt().claim


def changed_root(root: bytes) -> list[bytes]:
    return [bytes([root[0] ^ 1, *root[1:]]), bytes([*root[:-1], root[-1] ^ 128]), ROOT]


def run_mutants(run: Run):
    """Every single field of a run, changed: each root by itself, a root more, one less, two exchanged."""
    for field in ("inputs", "before", "outputs", "after"):
        roots = getattr(run, field)
        for index, root in enumerate(roots):
            for other in changed_root(root):
                yield f"{field}[{index}]", replace(run, **{field: (*roots[:index], other, *roots[index + 1 :])})
        yield f"{field} and one", replace(run, **{field: (*roots, ROOT)})
        if roots:
            yield f"{field} less one", replace(run, **{field: roots[:-1]})
        if len(set(roots)) > 1:
            yield f"{field} reversed", replace(run, **{field: roots[::-1]})
    if run.trace is not None:
        for other in changed_root(run.trace):
            yield "trace", replace(run, trace=other)
    else:
        yield "trace", replace(run, trace=ROOT)


def claim_mutants(claim):
    for other in changed_root(claim.program):
        yield "program", replace(claim, program=other)
    for op_set in (0, 2, 2**32 - 1):
        yield "op_set", replace(claim, op_set=op_set)
    for limits in ("large", "", "Default", "default\0"):
        yield "limits", replace(claim, limits=limits)
    for gas in (0, claim.gas - 1, claim.gas + 1, 2**63 - 1):
        yield "gas", replace(claim, gas=gas)
    runs = claim.runs
    for number, run in enumerate(runs):
        for what, mutant in run_mutants(run):
            yield f"runs[{number}].{what}", replace(claim, runs=(*runs[:number], mutant, *runs[number + 1 :]))
    yield "a run more", replace(claim, runs=(*runs, runs[-1]))
    if len(runs) > 1:
        yield "a run less", replace(claim, runs=runs[:-1])
        yield "runs reversed", replace(claim, runs=runs[::-1])


@pytest.mark.parametrize("name", SUBJECTS)
@pytest.mark.parametrize("trace", [False, True])
def test_no_field_of_a_claim_can_be_changed(name, trace):
    receipt = subject(name).receipt(trace)
    count = 0
    for what, claim in claim_mutants(receipt.claim):
        assert claim.id() != receipt.claim.id(), what
        found = verdict(name, replace(receipt, claim=claim))
        assert found.answer in ("DIVERGED", "CANNOT_RECOMPUTE"), what
        count += 1
    assert count > 20


def test_the_answer_says_what_is_false():
    receipt = subject("negated").receipt()
    (run,) = receipt.claim.runs

    def answer(**changes):
        claim = replace(receipt.claim, runs=(replace(run, **changes),))
        found = verdict("negated", replace(receipt, claim=claim))
        return found.answer, found.level

    assert answer(outputs=(ROOT, run.outputs[1])) == ("DIVERGED", "outputs")
    assert answer(trace=ROOT) == ("DIVERGED", "outputs")
    assert answer(inputs=(ROOT,)) == ("CANNOT_RECOMPUTE", "roots")
    assert answer(after=(ROOT,)) == ("DIVERGED", "structure")


def test_what_is_missing_cannot_be_recomputed():
    item = subject("negated")
    receipt = item.receipt(trace=False)
    found = verify(receipt, item.verified)
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "roots")
    found = verify(receipt, item.verified, item.inputs, level="trace", codes=True)
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "trace")
    assert verify(receipt, item.verified, level="structure").answer == "REPRODUCED"


def test_another_program_or_another_input_cannot_recompute():
    item = subject("negated")
    other = verify(item.receipt(), verify_program(small.channels()), {"x": np.zeros((1, 3, 2), int)}, codes=True)
    assert (other.answer, other.level) == ("CANNOT_RECOMPUTE", "structure")
    found = verify(item.receipt(), item.verified, {"image": item.inputs["image"] + 1}, codes=True)
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "roots")
    found = verify(item.receipt(), item.verified, {"image": np.stack([item.inputs["image"]] * 2)}, codes=True)
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "roots")


def test_arrays_that_no_run_can_have_are_invalid():
    item = subject("negated")
    with pytest.raises(Invalid) as caught:
        verify(item.receipt(), item.verified, {"image": np.full((1, 2, 3), 256)}, codes=True)
    assert caught.value.code == "input.code"


def test_given_outputs_are_compared_as_codes_and_as_real_numbers():
    item = subject("batch")
    receipt = item.receipt()
    result = Session(item.verified).run(item.inputs, codes=True)
    for outputs in ({"y": result["y"]}, {"y": result.real("y"), "total": result["total"]}, {}):
        assert verdict("batch", receipt, outputs=outputs, level="roots").answer == "REPRODUCED"
    wrong = {
        "a code": result["y"] + (np.arange(result["y"].size) == 3).reshape(result["y"].shape),
        "the smallest difference": np.nextafter(result.real("y"), 2),
        "not a number": np.full_like(result.real("y"), np.nan),
        "too few": result["y"][:-1],
        "too large": result["y"].astype(np.int64) + 2**32,
    }
    for what, array in wrong.items():
        found = verdict("batch", receipt, outputs={"y": array}, level="roots")
        assert (found.answer, found.level) == ("DIVERGED", "roots"), what
    found = verdict("batch", receipt, outputs={"total": result["total"] / 1}, level="roots")
    assert found.answer == "DIVERGED"
    assert verdict("batch", receipt, outputs={"z": result["y"]}).answer == "CANNOT_RECOMPUTE"


def test_a_receipt_may_begin_in_the_middle_of_a_sequence():
    from cvm.audit import Recorder

    verified = verify_program(small.counter())
    session = Session(verified)
    session.run({"step": np.array([[5, 6]])})
    state, recorder = session.state, Recorder(verified, trace=True)
    session.run({"step": np.array([[1, 2]])}, witness=recorder)
    receipt, inputs = recorder.receipt(), {"step": np.array([[1, 2]])}
    found = verify(receipt, verified, inputs)
    assert (found.answer, found.level) == ("CANNOT_RECOMPUTE", "roots")
    for level in LEVELS:
        assert verify(receipt, verified, inputs, state=state, level=level).answer == "REPRODUCED"
    assert verify(receipt, verified, inputs, state=state, level="formal", sample=9).answer == "REPRODUCED"
    for wrong in ({}, {"memory": np.zeros((1, 2))}, {"memory": np.full((1, 2), 2**40)}):
        with pytest.raises(Invalid) as caught:
            verify(receipt, verified, inputs, state=wrong)
        assert caught.value.code.startswith("state.")


# Signatures


@pytest.fixture
def keys():
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    made = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32) for number in range(3)]
    return [key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) for key in made]


def test_a_signature_names_its_signer(keys):
    receipt = subject("negated").receipt()
    for number, key in enumerate(keys):
        receipt = sign(sign(receipt, key), key)
        assert len(receipt.signatures) == number + 1
    found = verdict("negated", receipt)
    assert found.answer == "REPRODUCED"
    assert found.signers == tuple(item.key.hex() for item in receipt.signatures)


def test_no_field_of_a_signed_receipt_can_be_changed(keys):
    receipt = sign(subject("negated").receipt(), keys[0])
    (signature,) = receipt.signatures
    for index in range(64):
        changed = bytearray(signature.signature)
        changed[index] ^= 1
        mutant = replace(receipt, signatures=(replace(signature, signature=bytes(changed)),))
        assert verdict("negated", mutant).answer == "DIVERGED"
    for index in range(32):
        changed = bytearray(signature.key)
        changed[index] ^= 1
        mutant = replace(receipt, signatures=(replace(signature, key=bytes(changed)),))
        assert verdict("negated", mutant).answer == "DIVERGED"
    for what, claim in claim_mutants(receipt.claim):
        found = verdict("negated", replace(receipt, claim=claim), level="structure")
        assert found.answer != "REPRODUCED", what


def test_what_is_no_key_is_refused(keys):
    for pem in (b"", b"-----BEGIN PRIVATE KEY-----\n", b"\xff" * 99, keys[0].replace(b"PRIVATE", b"PUBLIC")):
        with pytest.raises(Invalid) as caught:
            sign(subject("negated").receipt(), pem)
        assert caught.value.code == "sign.key"


def test_without_the_package_a_signed_receipt_is_verified_and_none_is_signed(keys, monkeypatch):
    import sys

    from cvm.errors import Unsupported

    receipt = sign(subject("negated").receipt(), keys[0])
    monkeypatch.setitem(sys.modules, "cryptography", None)
    found = verdict("negated", receipt)
    assert (found.answer, found.level) == ("REPRODUCED", "trace")
    assert found.signers == tuple(item.key.hex() for item in receipt.signatures)
    with pytest.raises(Unsupported, match=r"cvm\[sign\]"):
        sign(receipt, keys[0])
