"""What the tests of the evaluator share: one-line documents, and reading results as fractions."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from .exact import Evaluation, model
from .tensors import Tensor

SHARED = Path(__file__).resolve().parents[3] / "shared"
NEAR = Fraction(1, 10**9)
"""A float64 evaluation may round an item otherwise if it is this close, in steps, to the middle of two codes."""


def shared(*parts: str) -> Path:
    """A folder of the material beside the repository, which may be absent."""
    path = SHARED.joinpath(*parts)
    if not path.exists():
        pytest.skip(f"{path} is absent")
    return path


def run(body: str, quant: str, x: object, **stored: object) -> Evaluation:
    """Evaluates `body`, a graph from input x to output y, with the given variables as labels."""
    array = np.asarray(x, dtype=np.float64)
    variables = {label: np.asarray(items, dtype=np.float64) for label, items in stored.items()}
    lines = [f"x = external(shape = {list(array.shape)});"]
    lines += [f"{k} = variable(shape = {list(v.shape)}, label = '{k}');" for k, v in variables.items()]
    text = "version 1.0; graph g( x ) -> ( y ) {" + " ".join([*lines, body]) + "}"
    return model(text, quant, variables.__getitem__).run(array, near=NEAR)


def value(call: str, x: object, **stored: object) -> Tensor:
    """The tensor that one invocation gives, of input x and variables by name."""
    return run(f"y = {call};", "", x, **stored).values["y"]


def quant(name: str, low: str, high: str, bits: int) -> str:
    """A line of graph.quant."""
    return f'"{name}": linear_quantize(min = {low}, max = {high}, bits = {bits});\n'


def fractions(tensor: Tensor) -> list[Any]:
    """All items in row-major order, which must be rational."""
    items: list[Any] = tensor.numbers().ravel().tolist()
    assert all(isinstance(item, Fraction) for item in items)
    return items


def floats(tensor: Tensor) -> npt.NDArray[np.float64]:
    """All items as the nearest floats, for comparisons with tolerance."""
    return np.array([float(item) for item in tensor.numbers().flat]).reshape(tensor.shape)


def nothing_stored(label: str) -> npt.NDArray[Any]:
    """The variables of a document that has none."""
    raise KeyError(label)
