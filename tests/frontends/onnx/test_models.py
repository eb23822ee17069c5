"""Networks that ONNX Runtime's tools have quantised, against exact arithmetic: every output of every image."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import cvm
from cvm.quantization import LinearQuantizer
from tests.frontends.onnx.exact import Evaluator
from tools.onnx_networks.lenet import FORMS, attention, images, lenet, quantised

MODELS = Path(__file__).parent / "models"
NAMES = sorted(path.name for path in MODELS.glob("*.onnx"))


def test_there_is_every_form_of_both_networks() -> None:
    assert len(NAMES) == 2 * len(FORMS)


@pytest.mark.sweep
@pytest.mark.parametrize("name", NAMES)
def test_the_outputs_are_those_of_exact_arithmetic(name: str) -> None:
    program = cvm.compile(MODELS / name)
    evaluator = Evaluator(onnx.load(MODELS / name))
    (output,) = program.outputs
    assert isinstance(output.quantizer, LinearQuantizer)
    bound = max(item.bound for item in program.provenance.exactness)
    data = images()[0]
    codes = cvm.Session(program).run({"image": data})[output.name]
    for image, found in zip(data, codes, strict=True):
        expected = evaluator.run({"image": image[None]})[output.name].fractions()
        numbers = [output.quantizer.value(int(code)) for code in found.ravel()]
        steps = [abs(a - b) / output.quantizer.scale[0] for a, b in zip(numbers, expected, strict=True)]
        # Softmax is bounded by a code; what it does not decide otherwise is equal.
        assert max(steps) == 0, f"off by {max(steps)} codes, where {bound} is stated"


@pytest.mark.parametrize("name", ["lenet-qdq-channel-int8.onnx", "attention-qlinear-tensor-uint8.onnx"])
def test_all_executors_agree_on_every_tensor(name: str) -> None:
    program = cvm.compile(MODELS / name)
    results = [
        cvm.Session(program, executor).run({"image": images()[0][:2]}, capture="all")
        for executor in ("formal", "numpy", "native")
    ]
    for other in results[1:]:
        assert set(other) == set(results[0])
        for tensor in results[0]:
            np.testing.assert_array_equal(results[0][tensor], other[tensor], tensor)


def test_the_quantised_network_still_reads_digits() -> None:
    data, labels = images()
    result = cvm.Session(cvm.compile(MODELS / "lenet-qdq-channel-int8.onnx")).run({"image": data})["probs"]
    assert (result.argmax(axis=1) == labels).mean() > 0.95


def test_the_stored_models_are_those_that_the_tools_make() -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime quantises the models; it is not installed")
    for form in FORMS:
        kind = f"{'qdq' if form[0] == 'QDQ' else 'qlinear'}-{'channel' if form[1] else 'tensor'}-{form[2]}"
        for network, model in (("lenet", lenet()), ("attention", attention())):
            stored = onnx.load(MODELS / f"{network}-{kind}.onnx")
            made = quantised(model, form)
            assert [node.op_type for node in made.graph.node] == [node.op_type for node in stored.graph.node]
            assert {item.name for item in made.graph.initializer} == {item.name for item in stored.graph.initializer}
