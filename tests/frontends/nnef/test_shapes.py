"""Chapter 4: result shapes and argument validity, one line per rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import CvmError, Invalid, LimitExceeded, Unsupported
from cvm.frontends.nnef.declarations import khronos_library, literal_expression_type
from cvm.frontends.nnef.syntax import Literal
from cvm.frontends.nnef.types import ArrayType, Primitive, TensorType, has_tensor
from cvm.graph import declarations
from cvm.graph.shapes import RULES, ShapeCall, infer_shapes
from tests.frontends.nnef.documents import error_of, flat, flatten_text


def shape_of(body: str, shape: str) -> tuple[int, ...] | None:
    return flatten_text(flat(body, shape)).exported["y"].shape


def test_every_operation_of_the_standard_library_has_a_shape_rule() -> None:
    assert set(RULES) == set(declarations())
    assert set(khronos_library()) <= set(RULES)


def test_an_operation_without_a_rule_is_refused_by_name() -> None:
    error = error_of(lambda: infer_shapes(ShapeCall("magic", {}, {})))
    assert isinstance(error, Unsupported)
    assert "magic" in error.message


ROIS = "r = variable(shape = [5,4], label = 'r'); b = variable<integer>(shape = [5,1], label = 'b'); "
F = "f = variable(shape = {}, label = 'f'); "


@pytest.mark.parametrize(
    ("body", "shape", "result"),
    [
        # 4.2: dimensions are aligned at the first, missing ones are singleton
        ("v = variable(shape = [2], label = 'v'); y = add(x, v);", "[2,3]", (2, 3)),
        ("v = variable(shape = [1,3,4], label = 'v'); y = add(x, v);", "[2]", (2, 3, 4)),
        ("y = clamp(x, 0.0, 1.0);", "[2,3]", (2, 3)),
        ("c = lt(x, 0.0); y = select(c, x, 1.0);", "[2,3]", (2, 3)),
        ("y = min(1.0, x);", "[2,3]", (2, 3)),
        ("y = add(1.0, 2.0);", "[1]", ()),
        # 4.3.1
        (F.format("[4,3,3,3]") + "y = conv(x, f);", "[1,3,9,8]", (1, 4, 9, 8)),
        (F.format("[4,3,3,3]") + "y = conv(x, f, stride = [2,3]);", "[1,3,9,8]", (1, 4, 5, 3)),
        (F.format("[4,3,3,3]") + "y = conv(x, f, padding = [(0,0),(1,0)], dilation = [2,1]);", "[1,3,9,8]",
         (1, 4, 5, 7)),
        (F.format("[4,3,3]") + "y = conv(x, f, padding = [(-1,0)]);", "[1,3,9]", (1, 4, 6)),
        (F.format("[6,1,3]") + "y = conv(x, f, groups = 0);", "[1,3,9]", (1, 6, 9)),
        (F.format("[6,2,3]") + "y = conv(x, f, groups = 2);", "[1,4,9]", (1, 6, 9)),
        (F.format("[4,3]") + "y = conv(x, f);", "[5,3]", (5, 4)),
        (F.format("[3,2,3]") + "y = deconv(x, f, stride = [2]);", "[1,3,5]", (1, 2, 10)),
        (F.format("[3,2,3]") + "y = deconv(x, f, stride = [2], padding = [(1,0)]);", "[1,3,5]", (1, 2, 10)),
        (F.format("[3,2,3]") + "y = deconv(x, f, stride = [2], output_shape = [1,2,9]);", "[1,3,5]", (1, 2, 9)),
        (F.format("[4,1,3]") + "y = deconv(x, f, groups = 0);", "[1,4,5]", (1, 4, 5)),
        (F.format("[4,3,3]") + "y = deconv(x, f, groups = 2);", "[1,4,5]", (1, 6, 5)),
        # 4.3.2 to 4.3.4
        ("y = box(x, size = [1,1,3], stride = [1,1,2]);", "[1,2,7]", (1, 2, 4)),
        ("y = max_pool(x, size = [1,2,2], padding = [(0,0),(0,0),(0,0)], border = 'ignore');", "[1,2,7]", (1, 1, 6)),
        ("y = debox(x, size = [1,1,2], stride = [1,1,2]);", "[1,2,3]", (1, 2, 6)),
        ("i = argmax_pool(x, size = [1,1,2], stride = [1,1,2]); y = sample(x, i, size = [1,1,2], stride = [1,1,2]);",
         "[1,2,6]", (1, 2, 3)),
        ("(v, i) = max_pool_with_index(x, size = [1,2]); y = desample(v, i, size = [1,2], output_shape = [2,3]);",
         "[2,3]", (2, 3)),
        ("y = nearest_downsample(x, factor = [2]);", "[1,2,6]", (1, 2, 3)),
        ("y = multilinear_upsample(x, factor = [2,3], method = 'aligned');", "[1,2,6,5]", (1, 2, 12, 15)),
        # 4.4, 4.5
        ("y = sum_reduce(x, axes = [0,2]);", "[2,3,4]", (1, 3, 1)),
        ("y = sum_reduce(x, axes = []);", "[2,3,4]", (2, 3, 4)),
        ("y = reshape(x, shape = [0,-1]);", "[2,3,4]", (2, 12)),
        ("y = reshape(x, shape = []);", "[1,1]", ()),
        ("y = squeeze(x, axes = [2,0]);", "[1,3,1]", (3,)),
        ("y = unsqueeze(x, axes = [2,0]);", "[3,4]", (1, 3, 1, 4)),
        ("y = transpose(x, axes = [1,0]);", "[2,3,4]", (3, 2, 4)),
        ("[y, b] = split(x, axis = 1, ratios = [2,1]);", "[2,6]", (2, 4)),
        ("y = concat([x, x], axis = 1);", "[2,3]", (2, 6)),
        ("y = stack([x, x], axis = 2);", "[2,3]", (2, 3, 2)),
        ("[a, y] = unstack(x, axis = 0);", "[2,3]", (3,)),
        ("y = slice(x, axes = [1], begin = [-2], end = [0]);", "[2,3]", (2, 2)),
        ("y = slice(x, axes = [1,0], begin = [1,0], end = [3,1]);", "[2,3]", (1, 2)),
        # 4.6 to 4.9
        (ROIS + "y = avg_roi_align(x, r, b, output_size = [2,3], sampling_rate = [2,2]);", "[1,2,8,8]", (5, 2, 2, 3)),
        ("v = variable(shape = [2,4,3], label = 'v'); y = matmul(x, v, transposeA = true);", "[1,4,5]", (2, 5, 3)),
        (F.format("[7,3]") + "b = variable(shape = [1,7], label = 'b'); y = linear(x, f, b);", "[2,3]", (2, 7)),
        ("v = variable(shape = [2,3], label = 'v'); y = update(v, x);", "[2,3]", (2, 3)),
        ("y = softmax(x);", "[2,3]", (2, 3)),
        ("p = variable(shape = [3,1,3], label = 'p'); " + F.format("[4,3,1]")
         + "y = separable_conv(x, p, f, stride = [2]);", "[1,3,8]", (1, 4, 4)),
        ("p = variable(shape = [4,1,3], label = 'p'); " + F.format("[3,4,1]")
         + "y = separable_deconv(x, p, f, stride = [2]);", "[1,3,8]", (1, 4, 16)),
        ("y = local_response_normalization(x, size = [1,3,1]);", "[1,3,8]", (1, 3, 8)),
        ("y = l2_normalization(x, axes = [1]);", "[1,3,8]", (1, 3, 8)),
        ("m = variable(shape = [1,3], label = 'm'); y = batch_normalization(x, m, m, m, m, epsilon = 0.1);",
         "[2,3,8]", (2, 3, 8)),
        ("m, y = moments(x, axes = [1]);", "[2,3]", (2, 1)),
        ("y = linear_quantize(x, 0.0, 1.0, bits = 8);", "[2,3]", (2, 3)),
        ("[a, y] = copy_n(x, times = 2);", "[2,3]", (2, 3)),
    ],
)  # fmt: skip
def test_result_shapes(body: str, shape: str, result: tuple[int, ...]) -> None:
    assert shape_of(body, shape) == result


@pytest.mark.parametrize(
    ("body", "shape", "rule"),
    [
        ("v = variable(shape = [3], label = 'v'); y = add(x, v);", "[2,3]", "shapes.broadcast"),
        (F.format("[4,2,3]") + "y = conv(x, f);", "[1,3,9]", "shapes.channels"),
        (F.format("[4,3,3,3]") + "y = conv(x, f);", "[1,3,9]", "shapes.rank"),
        (F.format("[4,3,3]") + "y = conv(x, f, groups = -1);", "[1,3,9]", "argument-validity.groups"),
        (F.format("[4,3,3]") + "y = conv(x, f, groups = 3);", "[1,3,9]", "argument-validity.groups"),
        (F.format("[4,3,3]") + "y = conv(x, f, f);", "[1,3,9]", "shapes.bias"),
        (F.format("[4,3,3]") + "y = conv(x, f, border = 'ignore');", "[1,3,9]", "argument-validity.border"),
        (F.format("[4,3,3]") + "y = conv(x, f, stride = [0]);", "[1,3,9]", "argument-validity.stride"),
        (F.format("[4,3,3]") + "y = conv(x, f, stride = [1,1]);", "[1,3,9]", "argument-validity.stride"),
        (F.format("[4,3,3]") + "y = conv(x, f, dilation = [0]);", "[1,3,9]", "argument-validity.dilation"),
        (F.format("[4,3,3]") + "y = conv(x, f, padding = [(0,0),(0,0)]);", "[1,3,9]", "argument-validity.padding"),
        (F.format("[4,3,9]") + "y = conv(x, f, padding = [(0,0)]);", "[1,3,8]", "shapes.window"),
        (F.format("[4,3,9]") + "y = conv(x, f, border = 'reflect');", "[1,3,4]", "shapes.border"),
        (F.format("[3,2,3]") + "y = deconv(x, f, output_shape = [1,2]);", "[1,3,5]", "argument-validity.output_shape"),
        (F.format("[3]") + "y = deconv(x, f, output_shape = [-9223372036854775809]);", "[3]", "shapes.rank"),
        (F.format("[3,2,3]") + "y = deconv(x, f, output_shape = [1,2,11], stride = [2]);", "[1,3,5]",
         "shapes.output_shape"),
        (F.format("[3,2,3]") + "y = deconv(x, f, padding = [(9,9)]);", "[1,3,5]", "shapes.empty"),
        ("y = box(x, size = [1]);", "[2,3]", "argument-validity.size"),
        ("y = box(x, size = [0,1]);", "[2,3]", "argument-validity.size"),
        ("y = max_pool(x, size = [1,1], border = 'zero');", "[2,3]", "argument-validity.border"),
        ("y = area_downsample(x, factor = [2]);", "[1,1,3]", "shapes.factor"),
        ("y = nearest_upsample(x, factor = [0]);", "[1,1,3]", "argument-validity.factor"),
        ("y = multilinear_upsample(x, factor = [2], method = 'cubic');", "[1,1,3]", "argument-validity.method"),
        ("y = sum_reduce(x, axes = [0,0]);", "[2,3]", "argument-validity.axes"),
        ("y = sum_reduce(x, axes = [-1]);", "[2,3]", "argument-validity.axes"),
        ("y = reshape(x, shape = [-1,-1]);", "[2,3]", "argument-validity.shape"),
        ("y = reshape(x, shape = [2,3,0]);", "[2,3]", "argument-validity.shape"),
        ("y = reshape(x, shape = [4,-1]);", "[2,3]", "shapes.volume"),
        ("y = reshape(x, shape = [5]);", "[2,3]", "shapes.volume"),
        ("y = squeeze(x, axes = [1]);", "[2,3]", "shapes.singular"),
        ("y = unsqueeze(x, axes = [3]);", "[2,3]", "argument-validity.axes"),
        ("y = transpose(x, axes = [1,1]);", "[2,3]", "argument-validity.axes"),
        ("y = transpose(x, axes = [0,1,2]);", "[2,3]", "argument-validity.axes"),
        ("[y] = split(x, axis = 2, ratios = [1]);", "[2,3]", "argument-validity.axis"),
        ("[y] = split(x, axis = 1, ratios = [0]);", "[2,3]", "argument-validity.ratios"),
        ("[y, a] = split(x, axis = 1, ratios = [1,1]);", "[2,3]", "shapes.ratios"),
        ("y = concat([x, x], axis = 2);", "[2,3]", "argument-validity.axis"),
        ("v = variable(shape = [2,3,1], label = 'v'); y = concat([x, v], axis = 1);", "[2,3]", "shapes.agree"),
        ("y = slice(x, axes = [0], begin = [0], end = [3]);", "[2,3]", "argument-validity.end"),
        ("y = slice(x, axes = [0], begin = [-2], end = [0]);", "[2,3]", "argument-validity.begin"),
        ("y = slice(x, axes = [0], begin = [1], end = [1]);", "[2,3]", "argument-validity.end"),
        ("y = slice(x, axes = [0], begin = [0,1], end = [1]);", "[2,3]", "argument-validity.length"),
        ("y = matmul(x, x);", "[2,3]", "shapes.inner"),
        ("y = matmul(x, x);", "[3]", "shapes.rank"),
        ("v = variable(shape = [2,1], label = 'v'); y = update(v, x);", "[2]", "shapes.update"),
        ("y = linear_quantize(x, 0.0, 1.0, bits = 0);", "[2]", "argument-validity.bits"),
        ("[y] = copy_n(x, times = 0);", "[2]", "argument-validity.times"),
        ("y = constant(shape = [0], value = [1.0]);", "[2]", "argument-validity.shape"),
        ("y = constant(shape = [3], value = [1.0, 2.0]);", "[2]", "argument-validity.value"),
    ],
)  # fmt: skip
def test_an_invalid_argument_is_named(body: str, shape: str, rule: str) -> None:
    error = error_of(lambda: shape_of(body, shape))
    assert isinstance(error, Invalid)
    assert error.code == f"nnef.{rule}"
    assert error.location.line == 6
    assert error.location.op is not None


@pytest.mark.parametrize(
    ("body", "limit"),
    [
        ("y = constant(shape = [4294967296], value = [1.0]);", "extent"),
        ("y = constant(shape = [65536,65536,65536,65536], value = [1.0]);", "elements"),
        ("y = constant(shape = [1,1,1,1,1,1,1,1,1], value = [1.0]);", "rank"),
        ("y = unsqueeze(x, axes = [0,1,2,3,4,5,6,7]);", "rank"),
        ("[y] = copy_n(x, times = 1000000000);", "expansion"),
        ("z = nearest_upsample(x, factor = [100000000]); [y] = unstack(z, axis = 2);", "expansion"),
        ("y = box(x, size = [1,1,1], padding = [(0,0),(0,0),(0,99999999999999999999999)]);", "extent"),
    ],
)
def test_sizes_are_limited_before_anything_is_made(body: str, limit: str) -> None:
    error = error_of(lambda: shape_of(body, "[1,1,2]"))
    assert isinstance(error, LimitExceeded)
    assert error.code == f"limit.{limit}"


def _values(formal: Any) -> st.SearchStrategy[Any]:
    """Arbitrary values of an attribute type, sizes and signs at random."""
    match formal:
        case Primitive("integer"):
            return st.integers(-3, 12) | st.sampled_from([-(2**70), 2**31, 2**70])
        case Primitive("logical"):
            return st.booleans()
        case Primitive("string"):
            return st.sampled_from(["constant", "ignore", "reflect", "reflect-even", "symmetric", "aligned", "", "f/x"])
        case ArrayType(item):
            return st.lists(_values(item), max_size=5).map(tuple)
        case Primitive():
            return st.integers(0, 3)
    return st.tuples(*map(_values, formal.items))


_SHAPE = st.lists(st.sampled_from([1, 1, 2, 3, 4, 6, 2**31 - 1]), max_size=5).map(tuple)


@given(st.data(), st.sampled_from(sorted(khronos_library())))
def test_shape_rules_are_total(data: st.DataObject, name: str) -> None:
    """Any ranks, extents and attributes give positive shapes or an error of cvm."""
    shapes, attributes = {}, {}
    for parameter in khronos_library()[name].parameters:
        if isinstance(parameter.type, TensorType):
            shapes[parameter.name] = data.draw(_SHAPE)
        elif has_tensor(parameter.type):
            shapes[parameter.name] = data.draw(st.lists(_SHAPE, max_size=3))
        else:
            attributes[parameter.name] = data.draw(_values(parameter.type))
    try:
        results = infer_shapes(ShapeCall(name, shapes, attributes))
    except CvmError:
        return
    assert len(results) == len(khronos_library()[name].results)
    for result in results:
        for shape in result if isinstance(result, list) else [result]:
            assert all(extent >= 1 for extent in shape)


def test_every_default_of_the_standard_library_is_of_its_type() -> None:
    assert literal_expression_type(Literal(1, 1, 1)) == Primitive("integer")
    for declaration in khronos_library().values():
        for parameter in declaration.parameters:
            if parameter.default is not None:
                assert not isinstance(literal_expression_type(parameter.default), TensorType)
