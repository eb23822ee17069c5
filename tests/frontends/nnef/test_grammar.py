"""Sections 3.1 and 3.2: what is a document, and where exactly it stops being one."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cvm.errors import CvmError, LimitExceeded, Malformed, Unsupported
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.parser import decode, parse_document
from tests.frontends.nnef.documents import error_of, flat, flatten_text, graph


def value_of(expression: str) -> syntax.Expression:
    return parse_document(graph(f"y = {expression};")).graph.body[-1].value


def outline(node: syntax.Expression) -> str:
    """An expression with every grouping in parentheses."""
    match node:
        case syntax.Identifier(name=name):
            return name
        case syntax.Literal(value=value):
            return str(value)
        case syntax.Unary(operator=operator, operand=operand):
            return f"({operator}{outline(operand)})"
        case syntax.Chain(first=first, rest=rest):
            return "(" + outline(first) + "".join(f" {symbol} {outline(operand)}" for symbol, operand in rest) + ")"
        case syntax.IfElse(consequence=a, condition=b, alternative=c):
            return f"({outline(a)} if {outline(b)} else {outline(c)})"
        case syntax.Subscript(sequence=a, index=b):
            return f"({outline(a)}[{outline(b)}])"
        case syntax.RangeSubscript(sequence=a, begin=b, end=c):
            return f"({outline(a)}[{outline(b) if b else ''}:{outline(c) if c else ''}])"
        case syntax.Paren(operand=operand):
            return outline(operand)
        case syntax.ArrayExpression(items=items):
            return f"[{','.join(map(outline, items))}]"
    raise AssertionError(node)


@pytest.mark.parametrize(
    ("text", "grouping"),
    [
        ("a + b - c", "(a + b - c)"),
        ("a + b * c", "(a + (b * c))"),
        ("a * b ^ c / d", "(a * (b ^ c) / d)"),
        ("2 ^ 3 ^ 2", "(2 ^ 3 ^ 2)"),  # one chain, from the left
        ("-a ^ b", "((-a) ^ b)"),
        ("!a && b || c", "((!a) && b || c)"),
        ("a < b && c == d + e", "((a < b) && (c == (d + e)))"),
        ("a && b in c", "((a && b) in c)"),
        ("a if b else c if d else e", "(a if b else (c if d else e))"),
        ("a if b in c else d", "(a if (b in c) else d)"),
        ("-a[1]", "(-(a[1]))"),
        ("a[:][1:][:2][1:2]", "((((a[:])[1:])[:2])[1:2])"),
        ("(a + b) * c", "((a + b) * c)"),
        ("[a, b + c, []]", "[a,(b + c),[]]"),
        ("a - -b", "(a - (-b))"),
    ],
)
def test_operators_group_by_the_precedence_of_section_3_3_3(text: str, grouping: str) -> None:
    assert outline(value_of(text)) == grouping


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("007", 7),
        ("12345678901234567890123", 12345678901234567890123),
        ("0.1", Fraction(1, 10)),
        ("007.50", Fraction(15, 2)),
        ("1e3", Fraction(1000)),
        ("3.5E-2", Fraction(35, 1000)),
        ("16777217.0", Fraction(16777217)),
        ("0.1234567890123456789", Fraction(1234567890123456789, 10**19)),
        ("1.0e00", Fraction(1)),
        ("'a\\'b\\\\'", "a'b\\"),
        ('"a\'b"', "a'b"),
        ("true", True),
        ("false", False),
    ],
)
def test_literals_are_exact_and_of_the_type_of_section_3_3_1(text: str, value: object) -> None:
    node = value_of(text)
    assert isinstance(node, syntax.Literal)
    assert node.value == value
    assert type(node.value) is type(value)


def test_every_construction_of_the_grammar_is_parsed() -> None:
    text = """# comment
version 1.0; extension KHR_enable_fragment_definitions;\r
extension KHR_enable_operator_expressions;
fragment custom<? = scalar>( a: tensor<?>, b: tensor<>[], c: (integer,integer)[] = [(1,-2)], d: ?[] = [] )
-> ( r: tensor<?>, s: tensor<logical>[] );
fragment f( x: tensor<scalar>, k: string = 'q', e: (scalar, (logical, string)) = (-1.5, (true, "")) )
-> ( y: tensor<scalar>= x ) { y = x; }"""
    with pytest.raises(Malformed):
        parse_document(text)
    text = (
        text.replace("= x )", ")")
        + """
graph net(x)->(y,z)
{
    x = external < # the type
        scalar > (shape = [2]);
    (a, [b, c]), d = (x, [x, -x]), e;
}"""
    )
    with pytest.raises(Malformed):
        parse_document(text)
    document = parse_document(
        text.replace("(x, [x, -x]), e;", "((x, [x, -x]), [for i in a, j in b if i < j yield i]);")
    )
    custom, f = document.fragments
    assert (custom.name, custom.generic, custom.generic_default, custom.body) == ("custom", True, "scalar", None)
    assert [str(parameter.type) for parameter in custom.parameters] == [
        "tensor<?>",
        "tensor<>[]",
        "(integer, integer)[]",
        "?[]",
    ]
    assert [str(result.type) for result in custom.results] == ["tensor<?>", "tensor<logical>[]"]
    assert str(f.parameters[2].type) == "(scalar, (logical, string))"
    assert f.body is not None
    assert isinstance(document.graph.body[0].value, syntax.Invocation)
    assert document.graph.body[0].value.generic == "scalar"
    assert isinstance(document.graph.body[1].target, syntax.TupleExpression)


def test_a_comparison_with_a_cast_is_not_a_generic_invocation() -> None:
    node = value_of("a < scalar(b) && c > d")
    assert isinstance(node, syntax.Chain)
    generic = value_of("f<scalar>(b)")
    assert isinstance(generic, syntax.Invocation)


def test_comments_end_at_a_new_line_or_a_form_feed() -> None:
    assert flatten_text(flat("y = relu(x); # y = neg(x);")).operations[-1].name == "relu"
    assert flatten_text(flat("# no\fy = relu(x);")).operations[-1].name == "relu"
    assert flatten_text(flat("# größer\n y = relu(x);")).operations[-1].name == "relu"


@pytest.mark.parametrize(
    ("body", "code", "line", "column"),
    [
        ("y = relu(x)", "nnef.syntax.token", 7, 1),
        ("y = relu();", "nnef.syntax.token", 6, 14),
        ("y = relu(x,);", "nnef.syntax.token", 6, 16),
        ("y == relu(x);", "nnef.syntax.token", 6, 8),
        ("y = (relu(x), x;", "nnef.syntax.token", 6, 20),
        ("2y = relu(x);", "nnef.lexical.word", 6, 5),
        ("if = relu(x);", "nnef.lexical.word", 6, 5),
        ("y = relu(for);", "nnef.lexical.word", 6, 14),
        ("y = add(x, 1.);", "nnef.lexical.character", 6, 17),
        ("y = add(x, .5);", "nnef.lexical.character", 6, 16),
        ("y = add(x, 1e);", "nnef.lexical.word", 6, 17),
        ("y = add(x, 0x1);", "nnef.lexical.word", 6, 17),
        ("y = add(x, 1 % 2);", "nnef.lexical.character", 6, 18),
        ("y = add(x, 'a);", "nnef.lexical.string", 6, 16),
        ("y = add(x, 'a\\n');", "nnef.lexical.string", 6, 16),
        ("y = add(x, 'é');", "nnef.lexical.string", 6, 16),
        ("y = add(x, ö);", "nnef.lexical.character", 6, 16),
        ("y = add(x, x\0);", "nnef.lexical.character", 6, 17),
        ("/* no */ y = x;", "nnef.lexical.word", 6, 5),
        ("y = [for i in a];", "nnef.syntax.token", 6, 20),
        ("y = shape_of(x, x);", "nnef.syntax.token", 6, 19),
        ("relu(y) = x;", "nnef.syntax.token", 6, 9),
        ("(y) = x;", "nnef.syntax.token", 6, 7),
        ("y = x; }", "nnef.syntax.token", 7, 1),
    ],
)
def test_a_syntax_error_says_where_and_what(body: str, code: str, line: int, column: int) -> None:
    error = error_of(lambda: parse_document(graph(body)))
    assert isinstance(error, Malformed)
    assert (error.code, error.location.line, error.location.column) == (code, line, column)


def test_a_syntax_error_says_what_was_expected() -> None:
    error = error_of(lambda: parse_document("version 1.0\ngraph"))
    assert "expected ';'" in error.message
    for body in ("y = 1 +;", "y = relu(x,);", "y = [1,;"):
        error = error_of(lambda body=body: parse_document(graph(body)))  # type: ignore[misc]
        assert error.expected == ("an expression",)
    error = error_of(lambda: parse_document("version 1.0;"))
    assert (error.code, error.location.line, error.location.column) == ("nnef.syntax.end", 1, 13)
    assert "'graph'" in error.message


def test_text_that_is_not_utf8_is_malformed_with_its_place() -> None:
    error = error_of(lambda: decode(b"version 1.0;\n# \xff"))
    assert isinstance(error, Malformed)
    assert (error.location.line, error.location.column) == (2, 3)


@pytest.mark.parametrize("version", ["1", "1e0", "1.0e0"])
def test_a_version_is_a_major_and_a_minor_number(version: str) -> None:
    error = error_of(lambda: parse_document(f"version {version};\ngraph g(x)->(x) {{ x = f(x); }}"))
    assert (error.code, error.location.line, error.location.column) == ("nnef.syntax.version", 1, 9)


@pytest.mark.parametrize("version", ["1.1", "1.05", "0.9", "2.0", "10.0"])
def test_other_versions_are_refused_by_name(version: str) -> None:
    error = error_of(lambda: parse_document(f"version {version};\ngraph g(x)->(x) {{ x = f(x); }}"))
    assert isinstance(error, Unsupported)
    assert version in error.message


@pytest.mark.parametrize("number", ["1e999999999", "1e-999999999", "9" * 5000, "0." + "1" * 5000, "1e" + "9" * 9000])
def test_a_number_is_refused_before_it_is_computed(number: str) -> None:
    error = error_of(lambda: parse_document(graph(f"y = x * {number};")))
    assert isinstance(error, LimitExceeded)
    assert (error.code, error.location.line, error.location.column) == ("limit.number", 6, 13)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 100_000 + "x" + ")" * 100_000,
        "(" * 100_000,
        "[" * 100_000 + "]" * 100_000,
        "-" * 20_000 + "x",
        "x if true else " * 5_000 + "x",
        "x if " * 5_000 + "true" + " else x" * 5_000,
        "x" + "[0]" * 5_000,
        "relu(" * 5_000 + "x" + ")" * 5_000,
    ],
    ids=["parentheses", "open", "brackets", "signs", "else", "if", "subscripts", "invocations"],
)
def test_deep_nesting_is_a_limit_and_never_a_recursion_error(expression: str) -> None:
    error = error_of(lambda: parse_document(graph(f"y = {expression};")))
    assert error.code == "limit.nesting"
    assert error.location.line == 6


def test_a_long_sum_is_not_deep() -> None:
    document = parse_document(graph("y = x" + " + x" * 2_000 + ";"))
    assert isinstance(document.graph.body[-1].value, syntax.Chain)
    assert document.graph.body[-1].value.depth == 2


@pytest.mark.parametrize(
    "text",
    [
        graph(
            "y = f(x);",
            fragments=f"fragment f( x: tensor<scalar>, k: integer{'[]' * 5000} = [] ) -> ( y: tensor<scalar> );",
        ),
        graph(
            "y = f(x);",
            fragments="fragment f( x: tensor<scalar> ) -> ( y: tensor<scalar> ) { a0 = [1]; "
            + "".join(f"a{i + 1} = [a{i}]; " for i in range(2000))
            + "y = x; }",
        ),
    ],
    ids=["declared", "inferred"],
)
def test_deep_types_are_a_limit(text: str) -> None:
    error = error_of(lambda: flatten_text(text))
    assert (error.code, error.location.line) == ("limit.nesting", 2)


RICH = graph(
    "v = variable(shape = [1,3], label = 'a/b'); [p, q] = split(x * 2.0 + v, axis = 1, ratios = [1, 2]);"
    " y = f(p, k = [for i in [1,2] if i > 1 yield -i ^ 2][0], n = (1, 'a')) if !(1 in [2]) else q;",
    fragments="fragment f<?>( a: tensor<?>, k: integer, n: (integer, string) = (0, '') ) -> ( y: tensor<?> )"
    " { y = copy<?>(a); }",
)
WORDS = [
    "(",
    ")",
    "[",
    "]",
    "<",
    ">",
    "?",
    ",",
    ";",
    "=",
    "-",
    "x",
    "1",
    "1.0",
    "'a'",
    "if",
    "for",
    "in",
    "yield",
    "tensor",
    "copy",
    "é",
]


def test_the_document_of_the_next_test_is_valid() -> None:
    assert flatten_text(RICH).exported["y"].shape == (2, 1)


@given(
    st.lists(st.tuples(st.integers(0, len(RICH)), st.integers(0, 6), st.sampled_from(WORDS)), min_size=1, max_size=3)
)
def test_a_mutated_document_is_read_or_refused(edits: list[tuple[int, int, str]]) -> None:
    text = RICH
    for place, length, word in edits:
        text = text[:place] + word + text[place + length :]
    try:
        flatten_text(text)
    except CvmError as found:
        error = found
    else:
        return
    assert error.location.line is not None
