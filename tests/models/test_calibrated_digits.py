"""Float networks, calibrated on data that they are not judged by: as good as before at 8 bits.

The training data of the networks are those of `sklearn.datasets.load_digits` without 500 test images, by
`train_test_split(test_size=500, random_state=11, stratify=target)`; the first 250 test images lie beside the networks.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cvm
import cvm.demo
from cvm.arrays import read_npz
from cvm.calibration import Calibration
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.reference import Reference
from tests.models.digits import NETWORKS, SHARED, Network

BY_NAME = {network.name: network for network in NETWORKS}


def classes(network: Network, found: Calibration) -> npt.NDArray[Any]:
    """What the integer program says of the test images."""
    session = cvm.Session(lower(found.graph), executor="numpy")
    return session.run({"image": network.images})["probs"].reshape(len(network.images), -1).argmax(axis=1)


def float_classes(network: Network) -> npt.NDArray[Any]:
    """What the float model says of them."""
    result = Reference(nnef.load(network.folder, quant=False)).run({"image": network.images})["probs"]
    return result.reshape(len(network.images), -1).argmax(axis=1)


@pytest.mark.sweep
@pytest.mark.parametrize("method", ["minmax", "percentile", "mse"])
@pytest.mark.parametrize("form", ["linear", "zero-point"])
def test_half_of_the_images_of_the_package_calibrate_for_the_other_half(method: Any, form: Any) -> None:
    network = BY_NAME["demo"]
    images = read_npz(cvm.demo.IMAGES, "image")
    found = cvm.quantize(network.folder, {"image": images[20:]}, method=method, form=form)
    assert np.array_equal(classes(network, found)[:20], network.labels[:20])


@cache
def training_images() -> npt.NDArray[Any]:
    """1297 images [N, 1, 8, 8] of pixels in 0 .. 1."""
    datasets = pytest.importorskip("sklearn.datasets", reason="scikit-learn is not installed (extra digits)")
    from sklearn.model_selection import train_test_split

    digits = datasets.load_digits()
    pixels = (digits.data / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    train, test = train_test_split(pixels, test_size=500, random_state=11, stratify=digits.target)
    assert np.array_equal(test[:250], np.load(SHARED / "lenet_digits" / "test_inputs.npy"))
    return train


needs_shared = pytest.mark.skipif(len(NETWORKS) < 3, reason="../shared/models/digits is not there")


@needs_shared
@pytest.mark.parametrize("name", ["lenet_digits", "mobilenet_digits"])
def test_at_most_half_a_point_is_lost_at_8_bits(name: str) -> None:
    """One of 250 images is 0.4 points."""
    assert lost(name) <= 1


@pytest.mark.long
@needs_shared
@pytest.mark.parametrize("form", ["linear", "zero-point"])
@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("method", ["minmax", "percentile", "mse", "entropy"])
@pytest.mark.parametrize("name", ["lenet_digits", "mobilenet_digits"])
def test_at_most_half_a_point_is_lost_at_8_bits_by_all_ways(
    name: str, method: Any, per_channel: bool, form: Any
) -> None:
    assert lost(name, method=method, per_channel=per_channel, form=form) <= 1


def lost(name: str, **choice: Any) -> int:
    """How many test images less than the float model the program gets right."""
    network = BY_NAME[name]
    found = cvm.quantize(network.folder, {"image": training_images()}, **choice)
    right, mine = ((said == network.labels).sum() for said in (float_classes(network), classes(network, found)))
    return int(right) - int(mine)


@needs_shared
@pytest.mark.parametrize(("name", "alike", "rounded_later"), [("lenet_digits", 9, 2), ("mobilenet_digits", 13, 6)])
def test_the_ranges_found_are_those_that_lie_beside_the_network(name: str, alike: int, rounded_later: int) -> None:
    """But for what is clipped, or rounded later: these have other quantisers, or none, by intention.

    `branch_pool` has the range of the tensor that it is concatenated with.
    """
    given = nnef.load(BY_NAME[name].folder).tensors
    found = cvm.quantize(BY_NAME[name].folder, {"image": training_images()})
    graph = nnef.load(BY_NAME[name].folder, quant=False)
    clipped = {operation.inputs["x"] for operation in graph.operations if operation.name == "relu"}
    compared = 0
    for item in found.tensors:
        if item.role == "activation" and item.name not in clipped and item.name != "branch_pool":
            (low, high), (mine_low, mine_high) = ends(given[item.name].quantizer), ends(item.quantizer)
            step = (high - low) / 255
            assert abs(low - mine_low) <= 1.01 * step
            assert abs(high - mine_high) <= 1.01 * step
            compared += 1
    assert compared == alike
    unrounded = set(given) - set(found.quantizers)
    assert len(unrounded) == rounded_later


def ends(quantizer: Any) -> tuple[float, float]:
    (scale,), (offset,) = quantizer.scale, quantizer.offset
    return float(offset + scale * quantizer.lo), float(offset + scale * quantizer.hi)
