"""Documents of every operation, their quantisers chosen by calibration: they compile, and to exactly what they mean.

The documents are those of the other tests of this folder, without their quantisers; data are random real numbers of the
ranges that these had.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import ModuleType

import numpy as np
import numpy.typing as npt
import pytest

from cvm.calibration import Settings, calibrate
from cvm.frontends import nnef
from tests.lowering import (
    test_activations,
    test_linear,
    test_normalization,
    test_quantize,
    test_reduce,
    test_regions,
    test_shape,
)
from tests.lowering.documents import Document, assert_exact
from tests.lowering.window_documents import OPERATIONS as WINDOWS

MODULES = (test_activations, test_linear, test_normalization, test_quantize, test_reduce, test_regions, test_shape)
CASES = {f"{module.__name__.rpartition('_')[2]}: {name}": (module, name) for module in MODULES for name in module.CASES}

SETTINGS = {module.__name__: Settings() for module in MODULES} | {
    # Two tables of a threshold for each pair of codes: 8 bits take minutes.
    test_normalization.__name__: Settings(bits=3)
}


def data(document: Document, count: int = 6) -> dict[str, npt.NDArray[np.generic]]:
    """Random inputs: real numbers of the ranges of the quantisers, integers and logical values of theirs."""
    generator = np.random.default_rng(document.random.getrandbits(32))
    found: dict[str, npt.NDArray[np.generic]] = {}
    for name in document.inputs:
        shape = (count, *document.shapes[name])
        if name in document.ranges and name not in document.quantisers:
            low, high = document.ranges[name]
            items = generator.integers(low, high, shape, endpoint=True)
            logical = any(f"{name} = external<logical>" in line for line in document.lines)
            found[name] = items.astype(np.bool_) if logical else items
        else:
            ends = (re.search(rf"{end} = ([-0-9.e]+)", document.quantisers[name]) for end in ("min", "max"))
            low, high = (float(end[1]) for end in ends if end)
            found[name] = generator.uniform(low, high, shape)
    return found


def assert_calibrated_is_exact(document: Document, output: str, settings: Settings) -> None:
    """The document with the quantisers that calibration gives it has the codes of the independent evaluator."""
    with TemporaryDirectory() as folder:
        document.write(Path(folder) / "float", output)
        graph = nnef.load(Path(folder) / "float", quant=False)
        found = calibrate(graph, data(document), settings)
        document.quantisers = {item.name: item.text for item in found.tensors}
        document.ranges |= {name: (0, 2**settings.bits - 1) for name in document.inputs if name in document.quantisers}
        assert_exact(document, output, Path(folder) / "quantised", count=1)


@contextmanager
def checking(module: ModuleType, check: Callable[..., None]) -> Iterator[None]:
    """Cases of the module hand their documents to ``check``."""
    usual = module.check
    module.check = check
    try:
        yield
    finally:
        module.check = usual


def case(name: str, seed: int) -> None:
    module, key = CASES[name]

    def check(document: Document, output: str, count: int = 0) -> None:
        assert_calibrated_is_exact(document, output, SETTINGS[module.__name__])

    with checking(module, check):
        module.CASES[key](Random(seed))


@pytest.mark.sweep
@pytest.mark.parametrize("name", CASES)
def test_calibrated_documents_are_exact(name: str) -> None:
    case(name, 1)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_many_calibrated_documents_are_exact(name: str) -> None:
    for seed in range(2, 22):
        case(name, seed)


def window(operation: str, seed: int, settings: Settings) -> None:
    document, output = WINDOWS[operation](Random(seed))
    assert_calibrated_is_exact(document, output, settings)


@pytest.mark.sweep
@pytest.mark.parametrize("operation", WINDOWS)
def test_calibrated_windows_are_exact(operation: str) -> None:
    for seed in range(3):
        window(operation, seed, Settings())


@pytest.mark.long
@pytest.mark.parametrize("operation", WINDOWS)
def test_many_calibrated_windows_are_exact(operation: str) -> None:
    for seed in range(3, 63):
        window(operation, seed, Settings(method=("minmax", "mse", "entropy")[seed % 3]))
