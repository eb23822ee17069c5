"""The 74 conformance cases of Khronos: outputs and statistics of float32 implementations."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

from cvm.frontends import nnef
from cvm.reference import Reference, statistics
from cvm.reference.registry import Array
from tests.frontends.nnef.documents import SHARED, missing

FOLDER = SHARED / "nnef" / "khronos_cts"
CASES: list[Any] = sorted(FOLDER.iterdir()) if FOLDER.is_dir() else [missing("nnef/khronos_cts")]


def stored(path: Path) -> Array:
    """The items of a tensor file; a file that is none is skipped by name."""
    data = path.read_bytes()
    if not data.startswith(b"N\xef"):
        pytest.skip(f"{path.parent.name}/{path.name} of the shared folder is not a tensor file")
    return nnef.read_tensor(data).data.values


@pytest.fixture(params=CASES, ids=lambda case: getattr(case, "name", "missing"))
def case(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


def inputs_of(folder: Path, reference: Reference) -> dict[str, Array]:
    return {name: stored(folder / f"{name}.dat") for name in reference.graph.inputs}


def test_there_are_74_cases() -> None:
    if FOLDER.is_dir():
        assert len(CASES) == 74


TOLERANCE = 1e-4
ROUNDED = "mnist"
"""The one case whose recording is farther than that from its document's meaning; see the tests of its name."""


def test_outputs_are_those_of_the_case(case: Path) -> None:
    reference = Reference(nnef.load(case))
    found = reference.run(inputs_of(case, reference))
    for name, array in found.items():
        expected = stored(case / f"{name}.dat")
        assert array.shape == expected.shape
        difference = float(np.abs(array - expected).max())
        if case.name != ROUNDED:
            assert difference <= TOLERANCE
            continue
        # Numbers from 4,096 to 8,192 lie 2^-11 apart in float32: none can be recorded to within 1e-4.
        assert np.spacing(np.abs(expected).max()) / 2 > TOLERANCE
        assert difference > TOLERANCE


def test_statistics_are_those_of_the_case(case: Path) -> None:
    path = case / "graph.stats"
    if not path.is_file():
        pytest.skip(f"{case.name} has no graph.stats")
    reference = Reference(nnef.load(case))
    found = statistics(reference, inputs_of(case, reference))
    for name, expected in json.loads(path.read_text("utf-8")).items():
        figures = {"min": found[name].min, "max": found[name].max, "mean": found[name].mean, "std": found[name].std}
        assert figures == pytest.approx(expected, abs=1e-4)


# The case `mnist`: what its document means exactly, and how far float32 may lead away from it.

SCALE = 2**149
"""All numbers of float32 are whole multiples of 1 / SCALE."""


class Mnist:
    """The network conv, relu, max_pool, conv, relu, max_pool, linear of the case, in three arithmetics."""

    def __init__(self, folder: Path) -> None:
        self.image = stored(folder / "input.dat")
        self.output = stored(folder / "output.dat")
        w1, b1, w2, b2, b3, w3 = (stored(folder / f"variable{number}.dat") for number in range(1, 7))
        self.layers = ((w1, b1, 2), (w2, b2, 3), (w3, b3, None))

    def exact(self) -> list[Fraction]:
        """The outputs without any rounding."""
        x, unit = whole(self.image), 1
        for weight, bias, size in self.layers:
            unit *= SCALE
            x = product(x, whole(weight)) + whole(bias) * unit
            x = x if size is None else pooled(np.maximum(x, 0), size)
        return [Fraction(int(item), unit * SCALE) for item in x.ravel()]

    def error_bound(self, unit_roundoff: float) -> Array:
        """How far any evaluation may be off whose operations round to within ``unit_roundoff``, in any order of sums.

        A sum of n products is off by at most gamma times the sum of their magnitudes, gamma = n u / (1 - n u), where
        the bias is one more addition (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1); relu and
        max_pool round nothing and spread no error.
        """
        x = self.image.astype(np.float64)
        error = np.zeros_like(x)
        for weight, bias, size in self.layers:
            wide = weight.astype(np.float64)
            terms = wide[0].size + 1
            gamma = terms * unit_roundoff / (1 - terms * unit_roundoff)
            magnitudes = product(np.abs(x) + error, np.abs(wide)) + np.abs(bias)
            error = product(error, np.abs(wide)) + gamma * magnitudes
            x = product(x, wide) + bias
            if size is not None:
                x, error = pooled(np.maximum(x, 0), size), pooled(error, size)
        return error


def whole(array: Array) -> Array:
    """Numbers of float32 times `SCALE`, as Python integers."""
    integers = [int(Fraction(item) * SCALE) for item in array.ravel().tolist()]
    return np.array(integers, object).reshape(array.shape)


def product(x: Array, weight: Array) -> Array:
    """`conv` with automatic padding for an odd filter, or, for a matrix, `linear` of the rows that x has."""
    if weight.ndim == 2:
        return np.tensordot(x.reshape(len(x), -1), weight, axes=(1, 1))
    top, left = (extent // 2 for extent in weight.shape[2:])
    rows, columns = x.shape[2:]
    padded = np.zeros((*x.shape[:2], rows + 2 * top, columns + 2 * left), x.dtype)
    padded[:, :, top : top + rows, left : left + columns] = x
    windows = sliding_window_view(padded, weight.shape[2:], axis=(2, 3))
    return np.moveaxis(np.tensordot(windows, weight, axes=((1, 4, 5), (1, 2, 3))), 3, 1)


def pooled(x: Array, size: int) -> Array:
    """`max_pool` with windows that follow each other and lie inside."""
    rows, columns = (extent // size * size for extent in x.shape[2:])
    parts = x[:, :, :rows, :columns].reshape(*x.shape[:2], rows // size, size, columns // size, size)
    return np.maximum.reduce(np.maximum.reduce(parts, axis=5), axis=3)


@pytest.fixture(scope="module")
def mnist() -> Mnist:
    if not (FOLDER / ROUNDED).is_dir():
        pytest.skip(f"../shared/nnef/khronos_cts/{ROUNDED} is not there")
    return Mnist(FOLDER / ROUNDED)


def test_mnist_is_its_exact_meaning_and_the_recording_is_that_rounded_to_float32(mnist: Mnist) -> None:
    reference = Reference(nnef.load(FOLDER / ROUNDED))
    found = reference.run(inputs_of(FOLDER / ROUNDED, reference))["output"]
    exact = mnist.exact()

    def errors(array: Array) -> Array:
        pairs = zip(array.ravel().tolist(), exact, strict=True)
        return np.array([float(abs(Fraction(item) - real)) for item, real in pairs]).reshape(array.shape)

    ours, recorded = errors(found), errors(mnist.output)
    assert (ours <= mnist.error_bound(2.0**-53)).all()
    assert ours.max() < 1e-11
    assert recorded.max() > TOLERANCE
    assert recorded.max() <= 2 * np.spacing(np.abs(mnist.output).max())  # two units in the last place of float32
    assert (recorded <= mnist.error_bound(2.0**-24)).all()
