"""Files: what is no model, what is broken, what is refused, and what is mended."""

from __future__ import annotations

import math
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm.calibration import Settings
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.formats import model_format
from cvm.frontends import tflite
from cvm.frontends.tflite.writing import Graph, Operator, Tensor, written
from cvm.limits import DEFAULT
from cvm.lowering import lower
from cvm.quantizing import decibels, quantize_completed
from cvm.reference import Reference
from tests.frontends.tflite.exact import compiled, run

X, Y = Tensor((1, 4), "int8", (0.5,), (1,)), Tensor((1, 4), "int8", (0.25,), (0,))
WEIGHTS = Tensor((3, 4), "int8", (0.1, 0.2, 0.3), (), 0, np.arange(12).reshape(3, 4))
RELU = Graph([X, Y], [Operator("RELU", [0], [1])], [0], [1])


def refused(*graphs: Graph, **options: Any) -> CvmError:
    with pytest.raises(CvmError) as caught:
        lower(tflite.loads(written(*graphs, **options)).graph)
    return caught.value


def test_a_model_is_known_by_its_first_bytes(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(written(RELU))
    assert model_format(file) == "tflite"
    assert model_format(tmp_path / "missing.tflite") == "tflite"
    assert model_format(tmp_path / "missing.onnx") == "onnx"
    assert model_format(tmp_path) == "nnef"
    assert cvm.compile(file).digest == compiled(RELU).digest
    with pytest.raises(Invalid, match="quant and variant are for an NNEF model"):
        cvm.compile(file, quant=tmp_path / "graph.quant")


def test_names_are_those_of_the_tensors_and_unique() -> None:
    tensors = [replace(X, name="same"), replace(Y, name="same"), replace(Y, name="out")]
    graph = Graph(tensors, [Operator("RELU", [0], [1]), Operator("ABS", [1], [2])], [0], [2])
    program = compiled(graph)
    assert [item.value.name for item in program.inputs] == ["same"]
    assert [output.name for output in program.outputs] == ["out"]


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", Malformed),
        (b"TFL3", Malformed),
        (b"\0\0\0\0TFL3", CvmError),
        (b"\xff\xff\xff\xffTFL3" + b"\xff" * 40, Malformed),
        (b"\x08\0\0\0TFL3" + b"\0" * 8, CvmError),
    ],
)
def test_bytes_that_are_no_model(data: bytes, kind: type[CvmError]) -> None:
    with pytest.raises(kind):
        tflite.loads(data)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    for path in (tmp_path / "none.tflite", tmp_path):
        with pytest.raises(CvmError) as caught:
            tflite.load(path)
        assert caught.value.location.file == str(path)


@pytest.mark.parametrize(
    ("graph", "code", "words"),
    [
        (Graph([X, Y], [Operator("WHERE", [0], [1])], [0], [1]), "tflite.operator", "operator 0, WHERE"),
        (Graph([X, Y], [Operator("CUSTOM.Mine", [0], [1])], [0], [1]), "tflite.operator", "CUSTOM.Mine"),
        (Graph([X, Y], [Operator("RELU", [0], [7])], [0], [1]), "tflite.index", "names tensor 7 of 2"),
        (Graph([X, Y], [Operator("RELU", [0], [1])], [5], [1]), "tflite.index", "an input or an output"),
        (Graph([X, Y], [Operator("VAR_HANDLE", [], [])], [0], [1]), "tflite.operator.outputs", "has no result"),
        (Graph([X, Y], [Operator("RELU", [1], [1])], [0], [1]), "tflite.order", "read before it is computed"),
        (Graph([X, replace(Y, shape=(4, 1))], RELU.operators, [0], [1]), "tflite.operator.shape", "[4, 1]"),
        (Graph([replace(X, scales=(0.0,)), Y], RELU.operators, [0], [1]), "tflite.quantization", "not above 0"),
        (Graph([replace(X, scales=(float("nan"),)), Y], RELU.operators, [0], [1]), "tflite.quantization", "scale"),
        (
            Graph([replace(X, scales=(1.0, 2.0, 3.0, 4.0)), Y], RELU.operators, [0], [1]),
            "tflite.quantization",
            "per axis",
        ),
        (Graph([Tensor((1, 4), "float32"), Y], RELU.operators, [0], [1]), "tflite.float", "float32"),
    ],
)
def test_broken_and_unreadable_models(graph: Graph, code: str, words: str) -> None:
    error = refused(graph)
    assert error.code == code
    assert words in error.message


def test_other_versions_of_the_schema_are_refused() -> None:
    error = refused(RELU, version=2)
    assert isinstance(error, Unsupported)
    assert error.code == "tflite.version"


def dense(weights: Tensor) -> Graph:
    result = Tensor((1, 3), "int8", (2.0,), (0,))
    return Graph([X, weights, result], [Operator("FULLY_CONNECTED", [0, 1], [2])], [0], [2])


def test_a_wrong_axis_of_scales_is_mended_where_one_axis_alone_fits() -> None:
    right, wrong = compiled(dense(WEIGHTS)), compiled(dense(replace(WEIGHTS, axis=1)))
    codes = np.array([[100, -100, 50, 7]])
    np.testing.assert_array_equal(run(right, [codes])[0], run(wrong, [codes])[0])
    square = Tensor((4, 4), "int8", (0.1, 0.2, 0.3, 0.4), (), 9, np.arange(16).reshape(4, 4))
    result = Tensor((1, 4), "int8", (2.0,), (0,))
    error = refused(Graph([X, square, result], [Operator("FULLY_CONNECTED", [0, 1], [2])], [0], [2]))
    assert error.code == "tflite.quantization"


def test_contents_must_have_the_bytes_of_the_shape() -> None:
    short = replace(WEIGHTS, shape=(3, 5))
    assert refused(dense(short)).code == "tflite.contents"
    floats = Tensor((1, 4), "float32", values=np.array([[1.0, np.nan, 0.0, 2.0]]))
    graph = Graph([X, floats, Y], [Operator("ADD", [0, 1], [2])], [0], [2])
    assert refused(graph).code == "tflite.nan"


def test_limits_are_checked_before_anything_is_collected() -> None:
    with pytest.raises(LimitExceeded):
        tflite.loads(written(RELU), replace(DEFAULT, nodes=1))
    with pytest.raises(LimitExceeded):
        tflite.loads(written(Graph([replace(X, shape=(2**20, 2**20)), Y], RELU.operators, [0], [1])))


def test_state_is_read_assigned_and_kept() -> None:
    state = Tensor((1, 4), "int8", (0.5,), (1,), values=np.array([[1, 2, 3, 4]]))
    handle = Tensor((), "resource")
    names = {"Container": "", "SharedName": "memory"}
    tensors = [X, handle, replace(X, name="old"), replace(X, name="sum"), replace(X, name="again")]
    main = Graph(
        tensors,
        [
            Operator("CALL_ONCE", [], [], "CallOnceOptions", {"InitSubgraphIndex": 1}),
            Operator("VAR_HANDLE", [], [1], "VarHandleOptions", names),
            Operator("READ_VARIABLE", [1], [2]),
            Operator("ADD", [0, 2], [3], "AddOptions", {}),
            Operator("ASSIGN_VARIABLE", [1, 3], []),
            Operator("READ_VARIABLE", [1], [4]),
        ],
        [0],
        [2, 4],
    )
    first = Graph(
        [handle, state],
        [
            Operator("VAR_HANDLE", [], [0], "VarHandleOptions", names),
            Operator("ASSIGN_VARIABLE", [0, 1], []),
        ],
        [],
        [],
    )
    program = compiled(main, first)
    session = cvm.Session(program, executor="numpy")
    kept, given = np.array([[1, 2, 3, 4]]), np.array([[5, 1, -9, 100]])
    for _ in range(4):
        result = session.run({"t0": given.astype(np.int32)}, codes=True)
        after = np.clip(kept + given - 1, -128, 127)  # both have the zero point 1
        np.testing.assert_array_equal(result["old"], kept)
        np.testing.assert_array_equal(result["again"], after)
        kept = after


def test_svdf_keeps_its_products() -> None:
    """Two filters of memory 3 and rank 2: the sum of both over the last three inputs."""
    source, result = Tensor((1, 2), "int8", (0.5,), (0,)), Tensor((1, 1), "int8", (0.25,), (0,))
    features = Tensor((2, 2), "int8", (0.5,), (0,), values=np.array([[1, 2], [3, -1]]))
    times = Tensor((2, 3), "int16", (0.25,), (0,), values=np.array([[1, 2, 3], [-1, 1, 2]]))
    bias = Tensor((1,), "int32", (0.03125,), (0,), values=np.array([4]))
    state = Tensor((1, 6), "int16", (0.25,), (0,), is_variable=True, name="memory")
    operator = Operator("SVDF", [0, 1, 2, 3, 4], [5], "SVDFOptions", {"Rank": 2})
    program = compiled(Graph([source, features, times, bias, state, result], [operator], [0], [5]))
    session = cvm.Session(program, executor="numpy")
    products: list[list[int]] = [[0, 0]] * 3
    for codes in ([4, 6], [-3, 9], [120, -7], [1, 1]):
        products = [*products[1:], [codes[0] + 2 * codes[1], 3 * codes[0] - codes[1]]]
        total = Fraction(4, 32)
        for step, (a, b) in enumerate(products):
            total += Fraction(a * [1, 2, 3][step] + b * [-1, 1, 2][step], 16)
        found = session.run({"t0": np.array([codes], np.int32)}, codes=True)
        expected = max(-128, min(127, int((total * 4 + Fraction(1, 2)) // 1)))
        assert found["t5"].tolist() == [[expected]]


def mutated(random_: random.Random, data: bytes) -> bytes:
    """A file with some bytes, or some 32-bit words, changed; or a part of it."""
    kind = random_.random()
    if kind < 0.1:
        return data[: random_.randrange(len(data))]
    changed = bytearray(data)
    for _ in range(random_.choice((1, 1, 2, 5, 20))):
        at = random_.randrange(8, len(data) - 4)
        if kind < 0.5:
            changed[at] = random_.randrange(256)
        else:
            word = random_.choice(
                (0, 1, 2**31 - 1, 2**32 - 1, 2**31, random_.randrange(2**32), random_.randrange(len(data)))
            )
            changed[at : at + 4] = struct.pack("<I", word)
    return bytes(changed)


@pytest.mark.parametrize("seed", range(4))
def test_changed_files_are_read_or_refused(seed: int) -> None:
    random_ = random.Random(seed)
    sources = [written(RELU), written(dense(WEIGHTS))]
    refusals = 0
    for _ in range(250):
        try:
            lower(tflite.loads(mutated(random_, random_.choice(sources))).graph)
        except CvmError:
            refusals += 1
    assert refusals > 100


def half_up(x: Fraction, lo: int, hi: int) -> int:
    return max(lo, min(hi, int((x + Fraction(1, 2)) // 1)))


def gate(function: Callable[[float], float], code: int) -> int:
    """A function of a multiple of 2^-12 as one of 2^-15; float64 decides what is not within 1e-7 of a tie."""
    steps = function(code / 2**12) * 2**15
    assert abs(steps - math.floor(steps) - 0.5) > 1e-7
    return max(-(2**15), min(2**15 - 1, math.floor(steps + 0.5)))


@pytest.mark.long
def test_lstm_rounds_where_its_kernels_do() -> None:
    """One unit over two steps, run three times: the state goes on."""
    numbers = np.random.default_rng(3)
    tensors = [Tensor((1, 2, 2), "int8", (0.05,), (3,))]
    weights = [numbers.integers(-127, 128, (1, depth)) for depth in (2, 2, 2, 2, 1, 1, 1, 1)]
    tensors += [Tensor(items.shape, "int8", (0.01,), (0,), values=items) for items in weights]
    biases = [numbers.integers(-900, 900, (1,)) for _ in range(4)]
    scale = float(np.float32(0.05) * np.float32(0.01))
    tensors += [Tensor((1,), "int32", (scale,), (0,), values=items) for items in biases]
    tensors.append(Tensor((1, 1), "int8", (1 / 128,), (-4,), is_variable=True))
    tensors.append(Tensor((1, 1), "int16", (2.0**-11,), (0,), is_variable=True))
    tensors.append(Tensor((1, 2, 1), "int8", (1 / 128,), (-4,)))
    inputs = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": 10.0, "TimeMajor": False}
    operator = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [15], "UnidirectionalSequenceLSTMOptions", options)
    program = compiled(Graph(tensors, [operator], [0], [15]))
    session = cvm.Session(program, executor="numpy")
    sx, sw = (Fraction(float(np.float32(item))) for item in (0.05, 0.01))
    sb, low, high = Fraction(float(np.float32(scale))), -(2**15), 2**15 - 1
    hidden, memory = -4, 0
    for _ in range(3):
        codes = numbers.integers(-128, 128, (1, 2, 2))
        expected = []
        for x in codes[0].tolist():
            gates = []
            for i in range(4):
                products = [int(w) * sw * (c - 3) * sx for w, c in zip(weights[i][0], x, strict=True)]
                real = sum(products, int(biases[i][0]) * sb)
                kept = int(weights[4 + i][0, 0]) * sw * Fraction(hidden + 4, 128)
                total = half_up(real * 2**12, low, high) + half_up(kept * 2**12, low, high)
                function = math.tanh if i == 2 else lambda v: 1 / (1 + math.exp(-v))
                gates.append(gate(function, max(low, min(high, total))))
            real = Fraction(gates[1] * memory, 2**26) + Fraction(gates[0] * gates[2], 2**30)
            memory = half_up(max(Fraction(-10), min(Fraction(10), real)) * 2**11, low, high)
            bounded = gate(math.tanh, 2 * memory) if abs(memory) < 2**14 else (high if memory > 0 else -(2**15))
            hidden = half_up(Fraction(gates[3] * bounded, 2**30) * 128 - 4, -128, 127)
            expected.append(hidden)
        found = session.run({"t0": codes.astype(np.int32)}, codes=True)
        assert found["t15"].ravel().tolist() == expected


def test_an_lstm_of_floats_keeps_its_state_as_codes() -> None:
    """Two units over three steps, run four times: as in float64 where nothing is rounded, and near it as a program."""
    numbers = np.random.default_rng(6)
    weights = [numbers.normal(size=(2, depth)).astype(np.float32) for depth in (3, 3, 3, 3, 2, 2, 2, 2)]
    biases = [numbers.normal(size=2).astype(np.float32) for _ in range(4)]
    tensors = [Tensor((1, 3, 3), "float32")]
    tensors += [Tensor(items.shape, "float32", values=items) for items in (*weights, *biases)]
    tensors += [Tensor((1, 2), "float32", is_variable=True) for _ in range(2)]
    tensors.append(Tensor((1, 3, 2), "float32"))
    inputs = [0, *range(1, 9), -1, -1, -1, *range(9, 13), -1, -1, 13, 14, -1, -1, -1, -1]
    options = {"FusedActivationFunction": 4, "CellClip": 0.0, "TimeMajor": False}
    operator = Operator("UNIDIRECTIONAL_SEQUENCE_LSTM", inputs, [15], "UnidirectionalSequenceLSTMOptions", options)
    data = written(Graph(tensors, [operator], [0], [15]))
    with pytest.raises(Unsupported, match="no operator quantises it"):
        tflite.loads(data)

    feeds = {"t0": numbers.normal(size=(4, 1, 3, 3))}
    hidden, memory, wanted = np.zeros(2), np.zeros(2), []
    for x in feeds["t0"].reshape(12, 3):
        sums = [w @ x + u @ hidden + b for w, u, b in zip(weights[:4], weights[4:], biases, strict=True)]
        enter, forget, exit_ = (1 / (1 + np.exp(-sums[i])) for i in (0, 1, 3))
        memory = forget * memory + enter * np.tanh(sums[2])
        hidden = exit_ * np.tanh(memory)
        wanted.append(hidden)
    loaded = tflite.loads(data, floats=True)
    found = Reference(loaded.graph).run_cycles(feeds)["t15"].reshape(12, 2)
    assert np.abs(found - np.array(wanted)).max() < 1e-12
    made = quantize_completed("lstm.tflite", loaded, feeds, Settings(bits=8, per_channel=True), cycles=True)
    assert len(made.program.state) == 2
    (ratio,) = decibels(made, feeds, cycles=True).values()
    assert ratio is not None
    assert ratio > 25
