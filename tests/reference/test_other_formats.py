"""The reference on graphs of ONNX and WebNN: with every quantiser applied it gives the numbers of the exact program."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvm import webnn
from cvm.frontends import onnx
from cvm.lowering import lower
from cvm.reference import OPERATIONS, Reference
from cvm.session import Session
from tools.onnx_networks.lenet import images
from tools.onnx_networks.node_cases import cases, examine

MODELS = Path(__file__).parents[1] / "frontends" / "onnx" / "models"


@pytest.mark.slow
@pytest.mark.sweep
@pytest.mark.parametrize("part", range(3))
def test_node_tests_of_onnx_have_the_same_numbers(part: int) -> None:
    compared = 0
    for case in [*cases()[0], *cases()[1]][part::3]:
        run = examine(case).run
        if run is None:
            continue
        found = Reference(run.graph, pseudo_quantize=True).run(run.feeds)
        for name in run.graph.outputs:
            np.testing.assert_array_equal(found[name].ravel(), run.results.real(name).ravel(), f"{case.name}: {name}")
        compared += 1
    assert compared >= 60


@pytest.mark.sweep
@pytest.mark.parametrize("path", sorted(MODELS.glob("*.onnx")), ids=lambda path: path.stem)
def test_networks_of_onnx_have_the_same_numbers(path: Path) -> None:
    graph = onnx.load(path).graph
    data = {"image": images()[0][:5]}
    result = Session(lower(graph), "numpy").run(data)
    found = Reference(graph, pseudo_quantize=True).run(data)
    (name,) = graph.outputs
    np.testing.assert_allclose(found[name], result.real(name), rtol=1e-12)


def test_the_clipped_model_keeps_what_quantisers_do_in_place_of_a_relu() -> None:
    graph = onnx.load(MODELS / "lenet-qdq-channel-int8.onnx").graph
    data, labels = images()
    reals = Reference(graph, clip=True).run({"image": data}, ["act1", "conv1"])
    assert (reals["probs"].reshape(len(labels), -1).argmax(axis=1) == labels).mean() > 0.95
    assert reals["act1"].min() == 0 > reals["conv1"].min()
    assert len(np.unique(reals["act1"])) > 256  # no number is rounded
    assert Reference(graph).run({"image": data}, ["act1"])["act1"].min() < 0


def test_graphs_of_webnn_have_the_same_numbers() -> None:
    context = webnn.ML().create_context()
    builder = webnn.MLGraphBuilder(context)
    x = builder.input("x", ("int8", [2, 3]))
    scale, zero = (builder.constant(np.full((1, 1), item)) for item in (np.float32(0.125), np.int8(3)))
    real = builder.softmax(builder.dequantize_linear(x, scale, zero), 1)
    whole = builder.abs(x)
    graph = builder.build({"real": builder.quantize_linear(real, scale, zero), "whole": whole})
    data = np.random.default_rng(0).integers(-127, 128, (2, 3)).astype(np.int8)
    given = context.compute(graph, {"x": data})
    found = Reference(graph.quantized_graph, pseudo_quantize=True).run({"x": data.astype(np.int64)})
    for name, item in zip(("real", "whole"), graph.quantized_graph.outputs, strict=True):
        np.testing.assert_array_equal(found[item], given[name], name)


def test_every_operation_that_has_a_real_meaning_is_known() -> None:
    from cvm.lowering import CLAIMS

    tensors = {"external", "variable", "constant"}
    codes = {"lookup", "region_maximum"}  # of OpenVX: defined on raw integers alone
    assert {name.split("(")[0] for name in CLAIMS} - set(OPERATIONS) == tensors | codes
