"""The networks that classify digits: what the product makes of them, and what the independent evaluator says.

Two lie in ``../shared/models/digits`` with 250 test inputs each; a copy of one of them is in the package, with 40.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cvm.demo
from cvm.arrays import read_npy, read_npz
from cvm.executors import create
from cvm.frontends import nnef
from cvm.graph import QuantizedGraph
from cvm.inputs import Feed, arrange
from cvm.lowering import lower
from cvm.program import Exactness, Program, verify
from tests.oracle import exact

SHARED = Path(__file__).parents[3] / "shared" / "models" / "digits"

Codes = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class Network:
    """A model in a folder, and how many of its inputs are classified right."""

    name: str
    folder: Path
    right: int
    """Inputs whose label is the first of the largest output codes."""
    count: int | None = None
    """How many of the inputs are taken, the first ones; None are all."""

    @cached_property
    def images(self) -> npt.NDArray[Any]:
        """The inputs, as real numbers."""
        if self.folder == cvm.demo.MODEL:
            return read_npz(cvm.demo.IMAGES, "image")[: self.count]
        return read_npy(self.folder / "test_inputs.npy")[: self.count]

    @cached_property
    def labels(self) -> npt.NDArray[Any]:
        """The digits that the inputs show."""
        if self.folder == cvm.demo.MODEL:
            return read_npz(cvm.demo.IMAGES, "label")[: self.count]
        return read_npy(self.folder / "test_labels.npy")[: self.count]

    @cached_property
    def graph(self) -> QuantizedGraph:
        """The model as the front end reads it."""
        return nnef.load(self.folder)

    @cached_property
    def program(self) -> Program:
        """The integer program."""
        return lower(self.graph)

    @property
    def reported(self) -> tuple[Exactness, ...]:
        """What the compiler says of every quantised tensor."""
        return self.program.provenance.exactness

    @cached_property
    def feeds(self) -> list[Feed]:
        """The codes of all inputs."""
        _, samples = arrange(self.program, {"image": self.images})
        return [feed for (feed,) in samples]

    def run(self, executor: str, feeds: list[Feed]) -> list[dict[str, Codes]]:
        """All values of the program, for every feed."""
        made = create(executor, verify(self.program))
        return [dict(made.run(feed, {}, "all").values) for feed in feeds]

    @cached_property
    def found(self) -> list[Mapping[str, Codes]]:
        """The codes of every tensor that the program computes, by the name of the tensor, for every input."""
        values = self.run("numpy", self.feeds)
        named = {item.tensor: item.value for item in self.reported if item.value}
        shapes = {name: tensor.shape for name, tensor in self.graph.tensors.items()}
        return [{name: run[value].reshape(shapes[name]) for name, value in named.items()} for run in values]

    @cached_property
    def expected(self) -> list[Mapping[str, Codes]]:
        """The exact codes of every tensor that graph.quant names, for every input, from the real-valued images."""
        model = exact.load(self.folder)
        shape = self.program.inputs[0].value.shape
        return [model.run(image.reshape(shape)).codes for image in self.images]

    @property
    def quantised(self) -> set[str]:
        """The names in graph.quant."""
        return set(exact.load(self.folder).quantisers)


_ALL = (
    Network("demo", cvm.demo.MODEL, right=40),
    Network("lenet_digits", SHARED / "lenet_digits", right=249),
    Network("mobilenet_digits", SHARED / "mobilenet_digits", right=248),
)

NETWORKS = tuple(network for network in _ALL if network.folder.is_dir())
"""Those that are there: the one of the package always."""

FEW = 40
SMALL = tuple(replace(network, name=f"{network.name}, {FEW} inputs", right=FEW, count=FEW) for network in NETWORKS)
"""The same with few inputs, all of which are classified right."""


def predictions(codes: list[Mapping[str, Codes]]) -> npt.NDArray[np.intp]:
    """The first of the largest output codes, for every input."""
    return np.array([run["probs"].argmax() for run in codes])
