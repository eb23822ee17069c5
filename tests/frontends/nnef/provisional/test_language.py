"""The language of the provisional specification where it is another than that of 1.0.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from cvm.errors import CvmError
from cvm.frontends import nnef
from cvm.frontends.nnef.declarations import check_declaration, declare
from cvm.frontends.nnef.faults import MAX_ERRORS
from cvm.frontends.nnef.provisional import check_text, is_provisional
from cvm.frontends.nnef.provisional.operations import LAYERS, OPERATIONS, definitions, library
from tests.frontends.nnef.documents import error_of


def document(body: str, fragments: str = "", shape: str = "[2,3]") -> str:
    """A document with one external ``x``, one result ``y``; ``body`` begins on line 6, column 5."""
    return f"""version 1.0
{fragments}
graph net( x ) -> ( y )
{{
    x = external(shape = {shape})
    {body}
}}
"""


def code(text: str) -> str:
    error = error_of(lambda: check_text(text))
    return error.code.removeprefix("nnef.")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version 1.0 graph g(x)->(y) {", True),
        ("# comment\n version # another\n 1.0\nfragment", True),
        ("version 1 graph", True),
        ("version 1.0; graph", False),
        ("version 1.0 # comment ; \n ; graph", False),
        ("version 1.0 extension X;", False),
        ("version 1.0 graphics", False),
        ("graph g(x)->(y) {", False),
        ("", False),
    ],
)
def test_a_document_is_recognised_by_what_follows_the_version(text: str, expected: bool) -> None:
    assert is_provisional(text) == expected


@pytest.mark.parametrize(
    "body",
    [
        "y = relu(x)",
        "y = relu(x);",
        "t = relu(x) y = neg(t)",
        "a, b = moments(x, axes = [1]) y = add(a, b)",
        "(a, b) = moments(x, axes = [1]); y = add(a, b)",
        "t = relu(x) [a, b, c] = split(t, axis = 1, ratios = [1,1,1]) y = concat([a, b], axis = 1)",
        "t = relu(x) (a, b) = moments(t, axes = [1]) y = add(a, b)",
        "yield = relu(x) version = neg(yield) y = neg(version)",
        "y = leaky_relu(x, alpha = -1.0)",
        "y = batch_normalization(x, mean = 0.0, variance = 1.0, offset = x, scale = 1.0, epsilon = 1e-3)",
        "w = variable(shape = [4,3], label = 'w') y = matmul(x, w, trB = true)",
        "y = transpose(x, perm = [1,0])",
        "c = lt(x, 0.0) y = select(c, x, 1.0)",
        "c = lt(x, 0.0) d = reshape(c, shape = [3,2]) e = not(d) y = select(e, 1.0, 0.0)",
    ],
)
def test_valid_bodies(body: str) -> None:
    assert check_text(document(body))["y"]


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("y = x", "syntax.flat"),
        ("y = x + 1.0", "syntax.flat"),
        ("y = relu(x if true else x)", "syntax.flat"),
        ("y = relu<scalar>(x)", "syntax.token"),
        ("graph = relu(x)", "lexical.word"),
        ("y = copy(x)", "invocation.unknown-operation"),
        ("y = squeeze(x, axes = [0])", "invocation.unknown-operation"),
        ("y = matmul(x, x, transposeB = true)", "invocation.unknown-parameter"),
        ("y = select(x, x, x)", "types.argument"),
        ("c = lt(x, 0.0) y = add(c, x)", "types.argument"),
        ("y = add(x, 1)", "types.argument"),
        ("y = moments(x, axes = [1])", "identifier-usage.graph-tensors"),
        ("y = concat([x, x], axis = 2)", "argument-validity.axis"),
        ("y = relu(x) z = external(shape = [0,1]) z = relu(x)", "identifier-usage.twice"),
    ],
)
def test_invalid_bodies(body: str, expected: str) -> None:
    assert code(document(body)) == expected


@pytest.mark.parametrize(
    "fragment",
    [
        "fragment f( x: tensor ) -> ( y: tensor ) { y = x + 1.0 * x }",
        "fragment f( x: tensor ) -> ( y: tensor ) { a = relu(x) b = neg(a) [c] = [a] y = c + b }",
        "fragment f( x: tensor ) -> ( y: tensor ) { a, b = relu(x), neg(x) y = a - b }",
        "fragment f( x: tensor ) -> ( y: tensor ) { t = (1, x) y = t[1] * scalar(t[0]) }",
        "fragment f( x: tensor ) -> ( y: tensor ) { y = x * scalar(length_of([1,2,3][1:])) }",
        "fragment f( x: tensor, s: string = 'a' ) -> ( y: tensor ) { y = x * scalar(length_of(s + 'b')) }",
        (
            "fragment f( k: extent = 2, x: tensor ) -> ( y: tensor ) { y = x * scalar(k) }\n"
            "fragment g( x: tensor ) -> ( y: tensor ) { y = f(x = x) }"
        ),
        "fragment f( x: tensor ) -> ( y: tensor ) { w = variable(shape = shape_of(x), label = 'w') y = x + w }",
        (
            "fragment s( a: scalar[] ) -> ( r: scalar ) { r = a[0] + s(a[1:]) if length_of(a) > 0 else 0.0 }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = x * s([1.0, 2.0]) }"
        ),
        (
            "fragment g( p: (tensor, tensor) ) -> ( y: tensor ) { y = p[0] + p[1] }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = g(moments(x, axes = [0])) }"
        ),
        (
            "fragment f( x: tensor ) -> ( y: tensor ) { c = x < 0.0 y = select(g(c), x, 0.0) }\n"
            "fragment g( c: tensor ) -> ( d: tensor ) { d = !c }"
        ),
        (
            "fragment conv_layer( x: tensor ) -> ( y: tensor ) { y = x }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = conv_layer(x) }"
        ),
        (
            "fragment unused( c: tensor, x: tensor ) -> ( y: tensor ) { y = select(c, x, 0.0) }\n"
            "fragment f( x: tensor ) -> ( y: tensor ) { y = x * 1.0 }"
        ),
    ],
)
def test_valid_fragments(fragment: str) -> None:
    invoked = "g(x = x)" if "f(x = x)" in fragment else "f(x)"
    assert check_text(document(f"y = {invoked}", fragment))["y"] == (2, 3) or "moments" in fragment


@pytest.mark.parametrize(
    ("fragment", "expected"),
    [
        ("fragment f( x: tensor );", "syntax.token"),
        ("fragment f( x: tensor<scalar> ) -> ( y: tensor ) { y = x }", "syntax.token"),
        ("fragment f( x: tensor, x: scalar ) -> ( y: tensor ) { y = x }", "fragment-definition.unique-names"),
        ("fragment f( x: tensor, k: extent = 1.0 ) -> ( y: tensor ) { y = x }", "fragment-definition.default"),
        ("fragment relu( x: tensor ) -> ( y: tensor ) { y = x }", "fragment-definition.duplicate"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { x = relu(x) y = x }", "identifier-usage.parameter"),
        ("fragment f( x: tensor ) -> ( y: tensor, z: tensor ) { y = relu(x) }", "identifier-usage.unassigned"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { y = max_pool_with_index(x, size = [1,1]) }", "types.result"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { t = moments(x, axes = [0]) y = x }", "identifier-usage.structure"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { y = select(x, 1.0, x) }", "types.argument"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { y = f(x) }", "limit.nesting"),
        ("fragment f( x: tensor ) -> ( y: tensor ) { y = x }\nfragment h( s: string ) -> ( t: string ) { t = s * s }",
         "types.operator"),
    ],
)  # fmt: skip
def test_invalid_fragments(fragment: str, expected: str) -> None:
    assert code(document("y = f(x)", fragment)) == expected


def test_shape_of_gives_at_least_two_extents() -> None:
    fragment = (
        "fragment f( x: tensor ) -> ( y: tensor ) { y = reshape(x, shape = shape_of(relu(x)) + shape_of(x)[1:]) }"
    )
    assert check_text(document("y = f(x)", fragment, "[5]"))["y"] == (5, 1, 1)


def test_an_extent_of_zero_is_one_that_is_not_known() -> None:
    assert check_text(document("y = concat([x, x], axis = 7)", shape="[0,3]")) == {}


def test_the_reader_of_1_0_1_says_that_it_must_be_upgraded(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(document("y = relu(x)"))
    assert "upgraded" in error_of(lambda: nnef.load(path)).message


def test_errors_are_collected_and_those_of_fragments_told_once() -> None:
    fragments = (
        "fragment f( x: tensor ) -> ( y: tensor ) { y = x + 1 }\nfragment g( x: tensor ) -> ( y: tensor ) { y = q }"
    )
    text = document("a = f(x) b = f(a) c = foo(x) d = neg(c) y = relu(x)", fragments)
    errors = error_of(lambda: check_text(text)).errors
    assert [error.code.removeprefix("nnef.") for error in errors] == [
        "types.operator",
        "identifier-usage.undefined",
        "invocation.unknown-operation",
    ]
    assert [(step.op, step.line) for step in errors[0].trace] == [("f", 7)]


def test_messages_have_the_names_of_types_that_the_document_has() -> None:
    fragment = "fragment f( x: tensor, integer: extent ) -> ( y: tensor ) { y = x * (integer + 1.0) }"
    assert "extent and scalar" in error_of(lambda: check_text(document("y = f(x, integer = 1)", fragment))).message
    right = fragment.replace("1.0", "1").replace("(integer", "scalar(integer")
    assert "'integer'" in error_of(lambda: check_text(document("y = f(x)", right))).message


def test_no_more_errors_are_reported_than_of_a_document_of_1_0_1() -> None:
    text = document(" ".join(f"a{i} = foo(x)" for i in range(100)) + " y = relu(x)")
    assert len(error_of(lambda: check_text(text)).errors) == MAX_ERRORS


def places(text: str) -> list[tuple[str, int | None]]:
    """The code and the line of each error of a document."""
    errors = error_of(lambda: check_text(text)).errors
    return [(error.code.removeprefix("nnef."), error.location.line) for error in errors]


def test_independent_errors_of_arguments_and_shapes_are_reported_together() -> None:
    body = "a = concat([x, x], axis = 9)\nb = reshape(x, shape = [7])\nc = relu(b)\ny = transpose(x, perm = [0,0])"
    assert places(document(body)) == [
        ("argument-validity.axis", 6),
        ("shapes.volume", 7),
        ("argument-validity.axes", 9),
    ]


def test_an_error_of_types_does_not_hide_one_of_arguments() -> None:
    fragments = (
        "fragment f( x: tensor ) -> ( y: tensor ) { y = relu(z) } fragment g( x: tensor ) -> ( y: tensor ) { y = f(x) }"
    )
    body = "a = g(x)\nb = foo(x)\nc = concat([x, x], axis = 9)\nd = concat([a, a], axis = 9)\ny = neg(x)"
    assert places(document(body, fragments)) == [
        ("identifier-usage.undefined", 2),
        ("invocation.unknown-operation", 7),
        ("argument-validity.axis", 8),
    ]


def test_shapes_of_what_is_right_are_known_beside_errors(tmp_path: Path) -> None:
    path = tmp_path / "graph.nnef"
    path.write_text(document("a = concat([x, x], axis = 9)\nb = relu(a)\nc = transpose(x, perm = [1,0])\ny = neg(q)"))
    report = nnef.check(path)
    assert len(report.errors) == 2
    assert report.shapes == {"x": (2, 3), "c": (3, 2)}


def test_an_error_in_a_definition_is_at_the_invocation_of_the_operation() -> None:
    fragment = "fragment f( x: tensor ) -> ( y: tensor ) { y = max_pool_layer(x, size = [0]) }"
    error = error_of(lambda: check_text(document("y = f(x)", fragment, "[1,1,4]")))
    assert error.location.op == "max_pool"
    assert (error.location.line, error.location.column) == (2, fragment.index("max_pool_layer") + 1)
    assert [(step.op, step.line) for step in error.trace] == [("max_pool_layer", 2), ("f", 6)]


def test_declarations_and_definitions_agree_with_each_other_and_with_1_0_1() -> None:
    current = declare(())
    for name, definition in definitions().items():
        declared = library()[name]
        assert [(p.name, p.type) for p in declared.parameters] == [(p.name, p.type) for p in definition.parameters]
        assert [r.type for r in declared.results] == [r.type for r in definition.results]
    for name, declared in library().items():
        if name in (*definitions(), *OPERATIONS, *LAYERS):
            continue
        parameters = {parameter.name for parameter in current[name].parameters}
        assert {parameter.name for parameter in declared.parameters} <= parameters
        assert [str(r.type).replace("?", "scalar") for r in declared.results] == [
            str(r.type).replace("?", "scalar") for r in current[name].results
        ]
    for name, form in OPERATIONS.items():
        parameters = {parameter.name for parameter in current[form.name].parameters}
        own = {form.renamed.get(parameter.name, parameter.name) for parameter in library()[name].parameters}
        assert {*own, *form.added} <= parameters
    for declared in library().values():
        check_declaration(declared)


def test_hostile_fragments_meet_limits() -> None:
    chain = "".join(f"fragment f{i}( x: tensor ) -> ( y: tensor ) {{ y = f{i + 1}(x) }}\n" for i in range(200))
    with pytest.raises(CvmError, match="deeper than 64"):
        check_text(document("y = f0(x)", chain + "fragment f200( x: tensor ) -> ( y: tensor ) { y = x }"))
    nested = "shape_of(reshape(x, shape = " * 12 + "[6]" + "))" * 12
    assert check_text(document("y = f(x)", f"fragment f( x: tensor ) -> ( y: tensor ) {{ y = x t = {nested} }}"))
