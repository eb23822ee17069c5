"""Transformers of known architectures, from float ONNX: every tensor against exact arithmetic, on every executor."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cvm
from cvm.agreement import judge
from cvm.executors import create
from cvm.frontends import onnx as front
from cvm.program import verify
from cvm.quantizing import Quantized
from cvm.reference import Reference
from tests.frontends.onnx.exact import dequantised
from tests.frontends.onnx.exact_family import FamilyEvaluator
from tests.frontends.onnx.exact_graph import GraphEvaluator, coded
from tools.onnx_networks.family import FORMS
from tools.onnx_networks.family import quantised as quantised_by_runtime
from tools.onnx_networks.transformers import NETWORKS, SMALL, Size, bert

NORMALISED = {"gpt2": "layer", "llama": "rms", "gemma": "rms", "bert": "layer", "t5": "rms", "vit": "layer",
              "whisper": "layer"}  # fmt: skip
MASKED = ("gpt2", "llama", "gemma", "bert", "t5")


def data(model: onnx.ModelProto, count: int, seed: int = 1) -> dict[str, Any]:
    """Words, masks of padding behind them, normal numbers."""
    random = np.random.default_rng(seed)
    found: dict[str, Any] = {}
    for item in model.graph.input:
        shape = (count, *(extent.dim_value for extent in item.type.tensor_type.shape.dim[1:]))
        if item.name == "mask":
            found[item.name] = (np.arange(shape[1]) < random.integers(2, shape[1] + 1, (count, 1))).astype(np.int64)
        elif item.type.tensor_type.elem_type == onnx.TensorProto.INT64:
            found[item.name] = random.integers(0, 50, shape)
        else:
            found[item.name] = random.normal(size=shape).astype(np.float32)
    return found


def quantised(model: onnx.ModelProto, folder: Path, count: int = 8) -> Quantized:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return cvm.quantize_program(path, data(model, count), op_set=2)


def codes_of(found: Quantized, sample: dict[str, Any]) -> dict[str, Any]:
    """The codes of a sample: integers as they are, numbers by the quantiser of their input."""
    codes = {}
    for item in found.program.inputs:
        values = np.asarray(sample[item.value.name][:1])
        if values.dtype.kind == "f":
            values = coded(values.astype(object), item.quantizer).astype(np.int64)  # type: ignore[arg-type]
        codes[item.value.name] = values
    return codes


@pytest.mark.sweep
@pytest.mark.parametrize("name", NETWORKS)
def test_a_block_is_recognised(name: str) -> None:
    graph = front.loads(NETWORKS[name](SMALL).SerializeToString(), front.Settings(floats=True)).graph
    count = Counter(operation.name for operation in graph.operations)
    assert count[f"{NORMALISED[name]}_normalization"] == 3
    assert count["masked_softmax" if name in MASKED else "softmax"] == 1
    # Heads of keys and values are not repeated for the queries that share them.
    assert not {"sqrt", "select", "mean_reduce", "exp", "tile"} & set(count)


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_every_tensor_is_that_of_exact_arithmetic(name: str, tmp_path: Path) -> None:
    model = NETWORKS[name](SMALL)
    found = quantised(model, tmp_path)
    graph, program = found.calibration.graph, found.program
    shapes = {item.value.name: item.value.shape for item in program.inputs}
    sample = codes_of(found, data(model, 1, seed=2))
    runs = {e: cvm.Session(program, e).run(sample, capture="all", codes=True) for e in ("numpy", "native")}
    for tensor in runs["numpy"]:
        np.testing.assert_array_equal(runs["native"][tensor], runs["numpy"][tensor])
    exact, compared = GraphEvaluator(graph).run(sample), 0
    for tensor in {*graph.outputs, *runs["numpy"]} & set(exact):
        quantizer = graph.tensors[tensor].quantizer
        if quantizer is not None:
            wanted = coded(exact[tensor], quantizer).ravel()  # type: ignore[arg-type]
            np.testing.assert_array_equal(runs["numpy"][tensor].ravel(), wanted.astype(np.int64), err_msg=tensor)
            compared += 1
    assert compared >= 8
    feeds = [{key: np.asarray(values, np.int32).reshape(shapes[key]) for key, values in sample.items()}]
    verified = verify(program)
    assert judge(verified, create("numpy", verified), [feeds], 2).difference is None
    assert Counter(node.op for node in program.nodes)["normalize"] == 3


@pytest.mark.slow
def test_an_encoder_that_the_runtime_quantised_is_exact(tmp_path: Path) -> None:
    """Two layers of 64 channels, static QDQ with weights per channel: every tensor that the file rounds."""
    pytest.importorskip("onnxruntime", reason="ONNX Runtime quantises the model")
    size = Size(width=64, heads=4, shared=4, inner=256, length=16, layers=2)
    form = next(item for item in FORMS if item.name == "qdq-channel-uint8")
    model, path = quantised_by_runtime(bert(size, masked=False), form), tmp_path / "encoder.onnx"
    onnx.save(model, path)
    sample = {"ids": np.random.default_rng(3).integers(0, 50, (1, size.length))}
    exact, graph = FamilyEvaluator(model).run(sample), front.load(path).graph
    program = cvm.compile(path, op_set=2)
    found = cvm.Session(program, "native").run(sample, codes=True, capture="all")
    compared = 0
    for item in model.graph.node:
        name = item.input[0]
        quantizer = graph.tensors[name].quantizer if name in graph.tensors else None
        if item.op_type == "QuantizeLinear" and quantizer is not None and name in found:
            scale, zero = (exact[operand] for operand in item.input[1:])
            wanted = dequantised(exact[item.output[0]], scale, zero, 0).fractions()
            assert [quantizer.value(int(code)) for code in found[name].ravel()] == wanted, name
            compared += 1
    assert compared >= 40
    (output,) = program.outputs
    assert output.quantizer is not None
    assert [output.quantizer.value(int(code)) for code in found[output.name].ravel()] == exact[output.name].fractions()


@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_the_program_is_near_the_model(name: str, tmp_path: Path) -> None:
    model = NETWORKS[name](SMALL)
    found = quantised(model, tmp_path)
    samples = data(model, 4, seed=3)
    session, reference = cvm.Session(found.program, "numpy"), Reference(found.source)
    noise = signal = 0.0
    for index in range(4):
        one = {key: values[index : index + 1] for key, values in samples.items()}
        got = session.run(one, codes=not any(v.dtype.kind == "f" for v in one.values()), out_of_range="clamp")
        wanted = reference.run(one)[found.source.outputs[0]]
        noise += float(((got.real(found.program.outputs[0].name) - wanted) ** 2).sum())
        signal += float((wanted**2).sum())
    assert 10 * np.log10(signal / noise) > 20
