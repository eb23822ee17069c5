"""Compound operations expand to primitives that give the shapes of the operations kept whole."""

from __future__ import annotations

import re
from importlib import resources
from pathlib import Path

import pytest

from cvm.errors import LimitExceeded
from cvm.frontends import nnef
from cvm.frontends.nnef.declarations import compound_operations, khronos_library, standard_library
from cvm.limits import Limits
from tests.frontends.nnef.documents import error_of, flat, flatten_text, folders, graph

PRIMITIVES = {name for name, declared in khronos_library().items() if declared.body is None}

INPUTS = (
    "v = constant(shape = [1,4], value = [1.0]); r = constant(shape = [2,4], value = [0.0]); "
    "i = constant<integer>(shape = [2,1], value = [0]); m = reshape(x, shape = [4,36]); "
)
INVOCATIONS = {
    "add_n": "y = add_n([x, 1.0, x, x, v]);",
    "area_downsample": "y = area_downsample(x, factor = [2,3]);",
    "avg_pool": "y = avg_pool(x, size = [1,1,3,3], border = 'ignore');",
    "avg_roi_align": "y = avg_roi_align(x, r, i, output_size = [2,2], sampling_rate = [2,3]);",
    "batch_normalization": "y = batch_normalization(x, v, v, v, v, epsilon = 0.1);",
    "clamp": "y = clamp(x, 0.0, v);",
    "copy_n": "[y, z] = copy_n(x, times = 2);",
    "elu": "y = elu(x, alpha = 2.0);",
    "l1_normalization": "y = l1_normalization(x, axes = [1]);",
    "l2_normalization": "y = l2_normalization(x, axes = [1,2], epsilon = 0.1);",
    "leaky_relu": "y = leaky_relu(x, alpha = 0.1);",
    "linear": "y = linear(m, m, 1.0);",
    "linear_quantize": "y = linear_quantize(x, 0.0, v, bits = 8);",
    "local_contrast_normalization": "y = local_contrast_normalization(x, size = [1,3,1,1]);",
    "local_mean_normalization": "y = local_mean_normalization(x, size = [1,1,3,3]);",
    "local_response_normalization": "y = local_response_normalization(x, size = [1,3,1,1]);",
    "local_variance_normalization": "y = local_variance_normalization(x, size = [1,1,3,3], bias = 1.0);",
    "logarithmic_quantize": "y = logarithmic_quantize(x, v, bits = 4);",
    "max_pool": "y = max_pool(x, size = [1,1,3,3], stride = [1,1,2,2], border = 'ignore');",
    "max_pool_with_index": "y, j = max_pool_with_index(x, size = [1,1,2,2], padding = [(0,0),(0,0),(0,1),(1,0)]);",
    "max_roi_align": "y = max_roi_align(x, r, i, output_size = [2,2], sampling_rate = [2,3]);",
    "mean_reduce": "y = mean_reduce(x, axes = [2,3]);",
    "min_max_linear_quantize": "y = min_max_linear_quantize(x, 0.0, v, bits = 8, signed = true, symmetric = true);",
    "moments": "y, z = moments(x, axes = [0,2]);",
    "nearest_downsample": "y = nearest_downsample(x, factor = [2,3]);",
    "nearest_upsample": "y = nearest_upsample(x, factor = [2,3]);",
    "rms_pool": "y = rms_pool(x, size = [1,1,2,2], stride = [1,1,2,2]);",
    "separable_conv": (
        "p = variable(shape = [8,1,3,3], label = 'p'); q = variable(shape = [6,8,1,1], label = 'q'); "
        "y = separable_conv(x, p, q, padding = [(0,0),(0,0)]);"
    ),
    "separable_deconv": (
        "p = variable(shape = [8,1,3,3], label = 'p'); q = variable(shape = [4,8,1,1], label = 'q'); "
        "y = separable_deconv(x, p, q, stride = [2,2], output_shape = [1,8,12,12]);"
    ),
    "softabs": "y = softabs(x, epsilon = 0.1);",
    "softmax": "y = softmax(x, axes = [1,2]);",
    "zero_point_linear_quantize": (
        "z = constant<integer>(shape = [1,4], value = [1,2,3,4]); "
        "y = zero_point_linear_quantize(x, z, v, bits = 8, signed = true, symmetric = true);"
    ),
    **{name: f"y = {name}(x, v);" for name in ("max", "min", "prelu")},
}
"""An invocation of each compound operation; of those that have one parameter only, ``y = name(x);``."""


@pytest.mark.parametrize("name", compound_operations())
def test_an_expansion_has_the_shapes_of_the_operation(name: str, tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(flat(INPUTS + INVOCATIONS.get(name, f"y = {name}(x);"), "[1,4,6,6]"))
    whole = nnef.load(path)
    assert name in {operation.name for operation in whole.operations}
    once = nnef.load(path, lower=[name])
    fully = nnef.load(path, lower=compound_operations())
    assert name not in {operation.name for operation in once.operations}
    assert {operation.name for operation in fully.operations} <= PRIMITIVES
    for model in (once, fully):
        for tensor in whole.tensors.values():
            if tensor.location.line is not None and tensor.name in model.tensors:
                found = model.tensors[tensor.name]
                assert (found.shape, found.dtype) == (tensor.shape, tensor.dtype)
        assert {operation.location.line for operation in model.operations} <= {6}
    text = nnef.flatten(path, lower=compound_operations())
    path.write_text(text)
    assert nnef.flatten(path) == text


def test_every_compound_operation_of_chapter_4_has_a_definition() -> None:
    named = {name for name in INVOCATIONS if name in standard_library()}
    simple = {"sqr", "sqrt", "rsqr", "rsqrt", "log2", "sigmoid", "relu", "tanh", "softplus"}
    assert named | simple == {name for name, declared in standard_library().items() if declared.body is not None}


def test_definitions_are_valid_fragments() -> None:
    """As fragments of a document they pass all static checks, under names that are not those of the standard."""
    text = ""
    for file in ("stdlib.nnef", "khronos.nnef"):
        library = resources.files("cvm.graph").joinpath(file).read_text("utf-8")
        for definition in re.findall(r"^fragment [^;{]*\n?\{.*?^\}", library, re.MULTILINE | re.DOTALL):
            head, _, rest = definition.partition("(")
            name = head.removeprefix("fragment ").partition("<")[0]
            text += f"fragment {file[:3]}_{name}{head[len('fragment ') + len(name) :]}({rest}\n"
    assert text.count("fragment ") == len(compound_operations()) + 1  # elu has one in each
    flatten_text(graph("y = relu(x);", fragments=text))


def test_expanding_is_off_unless_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(flat("a = softmax(x); y = relu(a);"))
    assert [operation.name for operation in nnef.load(path).operations] == ["softmax", "relu"]
    names = [operation.name for operation in nnef.load(path, lower=("softmax",)).operations]
    assert names == ["max_reduce", "sub", "exp", "sum_reduce", "div", "relu"]


@pytest.mark.parametrize("name", ["conv", "nothing", ""])
def test_only_compound_operations_can_be_expanded(tmp_path: Path, name: str) -> None:
    (tmp_path / "graph.nnef").write_text(flat("y = relu(x);"))
    assert error_of(lambda: nnef.flatten(tmp_path, lower=[name])).code == "nnef.lower.name"


def test_errors_inside_of_a_definition_are_at_the_invocation() -> None:
    limits = Limits("test", expansion=3)
    from cvm.frontends.nnef.checker import check_document
    from cvm.frontends.nnef.flatten import flatten_document
    from cvm.frontends.nnef.parser import parse_document

    document = parse_document(flat("y = softmax(x);"))
    error = error_of(lambda: flatten_document(document, check_document(document), limits, ("softmax",)))
    assert isinstance(error, LimitExceeded)
    assert (error.location.line, error.location.column) == (6, 9)
    assert {place.line for place in error.trace} <= {6}


def test_definitions_do_not_see_the_fragments_of_the_document() -> None:
    own = "fragment cast( x: tensor<integer> ) -> ( y: tensor<scalar> );"
    text = graph("y = zero_point_linear_quantize(x, 1, 2.0, bits = 8, signed = true, symmetric = true);", fragments=own)
    from cvm.frontends.nnef.checker import check_document
    from cvm.frontends.nnef.flatten import flatten_document
    from cvm.frontends.nnef.parser import parse_document

    document = parse_document(text)
    flat_graph = flatten_document(document, check_document(document), lower=("zero_point_linear_quantize",))
    (cast,) = [operation for operation in flat_graph.operations if operation.name == "cast"]
    assert cast.declaration is khronos_library()["cast"]


@pytest.mark.parametrize("folder", folders("models/digits"))
def test_models_expand_with_their_quantisers(folder: Path) -> None:
    whole, expanded = nnef.load(folder), nnef.load(folder, lower=compound_operations())
    for tensor in whole.tensors.values():
        assert expanded.tensors[tensor.name].shape == tensor.shape
        assert expanded.tensors[tensor.name].quantizer == tensor.quantizer
    assert {operation.name for operation in expanded.operations} <= PRIMITIVES
