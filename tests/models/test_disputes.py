"""One-step proofs of real networks keep within their budgets, for every op and every layer."""

from __future__ import annotations

import sys

import pytest

import cvm
from cvm.audit.dispute import OpenProgram, chunks, largest_proof
from cvm.audit.dispute.targets import auxiliary_count
from cvm.program import verify
from tests.audit.dispute.games import MODELS, ROOT, op_programs

sys.path.append(str(ROOT / "tools"))
from dispute_costs import Cost, costs, evidence_of, language_program, wide_program

PROOF_BYTES = 16 * 2**10
QUICK = ("demo", "digits/mlp_cancer", "real/hello_world")


def require_within_budget(item: Cost, where: object) -> None:
    """At most 256 multiply-adds, 8 leaves of one operand, and 16 KiB.

    `rank` of a suppression compares 256 scores at most with one more, which is read besides.
    """
    assert item.read <= chunks.TERMS + (item.op == "non_max_suppression"), where
    assert item.leaves_of_one <= chunks.LEAVES == 8, where
    assert item.size <= PROOF_BYTES, where


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MODELS]
)
def test_every_layer_of_a_model_is_within_the_budgets(name):
    """All of them: `python -m pytest -m 'long or not long' tests/models/test_disputes.py`."""
    if not MODELS[name].is_dir():
        pytest.skip("the models are not here (../shared)")
    true = evidence_of(verify(cvm.compile(MODELS[name])))
    seen = set()
    for op, target, item in costs(true, 1 if name in QUICK else 6):
        require_within_budget(item, (op, item))
        assert item.size <= largest_proof(true.program, op, target)
        seen.add(op)
    assert seen == set(range(len(true.program.program.nodes)))


def require_bounded(program: OpenProgram) -> None:
    """No step of any element of any target can have a larger proof, whatever the data."""
    for op, node in enumerate(program.program.nodes):
        for target in range(auxiliary_count(node.op) + len(node.outputs)):
            assert largest_proof(program, op, target) <= PROOF_BYTES, (op, node.op, target)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.long) for name in MODELS]
)
def test_no_proof_about_a_model_can_be_larger_than_the_budget(name):
    if not MODELS[name].is_dir():
        pytest.skip("the models are not here (../shared)")
    require_bounded(OpenProgram(cvm.compile(MODELS[name])))


def test_no_proof_about_awkward_shapes_can_be_larger_than_the_budget():
    require_bounded(OpenProgram(wide_program()))


def test_no_proof_about_a_language_model_can_be_larger_than_the_budget():
    require_bounded(OpenProgram(language_program()))


@pytest.mark.slow
def test_the_shapes_of_a_language_model_are_within_the_budgets():
    true = evidence_of(verify(language_program()))
    seen = set()
    for op, target, item in costs(true, 1):
        require_within_budget(item, item)
        assert item.size <= largest_proof(true.program, op, target)
        seen.add(item.op)
    assert seen == {"matmul", "quotient", "normalize", "update_slice", "dense", "sum"}


@pytest.mark.long
def test_awkward_shapes_are_within_the_budgets():
    true = evidence_of(verify(wide_program()))
    for op, target, item in costs(true, 6):
        require_within_budget(item, item)
        assert item.size <= largest_proof(true.program, op, target)


@pytest.mark.parametrize("op", op_programs())
def test_every_op_is_within_the_budgets(op):
    true = op_programs()[op]
    require_bounded(true.program)
    for number, target, item in costs(true, 4):
        require_within_budget(item, item)
        assert item.size <= largest_proof(true.program, number, target)
