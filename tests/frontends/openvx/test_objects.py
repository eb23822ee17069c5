"""Data objects and constants: dimensions, orders, formats, views, names, and what is refused at creation."""

from __future__ import annotations

import numpy as np
import pytest

from cvm import openvx as vx
from cvm.errors import CvmError, Invalid


@pytest.fixture
def context() -> vx.Context:
    return vx.create_context(executor="numpy")


def test_constants_have_the_values_of_the_headers() -> None:
    assert (vx.VX_TYPE_UINT8, vx.VX_TYPE_INT8, vx.VX_TYPE_INT16) == (3, 2, 4)
    assert (vx.VX_CONVERT_POLICY_WRAP, vx.VX_CONVERT_POLICY_SATURATE) == (0xA000, 0xA001)
    assert (vx.VX_ROUND_POLICY_TO_ZERO, vx.VX_ROUND_POLICY_TO_NEAREST_EVEN) == (0x12001, 0x12002)
    assert (vx.VX_NN_DS_SIZE_ROUNDING_FLOOR, vx.VX_NN_DS_SIZE_ROUNDING_CEILING) == (0x1A000, 0x1A001)
    assert vx.VX_NN_POOLING_AVG == 0x1B001
    assert vx.VX_NN_NORMALIZATION_ACROSS_MAPS == 0x1C001
    assert vx.VX_NN_ACTIVATION_LINEAR == 0x1D008
    assert vx.VX_KERNEL_DECONVOLUTION_LAYER == 0x1007
    assert vx.VX_ERROR_INVALID_DIMENSION == -15
    assert vx.VX_CONTEXT_EXTENSIONS == 0x80107
    assert vx.TYPE_INT16 is vx.VX_TYPE_INT16
    assert "VX_TYPE_INT16" in dir(vx)
    with pytest.raises(AttributeError):
        vx.VX_TYPE_OF_NOTHING  # noqa: B018


def test_both_extensions_are_there(context: vx.Context) -> None:
    assert vx.query_context(context, vx.CONTEXT_EXTENSIONS) == "KHR_NN_8 KHR_NN_16"
    with pytest.raises(vx.NotSupported):
        vx.query_context(context, 1)


def test_dimensions_are_the_shape_in_reverse(context: vx.Context) -> None:
    items = np.arange(24, dtype=np.int16).reshape(2, 3, 4)
    tensor = vx.create_tensor(context, [4, 3, 2], vx.TYPE_INT16, 8).copy_from(items)
    assert tensor.dims == (4, 3, 2)
    assert np.array_equal(tensor.numpy(), items)
    assert np.array_equal(tensor.numpy("vx"), items.T)
    assert np.array_equal(tensor.to_float(), items / 256)
    assert np.array_equal(
        vx.create_tensor(context, [4, 3, 2], vx.TYPE_INT16, 8).copy_from(items.T, "vx").numpy(), items
    )
    assert np.array_equal(vx.Tensor.from_numpy(context, items, 8).numpy(), items)
    assert vx.query_tensor(tensor, vx.TENSOR_DIMS) == (4, 3, 2)
    assert vx.query_tensor(tensor, vx.TENSOR_NUMBER_OF_DIMS) == 3
    assert vx.query_tensor(tensor, vx.TENSOR_DATA_TYPE) == vx.TYPE_INT16
    assert vx.query_tensor(tensor, vx.TENSOR_FIXED_POINT_POSITION) == 8


def test_real_numbers_are_rounded_half_to_even_and_saturate(context: vx.Context) -> None:
    tensor = vx.create_tensor(context, [5], vx.TYPE_INT16, 8)
    tensor.from_float(np.array([1.5 / 256, 2.5 / 256, -1.0, 500.0, -500.0]))
    assert tensor.numpy().tolist() == [2, 2, -256, 32767, -32768]
    with pytest.raises(vx.InvalidFormat):
        tensor.from_float(np.array([np.nan] * 5))


def test_a_copy_is_a_copy(context: vx.Context) -> None:
    items = np.zeros(3, np.uint8)
    tensor = vx.create_tensor(context, [3], vx.TYPE_UINT8).copy_from(items)
    items[:] = 1
    tensor.numpy()[:] = 2
    assert tensor.numpy().tolist() == [0, 0, 0]


def test_views_are_parts_of_a_tensor(context: vx.Context) -> None:
    items = np.arange(24, dtype=np.int8).reshape(4, 6)
    tensor = vx.create_tensor(context, [6, 4], vx.TYPE_INT8).copy_from(items)
    view = vx.create_tensor_from_view(tensor, [1, 2], [5, 4])
    inner = vx.create_tensor_from_view(view, [1, 1], [2, 2])
    assert np.array_equal(view.numpy(), items[2:4, 1:5])
    assert np.array_equal(inner.numpy(), items[3:4, 2:3])
    inner.copy_from(np.array([[-7]]))
    assert tensor.numpy()[3, 2] == -7
    found = np.zeros((2, 4), np.int8)
    vx.copy_tensor_patch(tensor, [1, 2], [5, 4], found, vx.READ_ONLY)
    assert np.array_equal(found, view.numpy())
    vx.copy_tensor_patch(tensor, [0, 0], [2, 1], np.array([[8, 9]]), vx.WRITE_ONLY)
    assert tensor.numpy()[0, :2].tolist() == [8, 9]


@pytest.mark.parametrize(("start", "end"), [([0, 0], [7, 4]), ([3, 0], [3, 4]), ([0], [6]), ([0, 0], [6, 4, 1])])
def test_a_view_lies_in_its_tensor(context: vx.Context, start: list[int], end: list[int]) -> None:
    tensor = vx.create_tensor(context, [6, 4], vx.TYPE_INT8)
    with pytest.raises(vx.InvalidDimension):
        vx.create_tensor_from_view(tensor, start, end)


@pytest.mark.parametrize(
    ("data_type", "position"),
    [(vx.TYPE_FLOAT32, 0), (vx.TYPE_INT32, 0), (vx.TYPE_INT16, 0), (vx.TYPE_INT8, 4), (vx.TYPE_UINT8, 8), (0, 0)],
)
def test_other_formats_are_refused(context: vx.Context, data_type: int, position: int) -> None:
    with pytest.raises(vx.InvalidFormat) as caught:
        vx.create_tensor(context, [3], data_type, position)
    assert caught.value.status == vx.VX_ERROR_INVALID_FORMAT


@pytest.mark.parametrize("dims", [[], [0], [-1, 2], [1] * 9, [2**20, 2**20]])
def test_other_dimensions_are_refused(context: vx.Context, dims: list[int]) -> None:
    with pytest.raises(vx.InvalidDimension) as caught:
        vx.create_tensor(context, dims, vx.TYPE_UINT8)
    assert caught.value.status == vx.VX_ERROR_INVALID_DIMENSION


def test_elements_that_do_not_fit_are_refused(context: vx.Context) -> None:
    tensor = vx.create_tensor(context, [3], vx.TYPE_UINT8)
    with pytest.raises(vx.InvalidValue):
        tensor.copy_from(np.array([0, 256, 1]))
    with pytest.raises(vx.InvalidFormat):
        tensor.copy_from(np.array([0.0, 1.0, 2.0]))
    with pytest.raises(vx.InvalidDimension):
        tensor.copy_from(np.zeros((3, 1), np.uint8))
    with pytest.raises(vx.InvalidValue):
        tensor.numpy("fortran")  # type: ignore[arg-type]
    with pytest.raises(vx.InvalidFormat):
        vx.Tensor.from_numpy(context, np.zeros(3, np.int32))


def test_what_was_released_is_no_argument(context: vx.Context) -> None:
    tensor = vx.create_tensor(context, [3], vx.TYPE_UINT8)
    vx.release(tensor)
    with pytest.raises(vx.InvalidReference):
        tensor.numpy()
    with pytest.raises(vx.InvalidReference):
        vx.create_tensor_from_view(tensor, [0], [1])
    with vx.create_context() as other:
        pass
    with pytest.raises(vx.InvalidReference) as caught:
        vx.create_graph(other)
    assert caught.value.status == vx.VX_ERROR_INVALID_REFERENCE
    with pytest.raises(vx.InvalidParameters):
        vx.create_graph("context")  # type: ignore[arg-type]


def test_errors_are_errors_of_cvm_and_of_openvx(context: vx.Context) -> None:
    with pytest.raises(vx.Error) as caught:
        vx.create_tensor(context, [0], vx.TYPE_UINT8)
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert isinstance(error, CvmError)
    assert isinstance(error, Invalid)
    assert error.code == "openvx.tensor.dims"
    assert "VX_ERROR_INVALID_DIMENSION" in str(error)
    assert error.exit_code == 3


def test_names_are_text(context: vx.Context) -> None:
    tensor = vx.create_tensor(context, [3], vx.TYPE_UINT8)
    vx.set_reference_name(tensor, "image")
    assert tensor.name == "image"
    with pytest.raises(vx.InvalidValue):
        vx.set_reference_name(tensor, "")
    with pytest.raises(vx.InvalidType):
        vx.create_scalar(context, 12345, 1)


def test_the_machine_names_skips_and_upscales() -> None:
    assert vx.skip_of(224, 55, 11, 2, vx.NN_DS_SIZE_ROUNDING_FLOOR) == 4
    assert vx.skip_of(5, 3, 1, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR) == 2
    assert vx.skip_of(3, 9, 1, 0, vx.NN_DS_SIZE_ROUNDING_FLOOR) is None
    assert vx.upscale_of(4, 8, 2, 0, 0) == 2
    assert vx.upscale_of(4, 9, 2, 0, 0) is None
