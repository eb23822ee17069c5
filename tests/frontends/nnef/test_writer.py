"""What is saved is read back to the same graph."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid, Unsupported
from cvm.frontends import nnef
from cvm.frontends.nnef.quantizer_text import algorithm_text
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, TensorData
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from tests.frontends.nnef.documents import SHARED, corpus, error_of, flat, folders, graph


def assert_same(first: QuantizedGraph, second: QuantizedGraph) -> None:
    assert (first.name, first.inputs, first.outputs) == (second.name, second.inputs, second.outputs)
    assert list(first.tensors) == list(second.tensors)
    for a, b in zip(first.tensors.values(), second.tensors.values(), strict=True):
        assert (a.shape, a.kind, a.dtype, a.quantizer, a.label) == (b.shape, b.kind, b.dtype, b.quantizer, b.label)
        assert (a.data is None) == (b.data is None)
        if a.data is not None and b.data is not None:
            assert a.data.quantizer == b.data.quantizer
            assert a.data.values.dtype == b.data.values.dtype
            assert a.data.values.tobytes() == b.data.values.tobytes()
    for p, q in zip(first.operations, second.operations, strict=True):
        assert (p.name, p.outputs, dict(p.inputs)) == (q.name, q.outputs, dict(q.inputs))
        assert dict(p.attributes) == dict(q.attributes)
        assert repr(p.attributes) == repr(q.attributes)  # True is not 1


def round_trip(model: QuantizedGraph, name: str = "model") -> QuantizedGraph:
    with tempfile.TemporaryDirectory() as folder:
        nnef.save(model, Path(folder) / name)
        return nnef.load(Path(folder) / name)


@pytest.mark.parametrize("entry", corpus("valid") + corpus("quant-valid") + corpus("container-valid"))
def test_the_corpus_survives(entry: dict[str, Any], tmp_path: Path) -> None:
    try:
        model = nnef.load(SHARED / "nnef" / "corpus" / entry["file"])
    except Unsupported:
        return  # custom operations and strings have no graph
    assert_same(round_trip(model), model)


@pytest.mark.sweep
@pytest.mark.parametrize("folder", folders("models/digits") + folders("models/real"))
@pytest.mark.parametrize("name", ["model", "model.tgz"])
def test_models_survive(folder: Path, name: str) -> None:
    model = nnef.load(folder)
    assert_same(round_trip(model, name), model)


_RATIONALS = st.fractions(-100, 100, max_denominator=1000)
_POSITIVE = st.fractions(Fraction(1, 1000), 100, max_denominator=1000)


@st.composite
def quantizers(draw: st.DrawFn) -> Quantizer:
    """Quantisers of the four algorithms, for a tensor of shape [3, 2]."""
    signed, symmetric = draw(st.booleans()), draw(st.booleans())
    axis = draw(st.sampled_from([None, 0, 1]))
    count = {None: 1, 0: 3, 1: 2}[axis]
    bits = draw(st.integers(2, 31))
    lists = st.lists(_POSITIVE, min_size=count, max_size=count).map(tuple)
    match draw(st.integers(0, 3)):
        case 0:
            return LogarithmicQuantizer.of(Fraction(2) ** draw(st.integers(-1000, 1000)), draw(st.integers(1, 16)))
        case 1:
            minimum = draw(_RATIONALS)
            return LinearQuantizer.linear(minimum, minimum + draw(_POSITIVE), draw(st.integers(1, 31)))
        case 2:
            zeros = draw(st.lists(st.integers(-300, 300), min_size=count, max_size=count).map(tuple))
            return LinearQuantizer.zero_point(zeros, draw(lists), bits + 1, signed, symmetric, axis)
    minima = draw(st.lists(_RATIONALS, min_size=count, max_size=count).map(tuple))
    maxima = tuple(low + step for low, step in zip(minima, draw(lists), strict=True))
    return LinearQuantizer.min_max(minima, maxima, bits, signed, symmetric, axis)


def _items(dtype: str) -> st.SearchStrategy[Any]:
    if dtype[0] == "f":
        width: Any = int(dtype[1]) * 8
        return st.floats(width=width, allow_nan=False, allow_infinity=False)
    limits = np.iinfo(dtype)
    return st.integers(int(limits.min), int(limits.max))


@st.composite
def contents(draw: st.DrawFn, quantizer: Quantizer | None) -> TensorData:
    """Contents of every kind that a tensor file has."""
    kind = draw(st.sampled_from(["values", "own", "linear", "logarithmic"]))
    if kind == "own" and isinstance(quantizer, LinearQuantizer):
        items = draw(st.lists(st.integers(quantizer.lo, quantizer.hi), min_size=6, max_size=6))
        return TensorData(np.array(items, "i8" if quantizer.lo < 0 else "u8").reshape(3, 2), quantizer)
    if kind == "linear":
        bits = draw(st.integers(1, 33))
        items = draw(st.lists(st.integers(0, 2**bits - 1), min_size=6, max_size=6))
        raw = np.array(items, np.uint64).reshape(3, 2)
        low = draw(st.integers(-100, 100)) / 8
        return nnef.read_tensor(nnef.write_tensor(raw, bits, nnef.ItemType.LINEAR, low, low + 3.5)).data
    if kind == "logarithmic":
        bits = draw(st.integers(2, 16))
        items = draw(st.lists(st.integers(0, 2**bits - 1), min_size=6, max_size=6))
        raw = np.array(items, np.uint64).reshape(3, 2)
        low = draw(st.sampled_from([0.0, -0.75]))
        return nnef.read_tensor(nnef.write_tensor(raw, bits, nnef.ItemType.LOGARITHMIC, low, 0.75)).data
    dtype = draw(st.sampled_from(["f2", "f4", "f8", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8"]))
    return TensorData(np.array(draw(st.lists(_items(dtype), min_size=6, max_size=6)), dtype).reshape(3, 2))


_BODIES = (
    "y = add(x, w);",
    "a, b = moments(x, axes = [0]); y = select(true, w, 1.0);",
    "[a, b] = split(w, axis = 1, ratios = [1,1]); y = add_n([a, 2.0, b]);",
    "y = pad(w, padding = [(0,1),(2,0)], value = 0.1);",
    "k = constant<integer>(shape = [2], value = [1,-2]); y = mul(w, x);",
    "l = constant<logical>(shape = [3], value = [true]); y = select<scalar>(l, w, 0.1);",
)


@st.composite
def graphs(draw: st.DrawFn) -> QuantizedGraph:
    """A small network, read from a document, with contents and quantisers put in."""
    body = "w = variable(shape = [3,2], label = 'a/w'); " + draw(st.sampled_from(_BODIES))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "graph.nnef"
        path.write_text(flat(body, "[3,2]"))
        model = nnef.load(path)
    quantizer = draw(st.none() | quantizers())
    tensors = dict(model.tensors)
    tensors["w"] = replace(tensors["w"], quantizer=quantizer, data=draw(contents(quantizer)))
    tensors["x"] = replace(tensors["x"], quantizer=draw(st.none() | quantizers()))
    return replace(model, tensors=tensors)


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(graphs(), st.sampled_from(["model", "model.tar", "model.tgz"]))
def test_graphs_survive(model: QuantizedGraph, name: str) -> None:
    w = model.tensors["w"]
    assert w.data is not None
    again = round_trip(model, name)
    stored = again.tensors["w"].data
    assert stored is not None
    if stored.values.dtype != w.data.values.dtype:  # codes come back in the smallest type of their width
        assert stored.values.tolist() == w.data.values.tolist()
        tensors = dict(model.tensors)
        tensors["w"] = replace(w, data=TensorData(stored.values, w.data.quantizer))
        model = replace(model, tensors=tensors)
    assert_same(again, model)


@given(quantizers())
def test_every_quantiser_of_an_algorithm_is_written_as_one(quantizer: Quantizer) -> None:
    text = algorithm_text(quantizer)
    assert text is not None


def test_the_same_graph_gives_the_same_bytes(tmp_path: Path) -> None:
    source = tmp_path / "graph.nnef"
    source.write_text(flat("y = relu(x);"))
    model = nnef.load(source)
    nnef.save(model, tmp_path / "a.tgz")
    nnef.save(model, tmp_path / "b.tgz")
    assert (tmp_path / "a.tgz").read_bytes() == (tmp_path / "b.tgz").read_bytes()


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    source = tmp_path / "graph.nnef"
    source.write_text(flat("y = relu(x);"))
    model = nnef.load(source)
    before = source.read_bytes()
    for path in (tmp_path, source):
        assert error_of(partial(nnef.save, model, path)).code == "nnef.container.exists"
    assert source.read_bytes() == before
    blocked = error_of(lambda: nnef.save(model, source / "below"))
    assert blocked.code == "nnef.container.unwritable"


def _with(model: QuantizedGraph, name: str, **changes: Any) -> QuantizedGraph:
    tensors: dict[str, GraphTensor] = {**model.tensors, name: replace(model.tensors[name], **changes)}
    return replace(model, tensors=tensors)


@pytest.fixture
def model(tmp_path: Path) -> QuantizedGraph:
    source = tmp_path / "source.nnef"
    source.write_text(
        graph("v = variable(shape = [2,3], label = 'v'); w = variable(shape = [2,3], label = 'w'); y = add(v, w);")
    )
    return nnef.load(source)


HALF_EVEN = LinearQuantizer((Fraction(1),), (Fraction(0),), 0, 255, rounding="half_even")
ODD = LinearQuantizer((Fraction(1),), (Fraction(0),), -3, 5)
SQUARE = LinearQuantizer((Fraction(1),) * 2, (Fraction(0),) * 2, -128, 127, 1)
DATA = TensorData(np.zeros((2, 3)))


@pytest.mark.parametrize(
    ("changes", "kind", "code"),
    [
        ({"x": {"quantizer": HALF_EVEN}}, Unsupported, "writer.quantizer"),
        ({"x": {"quantizer": ODD}}, Unsupported, "writer.quantizer"),
        ({"x": {"quantizer": SQUARE}}, Unsupported, "writer.quantizer"),
        ({"v": {"data": DATA}}, Invalid, "container.data"),
        ({"v": {"data": DATA, "label": "w"}, "w": {"data": TensorData(np.ones((2, 3)))}}, Invalid, "container.data"),
        ({"v": {"data": DATA, "label": "w.dat/v"}, "w": {"data": DATA}}, Invalid, "container.data"),
        ({"v": {"data": TensorData(np.zeros((2, 3), np.int8), ODD)}, "w": {"data": DATA}}, Unsupported, "writer.codes"),
        ({"v": {"data": TensorData(np.zeros((3, 2)))}, "w": {"data": DATA}}, Invalid, "writer.tensor"),
        ({"v": {"label": "../v"}}, Invalid, "argument-validity.label"),
        ({"y": {"shape": (3, 3)}}, Invalid, "writer.tensor"),
    ],
)
def test_what_nnef_cannot_say_is_refused_before_anything_is_written(
    model: QuantizedGraph, tmp_path: Path, changes: Mapping[str, Any], kind: type[Exception], code: str
) -> None:
    for name, change in changes.items():
        model = _with(model, name, **change)
    error = error_of(lambda: nnef.save(model, tmp_path / "model"))
    assert isinstance(error, kind)
    assert error.code == f"nnef.{code}"
    assert not (tmp_path / "model").exists()


def test_unknown_operations_are_refused(model: QuantizedGraph, tmp_path: Path) -> None:
    strange = replace(model, operations=(GraphOperation("fft", {}, {}, ("y",)),))
    error = error_of(lambda: nnef.save(strange, tmp_path / "model"))
    assert (error.code, error.location.op) == ("nnef.writer.operation", "fft")


def test_what_only_graphs_have_is_left_out_where_it_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(graph("y = softmax(x);"))
    plain = nnef.load(tmp_path / "graph.nnef")
    (softmax,) = plain.operations
    assert softmax.attributes["accuracy"] == "default"
    nnef.save(plain, tmp_path / "model")
    assert_same(plain, nnef.load(tmp_path / "model"))
    fine = replace(softmax, attributes={**softmax.attributes, "accuracy": "fine"})
    error = error_of(lambda: nnef.save(replace(plain, operations=(fine,)), tmp_path / "fine"))
    assert error.code == "nnef.writer.operation"
