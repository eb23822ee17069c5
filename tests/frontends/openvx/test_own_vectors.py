"""The vectors of this folder: what each kernel gives, and what the independent model gives."""

from __future__ import annotations

import json

import numpy as np
import pytest

from tests.frontends.openvx.cases import DTYPES, Case
from tests.frontends.openvx.draws import DRAWS
from tests.frontends.openvx.vectors import EACH, FORMATS, PATH, drawn

VECTORS = json.loads(PATH.read_text(encoding="utf-8"))


def test_the_model_gives_the_vectors() -> None:
    assert json.loads(json.dumps(drawn())) == VECTORS


@pytest.mark.sweep
@pytest.mark.parametrize("kernel", DRAWS)
def test_every_kernel_gives_its_vectors(kernel: str) -> None:
    cases = [case for case in VECTORS if case["kernel"] == kernel]
    assert len(cases) == EACH * len(FORMATS)
    for case in cases:
        fmt, wanted = case["format"], np.array(case["outputs"])
        names = [name for name in case if name not in ("kernel", "format", "params", "outputs")]
        arrays = {name: np.array(case[name], DTYPES[fmt]) for name in names}
        assert np.array_equal(Case(kernel, fmt, case["params"], arrays, wanted.shape).result(), wanted), case
