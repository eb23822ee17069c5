"""A list of scales belongs to the axis that becomes the output channel of whatever uses the tensor."""

from __future__ import annotations

import pytest

from cvm.errors import Invalid
from cvm.frontends.nnef.channels import ChannelAxes
from tests.frontends.nnef.documents import error_of, flat, flatten_text


def axis_of(body: str, length: int, name: str = "w") -> int:
    model = flatten_text(flat(body, "[1,4,4,4]"))
    return ChannelAxes(model).axis(model.exported[name], length)


def variable(shape: str) -> str:
    return f"w = variable(shape = {shape}, label = 'w'); "


@pytest.mark.parametrize(
    ("shape", "uses", "axis"),
    [
        ("[4,4,1,1]", "y = conv(x, w);", 0),
        ("[4,4,4,4]", "y = conv(x, w, padding = []);", 0),
        ("[4,4,1,1]", "y = deconv(x, w);", 1),
        ("[4,1,4,4]", "y = deconv(x, w, groups = 4);", 0),
        ("[4,4,1,4]", "t = transpose(w, axes = [1,0,2,3]); y = conv(x, t, padding = []);", 1),
        ("[1,1,4,4]", "t = transpose(w, axes = [3,2,0,1]); y = conv(x, t);", 3),
        ("[4,1,4]", "r = reshape(w, shape = [4,4,1,1]); y = conv(x, r);", 0),
        ("[2,2,4,4]", "r = reshape(w, shape = [4,4,4,1]); y = conv(x, r, padding = []);", None),
        ("[4,4]", "u = unsqueeze(w, axes = [2,3]); y = conv(x, u);", 0),
        ("[4,4]", "a = reshape(x, shape = [16,4]); y = linear(a, w);", 0),
        ("[4,4]", "a = reshape(x, shape = [16,4]); y = matmul(a, w);", 1),
        ("[4,4]", "a = reshape(x, shape = [16,4]); y = matmul(a, w, transposeB = true);", 0),
        ("[4,4]", "a = reshape(x, shape = [4,16]); y = matmul(w, a);", 0),
        ("[4,4]", "a = reshape(x, shape = [4,16]); y = matmul(w, a, transposeA = true);", 1),
        ("[4,4,1,1]", "a = mul(w, 2.0); b = copy(a); y = conv(x, b);", 0),
        ("[4,4,1,1]", "y = separable_conv(x, w, w);", None),
        ("[4,1,4,1]", "p = variable(shape = [2,4,1,1], label = 'p'); y = separable_conv(x, w, p);", 0),
        ("[4,4,4]", "y = batch_normalization(x, w, 1.0, 0.0, 1.0, epsilon = 0.0);", 1),
        ("[4,4,4]", "y = add(x, w);", None),
        ("[4,4,4]", "a = add(x, w); y = max_pool(a, size = [1,1,1,1]);", 1),
    ],
)
def test_the_output_channel_decides(shape: str, uses: str, axis: int | None) -> None:
    body = variable(shape) + uses
    if axis is not None:
        assert axis_of(body, 4) == axis
    else:
        error = error_of(lambda: axis_of(body, 4))
        assert isinstance(error, Invalid)
        assert error.code in ("nnef.quantization.channels", "nnef.shapes.channels")


def test_one_axis_of_the_length_needs_no_use() -> None:
    assert axis_of(variable("[2,3]") + "y = neg(x);", 3) == 1
    assert "no axis" in error_of(lambda: axis_of(variable("[2,3]") + "y = neg(x);", 4)).message


def test_uses_that_disagree_are_an_error() -> None:
    body = """w = variable(shape = [4,4,1,1], label = 'w'); a = conv(x, w);
    t = transpose(w, axes = [1,0,2,3]); y = conv(a, t);"""
    message = error_of(lambda: axis_of(body, 4)).message
    assert "conv at line 6 takes axis 0" in message
    assert "conv at line 7 takes axis 1" in message


def test_many_paths_are_followed_once() -> None:
    steps = "".join(f"a{i} = add(a{i - 1}, a{i - 1}); " for i in range(1, 60))
    assert axis_of(variable("[4,4,1,1]") + f"a0 = copy(w); {steps} y = conv(x, a59);", 4) == 0
