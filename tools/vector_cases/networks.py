"""Small whole programs with a value: state, several outputs, pipelines, small networks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import prod
from typing import Any

from cvm.program import Output, Program, ProgramBuilder
from cvm.quantization.quantizer import LinearQuantizer, LogarithmicQuantizer
from tools.vector_cases.answers import vector_tensor
from tools.vector_cases.case import Tensor, parameter, tensor
from tools.vector_cases.stream import MAX, Stream
from tools.vector_cases.vision import rows

__all__ = ["NETWORKS", "Network", "network"]

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class Network:
    """A program, and the inputs of consecutive runs."""

    aim: str
    program: Program
    runs: Sequence[Inputs]


class _Builder(ProgramBuilder):
    """A builder that takes constants as tensors of cases, and drawn inputs from a stream."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.stream = Stream(f"programs/{name}")
        self._drawn: dict[str, tuple[tuple[int, ...], int, int]] = {}

    def given(self, name: str, shape: Sequence[int], lo: int = -128, hi: int = 127, **options: Any) -> str:
        """An input, whose data `network` draws."""
        self._drawn[name] = (tuple(shape), lo, hi)
        return self.input(name, shape, lo, hi, **options)

    def weights(self, shape: Sequence[int], largest: int = 127, name: str = "weights") -> str:
        """A drawn constant."""
        return self.fixed(self.stream.spread(shape, -largest, largest), name)

    def fixed(self, values: Tensor, name: str = "constant") -> str:
        """A constant."""
        return self.constant(vector_tensor(values).array(), name, values.kind)

    def numbers(self, elements: Sequence[int], shape: Sequence[int] = ()) -> str:
        """A parameter; a vector unless a shape is given."""
        return self.fixed(parameter(shape or (len(elements),), elements), "parameter")

    def one(self, op: str, *inputs: str, name: str | None = None, **attributes: Any) -> str:
        """The only result of an op."""
        (result,) = self.add(op, inputs, attributes, name)
        return result

    def conv(self, x: str, out: int, kernel: int, padding: int = 0, stride: int = 1, groups: int = 1) -> str:
        """A convolution with drawn weights and bias."""
        channels = self.shape(x)[1] // groups
        w, b = self.weights((out, channels, kernel, kernel)), self.weights((out,), 5000, "bias")
        pads, steps = (padding, padding), (stride, stride)
        return self.one("conv2d", x, w, b, padding=pads, stride=steps, dilation=(1, 1), groups=groups)

    def codes(self, x: str, rounding: str = "half_up", lo: int = -128, hi: int = 127) -> str:
        """Requantised to 8 bits, with a drawn multiplier per channel."""
        channels = self.shape(x)[1]
        m = [self.stream.between(2**30, 2**31) for _ in range(channels)]
        shape = (channels,) + (1,) * (len(self.shape(x)) - 2)
        s = 23 + max(abs(bound) for bound in self.range(x).hull()).bit_length()
        m_, c, s_ = self.numbers(m, shape), self.numbers([3 * 2**20]), self.numbers([s])
        return self.one("requantize", x, m_, c, s_, rounding=rounding, lo=lo, hi=hi)

    def network(self, aim: str, outputs: Mapping[str, str] | Sequence[Output], runs: int = 2) -> Network:
        """The program with these outputs (public name: value), and drawn inputs."""
        if isinstance(outputs, Mapping):
            outputs = [Output(name, value) for name, value in outputs.items()]
        drawn = [
            {name: self.stream.tensor(shape, lo, hi) for name, (shape, lo, hi) in self._drawn.items()}
            for _ in range(runs)
        ]
        return Network(aim, self.build(outputs), drawn)


def accumulator(b: _Builder) -> Network:
    """A state that sums its input and is clipped to its interval."""
    x = b.given("x", (2, 3), -1000, 1000)
    initial = b.fixed(tensor((2, 3), [0, 1, -1, 2500, -2500, 7]))
    total = b.state("total", initial, -3000, 3000)
    summed = b.one("elemwise_add", total, x, name="summed")
    clipped = b.one("clip", summed, a_min=-3000, a_max=3000, name="cut")
    b.update(total, clipped)
    return b.network("a state over six runs", {"before": total, "after": clipped}, runs=6)


def delay_line(b: _Builder) -> Network:
    """A shift register: the newest element in front, the oldest falls out."""
    x = b.given("x", (1, 2), -MAX, MAX)
    line = b.state("line", b.fixed(tensor((3, 2), range(6))), -MAX, MAX)
    longer = b.one("concatenate", x, line, axis=0)
    kept = b.one("slice", longer, begin=(0,), end=(3,), strides=())
    oldest = b.one("slice", longer, begin=(-1,), end=(), strides=())
    b.update(line, kept)
    return b.network("a state of several elements over five runs", {"oldest": oldest}, runs=5)


def exchanged_states(b: _Builder) -> Network:
    """Two states that swap their values, one that takes the input, one that never changes."""
    x = b.given("x", (2,), -9, 9)
    one = b.fixed(tensor((2,), [1, 1]))
    first, second = b.state("first", one, -9, 9), b.state("second", b.fixed(tensor((2,), [-5, 5])), -9, 9)
    last, fixed = b.state("last", one, -9, 9), b.state("fixed", one, 1, 1)
    for state, update in ((first, second), (second, first), (last, x), (fixed, one)):
        b.update(state, update)
    result = b.one("concatenate", first, second, last, fixed, axis=0)
    return b.network("states are all updated at once, after the run", {"all": result}, runs=4)


def valid_rows(b: _Builder) -> Network:
    """Both outputs of an op are outputs, and one of them is used again."""
    x = b.given("x", (2, 5, 3), -4, 4)
    count, kept = b.add("get_valid_count", [x], {"score_threshold": 0}, "valid")
    doubled = b.one("broadcast_mul", kept, b.fixed(tensor((1,), [2])))
    return b.network("an op of two outputs", {"count": count, "rows": kept, "doubled": doubled}, runs=3)


def detection(b: _Builder) -> Network:
    """get_valid_count, then non_max_suppression with the count that it found."""
    b.input("boxes", (2, 6, 6), -(2**20), 2**20)
    count, kept = b.add("get_valid_count", ["boxes"], {"score_threshold": 2}, "valid")
    attributes = {"iou_threshold": 40, "max_output_size": 3, "force_suppress": False, "top_k": 5}
    best = b.one("non_max_suppression", kept, count, name="best", **attributes)
    network = b.network("the detection pipeline", {"count": count, "best": best}, runs=0)
    runs = []
    for _ in range(3):
        s = b.stream
        batches = []
        for _ in range(2):
            corners = [(s.between(0, 6), s.between(0, 6), s.between(1, 6), s.between(1, 6)) for _ in range(6)]
            batches.append([(s.between(-1, 1), s.between(0, 9), x, y, x + w, y + h) for x, y, w, h in corners])
        runs.append({"boxes": rows(*batches)})
    return Network(network.aim, network.program, runs)


def several_terms(b: _Builder) -> Network:
    """Requantize with three terms: two accumulators per channel and a per-position correction."""
    x, y = b.given("x", (1, 3, 2, 2), -(2**20), 2**20), b.given("y", (1, 3, 2, 2), -(2**12), 2**12)
    border = b.weights((1, 1, 2, 2), 2**15, "border")
    ms = [
        b.numbers([2**40 + 7, -(2**38) - 1, 2**41 - 3], (3, 1, 1)),
        b.numbers([2**42 + 1]),
        b.numbers([-(2**39)] * 4, (2, 2)),
    ]
    c, s = b.numbers([2**55, -(2**55), 12345], (1, 3, 1, 1)), b.numbers([55, 56, 57], (3, 1, 1))
    named = {}
    for rounding in ("half_up", "half_even", "toward_zero"):
        named[rounding] = b.one(
            "requantize", x, y, border, *ms, c, s, rounding=rounding, lo=-128, hi=127, name=rounding
        )
    return b.network("requantize of three terms, in all roundings", named)


def residual_block(b: _Builder) -> Network:
    """Two convolutions and a residual addition in one requantize."""
    x = b.given("x", (1, 4, 5, 5))
    inner = b.codes(b.one("relu", b.conv(x, 4, 3, padding=1)), lo=0)
    outer = b.conv(inner, 4, 3, padding=1)
    m, n, c, s = b.numbers([2**31 - 99]), b.numbers([2**44]), b.numbers([1]), b.numbers([44])
    result = b.one("requantize", outer, x, m, n, c, s, rounding="half_even", lo=-128, hi=127, name="sum")
    return b.network("a residual block", {"y": b.one("relu", result)})


def depthwise(b: _Builder) -> Network:
    """A depthwise convolution with stride, and a pointwise one."""
    x = b.given("x", (2, 3, 6, 5))
    spatial = b.codes(b.conv(x, 6, 3, padding=1, stride=2, groups=3), "toward_zero")
    return b.network("depthwise separable convolution", {"y": b.codes(b.conv(spatial, 4, 1))}, runs=1)


def tiny_cnn(b: _Builder) -> Network:
    """A whole network: convolution, relu, shift, pooling, dense, the best class as one-hot."""
    x = b.given("image", (2, 1, 8, 8), 0, 255)
    first = b.one("cvm_right_shift", b.one("relu", b.conv(x, 4, 3, padding=1)), precision=8, shift_bit=9)
    pooled = b.one("max_pool2d", first, pool_size=(2, 2), padding=(0, 0), strides=(2, 2), ceil_mode=False)
    second = b.one("cvm_right_shift", b.one("relu", b.conv(pooled, 5, 3, stride=2)), precision=8, shift_bit=10)
    flat = b.one("reshape", second, target_shape=(2, prod(b.shape(second)[1:])))
    scores = b.one("dense", flat, b.weights((10, b.shape(flat)[1])), b.weights((10,), 900, "bias"), name="scores")
    best = b.one("max", scores, axes=(1,), keepdims=True, exclude=False)
    lower = b.one("broadcast_greater", best, scores)
    chosen = b.one("broadcast_sub", b.fixed(tensor((1,), [1])), lower, name="one_hot")
    return b.network("a small classifier", {"scores": scores, "best": chosen})


def table(b: _Builder) -> Network:
    """An activation as a table: shifted to codes, an offset added, looked up."""
    x = b.given("x", (3, 4), -MAX, MAX)
    codes = b.one("cvm_right_shift", x, precision=6, shift_bit=26)
    position = b.one("broadcast_add", codes, b.fixed(tensor((1,), [31])))
    entries = b.fixed(tensor((63,), [(k - 31) ** 3 for k in range(63)]))
    return b.network("a look-up table", {"y": b.one("cvm_lut", entries, position)})


def two_results(b: _Builder) -> Network:
    """Products of two computed tensors: no operand is a constant."""
    x = b.given("x", (2, 3))
    w = b.one("transpose", b.one("concatenate", x, x, axis=0), axes=())
    left, right = b.one("transpose", x, axes=(1, 0)), b.one("negative", w)
    product = b.one("dense", x, b.one("transpose", right, axes=(1, 0)))
    square = b.one("broadcast_mul", left, left)
    image = b.one("reshape", x, target_shape=(1, 1, 2, 3))
    kernel = b.one("slice", image, begin=(0, 0, 1), end=(), strides=())
    conv = b.one("conv2d", image, kernel, padding=(0, 2), stride=(1, 1), dilation=(1, 1), groups=1)
    return b.network("matrix products of results", {"product": product, "square": square, "conv": conv})


def skip_connection(b: _Builder) -> Network:
    """Pooling in ceil mode on the way down, copies on the way up, a slice, a concatenation with an earlier tensor."""
    x = b.given("x", (1, 2, 5, 7), -MAX, MAX)
    down = b.one("max_pool2d", x, pool_size=(3, 3), padding=(1, 1), strides=(2, 2), ceil_mode=True)
    up = b.one("upsampling", down, scale=2)
    sliced = b.one("slice_like", up, x, axes=(2, 3))
    return b.network("down, up and joined", {"y": b.one("concatenate", x, sliced, axis=1)})


def argmax(b: _Builder) -> Network:
    """The first index of the largest element, from document ops."""
    x = b.given("x", (3, 5), -3, 3)
    best = b.one("max", x, axes=(-1,), keepdims=True, exclude=False)
    index = b.fixed(tensor((5,), [4, 3, 2, 1, 0]))
    lower = b.one("broadcast_greater", best, x)
    shown = b.one(
        "where",
        lower,
        b.one("broadcast_mul", lower, b.fixed(tensor((1,), [-1]))),
        b.one("broadcast_add", index, b.one("broadcast_mul", lower, b.fixed(tensor((1,), [0])))),
    )
    last = b.one("max", shown, axes=(1,), keepdims=False, exclude=False)
    return b.network("argmax", {"index": b.one("broadcast_sub", b.fixed(tensor((1,), [4])), last)}, runs=3)


def direct(b: _Builder) -> Network:
    """No nodes at all: an input and a constant are outputs, one of them under two names."""
    x = b.given("x", (2,), -MAX, MAX)
    k = b.fixed(tensor((3,), [MAX, 0, -MAX]), "k")
    return b.network("outputs that no node computes", {"same": x, "again": x, "constant": k})


def constants_only(b: _Builder) -> Network:
    """No inputs: everything is known, and computed nevertheless."""
    y = b.one("broadcast_div", b.fixed(tensor((4,), [7, -7, MAX, 5])), b.fixed(tensor((2, 1), [2, 0])))
    return b.network("a program without inputs", {"y": y}, runs=1)


def movements(b: _Builder) -> Network:
    """Ops that only move elements, one after the other."""
    x = b.given("x", (2, 1, 3), -MAX, MAX)
    y = b.one("expand_dims", x, axis=-1, num_newaxis=2)
    y = b.one("squeeze", y, axes=(1, -1))
    y = b.one("repeat", y, axis=-2, repeats=2)
    y = b.one("tile", y, reps=(2, 1, 2))
    y = b.one("transpose", y, axes=(1, -1, 0))
    y = b.one("slice", y, begin=(-1, 0, 3), end=(-7, 2, -5), strides=(-2, 1, -1))
    y = b.one("take", y, b.fixed(tensor((2, 2), [2, -1, 9, 1])), axis=0)
    y = b.one("flatten", y)
    return b.network("movement ops in a chain", {"y": y})


def selection_by_zero(b: _Builder) -> Network:
    """Division by computed zeros, and a choice by a computed condition."""
    x, y = b.given("x", (3, 4), -9, 9), b.given("y", (3, 4), -2, 2)
    quotient = b.one("broadcast_div", x, y)
    bits = b.one("cvm_precision", x)
    size = b.one("abs", b.one("elemwise_sub", x, y))
    rows_ = b.one("sum", y, axes=(1,), keepdims=False, exclude=False)
    chosen = b.one("where", rows_, b.one("where", y, quotient, bits), size)
    return b.network(
        "x / 0 and where", {"y": b.one("broadcast_max", chosen, b.one("cvm_clip", x, precision=3))}, runs=3
    )


def quantised(b: _Builder) -> Network:
    """Inputs and outputs with quantisers: per tensor, and per channel; they are part of the digest."""
    linear = LinearQuantizer.linear(Fraction(-1), Fraction(3, 2), 8)
    x = b.given("x", (1, 2, 3), 0, 255, quantizer=linear)
    channels = LinearQuantizer(
        (Fraction(1, 3), Fraction(7, 1000)), (Fraction(0), Fraction(-1, 2)), -128, 127, 1, "half_even"
    )
    y = b.codes(b.one("broadcast_mul", x, b.weights((2, 1))))
    shifted = b.one("cvm_left_shift", y, precision=12, shift_bit=3)
    return b.network("quantisers", [Output("codes", y, channels), Output("raw", shifted)])


def powers(b: _Builder) -> Network:
    """Logarithmic quantisers of an input and an output; a table gives the numbers of the input's codes, times 2^7."""
    source, result = LogarithmicQuantizer(0, 3), LogarithmicQuantizer(4, 2)
    x = b.given("x", (2, 3), source.lo, source.hi, quantizer=source)
    numbers = [int(128 * source.value(code)) for code in range(source.lo, source.hi + 1)]
    index = b.one("broadcast_add", x, b.fixed(tensor((1,), [source.hi])))
    number = b.one("cvm_lut", b.fixed(tensor((len(numbers),), numbers)), index)
    total = b.one("sum", number, axes=(1,), keepdims=True, exclude=False)
    y = b.one("clip", b.one("broadcast_div", total, b.fixed(tensor((1,), [64]))), a_min=result.lo, a_max=result.hi)
    return b.network("logarithmic quantisers", [Output("y", y, result)])


def unsigned_words(b: _Builder) -> Network:
    """Sums of 21 bits over codes of 16 bits without a sign, requantized to 2 bits."""
    x = b.given("x", (1, 1, 1, 8), 0, 65535)
    sums = b.one("conv2d", x, b.fixed(tensor((1, 1, 1, 1), [-17])))
    m, c, s = b.numbers([2**13], (1, 1, 1, 1)), b.numbers([3 * 2**31], (1, 1, 1, 1)), b.numbers([31])
    y = b.one("requantize", sums, m, c, s, rounding="half_up", lo=0, hi=3)
    found = b.network("sums of unsigned 16-bit codes", {"y": y}, runs=1)
    codes = [0, 1, 100, 1000, 20000, 40000, 60000, 65535]
    return Network(found.aim, found.program, [*found.runs, {"x": tensor((1, 1, 1, 8), codes)}])


def wide_offsets(b: _Builder) -> Network:
    """Offsets near 2^63 beside a shift of 54: a bias of the stored codes would not fit beside them in 64 bits."""
    x = b.given("x", (1, 2, 1, 1), 0, 255)
    sums = b.one("conv2d", x, b.fixed(tensor((2, 2, 1, 1), [1, -1, -1, 1])))
    m, s = b.numbers([2**20, 2**20], (1, 2, 1, 1)), b.numbers([54])
    c = b.numbers([9 * 10**18, -2 * 10**18], (1, 2, 1, 1))
    return b.network(
        "offsets near 2^63", {"y": b.one("requantize", sums, m, c, s, rounding="half_up", lo=-128, hi=127)}
    )


def wide_multipliers(b: _Builder) -> Network:
    """Multipliers near 2^62 of small numbers, whose products fill 63 bits."""
    x = b.given("x", (1, 8), -2, 2)
    m = b.numbers([2**62 - 1 - 2**54 - k for k in range(8)], (1, 8))
    c, s = b.numbers([0], (1, 1)), b.numbers([30], (1, 1))
    narrow = b.one("requantize", x, m, c, s, rounding="half_up", lo=-128, hi=127)
    wide = b.one("requantize", x, m, c, b.numbers([55], (1, 1)), rounding="half_up", lo=-(2**20), hi=2**20)
    return b.network("multipliers near 2^62", {"narrow": narrow, "wide": wide})


def repeated_counts(b: _Builder) -> Network:
    """Detections whose count of valid rows is one element, repeated for all batches."""
    x, count = b.given("x", (3, 4, 6), -9, 9), b.given("count", (1,), 0, 4)
    limits: dict[str, Any] = {"iou_threshold": 50, "max_output_size": -1, "force_suppress": True, "top_k": -1}
    kept = b.one("non_max_suppression", x, b.one("tile", count, reps=(3,)), **limits)
    return b.network("one count for all batches", {"kept": kept}, runs=3)


NETWORKS: dict[str, Callable[[_Builder], Network]] = {
    function.__name__: function
    for function in (
        accumulator, delay_line, exchanged_states, valid_rows, detection, several_terms, residual_block, depthwise,
        tiny_cnn, table, two_results, skip_connection, argmax, direct, constants_only, movements, selection_by_zero,
        quantised, powers, unsigned_words, wide_offsets, wide_multipliers,
        repeated_counts,
    )
}  # fmt: skip
"""For each name, the function that builds the network."""


def network(name: str) -> Network:
    """The network of that name."""
    return NETWORKS[name](_Builder(name))
