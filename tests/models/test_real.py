"""Real int8 networks as the Khronos converter writes them: every output code is the document's exact meaning."""

from pathlib import Path

import numpy as np
import pytest

import cvm

REAL = Path(__file__).parents[3] / "shared" / "models" / "real"

INPUTS = {"hello_world": 64, "micro_speech": 8, "person_detect": 4, "mobilenet_v2": 2}
"""How many inputs with exact codes lie beside each network."""


@pytest.mark.skipif(not REAL.is_dir(), reason="../shared/models/real is not there")
@pytest.mark.parametrize("name", INPUTS)
def test_all_outputs_are_exact(name: str) -> None:
    with np.load(REAL / name / "expected.npz") as expected:
        inputs, codes = expected["input"], expected["nnef_exact"]
    assert len(inputs) == INPUTS[name]
    program = cvm.compile(str(REAL / name))
    session = cvm.Session(program)
    (output,) = (item.name for item in program.outputs)
    for given, exact in zip(inputs, codes, strict=True):
        found = session.run({program.inputs[0].value.name: given}, codes=True)[output]
        assert found.ravel().tolist() == exact.ravel().tolist()
    bounds = {item.tensor: item.bound for item in program.provenance.exactness if item.bound}
    assert bounds == {}  # a softmax of four items, or of two, is exact
