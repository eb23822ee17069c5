"""Trained networks: six that this project trained on real data, and four int8 networks of the field."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer
from cvm.reference import Reference
from tests.frontends.nnef.documents import SHARED, missing

DIGITS, REAL = SHARED / "models" / "digits", SHARED / "models" / "real"


def present(folder: Path, *names: str) -> list[Any]:
    return [name if (folder / name).is_dir() else missing(f"models/{folder.name}/{name}") for name in names]


FEEDFORWARD = present(
    DIGITS, "lenet_digits", "lenet_digits_qdat", "lenet_digits_logw", "mobilenet_digits", "mlp_cancer"
)
RECURRENT = present(DIGITS, "rnn_digits")


def array(model: str, name: str) -> Any:
    return np.load(DIGITS / model / name)


def step(graph: QuantizedGraph, name: str) -> float:
    quantizer = graph.tensors[name].quantizer
    assert isinstance(quantizer, LinearQuantizer)
    return float(quantizer.scale[0])


def check_trace(model: str, found: Mapping[str, Any]) -> None:
    """Every tensor of sample 0, but for the float32 storage of ranges."""
    with np.load(DIGITS / model / "trace_sample0_pseudoquant.npz") as trace:
        assert set(trace.files) == set(found)
        for name in trace.files:
            np.testing.assert_allclose(found[name], trace[name], rtol=0, atol=1e-6, err_msg=name)


@pytest.mark.parametrize("model", FEEDFORWARD)
def test_float_outputs(model: str) -> None:
    reference = Reference(nnef.load(DIGITS / model, quant=False))
    found = reference.run({reference.graph.inputs[0]: array(model, "test_inputs.npy")})["probs"]
    found, expected = found.reshape(len(found), -1), array(model, "float_probs.npy")
    if model == "lenet_digits_qdat":  # its expectations belong to the weights before they were stored as codes
        assert (found.argmax(axis=1) == expected.argmax(axis=1)).mean() > 0.99
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7)


@pytest.mark.parametrize("model", FEEDFORWARD)
def test_pseudo_quantised_outputs_are_the_same_codes(model: str) -> None:
    graph = nnef.load(DIGITS / model)
    reference = Reference(graph, pseudo_quantize=True)
    found = reference.run({graph.inputs[0]: array(model, "test_inputs.npy")})["probs"]
    expected = array(model, "pseudoquant_probs.npy")
    np.testing.assert_allclose(found.reshape(expected.shape), expected, rtol=0, atol=step(graph, "probs") / 1000)


@pytest.mark.parametrize("model", FEEDFORWARD)
def test_every_tensor_of_the_first_sample(model: str) -> None:
    graph = nnef.load(DIGITS / model)
    name = graph.inputs[0]
    first = array(model, "test_inputs.npy")[0].reshape(graph.tensors[name].shape)
    check_trace(model, Reference(graph, pseudo_quantize=True).run({name: first}, "all"))


@pytest.mark.parametrize("model", RECURRENT)
def test_eight_cycles_of_the_recurrent_network(model: str) -> None:
    rows = array(model, "test_inputs.npy")[:, :, None, :]  # samples, cycles, and the external's [1,8]
    found = Reference(nnef.load(DIGITS / model, quant=False)).run_cycles({"row": rows})["probs"]
    np.testing.assert_allclose(found[:, -1, 0], array(model, "float_probs.npy"), rtol=0, atol=1e-7)
    graph = nnef.load(DIGITS / model)
    reference = Reference(graph, pseudo_quantize=True)
    codes = reference.run_cycles({"row": rows})["probs"][:, -1, 0]
    expected = array(model, "pseudoquant_probs.npy")
    np.testing.assert_allclose(codes, expected, rtol=0, atol=step(graph, "probs") / 1000)
    for row in rows[0]:
        last = reference.run({"row": row}, "all")
    check_trace(model, last)


@pytest.mark.sweep
@pytest.mark.parametrize("model", present(REAL, "hello_world", "micro_speech", "person_detect", "mobilenet_v2"))
def test_int8_networks_give_the_exact_codes(model: str) -> None:
    graph = nnef.load(REAL / model)
    with np.load(REAL / model / "expected.npz") as expectations:
        inputs, expected = expectations["input"][:2], expectations["nnef_exact"][:2]
    (name,), (output,) = graph.inputs, graph.outputs
    reference = Reference(graph, pseudo_quantize=True)
    found = reference.run({name: inputs.reshape(2, *graph.tensors[name].shape)})[output].reshape(expected.shape)
    quantizer = graph.tensors[output].quantizer
    assert isinstance(quantizer, LinearQuantizer)
    codes = (found - float(quantizer.offset[0])) / float(quantizer.scale[0])
    np.testing.assert_allclose(codes, expected, rtol=0, atol=1e-3)
