"""The verifier that stands alone, as a program, against receipts of the product."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit import encode_receipt
from cvm.demo import IMAGES, MODEL
from cvm.program import verify
from cvm.session import Session
from tests.audit.examples import SUBJECTS, Subject, subject
from tests.audit.test_verify import claim_mutants

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "verify_receipt.py"
sys.path.append(str(ROOT / "tools"))


def run(*arguments: object) -> tuple[int, str]:
    """The tool's exit code and last line. It runs isolated, so that it could not import cvm if it tried."""
    command = [sys.executable, "-I", "-S", str(TOOL), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.stderr == ""
    return result.returncode, result.stdout.splitlines()[-1]


def written(folder: Path, item: Subject) -> list[object]:
    """Files of a subject: the arguments that verify its receipt."""
    (folder / "r.receipt").write_bytes(encode_receipt(item.receipt()))
    item.verified.program.save(folder / "m.cvm")
    (folder / "in.npz").write_bytes(npz_bytes(dict(item.inputs)))
    result = Session(item.verified).run(item.inputs, cycles=item.cycles)
    (folder / "out.npz").write_bytes(npz_bytes({name: result[name] for name in result}))
    return [folder / "r.receipt", "--program", folder / "m.cvm", "-i", folder / "in.npz"]


@pytest.mark.parametrize("name", SUBJECTS)
def test_a_true_receipt_is_reproduced(tmp_path, name):
    arguments = written(tmp_path, subject(name))
    code, answer = run(*arguments, "--outputs", tmp_path / "out.npz")
    assert (code, answer.startswith("REPRODUCED at level trace: ")) == (0, True)


def test_a_network_is_re_executed(tmp_path):
    import cvm

    with np.load(IMAGES) as data:
        images = data["image"][:2]
    arguments = written(tmp_path, Subject(verify(cvm.compile(MODEL)), {"image": images}))
    assert run(*arguments, "--outputs", tmp_path / "out.npz") == (0, "REPRODUCED at level trace: 2 runs")


@pytest.mark.parametrize("name", SUBJECTS)
def test_no_field_of_a_claim_can_be_changed(name):
    import verify_receipt as tool

    item = subject(name)
    receipt = item.receipt()
    program = tool.decoded(item.verified.program.to_bytes(), "cvm-program")
    assert tool.gas(program) == item.verified.gas
    assert tool.receipt_id(tool.receipt(encode_receipt(receipt))["claim"]) == receipt.claim.id()

    def answer(claim):
        body = tool.receipt(encode_receipt(replace(receipt, claim=claim)))["claim"]
        assert tool.receipt_id(body) == claim.id()
        ends = [{**i, "shape": i["value"]["shape"]} for i in program["inputs"]]
        try:
            given = [np.asarray(item.inputs[i["value"]["name"]]).ravel() for i in program["inputs"]]
            exact = [[x if isinstance(x, int) else tool.Fraction(x) for x in array.tolist()] for array in given]
            inputs = [tool.codes(array, end, len(claim.runs)) for array, end in zip(exact, ends, strict=True)]
            tool.verify(body, program, inputs)
        except tool.Ends as end:
            return end.args[0]
        raise AssertionError("there is always an answer")

    assert answer(receipt.claim) == "REPRODUCED"
    for what, claim in claim_mutants(receipt.claim):
        assert answer(claim) in ("DIVERGED", "CANNOT_RECOMPUTE"), what


def test_the_vectors_of_receipts_are_recomputed():
    count = len(list((ROOT / "spec_vectors" / "receipts").glob("*.receipt")))
    assert count > 10
    assert run("--vectors", ROOT / "spec_vectors") == (0, f"{count} receipts, wrong: []")


def test_a_wrong_vector_is_named(tmp_path):
    for path in ("receipts/argmax.receipt", "programs/argmax.msgpack"):
        (tmp_path / path).parent.mkdir()
        (tmp_path / path).write_bytes((ROOT / "spec_vectors" / path).read_bytes())
    data = (tmp_path / "receipts" / "argmax.receipt").read_bytes()
    place = data.index(b"\xa7outputs\x91\xc4\x20") + 20
    (tmp_path / "receipts" / "argmax.receipt").write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
    assert run("--vectors", tmp_path) == (1, "1 receipts, wrong: ['argmax']")


def test_other_answers_have_their_exit_codes(tmp_path):
    arguments = written(tmp_path, subject("batch"))
    assert run(arguments[0])[0] == 5
    assert run(*arguments[:3]) == (5, "CANNOT_RECOMPUTE at level roots: no inputs are given")
    (tmp_path / "wrong.npz").write_bytes(npz_bytes({"y": np.zeros((3, 2, 3), np.int32)}))
    assert run(*arguments, "--outputs", tmp_path / "wrong.npz")[0] == 1
    (tmp_path / "in.npz").write_bytes(npz_bytes({"image": np.ones((3, 2, 3), np.int8)}))
    assert run(*arguments) == (5, "CANNOT_RECOMPUTE at level roots: run 0 had other inputs")


def test_damaged_files_are_malformed(tmp_path):
    arguments = written(tmp_path, subject("batch"))
    data = (tmp_path / "r.receipt").read_bytes()
    broken = [
        b"",
        data[:-1],
        data + b"\0",
        b"\x93" * 5000,
        data.replace(b"\x01", b"\xcc\x01", 1),
        b"\xdd\xff\xff\xff\xff",
    ]
    for content in broken:
        (tmp_path / "r.receipt").write_bytes(content)
        code, answer = run(*arguments)
        assert (code, answer.startswith("MALFORMED: ")) == (3, True)
    (tmp_path / "r.receipt").write_bytes(data)
    (tmp_path / "m.cvm").write_bytes((tmp_path / "m.cvm").read_bytes()[:-9])
    assert run(*arguments)[0] == 3


def test_it_imports_nothing_but_the_standard_library():
    import ast

    modules = set()
    for file in (TOOL, TOOL.with_name("consume_vectors.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                modules.add(node.module.split(".")[0])
    assert modules - {"consume_vectors"} <= sys.stdlib_module_names
