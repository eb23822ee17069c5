"""Comments belong to parts of a document, and are printed with them (section 3.1)."""

from __future__ import annotations

import random
import re
from contextlib import suppress

import pytest

from cvm.errors import Invalid, Unsupported
from cvm.frontends.nnef.comments import Comments, attached
from cvm.frontends.nnef.parser import parse_document
from cvm.frontends.nnef.provisional import is_provisional, upgrade_text
from cvm.frontends.nnef.unparse import unparse
from tools.fuzz.documents import same
from tools.fuzz.grammar import document

TEXT = """# license
version 1.0;  # version
extension KHR_enable_fragment_definitions; # extension

# fragment
fragment f( x: tensor<scalar>, # parameter
    s: string = 'no # comment' ) -> ( y: tensor<scalar> )
{ # brace
    # alone

    t = relu(x);  # beside
    y = add(t,  # inner
            # inner, alone
            t); # inner, last
    # end of f
} # behind f
fragment g( x: tensor<scalar> ) -> ( y: tensor<scalar> );
# graph
graph net( x ) # header
-> ( y )
{
    x = external(shape = [1]); y = relu(x); # two
}
# bye
# ä
"""


def test_a_comment_belongs_to_what_it_precedes_or_follows() -> None:
    tree = parse_document(TEXT)
    found = attached(TEXT, tree)
    f, g = tree.fragments
    assert f.body is not None
    parts = [tree, f, *f.body, g, tree.graph, *tree.graph.body]
    assert [found.get(id(part)) for part in parts] == [
        Comments(("# license",), ("# version", "# extension"), ("# bye", "# ä")),
        Comments(("# fragment", "# parameter"), ("# behind f",), ("# end of f",)),
        Comments(("# brace", "# alone"), ("# beside",)),
        Comments(("# inner, alone",), ("# inner", "# inner, last")),
        None,
        Comments(("# graph", "# header")),
        None,
        Comments((), ("# two",)),
    ]
    assert len(found) == 6


def test_a_tree_is_printed_with_its_comments() -> None:
    tree = parse_document(TEXT)
    assert unparse(tree, attached(TEXT, tree)).splitlines() == [
        "# license",
        "# version",
        "# extension",
        "version 1.0;",
        "extension KHR_enable_fragment_definitions;",
        "",
        "# fragment",
        "# parameter",
        "fragment f( x: tensor<scalar>, s: string = 'no # comment' ) -> ( y: tensor<scalar> )",
        "{",
        "    # brace",
        "    # alone",
        "    t = relu(x);  # beside",
        "    # inner, alone",
        "    # inner",
        "    # inner, last",
        "    y = add(t, t);",
        "    # end of f",
        "}  # behind f",
        "",
        "fragment g( x: tensor<scalar> ) -> ( y: tensor<scalar> );",
        "",
        "# graph",
        "# header",
        "graph net( x ) -> ( y )",
        "{",
        "    x = external(shape = [1]);",
        "    y = relu(x);  # two",
        "}",
        "# bye",
        "# ä",
    ]


def commented(text: str, random_: random.Random) -> tuple[str, list[str]]:
    """A document with a numbered comment at every third place that a comment may stand at."""
    added: list[str] = []
    plain = re.sub(r"#[^\n]*", "", text)

    def add(match: re.Match[str]) -> str:
        if random_.random() > 0.3 or match[0][0] in "'\"":
            return match[0]
        added.append(f"#{len(added)} ' {{")
        return random_.choice((f" {added[-1]}\n", f"\n{added[-1]}\n"))

    return re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[ \n]+""", add, plain), added


@pytest.mark.parametrize("seed", range(60))
def test_no_comment_is_lost_when_a_tree_is_printed(seed: int) -> None:
    plain = document(random.Random(seed))
    text, added = commented(plain, random.Random(seed))
    tree = parse_document(text)
    assert same(tree, parse_document(plain))
    printed = unparse(tree, attached(text, tree))
    assert sorted(re.findall(r"#\d+ ' {", printed)) == sorted(added)
    again = parse_document(printed)
    assert same(tree, again)
    assert unparse(again, attached(printed, again)) == printed


def test_an_upgrade_keeps_the_comments_of_what_it_keeps() -> None:
    compared = 0
    for seed in range(60):
        plain = document(random.Random(seed), provisional=True)
        text, added = commented(plain, random.Random(seed))
        assert is_provisional(text)
        with suppress(Invalid, Unsupported):  # not valid, or not to be said in 1.0.1
            expected = upgrade_text(plain)
            printed = upgrade_text(text)
            assert same(parse_document(printed), parse_document(expected))
            lost = set(added) - set(re.findall(r"#\d+ ' {", printed))
            assert not lost or plain.count("fragment ") > printed.count("fragment ")
            compared += 1
    assert compared > 30


def test_comments_of_an_expanded_statement_stand_before_all_of_it() -> None:
    text = """version 1.0
# a fragment that 1.0.1 cannot have
fragment f( x: tensor ) -> ( y: tensor )
{
    # inside
    w = variable(shape = [2,2], label = 'w')
    y = matmul(x, w)
}
# the graph
graph net( x ) -> ( y )
{
    x = external(shape = [1,2])  # images
    # expanded
    h = f(x)  # here
    # kept
    y = softmax(h)  # there
}
"""
    assert upgrade_text(text).splitlines() == [
        "version 1.0;",
        "",
        "# a fragment that 1.0.1 cannot have",
        "# the graph",
        "graph net( x ) -> ( y )",
        "{",
        "    x = external(shape = [1, 2]);  # images",
        "    # expanded",
        "    # here",
        "    variable_1 = variable(shape = [2, 2], label = 'w');",
        "    h = matmul(x, variable_1);",
        "    # kept",
        "    y = softmax(h);  # there",
        "}",
    ]
