"""Sample programs for the native executor, with the results of NumPy."""

from __future__ import annotations

import pickle
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from cvm.cli.models import open_program
from cvm.demo import MODEL
from cvm.executors.base import initial_state
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder, decode, encode, verify
from cvm.program.verifier import VerifiedProgram
from cvm.vectors.format import ProgramCase
from cvm.vectors.format import decode as decode_vectors
from tools.planted.networks import AIMS, network

__all__ = ["Sample", "kept", "loaded", "sample", "samples"]

Tensors = Mapping[str, npt.NDArray[np.int32]]
VECTORS = Path(__file__).resolve().parents[2] / "spec_vectors" / "programs"
NETWORKS = 4
"""How many random networks each aim gets."""
FIRST = 4302
"""The first seed of these networks."""


@dataclass(frozen=True)
class Sample:
    """A program, runs that pass their state on, NumPy's results for each run, and feeds that must be refused."""

    name: str
    program: bytes
    feeds: tuple[Tensors, ...]
    values: tuple[Tensors, ...]
    states: tuple[Tensors, ...]
    refused: tuple[Tensors, ...]

    def verified(self) -> VerifiedProgram:
        """The program."""
        return verify(decode(self.program))


def samples(seed: int) -> list[Sample]:
    """All samples, the quickest first."""
    timed = []
    for number, (name, verified) in enumerate(_programs()):
        begin = time.perf_counter()
        one = sample(name, verified, seed + number)
        timed.append((time.perf_counter() - begin, number, one))
    return [one for _, _, one in sorted(timed, key=lambda one: (round(one[0], 2), one[1]))]


def kept(path: Path, made: list[Sample]) -> None:
    """Write samples to a file."""
    path.write_bytes(pickle.dumps(made))


def loaded(path: Path) -> list[Sample]:
    """The samples in a file that `kept` wrote."""
    found: list[Sample] = pickle.loads(path.read_bytes())
    return found


def _programs() -> Iterator[tuple[str, VerifiedProgram]]:
    for path in sorted(VECTORS.glob("*.msgpack")):
        cases = decode_vectors(path.read_bytes()).cases
        for case in cases:
            if isinstance(case, ProgramCase) and case.verdict == "value":
                yield f"{path.stem}/{case.id}", verify(decode(case.program))
    for aim in AIMS:
        for seed in range(FIRST, FIRST + NETWORKS):
            yield f"{aim}, {seed}", verify(network(aim, seed))
    for number, (size, force) in enumerate(((20, True), (20, False), (2**30, True), (2**30, False))):
        yield f"detections of boxes within {size}, {number}", _detections(size, force)
    for bits in (28, 31, 32, 33, 36, 44):
        yield f"requantizations of products of {bits} bits", _requantizations(bits)
    yield "reductions of wide integers", _reductions()
    yield "convolutions of many channels", _many()
    yield "a convolution of few large weights", _few_large()
    yield "convolutions in squares", _squares()
    yield "slices of slices, and computed weights", _odd()
    yield "the demo model", open_program(MODEL)


def _detections(size: int, force: bool) -> VerifiedProgram:
    """Many overlapping boxes; if they are small, with few scores and classes."""
    builder = ProgramBuilder()
    boxes = builder.input("boxes", (2, 43, 6), -size, size)
    count, rows = builder.add("get_valid_count", [boxes], {"score_threshold": -size // 2})
    outputs = [Output("count", count), Output("rows", rows)]
    for threshold in (1, 17, 50):
        attributes = {"iou_threshold": threshold, "max_output_size": -1, "force_suppress": force, "top_k": -1}
        (kept_,) = builder.add("non_max_suppression", [rows, count], attributes)
        outputs.append(Output(f"kept_{threshold}", kept_))
    return verify(builder.build(outputs))


def _many() -> VerifiedProgram:
    """Several blocks of channels, dense and depthwise; and sums of codes so small that every unit counts."""
    random = np.random.default_rng(150)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 150, 3, 4), -128, 127)
    attributes = {"lo": -100, "hi": 90, "rounding": "half_up"}

    def codes(sums: str, *more: str) -> str:
        ms = [random.integers(2**25, 2**26, (1, 150, 1, 1)), *(np.full(1, 2**20) for _ in more)]
        shift = 25 + builder.range(sums).magnitude().bit_length() - 10
        parameters = [*ms, random.integers(-(2**20), 2**20, (1, 150, 1, 1)), np.full(1, shift)]
        return builder.add("requantize", [sums, *more, *map(builder.parameter, parameters)], attributes)[0]

    weights = [builder.constant(random.integers(-120, 120, shape)) for shape in ((150, 150, 1, 1), (150, 1, 5, 3))]
    (sums,) = builder.add("conv2d", [x, weights[0]])
    (other,) = builder.add("conv2d", [x, weights[1]], {"padding": (2, 1), "groups": 150})
    (pooled,) = builder.add("max_pool2d", [x], {"pool_size": (3, 3), "strides": (1, 1), "padding": (1, 1)})
    numbers = [builder.parameter(np.full(1, n)) for n in (5, -3, 1, 2)]
    (total,) = builder.add("requantize", [codes(sums), pooled, *numbers], attributes)
    return verify(builder.build([Output("total", total), Output("other", codes(other))]))


def _few_large() -> VerifiedProgram:
    """A convolution whose weights are mostly small: products of bytes that saturate take them in pairs of steps."""
    random = np.random.default_rng(40)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 40, 6, 7), -128, 127)
    weights = np.rint(random.normal(0, 30, (40, 40, 3, 3))).clip(-127, 127).astype(np.int64)
    (sums,) = builder.add("conv2d", [x, builder.constant(weights)], {"padding": (1, 1)})
    return verify(builder.build([Output("sums", sums)]))


def _squares() -> VerifiedProgram:
    """Convolutions of 3x3 windows, of sums that are as large as squares allow, and of sums beyond that."""
    random = np.random.default_rng(60)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 128, 11, 10), 0, 255)
    outputs = []
    for padding, largest in (((1, 1), 114), ((2, 0), 127)):
        weights = random.integers(-128, 128, (48, 128, 3, 3))
        weights[5] = largest
        inputs = [x, builder.constant(weights), builder.constant(random.integers(-9000, 9000, 48))]
        (sums,) = builder.add("conv2d", inputs, {"padding": padding})
        outputs.append(Output(f"sums_{largest}", sums))
    return verify(builder.build(outputs))


def _odd() -> VerifiedProgram:
    """Rare cases in random networks: slices of views that run backwards, groups with computed weights, pools."""
    builder = ProgramBuilder()
    x = builder.input("x", (2, 6, 5, 7), -100, 100)
    weights, bias = builder.input("weights", (4, 3, 2, 3), -90, 90), builder.input("bias", (4,), -900, 900)
    attributes = {"groups": 2, "padding": (1, 2), "stride": (2, 1), "dilation": (1, 2)}
    (sums,) = builder.add("conv2d", [x, weights, bias], attributes)
    (back,) = builder.add("slice", [x], {"begin": (1, 5), "end": (-4, -8), "strides": (-1, -1)})
    (part,) = builder.add("slice", [back], {"begin": (0, 1, 1, 2), "end": (2, 6, 4, 7), "strides": (1, 2, 1, 3)})
    (transposed,) = builder.add("transpose", [part], {"axes": (2, 0, 3, 1)})
    square = builder.input("square", (1, 20, 4, 4), -128, 127)
    (mirrored,) = builder.add("transpose", [square], {"axes": (0, 1, 3, 2)})
    (twice,) = builder.add("broadcast_sub", [square, mirrored])
    outputs = [Output("sums", sums), Output("transposed", transposed), Output("twice", twice)]
    for lo, hi in ((0, 255), (-3000, 3000), (-128, 127)):  # one geometry, other formats
        y = builder.input(f"y{-lo}", (1, 20, 4, 5), lo, hi)
        (most,) = builder.add("max_pool2d", [y], {"pool_size": (2, 2), "strides": (2, 1), "padding": (1, 0)})
        outputs.append(Output(f"most{-lo}", most))
    return verify(builder.build(outputs))


def _reductions() -> VerifiedProgram:
    """Maxima and sums of large negative numbers alone, along adjacent axes and others."""
    builder = ProgramBuilder()
    x = builder.input("x", (3, 5, 4, 37), -(2**19), -(2**17))
    outputs: list[Output] = []
    for axes in ((1,), (3,), (2, 3), (0, 2), ()):
        for op in ("sum", "max"):
            (result,) = builder.add(op, [x], {"axes": axes, "keepdims": True})
            outputs.append(Output(f"{op}{len(outputs)}", result))
    return verify(builder.build(outputs))


def _requantizations(bits: int) -> VerifiedProgram:
    """Requantizations of one and two tensors, per tensor and channel, in all roundings; ``bits`` sets arithmetic."""
    random = np.random.default_rng(bits)
    builder = ProgramBuilder()
    x = builder.input("x", (2, 21, 3, 5), -(2**16), 2**16 - 1)
    y = builder.input("y", (2, 21, 3, 5), -(2**12), 2**12)
    outputs: list[Output] = []
    for rounding in ("half_up", "half_even", "toward_zero"):
        for channels in (1, 21):
            shape = (1, channels, 1, 1)
            m, n = (random.integers(2 ** (bits - k - 2), 2 ** (bits - k - 1), shape) for k in (17, 17))
            c = random.integers(-(2 ** (bits - 3)), 2 ** (bits - 3), shape)
            attributes = {"lo": -120, "hi": 90, "rounding": rounding}
            for xs, ms in (((x,), (m,)), ((x, y), (m, -n))):
                parameters = [builder.parameter(array) for array in (*ms, c, np.full(1, bits - 8))]
                (codes,) = builder.add("requantize", [*xs, *parameters], attributes)
                outputs.append(Output(f"y{len(outputs)}", codes))
    return verify(builder.build(outputs))


def sample(name: str, verified: VerifiedProgram, seed: int) -> Sample:
    """Random feeds, extremes and random feeds, with NumPy's results; and feeds outside the intervals, to be refused."""
    program = verified.program
    random = np.random.default_rng((seed, 0xDEFEC7))
    sources = [one.value for one in program.inputs]

    def anything() -> Tensors:
        return {x.name: random.integers(x.lo, x.hi, x.shape, np.int32, endpoint=True) for x in sources}

    def ends() -> Tensors:
        return {x.name: random.choice(np.array([x.lo, x.hi], np.int32), x.shape) for x in sources}

    feeds = (anything(), ends(), anything())
    refused = []
    for x in sources:
        for beyond in (x.lo - 1, x.hi + 1):
            if -(2**31) <= beyond < 2**31:
                wrong = dict(anything())
                array = wrong[x.name].copy()
                array.reshape(-1)[random.integers(array.size)] = beyond
                refused.append({**wrong, x.name: array})
    numpy, state = NumpyExecutor(verified), initial_state(program)
    values, states = [], []
    for feed in feeds:
        result = numpy.run(feed, state, "all")
        values.append({**result.values, **numpy.run(feed, state).values})
        state = result.state
        states.append(dict(state))
    return Sample(name, encode(program), feeds, tuple(values), tuple(states), tuple(refused))
