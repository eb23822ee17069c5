"""Trained networks on all of their test inputs: exactly the codes that the document denotes, on every executor."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest

import cvm.demo
from cvm.arrays import read_npy, read_npz
from cvm.quantization.exact import quantize
from tests.models.digits import NETWORKS, SHARED, SMALL, Codes, Network, predictions
from tests.selection import mostly_long

each_network = pytest.mark.parametrize(
    "network", mostly_long([*SMALL, *NETWORKS], SMALL), ids=lambda network: network.name
)
few_inputs = pytest.mark.parametrize("network", SMALL, ids=lambda network: network.name)
needs_shared = pytest.mark.skipif(len(NETWORKS) < 3, reason="../shared/models/digits is not there")


def differences(found: Sequence[Mapping[str, Codes]], expected: Sequence[Mapping[str, Codes]]) -> Iterator[str]:
    """Where the codes in ``found`` are not those of the same tensor in ``expected``."""
    for number, (mine, theirs) in enumerate(zip(found, expected, strict=True)):
        for tensor, codes in mine.items():
            exact = theirs[tensor]
            assert codes.shape == exact.shape
            for index in np.argwhere(codes != exact):
                at = tuple(index.tolist())
                yield f"input {number}, {tensor}{list(at)}: {codes[at]}, not {exact[at]}"


def not_formal(network: Network, count: int) -> list[str]:
    """Where FORMAL and NumPy differ on the last ``count`` inputs, every tensor of the program compared."""
    feeds = network.feeds[-count:]
    assert len(feeds) == count
    return list(differences(network.run("numpy", feeds), network.run("formal", feeds)))


@needs_shared
def test_the_networks_of_the_shared_folder_have_all_their_inputs() -> None:
    assert {network.name: len(network.images) for network in NETWORKS} == {
        "demo": 40,
        "lenet_digits": 250,
        "mobilenet_digits": 250,
    }


@pytest.mark.sweep
@pytest.mark.slow
@each_network
def test_every_tensor_of_every_input_has_the_exact_codes(network: Network) -> None:
    computed = network.quantised - {name for name, tensor in network.graph.tensors.items() if tensor.kind == "variable"}
    assert len(network.found) == len(network.images)
    assert all(set(run) == computed for run in network.found)
    assert next(differences(network.found, network.expected), None) is None


@few_inputs
def test_variables_have_the_exact_codes(network: Network) -> None:
    stored = {}
    for name, tensor in network.graph.tensors.items():
        if tensor.kind == "variable":
            assert tensor.data is not None
            assert tensor.quantizer is not None
            stored[name] = quantize(tensor.data.values, tensor.quantizer).reshape(tensor.shape)
    assert len(stored) >= 16
    assert next(differences([stored], network.expected[:1]), None) is None


@few_inputs
def test_every_tensor_is_proven_exact_but_what_softmax_gives(network: Network) -> None:
    assert {item.tensor for item in network.reported} == network.quantised
    bounded = {item.tensor: item.bound for item in network.reported if item.bound}
    assert set(bounded) == {
        name for operation in network.graph.operations if operation.name == "softmax" for name in operation.outputs
    }
    assert all(bound <= 1 for bound in bounded.values())


@each_network
def test_so_many_inputs_are_classified_right(network: Network) -> None:
    assert (predictions(network.found) == network.labels).sum() == network.right
    assert np.array_equal(predictions(network.found), predictions(network.expected))


@few_inputs
def test_formal_gives_the_same_tensors(network: Network) -> None:
    assert not not_formal(network, 4)


@pytest.mark.long
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_formal_gives_the_same_tensors_for_many_inputs(network: Network) -> None:
    assert not not_formal(network, 40)


@needs_shared
def test_the_model_in_the_package_is_the_shared_one_file_by_file() -> None:
    def files(folder: Path) -> dict[str, bytes]:
        names = ("graph.nnef", "graph.quant", "*.dat")
        paths = [path for name in names for path in folder.rglob(name)]
        return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}

    ours, shared = files(cvm.demo.MODEL), files(SHARED / "lenet_digits")
    assert sorted(ours) == sorted(shared)
    assert [name for name in ours if ours[name] != shared[name]] == []
    assert {path.relative_to(cvm.demo.MODEL).as_posix() for path in cvm.demo.MODEL.rglob("*") if path.is_file()} == set(
        ours
    )


@needs_shared
def test_the_images_in_the_package_are_the_first_of_the_shared_ones() -> None:
    for name, file in (("image", "test_inputs.npy"), ("label", "test_labels.npy")):
        ours, shared = read_npz(cvm.demo.IMAGES, name), read_npy(SHARED / "lenet_digits" / file)
        assert np.array_equal(ours, shared[: len(ours)])
