"""The scripts of the page in Node: they verify the receipts of the vectors, and refuse every changed receipt."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.audit import Receipt, decode_receipt, encode_receipt
from cvm.export.wasm import module
from cvm.inputs import Intake, arrange
from cvm.program import Output, ProgramBuilder, VerifiedProgram, decode, verify
from cvm.quantization import LinearQuantizer
from cvm.vectors import decode as decode_vectors

ROOT = Path(__file__).parents[2]
RECEIPTS = sorted((ROOT / "spec_vectors" / "receipts").glob("*.receipt"))
pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")


class Verifier:
    """The scripts, in one process of Node."""

    def __init__(self) -> None:
        command = ["node", str(Path(__file__).with_name("verify.mjs"))]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(question) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())


@pytest.fixture(scope="module")
def scripts() -> Iterator[Verifier]:
    found = Verifier()
    yield found
    found.process.communicate()


def text(data: bytes) -> str:
    return base64.b64encode(data).decode()


def question(path: Path) -> tuple[dict[str, Any], Receipt, VerifiedProgram]:
    """What the scripts are asked about a receipt of the vectors."""
    (case,) = decode_vectors((ROOT / "spec_vectors" / "programs" / f"{path.stem}.msgpack").read_bytes()).cases
    verified = verify(decode(case.program))
    runs = [{name: tensor.array().ravel().tolist() for name, tensor in run.inputs.items()} for run in case.runs]
    asked = {
        "receipt": text(path.read_bytes()),
        "program": text(case.program),
        "module": text(module(verified, traced=True).code),
        "runs": runs,
    }
    return asked, decode_receipt(path.read_bytes()), verified


@pytest.mark.parametrize("path", RECEIPTS, ids=lambda path: path.stem)
def test_the_receipts_of_the_vectors_are_reproduced(scripts, path):
    asked, receipt, verified = question(path)
    expected = {"answer": "REPRODUCED", "id": receipt.id, "digest": verified.program.digest, "gas": str(verified.gas)}
    assert scripts.ask(asked) == expected


def changed(receipt: Receipt) -> Iterator[tuple[Receipt, str]]:
    """The receipt with one thing of its claim changed, and the answer to it."""
    claim = receipt.claim

    def flipped(root: bytes) -> bytes:
        return root[:-1] + bytes([root[-1] ^ 1])

    yield replace(receipt, claim=replace(claim, program=flipped(claim.program))), "CANNOT_RECOMPUTE"
    yield replace(receipt, claim=replace(claim, gas=claim.gas + 1)), "DIVERGED"
    yield replace(receipt, claim=replace(claim, limits="large")), "DIVERGED"
    yield replace(receipt, claim=replace(claim, op_set=claim.op_set + 1)), "DIVERGED"
    for number, run in enumerate(claim.runs):
        for part in ("inputs", "before", "outputs", "after"):
            roots = getattr(run, part)
            others = [
                (*roots, bytes(32)),
                *((*roots[:k], flipped(roots[k]), *roots[k + 1 :]) for k in range(len(roots))),
            ]
            for other in others:
                runs = (*claim.runs[:number], replace(run, **{part: other}), *claim.runs[number + 1 :])
                whose = "DIVERGED" if len(other) != len(roots) or part in ("outputs", "after") else "CANNOT_RECOMPUTE"
                yield replace(receipt, claim=replace(claim, runs=runs)), whose
        assert run.trace is not None
        runs = (*claim.runs[:number], replace(run, trace=flipped(run.trace)), *claim.runs[number + 1 :])
        yield replace(receipt, claim=replace(claim, runs=runs)), "DIVERGED"


def test_every_change_of_a_claim_is_noticed(scripts):
    asked, receipt, _ = question(next(path for path in RECEIPTS if path.stem == "accumulator"))
    tried = 0
    for other, answer in changed(receipt):
        assert scripts.ask({**asked, "receipt": text(encode_receipt(other))})["answer"] == answer
        tried += 1
    assert tried > 10


def test_every_changed_byte_of_a_receipt_is_noticed(scripts):
    """But for those of the host's own words, which nobody vouches for."""
    asked, receipt, _ = question(next(path for path in RECEIPTS if path.stem == "tiny_cnn"))
    data = encode_receipt(receipt)
    free = [data.find(word.encode()) for word in (receipt.host.executor, receipt.host.version) if word]
    host = range(data.find(b"host"), data.find(b"signatures"))
    for at in range(0, len(data), 3):
        wrong = data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]
        found = scripts.ask({**asked, "receipt": text(wrong)})
        assert found["answer"] in ("REFUSED", "DIVERGED", "CANNOT_RECOMPUTE") or at in host, (at, found, free)


def test_a_signature_is_checked(scripts, tmp_path):
    cryptography = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.ed25519")
    from cryptography.hazmat.primitives import serialization

    from cvm.audit import sign

    key = cryptography.Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    asked, receipt, _ = question(next(path for path in RECEIPTS if path.stem == "table"))
    signed = sign(receipt, key)
    assert scripts.ask({**asked, "receipt": text(encode_receipt(signed))})["answer"] == "REPRODUCED"
    (item,) = signed.signatures
    wrong = replace(item, signature=item.signature[:40] + bytes([item.signature[40] ^ 1]) + item.signature[41:])
    forged = replace(signed, signatures=(wrong,))
    assert scripts.ask({**asked, "receipt": text(encode_receipt(forged))})["answer"] == "DIVERGED"


@pytest.mark.parametrize("rounding", ["half_up", "half_even", "toward_zero"])
def test_real_numbers_become_the_codes_that_cvm_gives_them(scripts, rounding):
    builder = ProgramBuilder()
    quantizer = LinearQuantizer((Fraction(1, 8),), (Fraction(-3, 16),), -128, 127, rounding=rounding)
    x = builder.input("x", (1, 64), -128, 127, quantizer)
    (y,) = builder.add("negative", [x])
    program = builder.build([Output("y", y)])
    numbers = np.concatenate([np.arange(-30, 30) / 16, [1e300, -1e300, 1e-300, 0.1]]).astype(np.float64)
    ((feed,),) = arrange(program, {"x": numbers[None]}, False, Intake(False))[1]
    found = scripts.ask({"program": text(program.to_bytes()), "elements": numbers.tolist()})
    assert found["codes"] == feed["x"].ravel().tolist()
