from __future__ import annotations

import pytest

from formal.tensor import Tensor, elements, flatten_index, indices, materialize, stored
from tests.formal.formal_tensors import shapes, tensor


@pytest.mark.parametrize("shape", list(shapes(3, 3)))
def test_the_fast_access_of_a_stored_tensor_gives_what_its_rule_says(shape: tuple[int, ...]) -> None:
    count = len(list(indices(shape)))
    X = stored(shape, list(range(count)))
    assert [X[d] for d in indices(shape)] == [X.rule(d) for d in indices(shape)] == list(range(count))
    assert [flatten_index(d, shape) for d in indices(shape)] == list(range(count))


@pytest.mark.parametrize("index", [(0,), (0, 0, 0), (2, 0), (0, 3), (-1, 0), (0, -1), ()])
def test_an_index_outside_the_shape_is_an_error(index: tuple[int, ...]) -> None:
    for X in (tensor([[1, 2, 3], [4, 5, 6]]), Tensor((2, 3), lambda _: 0)):
        with pytest.raises(IndexError, match="outside the shape"):
            X[index]


def test_a_stored_tensor_has_as_many_elements_as_its_shape() -> None:
    with pytest.raises(ValueError, match="5 elements for the shape"):
        stored((2, 3), [1, 2, 3, 4, 5])


def test_materialize_computes_every_element_once() -> None:
    asked: list[tuple[int, ...]] = []

    def rule(d: tuple[int, ...]) -> int:
        asked.append(d)
        return 10 * d[0] + d[1]

    X = materialize(Tensor((2, 2), rule))
    assert elements(X) == elements(X) == [0, 1, 10, 11]
    assert asked == [(0, 0), (0, 1), (1, 0), (1, 1)]
