"""Sliding windows: quantisers per channel, computed filters, FORMAL, refusals, and geometry at its edges."""

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import LimitExceeded, Unsupported
from cvm.executors import create
from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.lowering import lower
from cvm.lowering.proofs import staircase
from cvm.program import Program, verify
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import code as exact_code
from tests.lowering.documents import Document, assert_exact
from tests.lowering.window_documents import OPERATIONS
from tests.oracle.exact import model

RANDOMS = st.randoms(use_true_random=False)


def compiled(document: Document, output: str) -> Program:
    with TemporaryDirectory() as folder:
        document.write(Path(folder), output)
        return lower(nnef.load(Path(folder)))


def check(document: Document, output: str) -> Program:
    with TemporaryDirectory() as folder:
        return assert_exact(document, output, Path(folder))


@pytest.mark.sweep
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("seed", range(2))
def test_formal_and_numpy_agree(operation: str, seed: int) -> None:
    document, output = OPERATIONS[operation](Random(100 + seed))
    verified = verify(compiled(document, output))
    (feed,) = document.feeds(1)[2:]
    numpy, formal = (create(name, verified).run(feed, {}, "all").values for name in ("numpy", "formal"))
    assert all(np.array_equal(numpy[name], formal[name]) for name in formal)


# Quantisers per channel


def per_channel(document: Document, name: str, count: int, axis: int) -> LinearQuantizer:
    """Give a tensor a range per index of an axis, for the evaluator; returns the quantiser."""
    low = [Fraction(round(document.random.uniform(-1.2, 0.1), 4)).limit_denominator(10**4) for _ in range(count)]
    high = [item + Fraction(document.random.randint(3000, 12000), 10**4) for item in low]
    lists = ", ".join(f"{side} = {[float(item) for item in items]}" for side, items in (("min", low), ("max", high)))
    document.quantisers[name] = f"min_max_linear_quantize({lists}, bits = 8, signed = false, symmetric = false)"
    scale = tuple((h - item) / 255 for h, item in zip(high, low, strict=True))
    return LinearQuantizer(scale, tuple(low), 0, 255, axis if count > 1 else None)


def check_per_channel(document: Document, output: str, quantizers: dict[str, LinearQuantizer]) -> None:
    """As `check`; lists of ranges reach the graph directly, and the evaluator by its own reading of them."""
    axes = {name: quantizer.axis for name, quantizer in quantizers.items() if quantizer.axis is not None}
    oracle = model(document.text(output), document.quantisation(), lambda label: document.stored[label], axes)
    for name in quantizers:
        del document.quantisers[name]
    with TemporaryDirectory() as folder:
        document.write(Path(folder), output)
        graph: QuantizedGraph = nnef.load(Path(folder))
    tensors = {
        name: replace(tensor, quantizer=quantizers.get(name, tensor.quantizer))
        for name, tensor in graph.tensors.items()
    }
    program = lower(replace(graph, tensors=MappingProxyType(tensors)))
    executor = create("numpy", verify(program))
    for feed in document.feeds():
        values, expected = executor.run(feed, {}, "all").values, oracle.run(feed)
        for item in program.provenance.exactness:
            if item.value:
                exact = expected.codes[item.tensor]
                assert np.array_equal(values[item.value].reshape(exact.shape), exact), document.text(output)


CALLS = {
    "conv": "conv({x}, {w}, 0.125, border = '{border}', padding = [(1, 1), (2, 0)], stride = [2, 1])",
    "depth-wise": "conv({x}, {d}, 0.125, border = '{border}', padding = [(1, 1), (2, 0)], groups = 0)",
    "deconv": "deconv({x}, {v}, 0.125, border = '{border}', padding = [(1, 1), (2, 0)], stride = [2, 1])",
    "grouped deconv": "deconv({x}, {g}, 0.125, border = '{border}', padding = [], stride = [2, 1], groups = 3)",
    "box": "box({x}, size = [1, 1, 2, 3], border = '{border}', padding = [(0, 0), (0, 0), (1, 1), (2, 0)])",
    "max_pool": "max_pool({x}, size = [1, 1, 2, 3], border = '{border}', padding = [(0, 0), (0, 0), (1, 1), (2, 0)])",
    "max over channels": "max_pool({x}, size = [1, 2, 2, 3], border = '{border}', padding = [])",
    "rms_pool": "rms_pool({x}, size = [1, 1, 2, 2], border = '{border}', padding = [])",
    "upsample": "multilinear_upsample({x}, factor = [2, 2], border = '{border}')",
}  # fmt: skip


@pytest.mark.sweep
@pytest.mark.parametrize("operation", CALLS)
@settings(max_examples=12, deadline=None)
@given(random=RANDOMS)
def test_quantisers_per_channel(operation: str, random: Random) -> None:
    document = Document(random)
    x = document.external((1, 3, 4, 5))
    shapes = {"w": (4, 3, 2, 3), "d": (6, 1, 2, 3), "v": (3, 4, 2, 3), "g": (3, 2, 2, 3)}
    call, names = CALLS[operation], {"x": x, "border": random.choice(["constant", "replicate"])}
    quantizers = {}
    for name, shape in shapes.items():
        if "{" + name + "}" in call:
            names[name] = document.variable(shape)
            axis = {"w": 0, "d": 0, "v": 1, "g": random.choice([0, 1])}[name]
            quantizers[names[name]] = per_channel(document, names[name], shape[axis], axis)
    if operation not in ("conv", "deconv"):
        quantizers[x] = per_channel(document, x, 3, 1)
    output = document.apply(call.format(**names))
    if operation in ("box", "max_pool", "rms_pool", "upsample") and random.random() < 0.5:
        quantizers[output] = per_channel(document, output, 3, 1)
    check_per_channel(document, output, quantizers)


# Filters that are computed


@settings(max_examples=25, deadline=None)
@given(RANDOMS, st.sampled_from(["conv", "deconv"]))
def test_a_computed_filter_is_multiplied(random: Random, operation: str) -> None:
    document = Document(random)
    groups = random.choice([1, 2])
    x, w = document.external((1, 2, 4, 4)), document.external((2, 2 // groups, 2, 3))
    # With zero a code on one side there are two accumulators at most.
    for name in random.choice([(x,), (w,), (x, w)]):
        document.quantisers[name] = f"linear_quantize(min = {random.choice([0.0, -0.5])}, max = 0.775, bits = 8)"
    geometry = f"padding = [(1, 0), (1, 2)], stride = [{random.randint(1, 2)}, 1], groups = {groups}"
    bias = document.external((1, 2))
    document.quantisers[bias] = document.quantisers[w]
    check(document, document.apply(f"{operation}({x}, {w}, 0.25, {geometry})"))


# What is refused


def refusal(document: Document, output: str) -> Unsupported:
    with pytest.raises(Unsupported) as caught:
        compiled(document, output)
    assert caught.value.location.op is not None
    return caught.value


def test_a_window_in_the_ignored_border_altogether_is_refused() -> None:
    for call in ("max_pool", "avg_pool"):
        document = Document(Random(0))
        x = document.external((1, 1, 3, 3))
        output = document.apply(
            f"{call}({x}, size = [1, 1, 1, 1], border = 'ignore', padding = [(0, 0), (0, 0), (1, 0), (0, 0)])"
        )
        assert "ignored border" in refusal(document, output).message


def test_an_index_outside_of_the_window_is_refused() -> None:
    document = Document(Random(0))
    x = document.external((1, 1, 4, 4))
    index = document.apply(f"argmax_pool({x}, size = [1, 1, 2, 2], padding = [])", quantised=False)
    output = document.apply(f"sample({x}, {index}, size = [1, 1, 1, 2], padding = [])")
    assert "positions 0 to 1" in refusal(document, output).message


def test_sums_with_too_many_thresholds_are_refused_naming_the_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Normalised sums of two tensors have a threshold per code and channel; here more than 2^8 of them."""
    monkeypatch.setattr(staircase, "_MOST_THRESHOLDS", 2**8)
    document = Document(Random(0))
    x, y = document.external((1, 4, 2, 2)), document.external((1, 4, 2, 2))
    total = document.apply(f"add({x}, {y})", quantised=False)
    variance = document.variable((1, 4), 0.1, 1.0, quantised=False)
    output = document.apply(f"batch_normalization({total}, 0.0, {variance}, 0.1, 1.0, epsilon = 0.0)")
    error = refusal(document, output)
    assert error.code == "lowering.unprovable"
    assert error.location.tensor == output
    assert repr(output) in error.message


def test_sums_of_integers_of_32_bits_are_exact(tmp_path: Path) -> None:
    document = Document(Random(0))
    numbers = []
    for factor in ("0.3333333", "0.7777777", "0.1234567"):
        integers = document.integers((1, 2), -(2**31) + 1, 2**31 - 1)
        real = document.apply(f"cast<scalar>({integers})", quantised=False)
        numbers.append(document.apply(f"mul({real}, {factor})", quantised=False))
    output = document.apply(f"add_n([{', '.join(numbers)}])")
    document.quantisers[output] = "linear_quantize(min = -1000000000.0, max = 2000000000.0, bits = 12)"
    assert_exact(document, output, tmp_path, 20)


def test_wide_sums_of_wide_sums_are_exact(tmp_path: Path) -> None:
    """Products of 16-bit codes, summed, times 16-bit codes, summed: digits of digits."""
    document = Document(Random(0))
    x = document.external((1, 3, 4, 4))
    weights = [document.variable((3, 3, 2, 2), quantised=False) for _ in range(2)]
    for name in (x, *weights):
        document.quantisers[name] = "linear_quantize(min = -1.0, max = 1.1, bits = 16)"
    first = document.apply(f"conv({x}, {weights[0]}, 0.0)", quantised=False)
    assert_exact(document, document.apply(f"conv({first}, {weights[1]}, 0.0)"), tmp_path, 1)


def test_an_irrational_operand_is_refused_naming_it() -> None:
    document = Document(Random(0))
    inner = document.apply(f"sigmoid({document.external((1, 1, 4, 4))})", quantised=False)
    error = refusal(document, document.apply(f"box({inner}, size = [1, 1, 2, 2])"))
    assert error.code == "lowering.unquantized"
    assert inner in error.message


# Geometry at its edges


@pytest.mark.sweep
@pytest.mark.parametrize(
    "call",
    [
        "conv({x}, {w}, 0.0, padding = [(9, 9), (9, 9)], stride = [3, 7])",
        "conv({x}, {w}, 0.0, padding = [(-1, -1), (0, -1)])",
        "deconv({x}, {w}, 0.0, padding = [(4, 4), (4, 4)], stride = [5, 5])",
        "deconv({x}, {w}, 0.0, padding = [(2, 2), (2, 2)], stride = [1, 1], dilation = [2, 1], border = 'replicate')",
        "box({x}, size = [1, 1, 9, 9], padding = [(0, 0), (0, 0), (4, 4), (4, 4)], border = 'replicate')",
        "box({x}, size = [1, 2, 4, 4], padding = [(0, 0), (0, 0), (0, 0), (0, 0)], normalize = true)",
        "max_pool({x}, size = [1, 2, 4, 4], padding = [(0, 0), (0, 0), (0, 0), (0, 0)])",
        "max_pool({x}, size = [1, 1, 2, 2], padding = [(0, 0), (0, 0), (3, 3), (3, 3)])",
        "debox({x}, size = [1, 1, 1, 1], stride = [1, 1, 3, 3], padding = [(0, 0), (0, 0), (0, 0), (0, 0)])",
        "multilinear_upsample({x}, factor = [1, 5], method = 'aligned')",
    ],
)
@pytest.mark.parametrize("seed", range(4))
def test_extreme_geometry_is_exact(call: str, seed: int) -> None:
    document = Document(Random(seed))
    x = document.external((1, 2, 4, 4))
    w = document.variable((2, 2, 2, 3)) if "{w}" in call else ""
    check(document, document.apply(call.format(x=x, w=w)))


@pytest.mark.parametrize("operation", ["box", "max_pool", "argmax_pool"])
def test_tensors_of_rank_eight(operation: str) -> None:
    document = Document(Random(0))
    x = document.external((1, 2, 2, 1, 2, 2, 3, 3))
    tail = "stride = [1, 1, 1, 1, 1, 1, 2, 1], padding = []"
    call = f"{operation}({x}, size = [1, 1, 2, 1, 1, 2, 3, 2], {tail})"
    check(document, document.apply(call, -4.0, 4.0, quantised=operation != "argmax_pool"))


def test_a_convolution_over_four_axes() -> None:
    document = Document(Random(0))
    x = document.external((2, 2, 3, 2, 3, 3))
    w = document.variable((2, 1, 2, 2, 2, 3))
    check(document, document.apply(f"conv({x}, {w}, 0.0, border = 'reflect-even', groups = 2)"))


@pytest.mark.parametrize(("padding", "dilation"), [(2**33, 2**31), (2**64, 2**62)])
def test_windows_that_reach_over_too_many_places_are_refused(tmp_path: Path, padding: int, dilation: int) -> None:
    """Padding and dilation are any integers, and the extents that follow from them may be small all the same."""
    (tmp_path / "graph.nnef").write_text(
        "version 1.0;\n"
        "graph net( x ) -> ( y )\n{\n"
        "  x = external<scalar>(shape = [1, 1, 4]);\n"
        "  w = constant<scalar>(shape = [1, 1, 5], value = [1.0]);\n"
        f"  y = conv(x, w, padding = [(0, {padding})], dilation = [{dilation}]);\n"
        "}\n"
    )
    code = "linear_quantize(min = 0.0, max = 255.0, bits = 8)"
    (tmp_path / "graph.quant").write_text(f'"x": {code};\n"y": {code};\n')
    with pytest.raises(LimitExceeded, match=r"\[limit\.elements\]"):
        lower(nnef.load(tmp_path))


@pytest.mark.parametrize("operation", ["max_pool", "argmax_pool"])
def test_zeros_of_the_border_lie_between_the_codes_next_to_them(operation: str, tmp_path: Path) -> None:
    """Zero is 63.27 steps above the least number: greater than the code 63, less than the code 64."""
    (tmp_path / "graph.nnef").write_text(
        "version 1.0; graph net( x ) -> ( y ) { x = external(shape = [1, 1, 1, 9]); "
        f"y = {operation}(x, size = [1, 1, 1, 2], padding = [(0, 0), (0, 0), (0, 0), (1, 0)], border = 'constant', "
        "stride = [1, 1, 1, 1], dilation = [1, 1, 1, 1]); }"
    )
    numbers = "linear_quantize(min = -0.33, max = 1.0, bits = 8)"
    (tmp_path / "graph.quant").write_text(f'"x": {numbers};' + (f'"y": {numbers};' if operation == "max_pool" else ""))
    program = lower(nnef.load(tmp_path))
    quantizer = LinearQuantizer.linear(Fraction("-0.33"), Fraction(1), 8)
    zero = exact_code(Fraction(0), quantizer)
    executor = create("numpy", verify(program))
    for first in range(58, 70):
        codes = np.array([[[[first, 0, 5, 255, 63, 64, 65, 62, 1]]]], np.int32)
        found = executor.run({"x": codes}, {}).values[program.outputs[0].value].ravel().tolist()
        windows = list(zip([None, *codes.ravel().tolist()], codes.ravel().tolist(), strict=False))
        if operation == "max_pool":
            border = first if first > 63 else zero
            assert found == [border, *(max(pair) for pair in windows[1:])]
        else:
            assert found == [int(first > 63), *(int(b > a) for a, b in windows[1:])]
