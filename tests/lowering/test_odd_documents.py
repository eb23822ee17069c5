"""Odd documents, one operation at its limits each: all codes are those of the exact evaluator.

Tensors that a line does not introduce are inputs: x of shape [2, 3, 4], v of [2], m of [2, 3], i of [1, 2, 3].
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random

import numpy as np
import pytest

from cvm.frontends import nnef
from cvm.quantization import LinearQuantizer
from tests.lowering.documents import Document
from tests.lowering.measured import Measured, compare

ANY = "linear_quantize(min = -1.0, max = 1.1, bits = 6)"
POSITIVE = "linear_quantize(min = 0.1, max = 1.1, bits = 5)"
FROM_ZERO = "linear_quantize(min = 0.0, max = 1.0, bits = 5)"
NEGATIVE = "linear_quantize(min = -1.5, max = -0.1, bits = 4)"
WHOLE = "zero_point_linear_quantize(zero_point = 3, scale = 1.0, bits = 3, signed = false, symmetric = false)"
RESULT = "linear_quantize(min = -2.0, max = 2.1, bits = 8)"

SHAPES = {"x": (2, 3, 4), "v": (2,), "m": (2, 3), "i": (1, 2, 3), "s": (), "one": (1, 1, 1)}
STORED = {"held": [0.1, 0.2], "kept": [0.3, 0.4]}
PAD = "padding = [(0, 0), (0, 0), "


def reductions() -> Iterator[str]:
    for operation in ("sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce"):
        for axes in ("[]", "[0, 1, 2]", "[2, 0]"):
            yield f"y = {operation}(x, axes = {axes})"
        yield f"y = {operation}(one, axes = [1])"
        yield f"a = sub(x, x); y = {operation}(a, axes = [1])"
        yield f"a = neg(x); y = {operation}(a, axes = [2])"
        yield f"a = clamp(x, -0.1, 0.1); y = {operation}(a, axes = [0, 1, 2])"  # a clamp makes numbers equal
    for operation in ("any_reduce", "all_reduce"):
        yield f"a = gt(x, 0.0); y = {operation}(a, axes = [])"
        yield f"a = gt(x, 0.0); y = {operation}(a, axes = [2, 0, 1])"
    for axes in ("[]", "[0, 1, 2]"):
        yield f"y, z = moments(x, axes = {axes})"


def normalisations() -> Iterator[str]:
    for axes in ("[]", "[0]", "[0, 1, 2]", "[2, 1]"):
        yield f"y = softmax(x, axes = {axes})"
        yield f"a = mul(x, -1.0); y = softmax(a, axes = {axes})"
    yield "y = softmax(v, axes = [0])"
    yield "a = sub(x, x); y = softmax(a, axes = [1])"
    for operation in ("l1_normalization", "l2_normalization"):
        for axes in ("[]", "[0, 1, 2]"):
            yield f"y = {operation}(x, axes = {axes}, epsilon = 0.3)"
            yield f"y = {operation}(x, axes = {axes}, bias = -0.2, epsilon = 0.1)"
            yield f"y = {operation}(x, axes = {axes}, bias = 5.0, epsilon = 100.0)"
            yield f"POSITIVE y = {operation}(x, axes = {axes})"
            yield f"POSITIVE y = {operation}(x, axes = {axes}, bias = -9.0, epsilon = 0.001)"
            yield f"NEGATIVE y = {operation}(x, axes = {axes}, epsilon = 0.3)"
        yield f"a = mul(x, -0.5); y = {operation}(a, axes = [1], epsilon = 0.5)"
        yield f"a = mul(x, 0.0); y = {operation}(a, axes = [1], epsilon = 0.5)"
    for size in ("[1, 1, 1]", "[9, 9, 9]", "[2, 4, 2]"):
        yield f"y = local_response_normalization(x, size = {size}, bias = 1.0)"
        yield f"y = local_variance_normalization(x, size = {size}, bias = 1.0)"
        yield f"y = local_mean_normalization(x, size = {size})"
    yield "WHOLE y = local_contrast_normalization(x, size = [2, 4, 2], bias = 1.0)"
    for parameters in (
        "0.1, 0.0, 0.2, 0.5, epsilon = 0.01",
        "0.1, 4.0, 0.2, 0.0, epsilon = 0.0",
        "0.1, 4.0, 0.2, -1.0, epsilon = 0.0",
    ):
        yield f"y = batch_normalization(x, {parameters})"
        yield f"y = batch_normalization(m, {parameters})"


def functions() -> Iterator[str]:
    for exponent in ("2.0", "0.0", "3.0"):
        yield f"y = pow(v, {exponent})"
    yield from (f"POSITIVE y = pow({arguments})" for arguments in ("0.0, v", "1.0, v", "v, v", "v, -2.0"))
    yield from (f"FROM_ZERO y = pow(v, {exponent})" for exponent in ("0.5", "0.3333333333333333333", "v"))
    yield "WHOLE y = pow(-2.0, v)"
    yield "WHOLE y = pow(v, 3.0)"
    for name in ("rsqrt", "log", "log2", "sqrt", "rcp", "rsqr"):
        yield f"POSITIVE y = {name}(v)"
        if name not in ("rsqrt", "log", "log2", "sqrt"):
            yield f"NEGATIVE y = {name}(v)"
    for side in ("POSITIVE", "NEGATIVE"):
        yield from (f"{side} y = div({arguments})" for arguments in ("v, v", "0.0, v", "1.0, v", "0.3, v", "v, -3.0"))
    for inner in ("mul(v, 0.0)", "mul(0.0, v)", "sub(v, v)", "clamp(v, 0.5, 0.5)", "clamp(v, 0.5, -0.5)"):
        yield from (f"a = {inner}; y = {name}(a)" for name in ("copy", "sigmoid", "exp", "sign", "floor", "neg"))
    yield "y = clamp(v, v, v)"
    yield "a = clamp(v, -0.2, 0.3); b = clamp(a, 0.1, 0.9); y = neg(b)"
    yield "a = clamp(v, -0.5, -0.2); b = relu(a); y = copy(b)"
    yield "a = relu(v); b = clamp(a, -0.5, -0.2); y = copy(b)"
    yield "a = relu(v); b = neg(a); c = relu(b); y = copy(c)"
    yield "a = relu(v); b = min(a, 0.3); c = max(b, 0.1); y = sqr(c)"
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        yield from (f"y = {name}({arguments})" for arguments in ("v, v", "0.5, 0.5", "0.5, v"))
        yield f"a = exp(v); y = {name}(a, v)"
        yield f"a = relu(v); y = {name}(a, 0.0)"
        yield f"a = sign(v); b = abs(v); y = {name}(a, b)"
    for condition in ("true", "false", "c"):
        yield f"c = gt(1.0, 0.5); y = select({condition}, v, 0.3)"
        yield f"c = gt(v, 0.0); a = select({condition}, 0.1, 0.3); y = exp(a)"
        yield f"c = gt(v, 0.0); y = select({condition}, m, v)"
    yield "c = gt(v, 0.0); y = and(c, true)"
    yield "c = gt(v, 0.0); y = or(false, c)"
    yield "c = gt(v, 0.0); a = not(c); b = select(c, a, false); y = and(b, c)"
    yield from (f"y = add_n([{parts}])" for parts in ("v", "v, v, v", ""))
    yield "[y] = copy_n(v, times = 1)"


def scalars() -> Iterator[str]:
    for call in (
        "copy(s)",
        "exp(s)",
        "sqr(s)",
        "add(s, v)",
        "unsqueeze(s, axes = [0])",
        "reshape(s, shape = [1, 1])",
        "sum_reduce(s, axes = [])",
        "max_reduce(s, axes = [])",
        "softmax(s, axes = [])",
        "tile(s, repeats = [])",
        "select(true, s, s)",
        "transpose(s, axes = [])",
        "pad(s, padding = [])",
        "box(s, size = [])",
        "debox(s, size = [])",
        "max_pool(s, size = [])",
        "rms_pool(s, size = [])",
        "local_mean_normalization(s, size = [])",
        "local_response_normalization(s, size = [])",
        "l1_normalization(s, axes = [], epsilon = 0.5)",
        "l2_normalization(s, axes = [], epsilon = 0.5)",
        "argmax_pool(s, size = [])",
        "argmin_reduce(s, axes = [])",
        "gt(s, 0.0)",
        "logarithmic_quantize(s, max = 1.0, bits = 2)",
        "linear_quantize(s, min = 0.0, max = 1.0, bits = 2)",
        "slice(s, axes = [], begin = [], end = [])",
        "squeeze(s, axes = [])",
    ):
        yield f"y = {call}"
    yield "a = slice(v, axes = [0], begin = [1], end = [2]); y = squeeze(a, axes = [0])"
    yield "a = gt(s, 0.0); y = select(a, s, 0.5)"
    yield "y, z = moments(s, axes = [])"
    yield "y, z = max_pool_with_index(s, size = [])"
    yield "k = argmax_pool(s, size = []); y = sample(s, k, size = [])"
    yield "k = argmax_pool(s, size = []); y = desample(s, k, size = [])"


CONSTANT = "k = constant(shape = [1, 2, 3], value = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]);"


def constants() -> Iterator[str]:
    """Nothing is computed when the program runs."""
    for call in (
        "copy(k)",
        "exp(k)",
        "conv(k, k, 0.1)",
        "max_pool(k, size = [1, 1, 2], border = 'ignore')",
        "softmax(k, axes = [1])",
        "l1_normalization(k, axes = [2])",
        "l2_normalization(k, axes = [1])",
        "batch_normalization(k, 0.1, 1.2, 0.2, 0.5, epsilon = 0.01)",
        "rms_pool(k, size = [1, 1, 2])",
        "avg_pool(k, size = [1, 1, 2], border = 'ignore')",
        "box(k, size = [1, 1, 2], normalize = true)",
        "debox(k, size = [1, 1, 2])",
        "local_response_normalization(k, size = [1, 1, 2])",
        "local_mean_normalization(k, size = [1, 1, 2])",
        "multilinear_upsample(k, factor = [2])",
        "nearest_upsample(k, factor = [2])",
        "nearest_downsample(k, factor = [3])",
        "gather(k, j, axis = 1)",
        "area_downsample(k, factor = [3])",
        "sum_reduce(k, axes = [1])",
        "min_reduce(k, axes = [1])",
        "logarithmic_quantize(k, max = 1.0, bits = 3)",
        "linear_quantize(k, min = 0.0, max = 1.0, bits = 3)",
        "pad(k, padding = [(1, 1), (0, 0), (2, 0)])",
        "tile(k, repeats = [1, 2, 1])",
        "reshape(k, shape = [6])",
        "slice(k, axes = [1], begin = [0], end = [1])",
        "matmul(k, k, transposeB = true)",
        "prelu(k, 0.3)",
        "select(true, k, 0.3)",
        "sin(k)",
        "clamp(k, 0.2, 0.4)",
        "min(k, 0.3)",
        "pow(k, 0.5)",
    ):
        yield f"{CONSTANT} j = constant<integer>(shape = [2], value = [1, 0]); y = {call}"
    for call in ("argmin_reduce(k, axes = [1])", "gt(k, 0.3)", "argmax_pool(k, size = [1, 1, 2], padding = [])"):
        yield f"{CONSTANT} y = {call}"
    yield f"{CONSTANT} y, z = max_pool_with_index(k, size = [1, 1, 2], padding = [])"


def windows() -> Iterator[str]:
    for name in ("box", "max_pool", "argmax_pool", "avg_pool"):
        yield f"y = {name}(i, size = [1, 1, 2], stride = [1, 1, 100], {PAD}(0, 0)])"
        yield f"y = {name}(i, size = [1, 1, 2], {PAD}(50, 50)], border = 'constant')"
        yield f"y = {name}(i, size = [1, 1, 2], {PAD}(50, 50)], border = 'replicate')"
        yield f"y = {name}(i, size = [1, 2, 3], padding = [])"
        yield f"y = {name}(i, size = [1, 2, 2], padding = [(0, 0), (1, 0), (0, 1)], border = 'reflect')"
        yield f"y = {name}(v, size = [2])"
    yield f"y = box(i, size = [1, 1, 2], dilation = [1, 1, 100], {PAD}(100, 100)])"
    w = "w = constant(shape = {}, value = [0.5, -0.25]);"
    yield f"{w.format([1, 2, 1])} y = conv(i, w, 0.0, stride = [50])"
    yield f"{w.format([1, 2, 1])} y = conv(i, w, 0.0, padding = [(40, 7)], dilation = [9], stride = [3])"
    yield f"{w.format([2, 1, 1])} y = deconv(i, w, 0.0, padding = [(0, 0)], dilation = [9], stride = [30])"
    yield f"{w.format([2, 1, 1])} y = conv(i, w, 0.0, groups = 0)"
    yield "w = constant(shape = [2, 1, 2], value = [0.0]); y = conv(i, w, 0.5, groups = 2)"
    yield "w = constant(shape = [4, 3], value = [0.5]); y = conv(m, w, 0.0)"
    yield "w = constant(shape = [3, 2], value = [0.5]); y = deconv(m, w, 0.0)"
    yield "y = conv(i, i, 0.0)"
    yield "a = mul(i, 0.0); y = conv(a, a, 0.5)"
    yield "a = sub(i, i); y = max_pool(a, size = [1, 1, 2], padding = [(0, 0), (0, 0), (1, 1)])"


def products() -> Iterator[str]:
    yield "y = matmul(m, m, transposeB = true)"
    yield "y = matmul(m, m, transposeA = true)"
    yield "a = transpose(i, axes = [0, 2, 1]); b = tile(a, repeats = [5, 1, 1]); y = matmul(i, b)"
    yield "a = relu(m); y = matmul(a, m, transposeB = true)"
    yield "a = sub(m, m); y = matmul(a, m, transposeB = true)"
    yield "y = matmul(one, one)"


def state() -> Iterator[str]:
    yield "u = update(held, held); y = add(v, u)"
    yield "u = update(held, v); y = copy(held)"
    yield "a = update(held, kept); b = update(kept, held); y = sub(held, v)"
    yield "e = exp(v); u = update(held, e); y = add(held, u)"
    yield "k = constant(shape = [2], value = [0.5, 0.6]); u = update(held, k); y = add(held, v)"


def movement() -> Iterator[str]:
    for call in (
        "slice(v, axes = [0], begin = [0], end = [0])",
        "slice(v, axes = [0], begin = [-1], end = [0])",
        "slice(v, axes = [0], begin = [0], end = [2], stride = [9])",
        "slice(v, axes = [], begin = [], end = [])",
        "concat([v], axis = 0)",
        "concat([v, v, v], axis = 0)",
        "stack([v, v], axis = 1)",
        "pad(v, padding = [(0, 0)])",
        "pad(one, padding = [(3, 3), (0, 0), (0, 1)], border = 'replicate')",
        "unsqueeze(v, axes = [0, 2, 3])",
        "reshape(x, shape = [0, -1])",
        "squeeze(one, axes = [0, 1, 2])",
    ):
        yield f"y = {call}"
    yield "[y] = split(v, axis = 0, ratios = [1])"
    yield "[y] = unstack(one, axis = 0)"
    yield "a = exp(v); y = concat([a, v, a], axis = 0)"
    yield "a = relu(v); b = neg(a); y = concat([a, b], axis = 0)"
    yield "a = exp(v); y = pad(a, padding = [(3, 3)], value = 0.3)"
    yield "a = relu(v); y = pad(a, padding = [(3, 3)], value = -0.3)"
    yield "a = relu(v); y = pad(a, padding = [(1, 1)], border = 'reflect')"


def quantisation() -> Iterator[str]:
    ends = "h = max_reduce(m, axes = [0, 1]); l = min_reduce(m, axes = [0, 1]);"
    yield f"{ends} y = linear_quantize(m, min = l, max = h, bits = 4)"
    yield "NEGATIVE h = max_reduce(m, axes = [0, 1]); y = linear_quantize(m, min = 0.0, max = h, bits = 1)"
    yield "q = linear_quantize(0.3, min = 0.0, max = 1.0, bits = 4); y = add(q, v)"
    yield "y = logarithmic_quantize(v, max = 0.001, bits = 1)"
    yield "y = logarithmic_quantize(v, max = 100000.0, bits = 1)"
    yield "a = exp(v); y = logarithmic_quantize(a, max = 2.0, bits = 3)"
    yield "a = neg(v); y = logarithmic_quantize(a, max = 1.0, bits = 3)"
    yield "a = mul(v, 3.7); b = cast<integer>(a); y = cast<scalar>(b)"
    yield "a = cast<logical>(v); y = cast<integer>(a)"
    yield "a = exp(v); y = cast<integer>(a)"


KINDS = (reductions, normalisations, functions, scalars, constants, windows, products, state, movement, quantisation)
LINES = [(kind.__name__, line) for kind in KINDS for line in kind()]


def document_of(line: str) -> tuple[Document, str]:
    """The document of a line, with its inputs, and its outputs."""
    first, _, rest = line.partition(" ")
    quantiser = {"POSITIVE": POSITIVE, "NEGATIVE": NEGATIVE, "FROM_ZERO": FROM_ZERO, "WHOLE": WHOLE}.get(first, ANY)
    body = rest if first.isupper() else line
    document = Document(Random(0))
    document.cycles = 3 if "update" in body else 1
    for name, shape in SHAPES.items():
        if re.search(rf"[(\[ ]{name}[,)\]]", body) and not re.search(rf"\b{name} =", body.split("(")[0]):
            document.lines.append(f"{name} = external(shape = {list(shape)});")
            document.inputs.append(name)
            document.shapes[name] = shape
            document.quantisers[name] = quantiser
    for name in STORED:
        if name in body:
            document.lines.append(f"{name} = variable(shape = [2], label = '{name}');")
            document.stored[name] = np.array(STORED[name], np.float32)
            document.quantisers[name] = ANY
    document.lines += [f"{statement.strip()};" for statement in body.split(";")]
    if not document.inputs:
        document.external((1,))
    return document, "y, z" if re.search(r"\by, z =", body) else "y"


@pytest.mark.sweep
@pytest.mark.parametrize(("kind", "line"), LINES, ids=[line for _, line in LINES])
def test_an_odd_document_is_exact(kind: str, line: str, tmp_path: Path) -> None:
    document, output = document_of(line)
    document.write(tmp_path, output)
    tensors = nnef.load(tmp_path, quant=False).tensors
    for name in output.split(", "):
        if tensors[name].dtype == "scalar":
            document.quantisers[name] = RESULT
    document.write(tmp_path, output)
    for name, tensor in nnef.load(tmp_path).tensors.items():
        if name in document.inputs and isinstance(tensor.quantizer, LinearQuantizer):
            document.ranges[name] = tensor.quantizer.lo, tensor.quantizer.hi
    found = Measured(kind)
    compare(document, output, tmp_path, found)
    assert found.cases == 1, found.refused
    assert not found.broken, found.broken[0]
    assert found.differing == 0


def test_an_input_may_be_an_output_and_an_output_a_literal(tmp_path: Path) -> None:
    for line, output in (("y = copy(v)", "v"), ("y = copy(v)", "y, v"), ("a = neg(v); y = add(a, v)", "v, y")):
        document, _ = document_of(line)
        document.quantisers["y"] = RESULT
        found = Measured("outputs")
        document.ranges["v"] = 0, 63
        document.write(tmp_path, output)
        compare(document, output, tmp_path, found)
        assert (found.cases, found.broken) == (1, [])
