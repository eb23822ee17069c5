"""Sliding windows against the document's formulas in nested loops, on random small shapes (sections 4.3.1 to 4.3.4)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, reject, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from cvm.reference.operations import filters as filters_module
from cvm.reference.registry import Array
from tests.reference import brute_force
from tests.reference.graphs import evaluate, one, reals

BORDERS = ("constant", "replicate", "reflect", "reflect-even")

examples = settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])


def random(shape: Any, seed: int) -> Array:
    """Small whole numbers, whose sums and products are exact."""
    items: Array = np.random.default_rng(seed).integers(-9, 10, shape)
    return items.astype(np.float64)


@dataclass
class Geometry:
    """Lists of one item per dimension, or empty ones."""

    rank: int
    size: list[int]
    padding: list[tuple[int, int]]
    stride: list[int]
    dilation: list[int]
    seed: int
    window: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        self.window = {"padding": self.padding, "stride": self.stride, "dilation": self.dilation}


@st.composite
def geometries(draw: st.DrawFn, ranks: tuple[int, int], lowest_padding: int = -1) -> Geometry:
    rank = draw(st.integers(*ranks))

    def lists(item: st.SearchStrategy[Any], optional: bool = True) -> Any:
        items = draw(st.lists(item, min_size=rank, max_size=rank))
        return [] if optional and draw(st.booleans()) else items

    side = st.integers(lowest_padding, 2)
    return Geometry(
        rank,
        lists(st.integers(1, 3), optional=False),
        lists(st.tuples(side, side)),
        lists(st.integers(1, 3)),
        lists(st.integers(1, 2)),
        draw(st.integers(0, 2**20)),
    )


def valid(name: str, **arguments: Any) -> tuple[Array, ...]:
    """The results of an operation; an invalid combination of arguments is no example."""
    try:
        return evaluate(name, **arguments)
    except Invalid as error:
        if error.code.startswith("nnef.") or error.code == "reference.empty-window":
            reject()
        raise


@given(geometries((1, 3)), st.sampled_from(BORDERS), st.data())
@examples
def test_conv_is_the_correlation_of_4_3_1(geometry: Geometry, border: str, data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from([0, 1, 1, 2]))
    per_group, multiplier = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    channels = per_group * (groups or 3) if groups else 3
    extents = data.draw(st.lists(st.integers(1, 5), min_size=geometry.rank, max_size=geometry.rank))
    x = random((2, channels, *extents), geometry.seed)
    filters = (groups or channels) * multiplier
    w = random((filters, per_group if groups else 1, *geometry.size), geometry.seed + 1)
    bias = random((1, filters), geometry.seed + 2)
    (found,) = valid("conv", input=x, filter=w, bias=bias, border=border, groups=groups, **geometry.window)
    expected = brute_force.conv(x, w, border, groups=groups, **geometry.window)
    np.testing.assert_array_equal(found, expected + bias.reshape(1, -1, *[1] * geometry.rank))
    together = data.draw(st.integers(1, 200))  # one row of outputs at a time, or a few, or all
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(filters_module, "_TOGETHER", together)
        (found,) = valid("conv", input=x, filter=w, bias=bias, border=border, groups=groups, **geometry.window)
    np.testing.assert_array_equal(found, expected + bias.reshape(1, -1, *[1] * geometry.rank))


@given(geometries((1, 3)), st.sampled_from(BORDERS), st.data())
@examples
def test_deconv_is_the_reverse_of_4_3_1(geometry: Geometry, border: str, data: st.DataObject) -> None:
    groups = data.draw(st.sampled_from([0, 1, 1, 2]))
    per_group, multiplier = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    extents = data.draw(st.lists(st.integers(1, 4), min_size=geometry.rank, max_size=geometry.rank))
    channels = (groups or 3) * multiplier if groups else 3
    x = random((2, channels, *extents), geometry.seed)
    w = random((channels, per_group if groups else 1, *geometry.size), geometry.seed + 1)
    output_shape: list[int] = []
    if data.draw(st.booleans()):  # a reference that down-scales to the input
        ws = brute_force.windows(geometry.size, geometry.padding, geometry.stride, geometry.dilation, x=extents)
        rest = [data.draw(st.integers(0, v.s - 1)) * (1 if geometry.padding else -1) for v in ws]
        outputs = w.shape[1] * groups if groups else channels
        output_shape = [2, outputs, *(v.X + more for v, more in zip(ws, rest, strict=True))]
    arguments: dict[str, Any] = {"border": border, "groups": groups, "output_shape": output_shape, **geometry.window}
    (found,) = valid("deconv", input=x, filter=w, **arguments)
    np.testing.assert_array_equal(found, brute_force.deconv(x, w, **arguments))


@given(geometries((1, 4)), st.sampled_from(("ignore", *BORDERS)), st.booleans(), st.data())
@examples
def test_box_sums_and_averages_windows_over_any_dimension(
    geometry: Geometry, border: str, normalize: bool, data: st.DataObject
) -> None:
    extents = data.draw(st.lists(st.integers(1, 4), min_size=geometry.rank, max_size=geometry.rank))
    x = random(extents, geometry.seed)
    arguments: dict[str, Any] = {"size": geometry.size, "border": border, "normalize": normalize, **geometry.window}
    (found,) = valid("box", input=x, **arguments)
    np.testing.assert_allclose(found, brute_force.box(x, **arguments), rtol=1e-12, atol=1e-12)
    if normalize:
        del arguments["normalize"]
        np.testing.assert_array_equal(found, one("avg_pool", input=x, **arguments))
        squares = one("avg_pool", input=x * x, **arguments)
        np.testing.assert_allclose(one("rms_pool", input=x, **arguments), np.sqrt(squares), rtol=1e-12)


@given(geometries((1, 3)), st.sampled_from(("ignore", *BORDERS)), st.booleans(), st.data())
@examples
def test_debox_is_the_reverse_of_box(geometry: Geometry, border: str, normalize: bool, data: st.DataObject) -> None:
    extents = data.draw(st.lists(st.integers(1, 4), min_size=geometry.rank, max_size=geometry.rank))
    x = random(extents, geometry.seed)
    arguments: dict[str, Any] = {"size": geometry.size, "border": border, "normalize": normalize, **geometry.window}
    (found,) = valid("debox", input=x, **arguments)
    expected = brute_force.debox(x, output_shape=[], **arguments)
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@given(geometries((1, 4)), st.sampled_from(("ignore", *BORDERS)), st.data())
@examples
def test_max_pools_find_the_first_of_the_largest_items(geometry: Geometry, border: str, data: st.DataObject) -> None:
    extents = data.draw(st.lists(st.integers(1, 4), min_size=geometry.rank, max_size=geometry.rank))
    x = np.trunc(random(extents, geometry.seed) / 3)  # with many equal items
    arguments: dict[str, Any] = {"size": geometry.size, "border": border, **geometry.window}
    output, index = valid("max_pool_with_index", input=x, **arguments)
    expected = brute_force.maxima(x, **arguments)
    np.testing.assert_array_equal(output, expected[0])
    np.testing.assert_array_equal(index, expected[1])
    assert index.dtype == np.int64
    np.testing.assert_array_equal(one("max_pool", input=x, **arguments), output)
    np.testing.assert_array_equal(one("argmax_pool", input=x, **arguments), index)
    if border != "ignore":
        np.testing.assert_array_equal(one("sample", input=x, index=index, **arguments), output)


@given(geometries((1, 3)), st.sampled_from(BORDERS), st.data())
@examples
def test_sample_and_desample_follow_the_index(geometry: Geometry, border: str, data: st.DataObject) -> None:
    extents = data.draw(st.lists(st.integers(1, 4), min_size=geometry.rank, max_size=geometry.rank))
    x = random(extents, geometry.seed)
    arguments: dict[str, Any] = {"size": geometry.size, **geometry.window}
    (shaped,) = valid("argmax_pool", input=x, border=border, **arguments)
    index = np.random.default_rng(geometry.seed).integers(0, math.prod(geometry.size), shaped.shape)
    found = one("sample", input=x, index=index, border=border, **arguments)
    np.testing.assert_array_equal(found, brute_force.sample(x, index, border=border, **arguments))
    (back,) = valid("desample", input=found, index=index, output_shape=list(x.shape), **arguments)
    expected = brute_force.desample(found, index, output_shape=list(x.shape), **arguments)
    np.testing.assert_array_equal(back, expected)
    (free,) = valid("desample", input=found, index=index, **arguments)
    np.testing.assert_array_equal(free, brute_force.desample(found, index, output_shape=[], **arguments))


@given(
    st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=3),
    st.sampled_from(("symmetric", "asymmetric", "aligned")),
    st.sampled_from(BORDERS),
    st.integers(0, 2**20),
)
@examples
def test_multilinear_upsampling_interpolates_between_neighbours(
    dimensions: list[tuple[int, int]], method: str, border: str, seed: int
) -> None:
    x = random((1, 2, *(extent for extent, _ in dimensions)), seed)
    factor = [times for _, times in dimensions]
    found = one("multilinear_upsample", input=x, factor=factor, method=method, border=border)
    np.testing.assert_allclose(found, brute_force.multilinear(x, factor, method, border), rtol=1e-6, atol=1e-7)


# Hand-computed cases, one per border and per formula that a transcription could get wrong in the same way.


@pytest.mark.parametrize(
    ("border", "extended", "expected"),
    [
        ("constant", "0 0 | 1 2 3 | 0 0", [1, 3, 6, 5, 3]),
        ("replicate", "1 1 | 1 2 3 | 3 3", [3, 4, 6, 8, 9]),
        ("reflect", "3 2 | 1 2 3 | 2 1", [6, 5, 6, 7, 6]),
        ("reflect-even", "2 1 | 1 2 3 | 3 2", [4, 4, 6, 8, 8]),
    ],
)
def test_conv_borders_by_hand(border: str, extended: str, expected: list[int]) -> None:
    items = [int(item) for item in extended.split() if item != "|"]
    assert expected == [sum(items[i : i + 3]) for i in range(5)]
    found = one("conv", input=reals([[1, 2, 3]]), filter=reals([[1, 1, 1]]), border=border, padding=[(2, 2)])
    assert found.tolist() == [[expected]]


def test_deconv_spreads_each_item_over_the_filter() -> None:
    x, w = reals([[1, 10]]), reals([[1, 2, 3]])
    assert one("deconv", input=x, filter=w, padding=[(0, 0)], stride=[2]).tolist() == [[[1, 2, 13, 20, 30]]]
    assert one("deconv", input=x, filter=w, padding=[(1, 0)], stride=[2]).tolist() == [[[2, 13, 20, 30]]]
    # Automatic padding: X = 4, t = (2 - 1) * 2 + 3 - 4 = 1, p = 0.
    assert one("deconv", input=x, filter=w, stride=[2]).tolist() == [[[1, 2, 13, 20]]]
    # A reference extent that rounds down to the input may be longer: nothing lands there.
    arguments: dict[str, Any] = {"padding": [(0, 0)], "stride": [2], "output_shape": [1, 1, 6]}
    assert one("deconv", input=x, filter=w, **arguments).tolist() == [[[1, 2, 13, 20, 30, 0]]]


def test_depthwise_deconvolution_has_as_many_channels_as_its_reference() -> None:
    x, w = reals([[1], [10]]), reals([[2]], [[3]])
    assert one("deconv", input=x, filter=w, groups=0).tolist() == [[[2], [30]]]
    # Groups from output_shape: one output channel sums both inputs.
    assert one("deconv", input=x, filter=w, groups=0, output_shape=[1, 1, 1]).tolist() == [[[32]]]


def test_average_pooling_divides_by_the_kernel_or_by_what_is_there() -> None:
    x = reals(6, 8)
    arguments: dict[str, Any] = {"size": [2], "padding": [(1, 1)]}
    assert one("avg_pool", input=x, border="constant", **arguments).tolist() == [3, 7, 4]
    assert one("avg_pool", input=x, border="ignore", **arguments).tolist() == [6, 7, 8]


def test_max_pooling_takes_a_constant_border_in() -> None:
    x = reals(-6, -8)
    arguments: dict[str, Any] = {"size": [2], "padding": [(1, 1)]}
    assert one("max_pool", input=x, border="constant", **arguments).tolist() == [0, -6, 0]
    assert one("max_pool", input=x, border="ignore", **arguments).tolist() == [-6, -6, -8]
    assert one("argmax_pool", input=x, border="constant", **arguments).tolist() == [0, 0, 1]
    assert one("argmax_pool", input=x, border="ignore", **arguments).tolist() == [1, 0, 0]


def test_automatic_padding_puts_the_smaller_half_first() -> None:
    # x = 2, t = (2 - 1) * 3 + 4 - 4 = 3: one before, two after.
    assert one("box", input=reals(1, 2, 3, 4), size=[4], stride=[3]).tolist() == [6, 7]


def test_automatic_padding_is_not_negative() -> None:
    """Khronos conformance cases avg_pool1x1 and max_pool1x1: t = -1, and windows begin at the first item."""
    assert one("box", input=reals(1, 2, 3, 4), size=[1], stride=[2]).tolist() == [1, 3]
    assert one("debox", input=reals(1, 3), size=[1], stride=[2]).tolist() == [1, 0, 3, 0]


def test_negative_padding_crops() -> None:
    assert one("box", input=reals(1, 2, 3, 4), size=[1], padding=[(-1, -1)]).tolist() == [2, 3]
    assert one("debox", input=reals(1, 2), size=[1], padding=[(-1, -1)]).tolist() == [0, 1, 2, 0]


def test_an_ignored_border_must_leave_something() -> None:
    for name in ("avg_pool", "max_pool", "argmax_pool"):
        with pytest.raises(Invalid, match="border altogether") as caught:
            one(name, input=reals(1, 2), size=[1], padding=[(1, 0)], border="ignore")
        assert caught.value.code == "reference.empty-window"


def test_desample_sums_what_lands_on_one_position() -> None:
    # Windows of 2 with stride 1: item 0 lands at 0 + 1, item 1 at 1 + 0.
    found = one("desample", input=reals(5, 7), index=np.array([1, 0]), size=[2], padding=[(0, 0)])
    assert found.tolist() == [0, 12, 0]


@pytest.mark.parametrize("index", [-1, 2])
def test_an_index_outside_of_the_window_is_an_error(index: int) -> None:
    with pytest.raises(Invalid, match="outside of a window of 2 elements"):
        one("sample", input=reals(5, 7), index=np.array([index, 0]), size=[2], padding=[(0, 1)])


@pytest.mark.parametrize(
    ("method", "border", "expected"),
    [
        ("symmetric", "replicate", [4, 5, 7, 8]),
        ("symmetric", "constant", [3, 5, 7, 6]),
        ("asymmetric", "replicate", [4, 6, 8, 8]),
        ("asymmetric", "constant", [4, 6, 8, 4]),
        ("aligned", "replicate", [4, 16 / 3, 20 / 3, 8]),
        ("aligned", "constant", [4, 16 / 3, 20 / 3, 8]),
    ],
)
def test_linear_upsampling_by_hand(method: str, border: str, expected: list[float]) -> None:
    found = one("multilinear_upsample", input=reals([[4, 8]]), factor=[2], method=method, border=border)
    np.testing.assert_allclose(found, [[expected]], rtol=1e-15)


def test_upsampling_by_two_is_the_deconvolution_of_4_3_4() -> None:
    x = random((1, 1, 3, 4), 1)
    arguments: dict[str, Any] = {"stride": [2, 2], "border": "constant"}
    line = np.array([0.25, 0.75, 0.75, 0.25])
    symmetric = one("deconv", input=x, filter=np.outer(line, line)[None, None], padding=[(1, 1), (1, 1)], **arguments)
    found = one("multilinear_upsample", input=x, factor=[2, 2], method="symmetric", border="constant")
    np.testing.assert_array_equal(found, symmetric)
    # The document prints padding (0, 1) for this one, which would move the result by one item: see its formula.
    line = np.array([0.5, 1.0, 0.5])
    asymmetric = one("deconv", input=x, filter=np.outer(line, line)[None, None], padding=[(1, 0), (1, 0)], **arguments)
    found = one("multilinear_upsample", input=x, factor=[2, 2], method="asymmetric", border="constant")
    np.testing.assert_array_equal(found, asymmetric)


def test_a_single_item_is_copied_by_aligned_upsampling() -> None:
    found = one("multilinear_upsample", input=reals([[4]]), factor=[3], method="aligned")
    assert found.tolist() == [[[4, 4, 4]]]


def test_nearest_and_area_sampling() -> None:
    x = reals([[1, 2, 3, 4, 5, 6]])
    assert one("nearest_downsample", input=x, factor=[3]).tolist() == [[[1, 4]]]
    assert one("area_downsample", input=x, factor=[3]).tolist() == [[[2, 5]]]
    assert one("nearest_upsample", input=x[:, :, :2], factor=[3]).tolist() == [[[1, 1, 1, 2, 2, 2]]]


def test_resampling_is_the_boxes_of_4_3_4() -> None:
    x = random((1, 2, 4, 6), 2)
    unpadded = {"padding": [(0, 0)] * 4}
    block = {"size": [1, 1, 2, 3], "stride": [1, 1, 2, 3], **unpadded}
    assert (one("area_downsample", input=x, factor=[2, 3]) == one("box", input=x, normalize=True, **block)).all()
    assert (one("nearest_upsample", input=x, factor=[2, 3]) == one("debox", input=x, **block)).all()
    block["size"] = [1, 1, 1, 1]
    assert (one("nearest_downsample", input=x, factor=[2, 3]) == one("box", input=x, **block)).all()
