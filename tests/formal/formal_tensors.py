"""Tensors from nested lists and back, for the tests of FORMAL."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt

from formal.registry import OPS
from formal.tensor import Stored, Tensor, elements, stored


def tensor(nested: Any) -> Stored:
    """A tensor from nested lists or an array."""
    array = np.asarray(nested, dtype=object)
    return stored(array.shape, [int(item) for item in array.ravel()])


def nested(result: Tensor) -> Any:
    """The elements of a tensor as nested lists."""
    return np.array(elements(result), dtype=object).reshape(result.shape).tolist()


def call(op: str, *inputs: Any, **attributes: Any) -> Any:
    """An op of one output on nested lists."""
    result = OPS[op](*(tensor(item) for item in inputs), **attributes)
    assert isinstance(result, Tensor)
    return nested(result)


def arange(shape: tuple[int, ...], start: int = 0) -> npt.NDArray[np.int64]:
    """Different numbers in row-major order."""
    return np.arange(start, start + int(np.prod(shape)), dtype=np.int64).reshape(shape)


def shapes(rank: int, extent: int) -> Iterator[tuple[int, ...]]:
    """All shapes of 1 to ``rank`` dimensions with extents 1 to ``extent``."""
    for n in range(1, rank + 1):
        yield from product(range(1, extent + 1), repeat=n)
