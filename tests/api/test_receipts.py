"""Receipts from Python: made by a session, kept in files, verified."""

import builtins
from dataclasses import replace

import numpy as np
import pytest

import cvm
from cvm.audit import Judging, sign
from cvm.audit.signatures import is_genuine, public_key
from cvm.errors import CvmError, Invalid, Mismatch
from tests.api import small

IMAGES = np.linspace(0, 1, 18).reshape(3, 1, 2, 3)
FIXED = Judging("c0ffee", 6)


@pytest.fixture
def made():
    return cvm.Session(small.negated(), "numpy").run({"image": IMAGES}, receipt=True)


def test_a_run_leaves_a_receipt_that_anyone_verifies(made, tmp_path):
    assert (len(made.receipt.claim.runs), made.receipt.traced) == (3, False)
    assert made["y"].shape == (3, 1, 2, 3)
    found = cvm.verify(made.receipt, small.negated(), {"image": IMAGES}, judging=FIXED)
    assert (found.answer, found.level) == ("REPRODUCED", "outputs")
    made.receipt.save(tmp_path / "r.receipt")
    small.negated().save(tmp_path / "p.cvm")
    assert cvm.Receipt.load(tmp_path / "r.receipt") == made.receipt
    paths = (tmp_path / "r.receipt", str(tmp_path / "p.cvm"))
    outputs = {name: made[name] for name in made}
    assert cvm.verify(*paths, {"image": IMAGES}, outputs=outputs, judging=FIXED).answer == "REPRODUCED"
    wrong = cvm.verify(*paths, {"image": IMAGES}, outputs=outputs | {"y": made["y"] + 1}, judging=FIXED)
    assert wrong.answer == "DIVERGED"
    assert cvm.verify(*paths, {"image": 1 - IMAGES}).answer == "CANNOT_RECOMPUTE"
    assert cvm.verify(*paths).answer == "CANNOT_RECOMPUTE"
    assert cvm.verify(*paths, level="structure").answer == "REPRODUCED"


def test_a_receipt_is_that_of_its_call_alone(made):
    session = cvm.Session(small.counter(), "numpy")
    first = session.run({"step": [[1, 2]]}, receipt=True).receipt
    second = session.run({"step": [[3, 4]]}, receipt="trace").receipt
    assert session.run({"step": [[3, 4]]}).receipt is None
    assert [len(item.claim.runs) for item in (first, second)] == [1, 1]
    assert first.claim.runs[0].after == second.claim.runs[0].before
    assert (first.traced, second.traced) == (False, True)
    state = {"memory": np.array([[101, 202]], np.int32)}
    assert cvm.verify(second, small.counter(), {"step": [[3, 4]]}, state=state, judging=FIXED).level == "trace"
    with pytest.raises(Invalid, match="give one of the two"):
        session.run({"step": [[1, 1]]}, witness=object(), receipt=True)


def test_codes_have_the_receipt_of_what_they_stand_for(made):
    codes = np.rint(IMAGES * 255).astype(np.uint8)
    same = cvm.Session(small.negated(), "formal").run({"image": codes}, codes=True, receipt=True).receipt
    assert same.id == made.receipt.id
    assert cvm.verify(same, small.negated(), {"image": codes}, codes=True, judging=FIXED).answer == "REPRODUCED"
    with pytest.raises(Invalid, match="codes=True"):
        cvm.verify(same, small.negated(), {"image": codes})


def test_reprs_of_receipts_are_short(made):
    assert len(repr(made.receipt)) < 300
    assert repr(made.receipt).startswith(
        f"Receipt({made.receipt.id}: Claim(3 runs of program {small.negated().digest})"
    )


def test_programs_are_held_against_an_expected_digest(tmp_path):
    small.negated().save(tmp_path / "p.cvm")
    digest = small.negated().digest
    assert cvm.load(tmp_path / "p.cvm", expect_digest=digest.upper()).digest == digest
    with pytest.raises(Mismatch, match=f"p.cvm: expected the program {'0' * 64}, found {digest}"):
        cvm.load(tmp_path / "p.cvm", expect_digest="0" * 64)
    for wrong in (digest[:20], "", 3, b"x"):
        with pytest.raises(Invalid, match="64 hexadecimal digits"):
            cvm.load(tmp_path / "p.cvm", expect_digest=wrong)


@pytest.fixture
def keys():
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    return private, public, key.public_key().public_bytes_raw().hex()


@pytest.fixture
def default_install(monkeypatch):
    """An installation without the package `cryptography`."""
    true = builtins.__import__

    def importing(name, *arguments, **options):
        if name.split(".")[0] == "cryptography":
            raise ImportError(name)
        return true(name, *arguments, **options)

    return lambda: monkeypatch.setattr(builtins, "__import__", importing)


def test_a_default_install_verifies_signatures(made, keys, default_install):
    private, pem, text = keys
    signed = sign(made.receipt, private)
    broken = replace(signed.signatures[0], signature=signed.signatures[0].signature[:-1] + b"\0")
    with_package = [is_genuine(signed.claim, item) for item in (signed.signatures[0], broken)]
    default_install()
    assert [is_genuine(signed.claim, item) for item in (signed.signatures[0], broken)] == with_package == [True, False]
    with pytest.raises(CvmError, match=r"to sign takes the package 'cryptography'"):
        sign(made.receipt, private)
    for key in (pem, text, text.upper()):
        found = cvm.verify(signed, small.negated(), {"image": IMAGES}, signers=[key], judging=FIXED)
        assert (found.answer, found.signers) == ("REPRODUCED", (text,))
    unsigned = cvm.verify(made.receipt, small.negated(), {"image": IMAGES}, signers=[text])
    assert unsigned.answer == "CANNOT_RECOMPUTE"
    assert f"the receipt is not signed by {text}; it is signed by nobody" in unsigned.reason
    other = cvm.verify(signed, small.negated(), {"image": IMAGES}, signers=["00" * 32])
    assert f"it is signed by {text}" in other.reason
    damaged = cvm.verify(replace(signed, signatures=(broken,)), small.negated(), {"image": IMAGES}, signers=[text])
    assert damaged.answer == "DIVERGED"


@pytest.mark.parametrize(
    "text",
    ["", "abc", "0" * 63, "g" * 64, "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----",
     "-----BEGIN PUBLIC KEY-----\n%%%%\n-----END PUBLIC KEY-----",
     "-----BEGIN PUBLIC KEY-----\nMCowBQYDK2VwAyEA\n-----END PUBLIC KEY-----",
     "-----BEGIN PRIVATE KEY-----\nMC4CAQAwBQYDK2VwBCIEIA==\n-----END PRIVATE KEY-----"],
)  # fmt: skip
def test_what_is_no_public_key_is_refused(text):
    with pytest.raises(Invalid, match="expected an Ed25519 public key"):
        public_key(text)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda: cvm.verify(3, small.negated()), "argument.path"),
        (lambda: cvm.verify("no.receipt", small.negated(), {}), None),
        (lambda: cvm.Receipt.load(None), "argument.path"),
    ],
)
def test_wrong_arguments_of_verification_say_what_to_give(call, code):
    with pytest.raises((Invalid, FileNotFoundError)) as caught:
        call()
    assert getattr(caught.value, "code", None) == code


def test_wrong_inputs_and_levels_of_verification_say_what_to_give(made):
    with pytest.raises(Invalid, match="expected arrays by the names of the inputs"):
        cvm.verify(made.receipt, small.negated(), IMAGES)
    with pytest.raises(Invalid, match="expected one of structure, roots, outputs, trace, formal, found 'all'"):
        cvm.verify(made.receipt, small.negated(), {"image": IMAGES}, level="all")
    with pytest.raises(Invalid, match="expected the path of a program, found 3"):
        cvm.verify(made.receipt, 3, {"image": IMAGES})
