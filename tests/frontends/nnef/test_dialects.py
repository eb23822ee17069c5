"""What the Khronos tools add is accepted, told, and refused where only 1.0.1 is allowed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cvm.errors import Invalid
from cvm.frontends import nnef
from cvm.frontends.nnef.declarations import khronos_library, standard_library
from tests.frontends.nnef.documents import corpus, error_of, flat, folders, graph


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        (tmp_path / "graph.nnef").write_text(text)
        return tmp_path / "graph.nnef"

    return write


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ("y = sin(x);", (2, 3)),
        ("y = gelu(x);", (2, 3)),
        ("y = selu(x, alpha = 1.5);", (2, 3)),
        ("y = softabs(x, epsilon = 0.1);", (2, 3)),
        ("y = elu(x, alpha = 0.5);", (2, 3)),
        ("y = pad(x, padding = [(0,1),(2,0)]);", (3, 5)),
        ("y = pad(x, padding = [(1,1),(2,2)], border = 'reflect');", (4, 7)),
        ("y = tile(x, repeats = [2,1]);", (4, 3)),
        ("i = constant<integer>(shape = [2,2], value = [0,1,1,0]); y = gather(x, i, axis = 1);", (2, 2, 2)),
        ("y = gather(x, 1);", (3,)),
        ("y = cast<integer>(x);", (2, 3)),
        ("l = lt(x, 0.0); y = any_reduce(l, axes = [1]);", (2, 1)),
        ("y = slice(x, axes = [1], begin = [0], end = [0], stride = [2]);", (2, 2)),
        ("y = slice(x, axes = [1], begin = [2], end = [0], stride = [-1]);", (2, 2)),
        ("y = slice(x, axes = [1], begin = [-1], end = [-4], stride = [-2]);", (2, 2)),
        ("y = reshape(x, shape = [3,1], axis_start = 1);", (2, 3, 1)),
        ("y = reshape(x, shape = [1,-1], axis_start = 0, axis_count = 1);", (1, 2, 3)),
        ("y = zero_point_linear_quantize(x, 0, 0.5, bits = 8, signed = true, symmetric = false);", (2, 3)),
    ],
)
def test_additions_are_read_told_and_refused(write: Callable[[str], Path], body: str, shape: Any) -> None:
    path = write(flat(body))
    assert nnef.load(path).tensors["y"].shape == shape
    assert nnef.load(path, dialect="khronos").tensors["y"].shape == shape
    report = nnef.check(path)
    assert (report.valid, report.dialect) == (True, "khronos")
    error = error_of(lambda: nnef.load(path, dialect="1.0.1"))
    assert isinstance(error, Invalid)
    assert error.code.startswith("nnef.invocation.unknown-")
    assert error.location.line == 6
    assert nnef.check(path, dialect="1.0.1").class_ == "invocation"


@pytest.mark.parametrize(
    ("body", "rule"),
    [
        ("y = pad(x, padding = [(0,1)]);", "argument-validity.padding"),
        ("y = pad(x, padding = [(0,1),(0,-1)]);", "argument-validity.padding"),
        ("y = pad(x, padding = [(0,1),(0,1)], border = 'ignore');", "argument-validity.border"),
        ("y = pad(x, padding = [(0,0),(3,0)], border = 'reflect');", "shapes.border"),
        ("y = tile(x, repeats = [2]);", "argument-validity.repeats"),
        ("y = tile(x, repeats = [2,0]);", "argument-validity.repeats"),
        ("y = gather(x, 0, axis = 2);", "argument-validity.axis"),
        ("y = cast(x);", "types.generic"),
        ("y = elu(x, 0.5);", "invocation.positional-attribute"),
        ("y = slice(x, axes = [1], begin = [0], end = [2], stride = [0]);", "argument-validity.stride"),
        ("y = slice(x, axes = [1], begin = [0], end = [2], stride = [1,1]);", "argument-validity.stride"),
        ("y = slice(x, axes = [1], begin = [0], end = [2], stride = [-1]);", "argument-validity.end"),
        ("y = slice(x, axes = [1], begin = [3], end = [0], stride = [-1]);", "argument-validity.begin"),
        ("y = slice(x, axes = [1], begin = [2], end = [-5], stride = [-1]);", "argument-validity.end"),
        ("y = reshape(x, shape = [3], axis_start = 3);", "argument-validity.axis_start"),
        ("y = reshape(x, shape = [3], axis_count = 3);", "argument-validity.axis_count"),
        ("y = reshape(x, shape = [4], axis_start = 1);", "shapes.volume"),
        (
            "y = zero_point_linear_quantize(x, 0, 0.5, bits = 0, signed = true, symmetric = true);",
            "argument-validity.bits",
        ),
    ],
)
def test_wrong_arguments_of_additions_are_invalid(write: Callable[[str], Path], body: str, rule: str) -> None:
    error = error_of(lambda: nnef.load(write(flat(body))))
    assert (error.code, error.location.line) == (f"nnef.{rule}", 6)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("reshape(x, shape = [3,1], axis_start = 1, axis_count = -1)", "reshape<scalar>(x, shape = [2, 3, 1])"),
        ("reshape(x, shape = [0,-1], axis_start = 0)", "reshape<scalar>(x, shape = [0, -1])"),
        ("elu(x, alpha = 1.0)", "elu(x)"),
        (
            "slice(x, axes = [1], begin = [0], end = [2], stride = [1])",
            "slice<scalar>(x, axes = [1], begin = [0], end = [2])",
        ),
    ],
)
def test_what_1_0_1_can_say_is_flattened_to_it(write: Callable[[str], Path], written: str, plain: str) -> None:
    text = nnef.flatten(write(flat(f"y = {written};")))
    assert f"y = {plain};" in text
    path = write(text)
    assert nnef.check(path).dialect == "1.0.1"
    assert nnef.flatten(path, dialect="1.0.1") == text


def test_a_document_may_define_what_only_the_dialect_has(write: Callable[[str], Path]) -> None:
    own = "fragment silu( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = x * 2.0; }"
    path = write(graph("y = silu(x);", fragments=own))
    assert nnef.check(path).dialect == "1.0.1"
    assert [operation.name for operation in nnef.load(path, dialect="1.0.1").operations] == ["mul"]
    assert error_of(lambda: nnef.load(path, dialect="khronos")).code == "nnef.fragment-definition.duplicate"


def test_a_fragment_that_is_not_invoked_needs_its_dialect_too(write: Callable[[str], Path]) -> None:
    own = "fragment mine( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { y = silu(x) if 1 < 2 else [x][0]; }"
    assert nnef.check(write(graph("y = relu(x);", fragments=own))).dialect == "khronos"


def test_the_dialect_adds_to_the_standard() -> None:
    standard, khronos = standard_library(), khronos_library()
    assert set(standard) < set(khronos)
    changed = {name for name in standard if standard[name] is not khronos[name]}
    assert changed == {"reshape", "slice", "elu"}
    for name in changed:
        parameters = standard[name].parameters
        for old, new in zip(parameters, khronos[name].parameters, strict=False):
            assert (old.name, old.type) == (new.name, new.type)
        assert all(added.default is not None for added in khronos[name].parameters[len(parameters) :])


@pytest.mark.parametrize("entry", corpus("valid"))
def test_documents_of_1_0_1_need_no_dialect(entry: dict[str, str]) -> None:
    from tests.frontends.nnef.documents import SHARED

    nnef.flatten(SHARED / "nnef" / "corpus" / entry["file"], dialect="1.0.1")


@pytest.mark.parametrize("folder", folders("models/real"))
def test_flat_text_of_the_real_networks_is_a_fixed_point(folder: Path, write: Callable[[str], Path]) -> None:
    text = nnef.flatten(folder)
    assert nnef.flatten(write(text)) == text
