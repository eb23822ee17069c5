"""What is read, what is refused, and where the message says what is wrong."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import cvm
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed, Unsupported
from cvm.frontends import onnx as front
from cvm.frontends.onnx import wire
from cvm.frontends.onnx.wire import require_few_messages
from tests.frontends.onnx.making import compiled, made, results, sandwich

MODELS = Path(__file__).parent / "models"


def add(**more: Any) -> onnx.ModelProto:
    return made(
        [helper.make_node("Add", ["x", "x"], ["y"], name="double")], {"x": ("int8", (2,))}, {"y": "int8"}, **more
    )


def refused(model: onnx.ModelProto, kind: type[CvmError], code: str, *parts: str) -> None:
    with pytest.raises(kind) as found:
        compiled(model)
    assert found.value.code == code, found.value
    for part in parts:
        assert part in str(found.value)


def test_integers_of_8_bits_wrap() -> None:
    assert results(add(), {"x": np.array([100, -3])})["y"].tolist() == [-56, -6]


def test_wider_integers_must_be_promised_to_fit() -> None:
    node = helper.make_node("Mul", ["x", "x"], ["y"], name="square")
    model = made([node], {"x": ("int32", (2,))}, {"y": "int32"})
    refused(model, Unsupported, "lowering.overflow", "'square'", "--input-range")
    assert results(model, {"x": np.array([-9, 7])}, ranges={"x": (-9, 9)})["y"].tolist() == [81, 49]


@pytest.mark.parametrize("cut", [1, 7, 100, 5000])
def test_a_file_that_is_cut_off_is_malformed_or_incomplete(cut: int) -> None:
    data = (MODELS / "lenet-qdq-tensor-uint8.onnx").read_bytes()
    with pytest.raises(CvmError):
        front.loads(data[: len(data) - cut])


def test_bytes_of_another_format_are_malformed() -> None:
    for data in (b"", b"\x00" * 40, b"hello, this is text", b"\x93\xabcvm-program"):
        with pytest.raises(Malformed):
            front.loads(data)


def test_there_may_be_four_million_messages() -> None:
    assert wire._MOST == 4_000_000


@pytest.mark.parametrize("most", [40_000, pytest.param(4_000_000, marks=pytest.mark.long)])
def test_messages_are_counted_before_they_become_objects(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "_MOST", most)
    many = b"\x0a\x00" * (most + 1)  # of a graph: nodes of no bytes
    size = len(many)
    head = b"\x3a" + bytes([size & 127 | 128, size >> 7 & 127 | 128, size >> 14 & 127 | 128, size >> 21])
    with pytest.raises(LimitExceeded, match="messages"):
        require_few_messages(head + many)
    require_few_messages((MODELS / "lenet-qdq-tensor-uint8.onnx").read_bytes())


def test_a_tensor_without_its_items_is_malformed_before_anything_is_allocated() -> None:
    model = made(
        [helper.make_node("Add", ["x", "c"], ["y"])], {"x": ("int8", (2,))}, {"y": "int8"}, {"c": np.int8([1, 2])}
    )
    model.graph.initializer[0].dims[:] = [2**27]
    refused(model, Malformed, "onnx.tensor", "'c'", "134217728")
    model.graph.initializer[0].dims[:] = [2**20, 2**20]
    refused(model, LimitExceeded, "limit.elements", "'c'")
    model.graph.initializer[0].dims[:] = [-2]
    refused(model, Malformed, "onnx.tensor")


def test_names_are_given_once_and_before_they_are_read() -> None:
    node = helper.make_node("Add", ["x", "late"], ["y"], name="early")
    late = helper.make_node("Neg", ["y"], ["late"])
    refused(made([node, late], {"x": ("int8", (2,))}, {"y": "int8"}), Invalid, "onnx.order", "'early'", "'late'")
    twice = [helper.make_node("Neg", ["x"], ["y"]), helper.make_node("Abs", ["x"], ["y"])]
    refused(made(twice, {"x": ("int8", (2,))}, {"y": "int8"}), Invalid, "onnx.name", "'y'")
    refused(
        made([helper.make_node("Neg", ["x"], ["z"])], {"x": ("int8", (2,))}, {"y": "int8"}),
        Invalid,
        "onnx.order",
        "'y'",
    )


def test_what_is_not_read_is_refused_by_name() -> None:
    x: Any = {"x": ("int8", (2,))}
    body = add().graph
    loop = helper.make_node("If", ["c"], ["y"], name="branch", then_branch=body, else_branch=body)
    refused(
        made([loop], {"c": ("bool", ())}, {"y": "int8"}), Unsupported, "onnx.operator", "'branch'", "If", "control flow"
    )
    refused(made([helper.make_node("Foo", ["x"], ["y"])], x, {"y": "int8"}), Unsupported, "onnx.operator", "Foo")
    other = helper.make_node("Bar", ["x"], ["y"], name="b", domain="org.example")
    refused(made([other], x, {"y": "int8"}), Unsupported, "onnx.unsupported", "'b'", "org.example")
    odd = helper.make_node("Add", ["x", "x"], ["y"], name="odd", colour=3)
    refused(made([odd], x, {"y": "int8"}), Unsupported, "onnx.unsupported", "'odd'", "colour")
    refused(made([], {"x": ("string", (2,))}, {"x": "string"}), Unsupported, "onnx.data-type", "string")
    refused(add(opset=99), Unsupported, "onnx.opset", "99")
    model = add()
    model.graph.sparse_initializer.add().values.name = "thin"
    refused(model, Unsupported, "onnx.sparse", "'thin'")
    model = add()
    model.training_info.add()
    refused(model, Unsupported, "onnx.training")


def test_floats_that_are_not_quantised_are_refused_by_node() -> None:
    node = helper.make_node("Relu", ["x"], ["y"], name="act")
    offer = "cvm quantize MODEL.onnx -i DATA -o model.cvm"
    refused(made([node], {"x": ("float32", (2,))}, {"y": "float32"}), Unsupported, "onnx.float", "'act'", "'x'", offer)
    dynamic = helper.make_node("DynamicQuantizeLinear", ["x"], ["y", "s", "z"], name="auto")
    refused(
        made([dynamic], {"x": ("float32", (2,))}, {"y": "uint8"}), Unsupported, "onnx.float", "'auto'", "statically"
    )
    model = sandwich("Relu", [(4,)], 0.5, {}, {})
    del model.graph.node[-1]
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("result", TensorProto.FLOAT, None))
    assert compiled(model).outputs[0].quantizer is not None  # a rectifier chooses among numbers of the grid
    model.graph.node[1].op_type = "Exp"
    refused(model, Unsupported, "onnx.float", "'tested'", "'result'")


def test_scales_must_be_constant_and_positive() -> None:
    model = sandwich("Relu", [(4,)], 0.5, {}, {})
    for tensor in model.graph.initializer:
        if tensor.name == "scale":
            tensor.CopyFrom(numpy_helper.from_array(np.float32(-1), "scale"))
    refused(model, Invalid, "onnx.node.scale")
    nodes = [helper.make_node("DequantizeLinear", ["x", "s"], ["y"])]
    refused(made(nodes, {"x": ("int8", (2,)), "s": ("float32", ())}, {"y": "float32"}), Unsupported, "onnx.float")


def test_open_extents_are_one_or_asked_for() -> None:
    node = helper.make_node("Neg", ["x"], ["y"])
    assert compiled(made([node], {"x": ("int8", ("N", 3))}, {"y": "int8"})).inputs[0].value.shape == (1, 3)
    model = made([node], {"x": ("int8", (1, "width"))}, {"y": "int8"})
    refused(model, Unsupported, "onnx.input", "width", "--input-shape x=")
    assert compiled(model, shapes={"x": (1, 5)}).inputs[0].value.shape == (1, 5)
    for wrong in ({"x": (2, 5)}, {"x": (1,)}, {"z": (1, 5)}, {"x": (1, 0)}):
        with pytest.raises(Invalid):
            compiled(model, shapes=wrong)
    both = made(
        [helper.make_node("Add", ["x", "z"], ["y"])], {"x": ("int8", ("a", "b")), "z": ("int8", ("b",))}, {"y": "int8"}
    )
    assert [item.value.shape for item in compiled(both, shapes={"x": (2, 4)}).inputs] == [(2, 4), (4,)]


def _stored_beside(folder: Path, location: str) -> Path:
    model = made(
        [helper.make_node("Add", ["x", "c"], ["y"])], {"x": ("int8", (2,))}, {"y": "int8"}, {"c": np.int8([1, 2])}
    )
    tensor = model.graph.initializer[0]
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", location), ("offset", "1"), ("length", "2")):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_read_within_the_folder_alone(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "weights.bin").write_bytes(bytes([9, 5, 250]))
    (tmp_path / "secret").write_bytes(b"\x00\x01\x02")
    program = cvm.compile(_stored_beside(folder, "data/weights.bin"))
    assert cvm.Session(program, "numpy").run({"x": np.array([1, 1])})["y"].tolist() == [6, -5]
    (folder / "link").symlink_to(tmp_path / "secret")
    for location in (
        "../secret",
        str(tmp_path / "secret"),
        "link",
        "",
        "data/../../secret",
        "C:/x",
        "..\\secret",
        "a\0b",
    ):
        with pytest.raises(Invalid, match=r"onnx\.external"):
            cvm.compile(_stored_beside(folder, location))
    for location in ("nothing", "data"):
        with pytest.raises(CvmError):
            cvm.compile(_stored_beside(folder, location))
    (folder / "data" / "weights.bin").write_bytes(bytes([9, 5]))
    with pytest.raises(Malformed, match="1 of 2 bytes"):
        cvm.compile(_stored_beside(folder, "data/weights.bin"))


def test_without_the_package_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(Unsupported, match=r"pip install 'cvm\[onnx\]'"):
        front.loads(b"")


def test_the_package_is_imported_when_a_model_is_read_alone() -> None:
    code = (
        "import sys, cvm, cvm.cli, cvm.frontends.onnx; assert 'onnx' not in sys.modules and 'google' not in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_float_input_with_an_odd_zero_point_rounds_ties_as_quantize_linear_does() -> None:
    nodes = [helper.make_node("QuantizeLinear", ["x", "s", "z"], ["y"])]
    model = made(nodes, {"x": ("float32", (5,))}, {"y": "uint8"}, {"s": np.float32(0.5), "z": np.uint8(3)})
    x = np.float32([0.25, 0.75, -0.25, 1.25, 500])
    assert results(model, {"x": x})["y"].tolist() == [3, 5, 3, 5, 255]  # round_half_even(x / 0.5) + 3


def test_codes_of_4_bits_and_scales_by_blocks() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["real"], axis=1, block_size=2),
        helper.make_node("DequantizeLinear", ["x", "one"], ["xr"]),
        helper.make_node("MatMul", ["xr", "real"], ["product"]),
        helper.make_node("QuantizeLinear", ["product", "one", "zero"], ["y"]),
    ]
    constants = {"s": np.float32([[1, 0.5], [2, 0.25]]), "one": np.float32(1), "zero": np.int16(0)}
    model = made(nodes, {"x": ("int8", (1, 2))}, {"y": "int16"}, constants)
    codes, zeros = [[-8, 7, 3], [1, -2, 5]], [[0, 1], [-1, 2]]
    for name, items in (("w", codes), ("z", zeros)):
        shape = np.shape(items)
        model.graph.initializer.append(helper.make_tensor(name, TensorProto.INT4, shape, np.ravel(items)))
    x = np.array([[4, 8]])
    weights = np.array([[-8, 7, 1], [4, -2, 0.75]])  # (q - z) * s, the last block being one item
    assert results(model, {"x": x})["y"].tolist() == (x @ weights).tolist()


def test_scales_may_come_from_nodes_that_stand_before_their_reader() -> None:
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s"], ["r"]),
        helper.make_node("Relu", ["r"], ["a"]),
        helper.make_node("Constant", [], ["t"], value=numpy_helper.from_array(np.float32(2))),
        helper.make_node("QuantizeLinear", ["a", "t"], ["y"]),
    ]
    model = made(nodes, {"x": ("float32", (3,))}, {"y": "uint8"}, {"s": np.float32(1)})
    assert results(model, {"x": np.float32([1, 5, 7])})["y"].tolist() == [0, 2, 4]
    refused(made([helper.make_node("BiasDequantizeLinear", ["x"], ["y"])], {"x": ("int8", (3,))}, {"y": "float32"}),
            Unsupported, "onnx.operator")  # fmt: skip


@pytest.mark.parametrize(
    ("op", "constant", "attributes", "message"),
    [
        ("TopK", np.zeros(0, np.int64), {}, "k must be one integer, found int64 \\[0\\]"),
        ("Trilu", np.zeros(4, np.int64), {}, "k must be one integer, found int64 \\[4\\]"),
        ("TopK", np.zeros((2, 1), np.int64), {}, "k must be one integer, found int64 \\[2, 1\\]"),
    ],
)
def test_one_number_is_one_number(op: str, constant: Any, attributes: dict[str, Any], message: str) -> None:
    model = made([helper.make_node(op, ["x", "c"], ["y", "i"][: 2 if op == "TopK" else 1], **attributes)],
                 {"x": ("int8", (3, 4))}, {"y": "int8"}, {"c": constant})  # fmt: skip
    with pytest.raises(Invalid, match=message):
        compiled(model)


def test_what_would_be_too_large_is_refused_before_it_is_made() -> None:
    hot = made([helper.make_node("OneHot", ["x", "depth", "values"], ["y"])], {"x": ("int8", (3,))}, {"y": "int64"},
               {"depth": np.int64(2**48), "values": np.array([0, 1])})  # fmt: skip
    with pytest.raises(LimitExceeded, match="extent"):
        compiled(hot)
    sums = made([helper.make_node("CumSum", ["x", "axis"], ["y"])], {"x": ("int8", (1, 2**15))}, {"y": "int8"},
                {"axis": np.int64(1)})  # fmt: skip
    with pytest.raises(LimitExceeded, match="pairs of items of a running sum"):
        compiled(sums)
    larger = made([helper.make_node("Resize", ["x", "", "", "sizes"], ["y"])], {"x": ("int8", (1, 1, 3, 3))},
                  {"y": "int8"}, {"sizes": np.array([1, 1, 3, 2**24])})  # fmt: skip
    with pytest.raises(LimitExceeded, match="an extent that is resampled"):
        compiled(larger)


def _put_beside(tensor: TensorProto, folder: Path) -> None:
    """Move the items of a constant to the end of a file in a folder."""
    with (folder / "weights.bin").open("ab") as file:
        offset, data = file.tell(), tensor.raw_data
        file.write(data)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, text in (("location", "weights.bin"), ("offset", str(offset)), ("length", str(len(data)))):
        entry = tensor.external_data.add()
        entry.key, entry.value = key, text


def test_a_model_with_constants_in_files_becomes_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of the graph, of attributes, of branches and of functions."""
    numbers = [numpy_helper.from_array(np.float32([value, 1]), f"c{value}") for value in range(6)]
    inner = helper.make_graph([helper.make_node("Constant", [], ["k"], value=numbers[0])], "g", [], [], [numbers[1]])
    nodes = [
        helper.make_node("Constant", [], ["a"], value=numbers[2]),
        helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner),
        helper.make_node("Several", [], ["z"], domain="own", graphs=[inner], tensors=[numbers[3]]),
    ]
    function = helper.make_function(
        "own", "F", [], ["f"], [helper.make_node("Constant", [], ["f"], value=numbers[4])], []
    )
    graph = helper.make_graph(nodes, "g", [], [], [numbers[5]])
    model = helper.make_model(graph, functions=[function])
    whole = model.SerializeToString()
    assert front.embedded(whole, str(tmp_path)) is whole
    branches = [model.graph.node[1].attribute[0].g, model.graph.node[1].attribute[1].g]
    branches += model.graph.node[2].attribute[0].graphs
    found = [branch.node[0].attribute[0].t for branch in branches] + [branch.initializer[0] for branch in branches]
    found += [model.graph.node[0].attribute[0].t, model.graph.node[2].attribute[1].tensors[0]]
    found += [model.functions[0].node[0].attribute[0].t, model.graph.initializer[0]]
    for tensor in found:
        _put_beside(tensor, tmp_path)
    apart = model.SerializeToString()
    assert front.embedded(apart, str(tmp_path)) == whole
    monkeypatch.setattr("cvm.frontends.onnx.embedding._LARGEST", len(apart) + 20)
    with pytest.raises(LimitExceeded, match="write a program"):
        front.embedded(apart, str(tmp_path))
    (tmp_path / "secret").write_bytes(bytes(200))
    (tmp_path / "weights.bin").unlink()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "weights.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(Invalid, match="leads out of the model's folder"):
        front.embedded(apart, str(tmp_path / "folder"))
