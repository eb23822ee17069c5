"""Lowered networks compute exactly the codes that the document denotes, operation by operation.

Each test draws documents at random - shapes, geometry, stored values, ranges whose zero is a code, no code or outside -
and compares every quantised tensor with the independent evaluator on extreme and random inputs.
"""

from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lowering.documents import Document, assert_exact
from tests.selection import examples

RANDOMS = st.randoms(use_true_random=False)


def check(document: Document, output: str) -> None:
    with TemporaryDirectory() as folder:
        assert_exact(document, output, Path(folder))


def window(random: Random, padded: bool = True) -> tuple[list[int], str]:
    """The size of a window over two axes, and its geometry as attributes."""
    size = [random.randint(1, 3), random.randint(1, 3)]
    dilation = [random.randint(1, 2), random.randint(1, 2)]
    stride = [random.randint(1, 3), random.randint(1, 3)]
    pads = [(random.randint(0, n - 1), random.randint(0, n - 1)) if padded else (0, 0) for n in size]
    return size, f"padding = {pads}, stride = {stride}, dilation = {dilation}"


@pytest.mark.slow
@settings(max_examples=examples(60))
@given(RANDOMS)
def test_conv(random: Random) -> None:
    document = Document(random)
    groups = random.choice([1, 1, 2, 3])
    inputs, outputs = groups * random.randint(1, 2), groups * random.randint(1, 2)
    size, geometry = window(random)
    x = document.external((random.randint(1, 2), inputs, random.randint(5, 7), random.randint(5, 7)))
    w = document.variable((outputs, inputs // groups, *size))
    bias = random.choice(["0.0", "0.375", document.variable((1, outputs), quantised=random.random() < 0.5)])
    declared = 0 if groups == inputs and random.random() < 0.7 else groups
    check(document, document.apply(f"conv({x}, {w}, {bias}, border = 'constant', {geometry}, groups = {declared})"))


@settings(max_examples=20)
@given(RANDOMS)
def test_conv_with_automatic_padding(random: Random) -> None:
    document = Document(random)
    size = [random.randint(1, 4), random.randint(1, 4)]
    stride = [random.randint(1, size[0]), random.randint(1, size[1])]
    x = document.external((1, 2, random.randint(4, 7), random.randint(4, 7)))
    w = document.variable((3, 2, *size))
    check(document, document.apply(f"conv({x}, {w}, 0.0, border = 'constant', padding = [], stride = {stride})"))


@settings(max_examples=30)
@given(RANDOMS, st.sampled_from(["linear", "matmul", "matmul transposed"]))
def test_matrix_products(random: Random, kind: str) -> None:
    document = Document(random)
    rows, summed, columns = (random.randint(1, 5) for _ in range(3))
    x = document.external((rows, summed))
    if kind == "linear":
        w, bias = document.variable((columns, summed)), document.variable((1, columns))
        call = f"linear({x}, {w}, {bias})"
    elif kind == "matmul":
        call = f"matmul({x}, {document.variable((summed, columns))})"
    else:
        call = f"matmul({x}, {document.variable((columns, summed))}, transposeB = true)"
    check(document, document.apply(call))


@settings(max_examples=30)
@given(RANDOMS, st.sampled_from(["constant", "ignore"]))
def test_avg_pool(random: Random, border: str) -> None:
    document = Document(random)
    size, geometry = window(random)
    geometry = geometry.replace("[(", "[(0, 0), (0, 0), (").replace("stride = [", "stride = [1, 1, ")
    geometry = geometry.replace("dilation = [", "dilation = [1, 1, ")
    x = document.external((random.randint(1, 2), random.randint(1, 3), random.randint(5, 7), random.randint(5, 7)))
    check(
        document, document.apply(f"avg_pool({x}, size = [1, 1, {size[0]}, {size[1]}], border = '{border}', {geometry})")
    )


@settings(max_examples=30)
@given(RANDOMS)
def test_max_pool(random: Random) -> None:
    document = Document(random)
    size = [random.randint(1, 3), random.randint(1, 3)]
    pads = [(0, 0), (0, 0), *((random.randint(0, n - 1), random.randint(0, n - 1)) for n in size)]
    stride = [1, 1, random.randint(1, 3), random.randint(1, 3)]
    x = document.external((random.randint(1, 2), random.randint(1, 3), random.randint(5, 7), random.randint(5, 7)))
    call = f"max_pool({x}, size = {[1, 1, *size]}, border = 'ignore', padding = {pads}, stride = {stride})"
    check(document, document.apply(call))


@settings(max_examples=30)
@given(RANDOMS)
def test_batch_normalization_and_relu(random: Random) -> None:
    document = Document(random)
    channels = random.randint(1, 4)
    x = document.external((1, channels, 3, 3))
    mean, offset, scale = (document.variable((1, channels), quantised=random.random() < 0.7) for _ in range(3))
    variance = document.variable((1, channels), 0.01, 2.0, quantised=False)
    call = (
        f"batch_normalization({x}, {mean}, {variance}, {offset}, {scale}, epsilon = {random.choice(['1e-3', '0.0'])})"
    )
    check(document, document.apply(f"relu({document.apply(call)})"))


@settings(max_examples=30)
@given(RANDOMS, st.sampled_from(["add", "sub"]))
def test_sums_of_two_tensors(random: Random, operation: str) -> None:
    document = Document(random)
    shape = (random.randint(1, 3), random.randint(1, 3), random.randint(1, 3))
    other = tuple(n if random.random() < 0.7 else 1 for n in shape)[: random.randint(1, 3)]
    x, y = document.external(shape), document.external(other)
    arguments = (x, y) if random.random() < 0.5 else (y, x)
    check(document, document.apply(f"{operation}({', '.join(arguments)})"))


@settings(max_examples=12)
@given(RANDOMS)
def test_chains_without_quantisers_are_rounded_once(random: Random) -> None:
    """conv, scaling by constants and a sum with two inputs, nothing quantised but the end."""
    document = Document(random)
    x, y = document.external((1, 2, 4, 4)), document.external((1, 2, 4, 4))
    w = document.variable((2, 2, 3, 3), low=-0.5, high=0.5)
    document.quantisers[w] = "linear_quantize(min = -0.5, max = 0.5, bits = 4)"
    if random.random() < 0.7:
        document.quantisers[w] = "linear_quantize(min = -0.8, max = 0.7, bits = 4)"  # zero is a code
    first = document.apply(f"conv({x}, {w}, 0.25, padding = [(1, 1), (1, 1)])", quantised=False)
    second = document.apply(f"mul({first}, {document.variable((1, 2), 0.5, 1.5)})", quantised=False)
    third = document.apply(f"sub({second}, 0.125)", quantised=False)
    check(document, document.apply(f"relu({document.apply(f'add({third}, {y})', quantised=False)})"))


MOVEMENTS = ["reshape({x}, shape = [0, -1])", "reshape({x}, shape = [2, 2, 8])"]
REDUCTIONS = ["mean_reduce({x}, axes = [2, 3])", "sum_reduce({x}, axes = [0, 1])", "max_reduce({x}, axes = [1])"]


@settings(max_examples=30)
@given(RANDOMS, st.sampled_from(MOVEMENTS + REDUCTIONS))
def test_data_movement_and_reductions(random: Random, operation: str) -> None:
    document = Document(random)
    x, y = document.external((2, 3, 2, 2)), document.external((2, 1, 2, 2))
    # Parts of a concatenation have their own ranges: movements carry them along, reductions need one for all.
    quantised = operation in REDUCTIONS or random.random() < 0.5
    joined = document.apply(f"concat([{x}, {y}], axis = 1)", quantised=quantised)
    check(document, document.apply(operation.format(x=joined)))


@settings(max_examples=20)
@given(RANDOMS)
def test_softmax_is_within_its_bound(random: Random) -> None:
    document = Document(random)
    shape = (random.randint(1, 2), random.randint(1, 12))
    x = document.external(shape, -6.0, 6.0)
    document.quantisers[x] = (
        f"linear_quantize(min = {-random.uniform(0, 8)!r}, max = {random.uniform(0.5, 9)!r}, bits = 8)"
    )
    y = document.apply(f"softmax({x}, axes = [1])")
    ranges = ["min = 0.0, max = 1.0, bits = 8", "min = -0.1, max = 0.97, bits = 6", "min = 0.05, max = 0.9, bits = 10"]
    document.quantisers[y] = f"linear_quantize({random.choice(ranges)})"
    check(document, y)


@pytest.mark.parametrize("bits", [1, 4, 8, 12, 16])
def test_outputs_of_every_width(bits: int) -> None:
    document = Document(Random(bits))
    x = document.external((1, 2, 4, 4))
    y = document.apply(f"conv({x}, {document.variable((3, 2, 3, 3))}, 0.0, padding = [(1, 1), (1, 1)])")
    document.quantisers[y] = f"linear_quantize(min = -3.1, max = 2.7, bits = {bits})"
    check(document, y)
