"""Section 3.3: one document per rule, with the place of the violation."""

from __future__ import annotations

import pytest

from cvm.errors import Invalid, LimitExceeded, Unsupported
from tests.frontends.nnef.documents import EXTENSIONS, error_of, flat, flatten_text, graph

FRAGMENT = "fragment f{} {{ {} }}"


def in_fragment(head: str, body: str) -> str:
    """A document whose fragment body is on line 2; the fragment is not invoked, and checked all the same."""
    return graph("y = relu(x);", fragments=FRAGMENT.format(head, body))


@pytest.mark.parametrize(
    ("body", "code", "column"),
    [
        ("y = relu(z);", "nnef.identifier-usage.undefined", 14),
        ("y = relu(x); y = neg(x);", "nnef.identifier-usage.twice", 18),
        ("x = relu(x); y = neg(x);", "nnef.identifier-usage.twice", 5),
        ("k = 3; y = relu(x);", "nnef.identifier-usage.graph-tensors", 5),
        ("k = [x, x]; y = add_n(k);", "nnef.identifier-usage.graph-tensors", 5),
        ("z = relu(x);", "nnef.identifier-usage.unassigned", 21),
        ("y = external(shape = [2]);", "nnef.identifier-usage.external", 5),
        ("y = relu(external(shape = [2]));", "nnef.identifier-usage.external", 5),
        ("[y] = relu(x);", "nnef.identifier-usage.structure", 5),
        ("y = split(x, axis = 0, ratios = [1,1]);", "nnef.identifier-usage.graph-tensors", 5),
        ("[y, z] = moments(x, axes = [0]);", "nnef.identifier-usage.structure", 5),
        ("y, z = (x, x, x);", "nnef.identifier-usage.structure", 5),
        ("[y, z] = split(x, axis = 1, ratios = [1,1,1]);", "nnef.shapes.count", 5),
        ("y = ReLU(x);", "nnef.invocation.unknown-operation", 9),
        ("y = relu(x, x);", "nnef.invocation.count", 17),
        ("y = relu(x = x, x = x);", "nnef.invocation.count", 21),
        ("y = add(x);", "nnef.invocation.missing", 9),
        ("y = add(x = x, x);", "nnef.invocation.order", 20),
        ("y = add(x, x = x);", "nnef.invocation.twice", 16),
        ("y = add(x, q = x);", "nnef.invocation.unknown-parameter", 16),
        ("y = reshape(x, [6]);", "nnef.invocation.positional-attribute", 20),
        ("y = relu<scalar>(x);", "nnef.invocation.generic", 9),
        ("y = copy<?>(x);", "nnef.invocation.generic", 9),
        ("y = add_n(split(x, axis = 1, ratios = [1,1,1]));", "nnef.invocation.chaining", 15),
        ("y = concat([], axis = 0);", "nnef.types.generic", 9),
        ("y = copy<integer>(x);", "nnef.types.argument", 23),
        ("y = leaky_relu(x, alpha = 1);", "nnef.types.argument", 31),
        ("y = select(x, x, x);", "nnef.types.argument", 16),
        ("y = softmax(x, axes = [1.0]);", "nnef.types.argument", 27),
        ("y = reshape(x, shape = [6, 1.0]);", "nnef.types.array-items", 32),
        ("y = x + 1;", "nnef.types.operator", 13),
        ("y = x && x;", "nnef.types.operator", 14),
        ("y = !x;", "nnef.types.operator", 9),
        ("y = x if 1 else x;", "nnef.types.condition", 14),
        ("y = x if true else 'a';", "nnef.types.branches", 24),
        ("y = x if 'a' < 'b' else x;", "nnef.types.operator", 20),
        ("y = x if 1 in ['a'] else x;", "nnef.types.operator", 19),
        ("y = x if [x] == [x] else x;", "nnef.types.operator", 21),
        ("y = x[0];", "nnef.types.subscript", 9),
        ("y = [x, x][0.0];", "nnef.types.subscript", 16),
        ("y = (x, x)[1 - 1];", "nnef.types.tuple-subscript", 16),
        ("y = (x, x)[2];", "nnef.argument-validity.subscript", 16),
        ("y = [x, x][2];", "nnef.argument-validity.subscript", 16),
        ("y = [x, x][-1];", "nnef.argument-validity.subscript", 16),
        ("y = [x, x][0:3][0];", "nnef.argument-validity.subscript", 16),
        ("y = x * scalar(length_of(3));", "nnef.types.builtin", 30),
        ("y = x * scalar(x);", "nnef.types.builtin", 20),
        ("y = x * scalar('1.');", "nnef.argument-validity.cast", 13),
        ("y = reshape(x, shape = [integer('1.5')]);", "nnef.argument-validity.cast", 29),
        ("y = reshape(x, shape = [for i in 3 yield i]);", "nnef.types.iterable", 38),
        ("y = reshape(x, shape = [for x in [6] yield x]);", "nnef.identifier-usage.iterator", 33),
        ("y = reshape(x, shape = [for i in [6], j in [1,2] yield i]);", "nnef.argument-validity.lengths", 48),
        ("y = x * (1.0 / 0.0);", "nnef.argument-validity.division", 20),
        ("y = x * 0.0 ^ -1.0;", "nnef.argument-validity.division", 19),
        ("y = reshape(x, shape = [6] * -1);", "nnef.argument-validity.repetition", 34),
        ("y = update(x, x);", "nnef.argument-validity.variable", 9),
        ("y = update(1.0, x);", "nnef.argument-validity.variable", 9),
        ("v = variable(shape = [2,3], label = 'a/../b'); y = relu(v);", "nnef.argument-validity.label", 9),
        ("v = variable(shape = [2,3], label = ''); y = relu(v);", "nnef.argument-validity.label", 9),
        ("v = variable(shape = [2], label = 'V/w'); y = variable(shape = [3], label = 'v\\\\w');",
         "nnef.argument-validity.label", 51),
        ("v = variable(shape = [2,3], label = 'v'); a = update(v, x); y = update(v, a);",
         "nnef.argument-validity.update", 69),
    ],
)  # fmt: skip
def test_a_violation_in_the_graph_is_reported_at_its_place(body: str, code: str, column: int) -> None:
    error = error_of(lambda: flatten_text(graph(body)))
    assert isinstance(error, Invalid)
    line = 3 if code.endswith("unassigned") else 6
    assert (error.code, error.location.line, error.location.column) == (code, line, column)


@pytest.mark.parametrize(
    ("head", "body", "code"),
    [
        ("( k: scalar, x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = x;", "fragment-definition.tensors-first"),
        ("( x: tensor<scalar>, x: scalar ) -> ( r: tensor<scalar> )", "r = x;", "fragment-definition.unique-names"),
        ("( x: tensor<scalar> ) -> ( x: tensor<scalar> )", "y = x;", "fragment-definition.unique-names"),
        ("( x: tensor<scalar> ) -> ( r: scalar )", "r = 1.0;", "fragment-definition.tensor-results"),
        ("( x: tensor<scalar>, k: integer = 1.5 ) -> ( r: tensor<scalar> )", "r = x;", "fragment-definition.default"),
        ("( x: tensor<scalar>, k: integer[] = ['a'] ) -> ( r: tensor<scalar> )", "r = x;",
         "fragment-definition.default"),
        ("( x: (tensor<scalar>, integer) ) -> ( r: tensor<scalar> )", "r = x[0];", "fragment-definition.mixed-tuple"),
        ("( x: tensor<?> ) -> ( r: tensor<?> )", "r = x;", "fragment-definition.generic"),
        ("<?>( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = x;", "fragment-definition.generic"),
        ("( x: tensor<scalar> ) -> ( r: tensor<> )", "r = x;", "types.unbound-result"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "x = neg(x); r = x;", "identifier-usage.parameter"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = x; r = x;", "identifier-usage.twice"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "s = x;", "identifier-usage.unassigned"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = s; s = x;", "identifier-usage.undefined"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = [x];", "types.result"),
        ("( x: tensor<scalar> ) -> ( r: tensor<logical> )", "r = x;", "types.result"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = external(shape = [1]);", "identifier-usage.graph-only"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "r = x + variable(shape = [1], label = 'v');",
         "identifier-usage.graph-only"),
        ("( x: tensor<scalar> ) -> ( r: tensor<scalar> )", "p = split(x, axis = 0, ratios = [1]); r = p[0];",
         "identifier-usage.structure"),
        ("<?>( x: tensor<?> ) -> ( r: tensor<?> )", "r = relu(x);", "types.argument"),
    ],
)  # fmt: skip
def test_a_fragment_is_checked_even_if_it_is_not_invoked(head: str, body: str, code: str) -> None:
    error = error_of(lambda: flatten_text(in_fragment(head, body)))
    assert isinstance(error, Invalid)
    assert error.code == f"nnef.{code}"
    assert error.location.line == 2


def test_names_of_fragments_are_unique_and_not_those_of_the_standard() -> None:
    for name in ("relu", "f"):
        second = f"fragment {name}( x: tensor<scalar> ) -> ( y: tensor<scalar> ) {{ y = neg(x); }}"
        text = graph(
            "y = neg(x);",
            fragments=FRAGMENT.format("( x: tensor<scalar> ) -> ( y: tensor<scalar> )", "y = x;") + second,
        )
        assert error_of(lambda text=text: flatten_text(text)).code == "nnef.fragment-definition.duplicate"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("y = relu(x + x);", "nnef.extension.operator-expressions"),
        ("y = relu(neg(x));", "nnef.extension.operator-expressions"),
        ("y = relu(-x);", "nnef.extension.operator-expressions"),
        ("y = relu((x));", "nnef.extension.operator-expressions"),
        ("y = reshape(x, shape = [length_of([1])]);", "nnef.extension.operator-expressions"),
        ("y = reshape(x, shape = [for i in [6] yield i]);", "nnef.extension.operator-expressions"),
        ("y = add(x, +1.0);", "nnef.lexical.plus"),
        ("y = x;", "nnef.syntax.assignment"),
        ("y = relu(x) if true else x;", "nnef.extension.operator-expressions"),
    ],
)
def test_flat_syntax_has_no_operators(body: str, code: str) -> None:
    assert error_of(lambda: flatten_text(flat(body))).code == code


def test_flat_syntax_has_negative_literals_arrays_and_tuples() -> None:
    flatten_text(flat("y = box(add(x, 0.0), size = [1,1]);".replace("add(x, 0.0)", "x")))
    flatten_text(flat("z = add(x, -1.5); y = box(z, size = [1,1], padding = [(0,-1),(0,0)]);"))


def test_an_unknown_extension_is_refused_by_name() -> None:
    error = error_of(lambda: flatten_text(graph("y = relu(x);", extensions="extension VND_magic;")))
    assert isinstance(error, Unsupported)
    assert "VND_magic" in error.message
    assert (error.location.line, error.location.column) == (2, 11)


def test_a_fragment_needs_its_extension() -> None:
    text = in_fragment("( x: tensor<scalar> ) -> ( y: tensor<scalar> )", "y = neg(x);")
    text = text.replace(EXTENSIONS, "extension KHR_enable_operator_expressions;")
    assert error_of(lambda: flatten_text(text)).code == "nnef.extension.fragments"


def test_the_parameters_of_a_graph_are_its_externals() -> None:
    text = "version 1.0;\ngraph g( x, x ) -> ( y )\n{\n    x = external(shape = [1]); y = relu(x);\n}"
    assert error_of(lambda: flatten_text(text)).code == "nnef.identifier-usage.duplicate"
    text = "version 1.0;\ngraph g( x ) -> ( y )\n{\n    x = constant(shape = [1], value = [0.0]); y = relu(x);\n}"
    assert error_of(lambda: flatten_text(text)).code == "nnef.identifier-usage.external"


def test_names_have_a_limit() -> None:
    name = "n" * 2000
    error = error_of(lambda: flatten_text(flat(f"{name} = relu(x); y = relu({name});")))
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.line) == ("limit.name_bytes", 6)
