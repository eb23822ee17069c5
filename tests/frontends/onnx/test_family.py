"""Networks of well-known architectures, as ONNX Runtime's quantiser writes them: every tensor against exact arithmetic.

The files in ``family`` are those that `tools.onnx_networks.family` makes with onnx 1.23.2 and onnxruntime 1.32.0.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import cvm
from cvm.frontends import onnx as front
from cvm.quantization import LinearQuantizer
from tests.frontends.onnx.exact import Real, dequantised
from tests.frontends.onnx.exact_family import FamilyEvaluator
from tools.onnx_networks.family import data

FAMILY = Path(__file__).parent / "family"
NAMES = sorted(path.stem for path in FAMILY.glob("*.onnx"))
SLOW = ("bert", "gpt", "vit")


def marked(name: str) -> Any:
    quick = name.endswith("int8") and not name.startswith(SLOW)
    return pytest.param(name, marks=pytest.mark.slow if quick else pytest.mark.long)


def test_there_are_both_formats_of_all_that_need_no_scales_of_gates() -> None:
    assert len(NAMES) == 2 * 11


@pytest.mark.sweep
@pytest.mark.parametrize("name", [marked(name) for name in NAMES])
def test_every_rounded_tensor_is_that_of_exact_arithmetic(name: str) -> None:
    """All elements of every tensor that the file quantises, as far as the program has it, and of all outputs."""
    model = onnx.load(FAMILY / f"{name}.onnx")
    program = cvm.compile(FAMILY / f"{name}.onnx")
    graph = front.load(FAMILY / f"{name}.onnx").graph
    (sample,) = data(model, 1, seed=9)
    found = cvm.Session(program, "numpy").run(sample, capture="all")
    expected = FamilyEvaluator(model).run(sample)
    native = cvm.Session(program, "native").run(sample)
    assert all(np.array_equal(native[output.name], found[output.name]) for output in program.outputs)

    def equal(tensor: str, quantizer: Any, numbers: Real, step: Fraction) -> None:
        assert isinstance(quantizer, LinearQuantizer)
        codes = found[tensor].ravel()
        whole = [quantizer.value(int(code)) for code in codes]
        # Softmax is bounded by a code; what it does not decide otherwise is equal.
        worst = max(abs(a - b) / step for a, b in zip(whole, numbers.fractions(), strict=True))
        assert worst == 0, f"{tensor} is off by {float(worst)} codes"

    for output in program.outputs:
        assert isinstance(output.quantizer, LinearQuantizer)
        equal(output.name, output.quantizer, expected[output.name], output.quantizer.scale[0])
    rounded = {name: item.quantizer for name, item in graph.tensors.items() if name in found and item.quantizer}
    compared = 0
    for node in model.graph.node:
        quantised = FamilyEvaluator.grid(node, expected)
        if quantised is None:
            continue
        scale, zero = quantised
        real = dequantised(expected[node.output[0]], scale, zero, 1)
        prefix = f"{node.output[0]}."
        names = [node.input[0]] if node.op_type == "QuantizeLinear" else [n for n in rounded if n.startswith(prefix)]
        step = Fraction(np.asarray(scale).item())
        for tensor in names:
            quantizer = rounded.get(tensor)
            if quantizer is not None and quantizer.scale == (step,) and found[tensor].size == real.items.size:
                equal(tensor, quantizer, real, step)
                compared += 1
    assert compared >= 3
