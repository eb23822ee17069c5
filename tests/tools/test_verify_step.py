"""The judge that stands alone: the verdicts of the product's, on proofs of every op and on changed ones."""

from __future__ import annotations

import ast
import subprocess
import sys
from itertools import cycle
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from cvm.audit.dispute.judge import verify_step
from cvm.audit.dispute.proof import decode_proof, encode_proof
from cvm.errors import CvmError
from tests.audit.dispute.games import evidence_of, op_programs, small_steps, vector_programs
from tests.audit.dispute.test_judge import mutants, one_proof_of_each_op, proofs_of
from tests.random_programs.strategies import Sample, samples

ROOT = Path(__file__).parents[2]
TOOL = ROOT / "tools" / "verify_step.py"
STEPS = ROOT / "spec_vectors" / "steps"
sys.path.append(str(ROOT / "tools"))

import verify_step as alone  # noqa: E402 - after the path is set


def run(*arguments: object) -> tuple[int, str]:
    """The tool's exit code and what it prints. It runs isolated, so that it could not import cvm if it tried."""
    command = [sys.executable, "-I", "-S", str(TOOL), *map(str, arguments)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, cwd="/")
    assert result.stderr == ""
    return result.returncode, result.stdout


def product_accepts(data: bytes) -> bool:
    try:
        proof = decode_proof(data)
    except CvmError:
        return False
    return verify_step(proof.claim, proof.witness).accepted


def test_it_imports_nothing_but_the_standard_library_and_is_read_in_one_sitting():
    tree = ast.parse(TOOL.read_text("utf-8"))
    modules = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    modules += [str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    assert {name.split(".")[0] for name in modules} <= sys.stdlib_module_names
    assert len([line for line in TOOL.read_text("utf-8").splitlines() if line.strip()]) <= 450


def test_it_judges_the_vectors_as_their_names_say():
    assert run("--vectors", ROOT / "spec_vectors") == (0, f"{len(list(STEPS.glob('*.step')))} proofs, wrong: []\n")
    for path in STEPS.glob("*.step"):
        assert product_accepts(path.read_bytes()) != path.stem.startswith("refused_"), path.stem


def test_it_says_what_a_proof_is_about(tmp_path):
    path = STEPS / "conv2d_0_between.step"
    head = decode_proof(path.read_bytes()).claim.head.hex()
    code, words = run(path, "--head", head)
    assert (code, words.splitlines()[-1]) == (0, "ACCEPTED")
    assert f"head      {head}" in words.splitlines()
    assert run(path, "--head", "00" * 32)[0] == 1
    assert run(STEPS / "refused_false_step.step")[0] == 1
    assert run(tmp_path / "nowhere.step") == (3, "UNREADABLE: No such file or directory\n")
    (tmp_path / "large.step").write_bytes(bytes(2**20 + 1))
    assert run(tmp_path / "large.step")[0] == 1


def test_a_folder_without_proofs_is_none_of_vectors(tmp_path):
    assert run("--vectors", tmp_path) == (1, "0 proofs, wrong: []\n")


def test_true_proofs_of_every_op_are_accepted():
    random = Random(5)
    for true in (*vector_programs().values(), *op_programs().values()):
        for op, proof in proofs_of(true, random):
            assert alone.judged(encode_proof(proof))[0], (op, proof.claim, alone.judged(encode_proof(proof)))


def compare_about_random_programs(programs: int) -> int:
    random, count = Random(6), 0

    @settings(
        max_examples=programs,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(samples())
    def check(sample: Sample) -> None:
        nonlocal count
        for _, proof in proofs_of(evidence_of(sample.program, 0, sample.runs[0]), random, 1):
            data = encode_proof(proof)
            accepted, words = alone.judged(data)
            assert accepted, words
            place = random.randrange(len(data))
            changed = data[:place] + random.randbytes(1) + data[place + 1 :]
            assert alone.judged(changed)[0] == product_accepts(changed) == (changed == data)
            count += 1

    check()
    return count


def test_both_judges_agree_about_random_programs():
    assert compare_about_random_programs(25) >= 100


@pytest.mark.long
def test_both_judges_agree_about_many_random_programs():
    """`python -m pytest -m long tests/tools/test_verify_step.py`"""
    assert compare_about_random_programs(1_000) >= 5_000


def test_no_part_of_a_proof_can_be_changed():
    sampled = cycle(range(7))
    for op, proof in one_proof_of_each_op().items():
        for mutant in mutants(proof):
            if next(sampled):
                continue
            try:
                data = encode_proof(mutant)
            except (ValueError, AttributeError, TypeError):
                continue  # it has no encoding
            assert not alone.judged(data)[0], (op, mutant)


def test_elements_take_as_many_steps_as_in_the_product(monkeypatch):
    """Chunks of another size are refused: the steps are part of the rules."""
    true = vector_programs()["tiny_cnn"]
    small_steps(monkeypatch, 2)
    accepted = [alone.judged(encode_proof(proof))[0] for op, proof in proofs_of(true, Random(7), 1) if op == "conv2d"]
    assert accepted
    assert not any(accepted)
