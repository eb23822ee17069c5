"""The example: a LeNet in Q7.8, as good as the float network that its weights come from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cvm import openvx as vx
from cvm.demo import IMAGES
from cvm.demo.openvx_digits import build, main
from cvm.executors import create
from cvm.program.verifier import verify

FOLDER = Path(__file__).parents[4] / "shared" / "models" / "digits" / "lenet_digits"


def test_it_gets_all_images_of_the_demo_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 0
    assert capsys.readouterr().out.startswith("40 of 40 test images right\n")


def test_all_executors_give_the_same_probabilities() -> None:
    with np.load(IMAGES) as data:
        images = data["image"][:2]
    network = build(vx.create_context(executor="numpy"), len(images))
    found = network.run(images)
    verified = verify(network.graph.program)
    feeds = {"images": network.images.numpy().astype(np.int32)}
    for name in ("formal", "native"):
        result = create(name, verified, 1).run(feeds, {})
        assert np.array_equal(result.values[network.graph.program.outputs[0].value], found)


@pytest.mark.skipif(not FOLDER.is_dir(), reason="../shared/models/digits is not there")
def test_it_classifies_as_the_float_network_does() -> None:
    images, labels, floats = (
        np.load(FOLDER / f"{name}.npy") for name in ("test_inputs", "test_labels", "float_probs")
    )  # fmt: skip
    found = build(vx.create_context(), len(images)).run(images.reshape(-1, 1, 8, 8))
    classes = found.argmax(axis=1)
    assert np.array_equal(classes, floats.argmax(axis=1))
    assert ((classes == labels).sum(), len(labels)) == (249, 250)
    assert abs(found / 256 - floats).max() < 0.02
