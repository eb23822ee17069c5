from __future__ import annotations

import pytest

from formal.registry import OPS
from formal.tensor import elements, stored

from . import mapping

CASES = mapping.cases()

needs_vectors = pytest.mark.skipif(not CASES, reason="../shared/cvm_runtime/vectors is not there")


@needs_vectors
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_formal_equals_the_vector(case: mapping.Case) -> None:
    tensors = [stored(array.shape, array.ravel().tolist()) for array in case.inputs]
    result = OPS[case.op](*tensors, **case.attributes)
    outputs = result if isinstance(result, tuple) else (result,)
    assert [output.shape for output in outputs] == [expected.shape for expected in case.outputs]
    equal = [elements(output) for output in outputs] == [expected.ravel().tolist() for expected in case.outputs]
    # A case that is listed as different must be different: an entry that is not needed any more is an error too.
    assert equal == (case.name not in mapping.DIFFERENT)


@needs_vectors
def test_every_op_of_the_table_has_vectors_and_every_listed_exception_exists() -> None:
    assert {case.name.split("-")[0] for case in CASES} == set(mapping.OPS)
    assert set(mapping.DIFFERENT) <= {case.name for case in CASES}


@needs_vectors
def test_every_input_lies_in_the_contract() -> None:
    assert all(abs(int(x)) < 2**31 for case in CASES for array in case.inputs for x in array.ravel())


@pytest.mark.parametrize(
    ("codes", "shape", "target"),
    [
        ((0, -1), (2, 3, 4), (2, 12)),
        ((-2,), (2, 3), (2, 3)),
        ((2, -2), (2, 3, 4), (2, 3, 4)),
        ((-3, 0), (2, 3, 4), (6, 4)),
        ((0, -3), (2, 3, 4), (2, 12)),
        ((-4, 2, -1, 0), (6, 5), (2, 3, 5)),
        ((-4, -1, 2, -2), (6, 5), (3, 2, 5)),
        ((-4, 2, 2, -1), (4, 6, 5), (2, 2, 30)),
        ((-1,), (4, 5), (20,)),
    ],
)
def test_reshape_codes_stand_for_extents(
    codes: tuple[int, ...], shape: tuple[int, ...], target: tuple[int, ...]
) -> None:
    assert mapping.reshape_codes({"target_shape": codes}, shape) == {"target_shape": target}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(1,2)", (1, 2)),
        ("[4, 6]", (4, 6)),
        ("(5)", (5,)),
        ("3", (3,)),
        ("()", ()),
        ("(-5,)", (-5,)),
        ("(3L, 2)", (3, 2)),
    ],
)
def test_tuples_are_read_as_the_library_reads_them(text: str, value: tuple[int, ...]) -> None:
    assert mapping.integers(text) == value


def test_an_unknown_or_missing_attribute_is_an_error() -> None:
    with pytest.raises(KeyError, match="scales"):
        mapping.attributes_of(mapping.OPS["upsampling"], {"scales": "2"}, (1, 1, 1, 1))
    with pytest.raises(KeyError, match="missing"):
        mapping.attributes_of(mapping.OPS["upsampling"], {}, (1, 1, 1, 1))
