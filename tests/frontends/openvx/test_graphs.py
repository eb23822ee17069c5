"""Graphs: life cycle, virtual tensors, views that split and merge, generic nodes, programs; what is refused when."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
from cvm import audit
from cvm import openvx as vx
from cvm.program.verifier import verify

Array = np.ndarray


class Bench:
    """A context, a graph, and short ways to make tensors of one format."""

    def __init__(self, data_type: int = vx.TYPE_INT16, point: int = 8, **options: Any) -> None:
        self.context = vx.create_context(executor="numpy")
        self.graph = vx.create_graph(self.context, **options)
        self.format = data_type, point

    def tensor(self, *dims: int, items: Array | None = None, name: str | None = None) -> vx.Tensor:
        found = vx.create_tensor(self.context, dims, *self.format, name)
        return found if items is None else found.copy_from(items)

    def virtual(self, *dims: int) -> vx.Tensor:
        return vx.create_virtual_tensor(self.graph, dims, *self.format)

    def ramp(self, *dims: int, name: str | None = None) -> vx.Tensor:
        count = int(np.prod(dims))
        return self.tensor(*dims, items=(np.arange(count) * 37 % 200 - 60).reshape(dims[::-1]), name=name)

    def relu(self, x: vx.Tensor, y: vx.Tensor, name: str | None = None) -> vx.OpenvxNode:
        return vx.activation_layer(self.graph, x, vx.NN_ACTIVATION_RELU, 0, 0, y, name=name)

    def absolute(self, x: vx.Tensor, y: vx.Tensor, name: str | None = None) -> vx.OpenvxNode:
        return vx.activation_layer(self.graph, x, vx.NN_ACTIVATION_ABS, 0, 0, y, name=name)

    def convolution(
        self, x: vx.Tensor, w: vx.Tensor, b: vx.Tensor | None, y: vx.Tensor, **fields: Any
    ) -> vx.OpenvxNode:
        return vx.convolution_layer(self.graph, x, w, b, vx.NNConvolutionParams(**fields), y, name="conv")


@pytest.fixture
def bench() -> Bench:
    return Bench()


def refused(bench: Bench, error: type[vx.Error]) -> vx.Error:
    with pytest.raises(error) as caught:
        vx.verify_graph(bench.graph)
    assert not vx.is_graph_verified(bench.graph)
    assert caught.value.status == error.status
    assert caught.value.status.name in str(caught.value)
    return caught.value


# The life cycle


def test_a_graph_is_created_verified_and_processed(bench: Bench) -> None:
    x, y = bench.ramp(4, 3), bench.tensor(4, 3)
    bench.relu(x, y)
    assert vx.query_graph(bench.graph, vx.GRAPH_NUMNODES) == 1
    assert vx.query_graph(bench.graph, vx.GRAPH_STATE) == vx.GRAPH_STATE_UNVERIFIED
    vx.verify_graph(bench.graph)
    assert vx.is_graph_verified(bench.graph)
    assert vx.query_graph(bench.graph, vx.GRAPH_STATE) == vx.GRAPH_STATE_VERIFIED
    vx.process_graph(bench.graph)
    assert vx.query_graph(bench.graph, vx.GRAPH_STATE) == vx.GRAPH_STATE_COMPLETED
    assert np.array_equal(y.numpy(), np.maximum(x.numpy(), 0))
    x.copy_from(-x.numpy())
    bench.graph.process()
    assert np.array_equal(y.numpy(), np.maximum(x.numpy(), 0))


def test_objects_are_context_managers() -> None:
    with vx.create_context(executor="numpy") as context, vx.create_graph(context) as graph:
        x = vx.Tensor.from_numpy(context, np.array([-3, 4], np.int8))
        y = vx.create_tensor(context, [2], vx.TYPE_INT8)
        vx.activation_layer(graph, x, vx.NN_ACTIVATION_ABS, 0, 0, y)
        graph.verify().process()
        assert y.numpy().tolist() == [3, 4]
    with pytest.raises(vx.InvalidReference):
        graph.process()


def test_a_graph_is_verified_before_it_is_processed(bench: Bench) -> None:
    x, y = bench.ramp(4), bench.tensor(4)
    bench.relu(x, y)
    with pytest.raises(vx.InvalidGraph) as caught:
        vx.process_graph(bench.graph)
    assert caught.value.status == vx.VX_ERROR_INVALID_GRAPH
    with pytest.raises(vx.InvalidGraph):
        _ = bench.graph.program
    bench.graph.verify()
    bench.absolute(x, bench.tensor(4))  # what was verified does not hold any more
    with pytest.raises(vx.InvalidGraph):
        bench.graph.process()
    bench.graph.verify().process()


def test_static_parameters_are_fixed_when_the_graph_is_verified(bench: Bench) -> None:
    w, y = bench.ramp(1, 1, 1, 1), bench.tensor(3, 3, 1)
    bench.convolution(bench.ramp(3, 3, 1), w, None, y)
    bench.graph.verify().process()
    before = y.numpy()
    w.copy_from(w.numpy() + 256)
    with pytest.raises(vx.InvalidGraph) as caught:
        bench.graph.process()
    assert caught.value.code == "openvx.graph.static"
    bench.graph.verify().process()
    assert not np.array_equal(y.numpy(), before)


def test_inputs_need_data_when_the_graph_is_processed(bench: Bench) -> None:
    bench.relu(bench.tensor(4), bench.tensor(4))
    bench.graph.verify()
    with pytest.raises(vx.NotAllocated):
        bench.graph.process()


# Tensors between nodes


def test_virtual_tensors_connect_nodes(bench: Bench) -> None:
    x, between, y = bench.ramp(4, 3, name="x"), bench.virtual(4, 3), bench.tensor(4, 3, name="y")
    bench.relu(between, y)  # made before the node that it reads from
    vx.activation_layer(bench.graph, x, vx.NN_ACTIVATION_LINEAR, 2, 0.5, between)
    bench.graph.verify().process()
    assert np.array_equal(y.numpy(), np.maximum(2 * x.numpy() + 128, 0))
    program = bench.graph.program
    assert [item.value.name for item in program.inputs] == ["x"]
    assert [item.name for item in program.outputs] == ["y"]
    with pytest.raises(vx.InvalidScope):
        between.numpy()


def test_views_split_a_tensor(bench: Bench) -> None:
    x, y = bench.ramp(4, 3, 5), bench.tensor(2, 3, 2)
    bench.relu(vx.create_tensor_from_view(x, [1, 0, 2], [3, 3, 4]), y)
    bench.graph.verify().process()
    assert np.array_equal(y.numpy(), np.maximum(x.numpy()[2:4, :, 1:3], 0))


def test_views_merge_into_a_tensor(bench: Bench) -> None:
    x, merged, y = bench.ramp(4, 3, 2), bench.virtual(4, 3, 4), bench.tensor(4, 3, 4)
    halves = [vx.create_tensor_from_view(merged, [0, 0, k], [4, 3, k + 2]) for k in (0, 2)]
    bench.relu(x, halves[1])
    bench.absolute(x, halves[0])
    vx.activation_layer(bench.graph, merged, vx.NN_ACTIVATION_LINEAR, 1, 1, y)
    bench.graph.verify().process()
    both = np.concatenate([abs(x.numpy()), np.maximum(x.numpy(), 0)])
    assert np.array_equal(y.numpy(), both + 256)


def test_parts_like_the_blades_of_a_windmill_are_put_together(bench: Bench) -> None:
    """Five boxes around a middle one, which no single cut separates."""
    whole, y = bench.tensor(3, 3), bench.tensor(3, 3)
    boxes = [([0, 0], [2, 1]), ([2, 0], [3, 2]), ([1, 2], [3, 3]), ([0, 1], [1, 3]), ([1, 1], [2, 2])]
    wanted = np.zeros((3, 3), int)
    for number, (start, end) in enumerate(boxes):
        part = vx.create_tensor_from_view(whole, start, end)
        x = bench.tensor(*part.dims, items=np.full(part.shape, number + 1))
        bench.relu(x, part)
        wanted[start[1] : end[1], start[0] : end[0]] = number + 1
    bench.relu(whole, y)
    bench.graph.verify().process()
    assert np.array_equal(whole.numpy(), wanted)
    assert np.array_equal(y.numpy(), wanted)


def test_what_no_node_writes_stays(bench: Bench) -> None:
    x, y = bench.ramp(2, name="x"), bench.tensor(4, items=np.array([7, 8, 9, 10]), name="y")
    bench.absolute(x, vx.create_tensor_from_view(y, [1], [3]))
    bench.graph.verify().process()
    assert y.numpy().tolist() == [7, *abs(x.numpy()).tolist(), 10]


def test_constants_may_be_views_of_static_data(bench: Bench) -> None:
    both = bench.ramp(1, 1, 1, 2)
    x, y = bench.ramp(3, 2, 1), bench.tensor(3, 2, 1)
    bench.convolution(x, vx.create_tensor_from_view(both, [0, 0, 0, 1], [1, 1, 1, 2]), None, y)
    bench.graph.verify().process()
    exact = x.numpy().astype(int) * int(both.numpy()[1, 0, 0, 0])
    assert np.array_equal(y.numpy(), np.sign(exact) * (abs(exact) // 256))


# Generic nodes


def test_nodes_are_made_by_kernel_name(bench: Bench) -> None:
    kernel = vx.get_kernel_by_name(bench.context, "org.khronos.nn_extension.pooling_layer")
    node = vx.create_generic_node(bench.graph, kernel, name="pool")
    x, y = bench.ramp(4, 4, 1), bench.tensor(2, 2, 1)
    scalar = vx.create_scalar(bench.context, vx.TYPE_SIZE, 2)
    for index, value in enumerate((x, vx.NN_POOLING_MAX, scalar, 2, 0, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR)):
        vx.set_parameter_by_index(node, index, value)
    assert refused(bench, vx.NotSufficient).node == "pool"
    vx.set_parameter_by_index(node, 7, y)
    bench.graph.verify().process()
    assert node.skip_x == node.skip_y == 2
    assert np.array_equal(y.numpy()[0], x.numpy()[0].reshape(2, 2, 2, 2).max(axis=(1, 3)))


def test_every_kernel_is_found_by_name_and_by_number(bench: Bench) -> None:
    names = ("convolution", "fully_connected", "pooling", "softmax", "normalization", "activation", "roi_pooling",
             "deconvolution", "local_response_normalization")  # fmt: skip
    for number, name in enumerate(names):
        kernel = vx.get_kernel_by_name(bench.context, f"org.khronos.nn_extension.{name}_layer")
        assert kernel.name == vx.get_kernel_by_enum(bench.context, 0x1000 + number).name


def test_other_kernels_are_not_implemented(bench: Bench) -> None:
    with pytest.raises(vx.NotImplementedKernel) as caught:
        vx.get_kernel_by_name(bench.context, "org.khronos.openvx.sobel_3x3")
    assert caught.value.status == vx.VX_ERROR_NOT_IMPLEMENTED
    with pytest.raises(vx.NotImplementedKernel):
        vx.get_kernel_by_enum(bench.context, 3)


def test_generic_nodes_check_their_parameters(bench: Bench) -> None:
    node = vx.create_generic_node(bench.graph, vx.get_kernel_by_enum(bench.context, vx.KERNEL_SOFTMAX_LAYER))
    with pytest.raises(vx.InvalidValue):
        vx.set_parameter_by_index(node, 2, bench.tensor(2))
    with pytest.raises(vx.InvalidParameters):
        vx.set_parameter_by_index(node, 0, 3)
    with pytest.raises(AttributeError):
        _ = node.skip_x


# Arguments that are wrong by themselves: refused when the node is made


def test_arguments_are_checked_at_creation(bench: Bench) -> None:
    x, y, w = bench.ramp(3, 3, 1), bench.tensor(3, 3, 1), bench.ramp(1, 1, 1, 1)
    graph = bench.graph
    with pytest.raises(vx.InvalidValue):
        vx.activation_layer(graph, x, 5, 0, 0, y)
    with pytest.raises(vx.InvalidValue):
        vx.activation_layer(graph, x, vx.NN_ACTIVATION_RELU, -1, 0, y)
    with pytest.raises(vx.InvalidParameters):
        vx.activation_layer(graph, x, vx.NN_ACTIVATION_RELU, "a", 0, y)  # type: ignore[arg-type]
    with pytest.raises(vx.InvalidParameters):
        vx.softmax_layer(graph, x, None)  # type: ignore[arg-type]
    with pytest.raises(vx.InvalidParameters):
        vx.convolution_layer(graph, x, w, None, vx.NNDeconvolutionParams(), y)  # type: ignore[arg-type]
    for fields in ({"padding_x": -1}, {"dilation_y": 5000}, {"overflow_policy": 1}, {"rounding_policy": 0}):
        with pytest.raises(vx.InvalidValue):
            bench.convolution(x, w, None, y, **fields)
    for size in (1, 4, 9):
        with pytest.raises(vx.InvalidValue):
            vx.normalization_layer(graph, x, vx.NN_NORMALIZATION_SAME_MAP, size, 1.0, 1.0, y)
    for alpha, beta in ((0, 1), (1, 0), (-1, 1), (1, float("inf"))):
        with pytest.raises(vx.InvalidValue):
            vx.normalization_layer(graph, x, vx.NN_NORMALIZATION_SAME_MAP, 3, alpha, beta, y)
    with pytest.raises(vx.InvalidValue):
        vx.pooling_layer(graph, x, vx.NN_POOLING_MAX, 0, 1, 0, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR, y)
    with pytest.raises(vx.NotSupported):
        vx.roi_pooling_layer(
            graph, x, bench.ramp(4, 1), vx.NNROIPoolParams(vx.NN_POOLING_AVG), bench.tensor(1, 1, 1, 1)
        )
    assert graph.nodes == []


def test_tensors_belong_to_the_context_and_virtual_ones_to_the_graph(bench: Bench) -> None:
    other = Bench()
    with pytest.raises(vx.InvalidReference):
        bench.relu(other.ramp(3), bench.tensor(3))
    twin = vx.create_graph(bench.context)
    with pytest.raises(vx.InvalidScope) as caught:
        bench.relu(bench.ramp(3), vx.create_virtual_tensor(twin, [3], vx.TYPE_INT16, 8))
    assert caught.value.status == vx.VX_ERROR_INVALID_SCOPE
    with pytest.raises(vx.InvalidValue):
        vx.create_graph(bench.context, compat="1.3")  # type: ignore[arg-type]


# How tensors fit each other: refused when the graph is verified


def test_formats_of_a_node_are_one(bench: Bench) -> None:
    bytes_ = vx.create_tensor(bench.context, [3], vx.TYPE_INT8)
    bench.relu(bench.ramp(3), bytes_, name="act")
    error = refused(bench, vx.InvalidFormat)
    assert error.node == "act"
    assert error.location.tensor == "outputs"
    assert error.location.op == "activation_layer"


def test_a_virtual_tensor_needs_a_type_and_dimensions(bench: Bench) -> None:
    nothing = vx.create_virtual_tensor(bench.graph, [3], vx.TYPE_INVALID)
    bench.relu(bench.ramp(3), nothing)
    refused(bench, vx.InvalidFormat)
    second = Bench()
    second.relu(second.ramp(3), vx.create_virtual_tensor(second.graph, [], vx.TYPE_INT16, 8))
    refused(second, vx.InvalidDimension)


def test_weights_must_have_data(bench: Bench) -> None:
    bench.convolution(bench.ramp(3, 3, 1), bench.tensor(1, 1, 1, 1), None, bench.tensor(3, 3, 1))
    assert refused(bench, vx.NotAllocated).location.tensor == "weights"


def test_weights_are_not_computed(bench: Bench) -> None:
    w = bench.ramp(1, 1, 1, 1)
    bench.convolution(bench.ramp(3, 3, 1), w, None, bench.tensor(3, 3, 1))
    bench.relu(bench.ramp(1, 1, 1, 1), w)
    refused(bench, vx.NotAllocated)
    second = Bench()
    second.convolution(second.ramp(3, 3, 1), second.virtual(1, 1, 1, 1), None, second.tensor(3, 3, 1))
    refused(second, vx.NotAllocated)


def test_cycles_are_refused(bench: Bench) -> None:
    a, b = bench.virtual(3), bench.virtual(3)
    bench.relu(a, b, name="first")
    bench.relu(b, a, name="second")
    assert "first, second" in str(refused(bench, vx.InvalidGraph))
    alone = Bench()
    own = alone.tensor(3)
    alone.relu(own, own)
    refused(alone, vx.InvalidGraph)


def test_an_element_is_written_once(bench: Bench) -> None:
    y = bench.tensor(4)
    bench.relu(bench.ramp(3), vx.create_tensor_from_view(y, [0], [3]), name="first")
    bench.relu(bench.ramp(2), vx.create_tensor_from_view(y, [2], [4]), name="second")
    assert refused(bench, vx.MultipleWriters).node == "second"


def test_a_virtual_tensor_is_written_before_it_is_read(bench: Bench) -> None:
    between = bench.virtual(3)
    bench.relu(bench.ramp(2), vx.create_tensor_from_view(between, [0], [2]))
    bench.relu(between, bench.tensor(3))
    refused(bench, vx.InvalidScope)


def test_an_empty_graph_is_refused(bench: Bench) -> None:
    refused(bench, vx.InvalidGraph)


@pytest.mark.parametrize(
    ("inputs", "weights", "biases", "outputs", "fields"),
    [
        ((3, 3), (1, 1, 1, 1), None, (3, 3, 1), {}),  # too few dimensions
        ((3, 3, 2), (1, 1, 1, 1), None, (3, 3, 1), {}),  # maps of the weights
        ((3, 3, 1), (1, 1, 1, 2), None, (3, 3, 1), {}),  # maps of the outputs
        ((3, 3, 1, 2), (1, 1, 1, 1), None, (3, 3, 1, 3), {}),  # batches
        ((3, 3, 1), (1, 1, 1), None, (3, 3, 1), {}),  # dimensions of the weights
        ((3, 3, 1), (1, 1, 1, 1), (2,), (3, 3, 1), {}),  # biases
        ((3, 3, 1), (1, 1, 1, 1), (2, 3, 1), (3, 3, 1), {}),  # biases per location
        ((5, 5, 1), (1, 1, 1, 1), None, (4, 5, 1), {}),  # no skip
        ((2, 2, 1), (3, 3, 1, 1), None, (1, 1, 1), {}),  # a kernel beyond the image
        ((5, 5, 1), (3, 3, 1, 1), None, (3, 3, 1), {"dilation_x": 2}),
    ],
)
def test_dimensions_of_a_convolution_fit(
    bench: Bench, inputs: Any, weights: Any, biases: Any, outputs: Any, fields: Any
) -> None:
    b = None if biases is None else bench.ramp(*biases)
    bench.convolution(bench.ramp(*inputs), bench.ramp(*weights), b, bench.tensor(*outputs), **fields)
    assert refused(bench, vx.InvalidDimension).node == "conv"


@pytest.mark.parametrize(
    ("inputs", "weights", "outputs", "fields", "error"),
    [
        ((3, 3, 1), (2, 2, 1, 1), (7, 7, 1), {}, vx.InvalidDimension),  # 2 * u + 2 is 6 or 8
        ((3, 3, 1), (2, 2, 1, 1), (6, 6, 1), {"a_x": 2, "a_y": 2}, vx.InvalidValue),  # a = 2 = upscale - ..
        ((3, 3, 1), (1, 1, 1, 1), (3, 3, 1), {"padding_x": 3, "padding_y": 3}, vx.InvalidDimension),
        ((3, 3, 1, 2), (2, 2, 1, 1), (4, 4, 1), {}, vx.InvalidDimension),
    ],
)
def test_dimensions_of_a_deconvolution_fit(
    bench: Bench, inputs: Any, weights: Any, outputs: Any, fields: Any, error: type[vx.Error]
) -> None:
    params = vx.NNDeconvolutionParams(**fields)
    vx.deconvolution_layer(bench.graph, bench.ramp(*inputs), bench.ramp(*weights), None, params, bench.tensor(*outputs))
    refused(bench, error)


def test_dimensions_of_the_other_layers_fit() -> None:
    def one(make: Any) -> None:
        bench = Bench()
        make(bench, bench.graph)
        refused(bench, vx.InvalidDimension)

    policies = vx.CONVERT_POLICY_WRAP, vx.ROUND_POLICY_TO_ZERO
    one(lambda b, g: b.relu(b.ramp(3), b.tensor(4)))
    one(lambda b, g: vx.softmax_layer(g, b.ramp(1, 1, 1, 1, 2), b.tensor(1, 1, 1, 1, 2)))
    one(lambda b, g: vx.fully_connected_layer(g, b.ramp(3, 2), b.ramp(4, 5), None, *policies, b.tensor(5, 2)))
    one(lambda b, g: vx.fully_connected_layer(g, b.ramp(3, 2), b.ramp(3, 5), None, *policies, b.tensor(5, 3)))
    one(lambda b, g: vx.fully_connected_layer(g, b.ramp(3, 2), b.ramp(3, 5), b.ramp(4), *policies, b.tensor(5, 2)))
    one(lambda b, g: vx.normalization_layer(g, b.ramp(3, 3), vx.NN_NORMALIZATION_SAME_MAP, 3, 1, 1, b.tensor(3, 3)))
    pool = vx.NN_POOLING_MAX, 2, 2, 0, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR
    one(lambda b, g: vx.pooling_layer(g, b.ramp(5, 5, 1), *pool, b.tensor(3, 3, 1)))
    one(lambda b, g: vx.pooling_layer(g, b.ramp(4, 4, 1), *pool, b.tensor(2, 2, 2)))
    roi = vx.NNROIPoolParams()
    one(lambda b, g: vx.roi_pooling_layer(g, b.ramp(4, 4, 1), b.ramp(5, 2), roi, b.tensor(1, 1, 1, 2)))
    one(lambda b, g: vx.roi_pooling_layer(g, b.ramp(4, 4, 1), b.ramp(4, 2), roi, b.tensor(1, 1, 1, 3)))


def test_what_the_machine_cannot_compute_exactly_names_the_node(bench: Bench) -> None:
    x, y = bench.ramp(1, 1, 3), bench.tensor(1, 1, 3)
    vx.normalization_layer(bench.graph, x, vx.NN_NORMALIZATION_ACROSS_MAPS, 3, 1.0, 0.01, y, name="lrn")
    error = refused(bench, vx.NotSupported)
    assert error.node == "lrn"
    assert "beta is below 1/16" in str(error)


def test_softmax_of_the_sample_implementation_is_refused() -> None:
    bench = Bench(compat="khronos-sample-1.3")
    vx.softmax_layer(bench.graph, bench.ramp(3), bench.tensor(3))
    refused(bench, vx.NotSupported)


# Programs


def test_a_graph_is_an_ordinary_program(bench: Bench, tmp_path: Path) -> None:
    x, w, y = bench.ramp(6, 5, 2, name="image"), bench.ramp(3, 3, 2, 4), bench.tensor(6, 5, 4, name="maps")
    bench.convolution(x, w, bench.ramp(4), y, padding_x=1, padding_y=1)
    program = bench.graph.verify().program
    bench.graph.process()
    program.save(tmp_path / "graph.cvm")
    loaded = cvm.load(tmp_path / "graph.cvm")
    assert loaded.digest == program.digest
    for executor in ("formal", "numpy", "native"):
        result = cvm.Session(loaded, executor=executor).run({"image": x.numpy()}, codes=True)
        assert np.array_equal(result["maps"], y.numpy())
        assert np.array_equal(result.real("maps"), y.to_float())
    recorder = audit.Recorder(verify(loaded), trace=True)
    cvm.Session(loaded, executor="numpy").run({"image": x.numpy()}, witness=recorder, codes=True)
    receipt = recorder.receipt(audit.host_facts("numpy"))
    assert (
        audit.verify(receipt, verify(loaded), {"image": x.numpy()}, executor="formal", codes=True).answer
        == "REPRODUCED"
    )


def test_a_graph_verifies_to_the_same_program_every_time() -> None:
    digests = set()
    for _ in range(2):
        bench = Bench()
        bench.convolution(bench.ramp(4, 4, 1), bench.ramp(2, 2, 1, 2), None, bench.tensor(3, 3, 2))
        digests.add(bench.graph.verify().program.digest)
    assert len(digests) == 1


def test_tensors_at_the_border_keep_their_names(bench: Bench) -> None:
    """Also where nodes have the same ones."""
    x, y = bench.ramp(4, name="second"), bench.tensor(4, name="first")
    between = bench.virtual(4)
    bench.relu(x, between, name="first")
    bench.absolute(between, y, name="second")
    program = bench.graph.verify().program
    assert [item.value.name for item in program.inputs] == ["second"]
    assert [item.name for item in program.outputs] == ["first"]


def test_a_graph_must_give_something(bench: Bench) -> None:
    bench.relu(bench.ramp(4), bench.virtual(4), name="lost")
    refused(bench, vx.InvalidGraph)


@pytest.mark.parametrize("value", [None, "3", [[1], [2, 3]], object()])
def test_nonsense_is_refused_with_an_error_of_openvx(bench: Bench, value: Any) -> None:
    x = bench.ramp(3)
    calls = (
        lambda: vx.create_tensor(bench.context, value, vx.TYPE_INT16, 8),
        lambda: vx.create_tensor(bench.context, [3], value),
        lambda: vx.create_tensor(value, [3], vx.TYPE_INT16, 8),
        lambda: vx.create_virtual_tensor(bench.graph, value, vx.TYPE_INT16, 8),
        lambda: vx.create_tensor_from_view(x, value, value),
        lambda: x.copy_from(value),
        lambda: x.from_float(value),
        lambda: vx.softmax_layer(bench.graph, value, x),
        lambda: vx.activation_layer(bench.graph, x, value, 0, 0, x),
        lambda: vx.activation_layer(bench.graph, x, vx.NN_ACTIVATION_RELU, value, 0, x),
        lambda: vx.verify_graph(value),
        lambda: vx.release(value),
        lambda: vx.get_kernel_by_name(bench.context, value),
        lambda: vx.get_kernel_by_enum(bench.context, value),
    )
    for call in calls:
        with pytest.raises(vx.Error):
            call()
    with pytest.raises(vx.InvalidValue):
        vx.activation_layer(bench.graph, x, vx.NN_ACTIVATION_LINEAR, 10**400, 0, x)


@pytest.mark.sweep
@pytest.mark.parametrize("rounding", ["TO_ZERO", "TO_NEAREST_EVEN"])
@pytest.mark.parametrize("overflow", ["WRAP", "SATURATE"])
def test_the_longest_sums_of_products_of_16_bits_compile(bench: Bench, overflow: str, rounding: str) -> None:
    random = np.random.default_rng(5)
    count = 131_071
    x = random.choice([-(2**15), 2**15 - 1], (2, count)).astype(np.int16)
    w = np.stack([x[0], -1 - x[0], random.integers(-(2**15), 2**15, count, dtype=np.int16)])
    bias = np.array([1, -1, -(2**15)], np.int16)
    y = bench.tensor(3, 2)
    tensors = (vx.Tensor.from_numpy(bench.context, items) for items in (x, w, bias))
    policies = getattr(vx, f"CONVERT_POLICY_{overflow}"), getattr(vx, f"ROUND_POLICY_{rounding}")
    vx.fully_connected_layer(bench.graph, *tensors, *policies, y)
    bench.graph.verify().process()
    exact = x.astype(object) @ w.astype(object).T + bias.astype(object) * 256
    how = {"TO_ZERO": math.trunc, "TO_NEAREST_EVEN": round}[rounding]
    found = [how(Fraction(int(item), 256)) for item in exact.ravel()]
    if overflow == "WRAP":
        found = [(item + 2**15) % 2**16 - 2**15 for item in found]
    assert y.numpy().ravel().tolist() == [min(max(item, -(2**15)), 2**15 - 1) for item in found]


def test_longer_sums_are_refused_with_a_reason(bench: Bench) -> None:
    x, w, y = bench.tensor(2**18), bench.ramp(2**18, 1), bench.tensor(1)
    w.copy_from(np.full((1, 2**18), 21_845))
    vx.fully_connected_layer(bench.graph, x, w, None, vx.CONVERT_POLICY_WRAP, vx.ROUND_POLICY_TO_ZERO, y, name="fc")
    assert refused(bench, vx.NotSupported).node == "fc"
