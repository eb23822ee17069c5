"""Region-of-interest operations: section 4.6."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cvm.errors import Invalid
from tests.reference import brute_force
from tests.reference.graphs import one, reals

MAP = np.arange(1.0, 26.0).reshape(1, 1, 5, 5)
FIRST = np.array([[0]])


def test_cells_overlap_where_the_region_is_not_a_multiple() -> None:
    """r = 5 into 2 cells: extent ceil(5 / 2) = 3, stride floor(5 / 2) = 2, starting at the region's own start."""
    found = one("max_roi_pool", input=MAP, rois=reals([0, 0, 5, 5]), batch_index=FIRST, output_size=[2, 2])
    assert found.tolist() == [[[[13, 15], [23, 25]]]]
    mean = one("avg_roi_pool", input=MAP, rois=reals([0, 0, 5, 5]), batch_index=FIRST, output_size=[2, 2])
    assert mean.tolist() == [[[[7, 9], [17, 19]]]]


def test_regions_are_rounded_and_taken_from_their_batch_item() -> None:
    x = np.concatenate([MAP, 100 + MAP])
    rois, items = reals([0.5, 1.4, 2.5, 3.4], [1, 1, 3, 3]), np.array([[1], [0]])
    found = one("max_roi_pool", input=x, rois=rois, batch_index=items, output_size=[1, 1])
    assert found.ravel().tolist() == [113, 13]  # rows 1 to 3, columns 1 to 3, ends exclusive


def test_items_outside_of_the_map_do_not_count_and_an_empty_cell_is_zero() -> None:
    rois = reals([-1, -1, 1, 1], [4, 4, 6, 6], [2, 2, 2, 2], [9, 9, 11, 11])
    items = np.zeros((4, 1), np.int64)
    mean = one("avg_roi_pool", input=MAP, rois=rois, batch_index=items, output_size=[1, 1])
    assert mean.ravel().tolist() == [1, 25, 0, 0]
    best = one("max_roi_pool", input=-MAP, rois=rois, batch_index=items, output_size=[1, 1])
    assert best.ravel().tolist() == [-1, -25, 0, 0]


def test_pooling_in_one_spatial_dimension() -> None:
    x = reals([[4, 8, 6]])
    found = one("avg_roi_pool", input=x, rois=reals([0, 3]), batch_index=FIRST, output_size=[3])
    assert found.tolist() == [[[4, 8, 6]]]


@pytest.mark.parametrize(
    ("method", "doubled"),
    [
        ("symmetric", [1.75, 2.25, 2.75, 3.25]),
        ("asymmetric", [2, 2.5, 3, 3.5]),
        ("aligned", [2, 7 / 3, 8 / 3, 3]),
    ],
)
def test_resampling_by_hand(method: str, doubled: list[float]) -> None:
    def resampled(start: float, end: float, size: int) -> list[float]:
        x, rois = reals([[0, 1, 2, 3, 4, 5]]), reals([start, end])
        found = one("roi_resample", input=x, rois=rois, batch_index=FIRST, output_size=[size], method=method)
        return found.ravel().tolist()

    assert resampled(2, 4, 2) == [2, 3]  # one to one: the region as it is
    assert resampled(2.5, 4.5, 2) == [2.5, 3.5]
    np.testing.assert_allclose(resampled(2, 4, 4), doubled, rtol=1e-15)


@given(st.integers(0, 2**20), st.sampled_from(("symmetric", "asymmetric", "aligned")))
@settings(max_examples=30)
def test_resampling_interpolates_between_neighbours(seed: int, method: str) -> None:
    rng = np.random.default_rng(seed)
    x, size = rng.normal(size=(2, 2, 4, 5)), rng.integers(1, 4, 2).tolist()
    starts = rng.integers(-2, 8, (3, 2)) / 2
    rois = np.concatenate([starts, starts + rng.integers(3, 9, (3, 2)) / 2], axis=1)
    items = rng.integers(0, 2, (3, 1))
    found = one("roi_resample", input=x, rois=rois, batch_index=items, output_size=size, method=method)
    np.testing.assert_allclose(found, brute_force.roi_resample(x, rois, items, size, method), rtol=1e-6, atol=1e-7)


def test_align_pools_the_samples_of_each_cell() -> None:
    arguments = {"rois": reals([0.5, 0, 4.5, 3]), "batch_index": FIRST, "output_size": [2, 3]}
    samples = one("roi_resample", input=MAP, **{**arguments, "output_size": [4, 3]})
    mean = one("avg_roi_align", input=MAP, sampling_rate=[2, 1], **arguments)
    np.testing.assert_allclose(mean, (samples[:, :, ::2] + samples[:, :, 1::2]) / 2, rtol=1e-15)
    best = one("max_roi_align", input=MAP, sampling_rate=[2, 1], **arguments)
    assert best.tolist() == np.maximum(samples[:, :, ::2], samples[:, :, 1::2]).tolist()


@pytest.mark.parametrize("item", [-1, 1])
def test_a_batch_index_must_be_one_of_the_batch(item: int) -> None:
    with pytest.raises(Invalid, match="batch index"):
        one("max_roi_pool", input=MAP, rois=reals([0, 0, 1, 1]), batch_index=np.array([[item]]), output_size=[1, 1])
