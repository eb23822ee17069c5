"""What a whole game costs both sides, on a chain with exact gas."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

if find_spec("eth_tester") is None:
    pytest.skip("the extra chain is not installed", allow_module_level=True)

import cvm
from cvm.program.verifier import verify
from tests.audit.dispute.games import MODELS
from tools.chain_costs import measured


@pytest.mark.long
@pytest.mark.parametrize(("name", "most"), [("demo", 2_000_000), ("real/mobilenet_v2", 6_000_000)])
def test_a_whole_game_costs_both_sides_at_most(name, most):
    """The ops that read most are among those that the liar changes; one game takes as many rounds as any can."""
    if not MODELS[name].is_dir():
        pytest.skip("the models are not here (../shared)")
    found = measured(verify(cvm.compile(MODELS[name])), 2, with_longest=True)
    assert 0 < max(gas for gas, _, _ in found["games"]) <= most
    assert max(rounds for _, rounds, _ in found["games"]) == found["most_rounds"]
