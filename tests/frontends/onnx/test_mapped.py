"""Large files are mapped: what is read of them is what is read of their bytes."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from cvm.errors import CvmError
from cvm.frontends import onnx as front
from cvm.frontends.common import files
from cvm.frontends.onnx.wire import require_few_messages, without_contents
from tests.frontends.onnx.making import made

MODELS = sorted((Path(__file__).parent / "models").glob("*.onnx"))


def outcome(data: bytes | memoryview) -> str:
    """What a model is read as, in words: the error, or its tensors."""
    try:
        graph = front.loads(data).graph
    except CvmError as error:
        return f"{type(error).__name__} {error}"
    stored = ((tensor.name, tensor.data.values.tolist()) for tensor in graph.tensors.values() if tensor.data)
    return f"{graph.operations} {dict(stored)}"


@pytest.mark.parametrize("path", MODELS[:3], ids=lambda path: path.stem)
def test_a_model_without_its_contents_is_the_same_model(path: Path) -> None:
    data = path.read_bytes()
    shorter, contents = without_contents(data)
    parsed, whole = onnx.ModelProto(), onnx.ModelProto.FromString(data)
    parsed.ParseFromString(shorter)
    tensors = [tensor for tensor in parsed.graph.initializer if tensor.HasField("raw_data")]
    assert len(tensors) == len(contents.places) > 0
    for tensor in tensors:
        assert len(tensor.raw_data) == 8
        tensor.raw_data = bytes(contents.of(tensor.raw_data))
    assert parsed == whole
    assert outcome(memoryview(data)) == outcome(data)


def test_mutated_bytes_are_read_alike_in_memory_and_mapped() -> None:
    """The same tensors, or the same error: raw data given twice, cut off, of another length or in another message."""
    data = MODELS[-1].read_bytes()
    random = np.random.default_rng(11)
    seen = set()
    for _ in range(60):
        mutant = bytearray(data)
        for _ in range(int(random.integers(1, 4))):
            start, size = int(random.integers(len(mutant))), int(random.integers(1, 40))
            match random.integers(3):
                case 0:
                    mutant[start] = int(random.integers(256))
                case 1:
                    del mutant[start : start + size]
                case 2:
                    mutant[start:start] = mutant[start : start + size]
        found = outcome(bytes(mutant))
        assert outcome(memoryview(bytes(mutant))) == found
        seen.add(found[:12])
    assert len(seen) > 1


def test_of_raw_data_that_is_given_twice_the_last_counts() -> None:
    tensor = TensorProto(name="c", data_type=TensorProto.INT8, dims=[2], raw_data=b"\x01\x02")
    again = TensorProto(raw_data=b"\x05\x06").SerializeToString()
    node = helper.make_node("Add", ["x", "c"], ["y"])
    model = made([node], {"x": ("int8", (2,))}, {"y": "int8"})
    model.graph.initializer.append(tensor)
    before = tensor.SerializeToString()
    plain = model.SerializeToString()
    # The initializer is a field of the graph, and this one a field of the model: all three lengths grow.
    parts = plain.split(before)
    assert len(parts) == 2
    model.graph.ClearField("initializer")
    inner = model.graph.SerializeToString() + b"\x2a" + bytes([len(before) + len(again)]) + before + again
    model.ClearField("graph")
    data = model.SerializeToString() + b"\x3a" + bytes([len(inner)]) + inner
    require_few_messages(data)
    for form in (data, memoryview(data)):
        graph = front.loads(form).graph
        (stored,) = (item.data.values for item in graph.tensors.values() if item.data is not None)
        assert stored.tolist() == [5, 6]


@pytest.mark.parametrize("outside", [False, True])
def test_the_weights_of_a_large_file_are_not_copied(
    outside: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "LEAST_MAPPED", 2**16)
    weights = np.random.default_rng(2).normal(0, 1, (1024, 1024)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["y"])]
    model = made(nodes, {"x": ("float32", (1, 1024))}, {"y": "float32"})
    model.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    path = tmp_path / "m.onnx"
    onnx.save(model, path, save_as_external_data=outside, location="w.bin")
    front.load(path, floats=True)  # what is imported and cached stays
    tracemalloc.start()
    try:
        graph = front.load(path, floats=True).graph
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    stored = graph.tensors["w"].data
    assert stored is not None
    np.testing.assert_array_equal(stored.values, weights)
    assert not stored.values.flags.writeable
    assert peak < weights.nbytes / 4
