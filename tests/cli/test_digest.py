"""`cvm digest`, `--expect-digest` and `--signer`."""

import hashlib

import numpy as np
import pytest

from cvm.audit import load_receipt, read_trace
from cvm.program.commitments import tensor_root
from tests.api import small

RUN = ("run", "negated.cvm", "-i", "reals.npy")


def test_every_file_has_the_identity_that_is_computed_from_it(cvm, files):
    made = (*RUN, "--receipt", "r.receipt", "--codes", "-o", "out.npz")
    assert cvm(*made).code == 0
    np.save("one.npy", np.load("reals.npy")[:1])
    assert cvm("run", "negated.cvm", "-i", "one.npy", "--trace-file", "t.trace").code == 0
    document = cvm("digest", "negated.cvm", "r.receipt", "t.trace", "codes.npy", "out.npz", "--json").document
    with np.load("out.npz") as arrays:
        outputs = {name: tensor_root(arrays[name]).hex() for name in arrays}
    assert [(item["kind"], item["member"], item["digest"]) for item in document["files"]] == [
        ("program", None, small.negated().digest),
        ("receipt", None, load_receipt("r.receipt").id),
        ("trace", None, read_trace("t.trace").root.hex()),
        ("tensor", None, tensor_root(np.arange(12, dtype=np.int32).reshape(2, 2, 3)).hex()),
        *(("tensor", name, root) for name, root in outputs.items()),
    ]
    people = cvm("digest", "negated.cvm", "out.npz").out
    assert people.splitlines()[0] == f"{small.negated().digest}  program  negated.cvm"
    assert f"{outputs['y']}  tensor  out.npz:y\n" in people


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("reals.npy", "expected integers that int32 holds, found an array of float64"),
        ("wide.npy", "expected integers that int32 holds, found an array of int64"),
        ("text.txt", "expected a program, a receipt, a trace, or an array"),
        ("nothing.cvm", "cannot be read"),
        (".", "found a folder"),
        ("short.cvm", "short.cvm"),
    ],
)
def test_what_has_no_identity_is_3(cvm, files, file, words):
    np.save("wide.npy", np.array([2**40]))
    (files / "short.cvm").write_bytes((files / "negated.cvm").read_bytes()[:-1])
    outcome = cvm("digest", file)
    assert outcome.code == 3
    assert words in outcome.err


def test_a_run_of_another_program_than_expected_ends_before_it_begins(cvm, files):
    digest = small.negated().digest
    for command in (RUN, ("check", *RUN[1:], "--executors", "formal,numpy")):
        assert cvm(*command, "--expect-digest", digest).code == 0
        other = cvm(*command, "--expect-digest", hashlib.sha256(b"").hexdigest())
        assert (other.code, other.out) == (1, "")
        assert f"found {digest} [program.digest]" in other.err
        assert cvm(*command, "--expect-digest", digest[:12]).code == 3


def test_a_signer_is_demanded_by_key_or_by_file(cvm, files):
    pytest.importorskip("cryptography")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    (files / "key.pem").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = key.public_key().public_bytes_raw().hex()
    (files / "public.pem").write_bytes(key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    (files / "hex.txt").write_text(public + "\n")
    assert cvm(*RUN, "--receipt", "r.receipt").code == 0
    verify = ("receipt", "verify", "r.receipt", "--program", "negated.cvm", "-i", "reals.npy")
    for words in (public, "public.pem", "hex.txt"):
        outcome = cvm(*verify, "--signer", words, "--json")
        assert (outcome.code, outcome.document["answer"]) == (5, "CANNOT_RECOMPUTE")
        assert f"not signed by {public}" in outcome.document["reason"]
    assert cvm("receipt", "sign", "r.receipt", "--key", "key.pem").code == 0
    for words in (public, "public.pem", "hex.txt"):
        assert cvm(*verify, "--signer", words).code == 0
    for wrong in ("key.pem", "text.txt", "nothing.pem", "00ff", "."):
        assert cvm(*verify, "--signer", wrong).code == 3
    folder = files / "folder"
    folder.mkdir()
    (folder / "a.receipt").write_bytes((files / "r.receipt").read_bytes())
    np.savez(folder / "a.npz", image=np.load("reals.npy"))
    many = ("receipt", "verify", "folder", "--program", "negated.cvm", "--jobs", 1)
    assert cvm(*many, "--signer", public).code == 0
    assert cvm(*many, "--signer", "11" * 32).code == 5
