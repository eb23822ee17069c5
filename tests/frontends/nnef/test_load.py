"""From documents to `QuantizedGraph`: every parameter present, exact constants, data and quantisers attached."""

from __future__ import annotations

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from cvm.errors import Invalid, LimitExceeded, Unsupported
from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer
from tests.frontends.nnef.documents import error_of, flat, folders, graph


def load_text(tmp_path: Path, text: str) -> QuantizedGraph:
    path = tmp_path / "document.nnef"
    path.write_text(text)
    return nnef.load(path)


def test_every_parameter_is_present(tmp_path: Path) -> None:
    body = "f = variable(shape = [4,2,3,3], label = 'f'); y = conv(x, f, padding = [(1,1),(1,2)]);"
    model = load_text(tmp_path, flat(body, "[1,2,8,8]"))
    (conv,) = model.operations
    assert dict(conv.inputs) == {"input": "x", "filter": "f", "bias": Fraction(0)}
    assert dict(conv.attributes) == {
        "border": "constant",
        "padding": ((1, 1), (1, 2)),
        "stride": (),
        "dilation": (),
        "groups": 1,
    }
    assert (conv.name, conv.outputs, conv.location.line) == ("conv", ("y",), 6)
    assert model.tensors["y"].shape == (1, 4, 8, 9)
    assert (model.tensors["f"].kind, model.tensors["f"].label, model.tensors["f"].data) == ("variable", "f", None)
    assert [tensor.kind for tensor in model.tensors.values()] == ["external", "variable", "computed"]
    assert (model.inputs, model.outputs, len(model.source_digest)) == (("x",), ("y",), 64)


def test_arrays_of_tensors_and_literals_are_operands(tmp_path: Path) -> None:
    model = load_text(tmp_path, graph("[a, b] = split(x, axis = 1, ratios = [1,2]); y = add_n([a, 1.5, a]);"))
    split, add_n = model.operations
    assert split.outputs == ("a", "b")
    assert dict(add_n.inputs) == {"x": ("a", Fraction(3, 2), "a")}


@pytest.mark.parametrize(
    ("values", "exact"),
    [
        ("[0.5, -1.0, 3.0]", [Fraction(1, 2), Fraction(-1), Fraction(3)]),
        ("[0.1, 0.2, -0.3]", [Fraction(1, 10), Fraction(1, 5), Fraction(-3, 10)]),
        ("[1.0 / 3.0, 0.5, 1.0]", [Fraction(1, 3), Fraction(1, 2), Fraction(1)]),
        ("[0.1]", [Fraction(1, 10)] * 3),
    ],
)
def test_constants_are_exact_rationals(tmp_path: Path, values: str, exact: list[Fraction]) -> None:
    model = load_text(tmp_path, graph(f"c = constant(shape = [1,3], value = {values}); y = add(x, c);"))
    data = model.tensors["c"].data
    assert data is not None
    assert data.values.shape == (1, 3)
    scale = data.quantizer.scale[0] if isinstance(data.quantizer, LinearQuantizer) else Fraction(1)
    assert [scale * Fraction(item) for item in data.values.ravel().tolist()] == exact


def test_constants_of_other_types(tmp_path: Path) -> None:
    body = """k = constant<integer>(shape = [2], value = [9007199254740993, -1]);
    l = constant<logical>(shape = [2,1], value = [true, false]); y = select(l, x, 0.0);"""
    model = load_text(tmp_path, flat(body))
    k, logical = model.tensors["k"].data, model.tensors["l"].data
    assert k is not None
    assert logical is not None
    assert k.values.tolist() == [9007199254740993, -1]
    assert logical.values.dtype == np.bool_
    assert model.tensors["l"].dtype == "logical"


def test_a_repeated_constant_takes_no_memory(tmp_path: Path) -> None:
    model = load_text(tmp_path, flat("c = constant(shape = [16384,16384], value = [1.0]); y = relu(x);"))
    data = model.tensors["c"].data
    assert data is not None
    assert data.values.strides == (0, 0)


@pytest.mark.parametrize("value", ["1e300, 1e-300", "1e19, 0.1"])
def test_constants_that_fit_no_type_are_a_limit(tmp_path: Path, value: str) -> None:
    error = error_of(lambda: load_text(tmp_path, flat(f"c = constant(shape = [2], value = [{value}]); y = relu(x);")))
    assert isinstance(error, LimitExceeded)
    assert error.location.tensor == "c"


def test_strings_are_not_computed_with(tmp_path: Path) -> None:
    text = "version 1.0;\ngraph g( x ) -> ( y )\n{\n    x = external<string>(shape = [2]); y = copy(x);\n}"
    assert isinstance(error_of(lambda: load_text(tmp_path, text)), Unsupported)


def test_a_missing_file_is_an_error_of_cvm(tmp_path: Path) -> None:
    error = error_of(lambda: nnef.load(tmp_path / "none"))
    assert isinstance(error, Invalid)
    assert error.code == "nnef.container.unreadable"
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.container.document"


def test_errors_name_the_file(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("y = relu(z);"))
    assert error_of(lambda: nnef.load(tmp_path)).location.file == str(tmp_path / "graph.nnef")


@pytest.mark.parametrize("folder", folders("models/digits"))
def test_the_digits_models_load(folder: Path) -> None:
    model = nnef.load(folder, dialect="1.0.1")
    quantised = re.findall(r'^"(\w+)": \w+_quantize', (folder / "graph.quant").read_text(), re.MULTILINE)
    assert quantised
    assert {tensor.name for tensor in model.tensors.values() if tensor.quantizer} == set(quantised)
    logarithmic = {
        tensor.name for tensor in model.tensors.values() if isinstance(tensor.quantizer, LogarithmicQuantizer)
    }
    assert bool(logarithmic) == (folder.name == "lenet_digits_logw")
    for tensor in model.tensors.values():
        if tensor.kind == "variable":
            assert tensor.data is not None
            assert tensor.data.values.shape == tensor.shape
    inputs = np.load(folder / "test_inputs.npy")
    extents = model.tensors[model.inputs[0]].shape[1:]
    assert inputs.shape[-len(extents) :] == extents


QDAT = [folder for folder in folders("models/digits") if folder.id == "lenet_digits_qdat" or folder.marks]


@pytest.mark.parametrize("folder", QDAT)
def test_stored_codes_keep_the_range_of_their_header(folder: Path) -> None:
    model = nnef.load(folder)
    w1 = model.tensors["w1"]
    assert w1.data is not None
    assert w1.quantizer is None
    minimum, maximum = Fraction(float(np.float32(-0.47589335))), Fraction(float(np.float32(0.37490502)))
    assert w1.data.quantizer == LinearQuantizer.linear(minimum, maximum, 8)
    assert w1.data.values.dtype == np.uint8
    assert model.tensors["conv1"].quantizer == LinearQuantizer.linear(Fraction("-1.4334759"), Fraction("1.4146512"), 8)


@pytest.mark.parametrize("folder", folders("nnef/khronos_cts"))
def test_the_conformance_cases_load_with_the_shape_of_their_output(folder: Path) -> None:
    model = nnef.load(folder)
    for name in model.outputs:
        data = (folder / f"{name}.dat").read_bytes()
        assert model.tensors[name].shape == nnef.read_tensor(data).header.shape


AMBIGUOUS = {"person_detect": 8, "micro_speech": 1}
"""Variables with two axes of the length of their list of scales (notes/nnef-in-practice.md)."""


@pytest.mark.sweep
@pytest.mark.parametrize("folder", folders("models/real"))
def test_the_real_networks_load_with_a_scale_per_output_channel(folder: Path) -> None:
    model = nnef.load(folder)
    assert nnef.check(folder).dialect == "khronos"
    assert error_of(lambda: nnef.load(folder, dialect="1.0.1")).location.line is not None
    ambiguous = 0
    for tensor in model.tensors.values():
        quantizer = tensor.quantizer
        if tensor.kind == "variable":
            assert tensor.data is not None
            assert tensor.data.quantizer == quantizer
        if isinstance(quantizer, LinearQuantizer) and quantizer.axis is not None:
            assert tensor.shape[quantizer.axis] == len(quantizer.scale)
            ambiguous += tensor.kind == "variable" and tensor.shape.count(len(quantizer.scale)) > 1
    assert ambiguous == AMBIGUOUS.get(folder.name, 0)
    for operation in model.operations:
        if operation.name == "conv":
            kernel = model.tensors[str(operation.inputs["filter"])].quantizer
            assert isinstance(kernel, LinearQuantizer)
            assert kernel.axis == 0
    with np.load(folder / "expected.npz") as expected:
        assert expected["input"].shape[1:] == model.tensors[model.inputs[0]].shape


def test_codes_need_their_linear_quantiser(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("w = variable(shape = [2], label = 'w'); y = add(x, w);"))
    (tmp_path / "w.dat").write_bytes(nnef.write_tensor(np.array([-3, 4], np.int8), item=nnef.ItemType.SIGNED_CODE))
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.tensor-file.codes"
    quant = tmp_path / "graph.quant"
    quant.write_text("'w': logarithmic_quantize(max = 1.0, bits = 4);")
    assert error_of(lambda: nnef.load(tmp_path)).code == "nnef.tensor-file.codes"
    arguments = "zero_point = 1, scale = 0.5, bits = {}, signed = true, symmetric = false"
    quant.write_text(f"'w': zero_point_linear_quantize({arguments.format(3)});")
    error = error_of(lambda: nnef.load(tmp_path))
    assert (error.code, error.location.tensor) == ("nnef.tensor-file.codes", "w")
    quant.write_text(f"'w': zero_point_linear_quantize({arguments.format(4)});")
    w = nnef.load(tmp_path).tensors["w"]
    assert w.data is not None
    assert w.data.quantizer == w.quantizer
    assert error_of(lambda: nnef.load(tmp_path, quant=False)).code == "nnef.tensor-file.codes"
    (tmp_path / "graph.quant").unlink()
    assert error_of(lambda: nnef.load(tmp_path, dialect="1.0.1")).code == "nnef.tensor-file.item"


def test_the_range_of_a_file_is_for_storage_and_the_quantization_file_for_computation(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(flat("w = variable(shape = [2], label = 'w'); y = add(x, w);"))
    stored = nnef.write_tensor(np.array([0, 15], np.uint8), 4, nnef.ItemType.LINEAR, -1.0, 2.0)
    (tmp_path / "w.dat").write_bytes(stored)
    (tmp_path / "graph.quant").write_text("'w': linear_quantize(min = -3.0, max = 3.0, bits = 8);")
    w = nnef.load(tmp_path).tensors["w"]
    assert w.quantizer == LinearQuantizer.linear(Fraction(-3), Fraction(3), 8)
    assert w.data is not None
    assert w.data.quantizer == LinearQuantizer.linear(Fraction(-1), Fraction(2), 4)


def test_a_logical_variable_is_of_logical_values(tmp_path: Path) -> None:
    (tmp_path / "graph.nnef").write_text(
        flat("w = variable<logical>(shape = [2], label = 'w'); y = select(w, x, 0.0);")
    )
    (tmp_path / "w.dat").write_bytes(nnef.write_tensor(np.array([0, 1], np.uint8)))
    data = nnef.load(tmp_path).tensors["w"].data
    assert data is not None
    assert data.values.tolist() == [False, True]
    assert data.values.dtype == np.bool_
