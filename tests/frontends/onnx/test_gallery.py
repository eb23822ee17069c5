"""Networks of others: float ones become programs, with state where they have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm.frontends import onnx as front
from cvm.quantizing import decibels, random_inputs

GALLERY = Path(__file__).resolve().parents[4] / "shared" / "gallery"
SILERO: dict[str, Any] = {"input_shapes": {"input": (1, 576)}, "states": {"state": "stateN"}}
NETWORKS = [
    pytest.param("silero/silero_vad_16k_op15", SILERO, 10, marks=pytest.mark.slow),
    pytest.param("ultraface/version-slim-320_simplified", {}, 25, marks=pytest.mark.long),
    pytest.param("ultraface/version-RFB-320", {}, 40, marks=pytest.mark.long),
    pytest.param("magika/standard_v3_3", {}, 25, marks=pytest.mark.long),
]


def found(name: str) -> Path:
    file = GALLERY / f"{name}.onnx"
    if not file.is_file():
        pytest.skip(f"../shared/gallery/{name}.onnx is not there")
    return file


@pytest.mark.parametrize(("name", "wishes", "least"), NETWORKS)
def test_float_networks_of_the_gallery_become_programs(name: str, wishes: dict[str, Any], least: float) -> None:
    """Random data: the noise of every output is at most so many decibels below it, on two executors alike."""
    file = found(name)
    graph = front.load(file, wishes.get("input_shapes"), floats=True, states=wishes.get("states")).graph
    cycles = "states" in wishes
    data = random_inputs(graph, 12 if cycles else 1, 0)
    made = cvm.quantize_program(file, data, **wishes)
    ratios = decibels(made, data, cycles=cycles)
    assert min(ratio for ratio in ratios.values() if ratio is not None) > least, ratios
    results = [cvm.Session(made.program, name).run(data, cycles=cycles) for name in ("numpy", "native")]
    for output in made.program.outputs:
        np.testing.assert_array_equal(results[0][output.name], results[1][output.name])
