"""The 74 conformance cases of Khronos: outputs and statistics of float32 implementations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.frontends import nnef
from cvm.frontends.nnef.reference import Reference, statistics
from cvm.frontends.nnef.reference.registry import Array
from tests.frontends.nnef.documents import SHARED, missing

FOLDER = SHARED / "nnef" / "khronos_cts"
CASES: list[Any] = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else [missing("nnef/khronos_cts")]


def stored(path: Path) -> Array:
    """The items of a tensor file; a file that is none is skipped by name."""
    data = path.read_bytes()
    if not data.startswith(b"N\xef"):
        pytest.skip(f"{path.parent.name}/{path.name} of the shared folder is not a tensor file")
    return nnef.read_tensor(data).data.values


@pytest.fixture(params=CASES, ids=lambda case: getattr(case, "name", "missing"))
def case(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


def inputs_of(folder: Path, reference: Reference) -> dict[str, Array]:
    return {name: stored(folder / f"{name}.dat") for name in reference.graph.inputs}


def test_there_are_74_cases() -> None:
    if FOLDER.is_dir():
        assert len(CASES) == 74


def test_outputs_are_those_of_the_case(case: Path) -> None:
    reference = Reference(nnef.load(case))
    found = reference.run(inputs_of(case, reference))
    for name, array in found.items():
        expected = stored(case / f"{name}.dat")
        assert array.shape == expected.shape
        # 1e-4, and the precision of float32 where numbers are large (mnist: up to 6,600).
        tolerance = max(1e-4, 1e-6 * float(np.abs(expected).max()))
        np.testing.assert_allclose(array, expected, rtol=0, atol=tolerance)


def test_statistics_are_those_of_the_case(case: Path) -> None:
    path = case / "graph.stats"
    if not path.is_file():
        pytest.skip(f"{case.name} has no graph.stats")
    reference = Reference(nnef.load(case))
    found = statistics(reference, inputs_of(case, reference))
    for name, expected in json.loads(path.read_text("utf-8")).items():
        figures = {"min": found[name].min, "max": found[name].max, "mean": found[name].mean, "std": found[name].std}
        assert figures == pytest.approx(expected, abs=1e-4)
