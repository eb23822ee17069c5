"""What the C++ library reads for single spellings of attributes, and that the reader of cvm reads the same.

`FACTS` states what the library was seen to do. ``../shared/findings/cvm_runtime/attribute_texts.txt`` is the record.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from cvm.errors import Invalid
from cvm.frontends.cvm_runtime.operators import operator

FILE = Path(__file__).parents[4] / "shared" / "findings" / "cvm_runtime" / "attribute_texts.txt"

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Site:
    """A use of an op in which one attribute is spelled in many ways; an empty name: the attribute's name is."""

    op: str
    shapes: tuple[Shape, ...]
    name: str
    others: Mapping[str, str]

    def shape(self, text: str) -> Shape | None:
        """The shape of the result, which tells how the text was read; None: it is refused."""
        spelled = {self.name: text} if self.name else {text: "1"}
        try:
            (shape,) = operator(self.op).use({**self.others, **spelled}, self.shapes).out_shapes
        except Invalid as error:
            if error.code != "cvm_runtime.attribute":
                raise
            return None
        return shape


SITES = {
    "int (repeat.repeats)": Site("repeat", ((2, 3),), "repeats", {"axis": "0"}),
    "int (expand_dims.axis)": Site("expand_dims", ((2, 3),), "axis", {}),
    "int or None (take.axis)": Site("take", ((2, 3), (2, 3)), "axis", {}),
    "bool (max.keepdims)": Site("max", ((2, 3),), "keepdims", {"axis": "(1,)"}),
    "bool (max_pool2d.ceil_mode)": Site(
        "max_pool2d", ((1, 1, 2, 3),), "ceil_mode", {"pool_size": "(2, 2)", "strides": "(2, 2)"}
    ),
    "tuple (tile.reps)": Site("tile", ((2, 3),), "reps", {}),
    "tuple (reshape.shape)": Site("reshape", ((1, 2),), "shape", {}),
    "tuple (sum.axis)": Site("sum", ((3, 4, 5),), "axis", {}),
    "name of an attribute (max)": Site("max", ((2, 3),), "", {"axis": "(1,)"}),
}
"""The attributes that were tried, by their titles in the record."""


def _tuple_facts(two: Shape, both: Shape) -> dict[str, Shape | None]:
    """What is read for spellings of (2,) and (2, 1), with the shapes that these give."""
    return {
        **dict.fromkeys(("+2", "(2L )", "2L", "-2L", "(2L ,1)", "(2 1)", "(2,1", "2,1)", "(,)"), None),
        **dict.fromkeys(("2", " 2 ", "(2)", "(+2)", "(2L)", "(2,)", "[2L,]", "( 002 , )"), two),
        **dict.fromkeys(("(2,1)", "[2,1)", "(2,1]", "(2 L,1)", "(2,1, ]", "(2,1 L)", " ( 2 , 1 ) "), both),
    }


_TRUTHS = ("true", "TRUE", "tRuE", "1")
_NO_TRUTHS = (" true", "true ", " 1", "1 ", "\t1", "1\n", "TRUE\n", "", "2", "yes", "01")

FACTS: Mapping[str, Mapping[str, Shape | None]] = {
    "int (repeat.repeats)": {
        **dict.fromkeys(("2", "+2", " 2", "2\n", "000000000002", "0" * 27 + "2", "+0000000000000002"), (4, 3)),
        **dict.fromkeys(("2L", "2.0", "0x2", "- 2", "", "4294967298", "2147483648"), None),
    },
    "int (expand_dims.axis)": {
        **dict.fromkeys(("2", "000000000002", "0" * 27 + "2", "+0000000000000002"), (2, 3, 1)),
        **dict.fromkeys(("None", "2,", "(2)"), None),
    },
    "int or None (take.axis)": {
        **dict.fromkeys(("1", "1L", " 1", " 1L ", "+1", "-1"), (2, 2, 3)),
        **dict.fromkeys(("None", "None "), (2, 3)),
        **dict.fromkeys((" None", "none", "NoneL", "1 L", "1LL", ""), None),
    },
    "bool (max.keepdims)": {**dict.fromkeys(_TRUTHS, (2, 1)), **dict.fromkeys(_NO_TRUTHS, None)},
    "bool (max_pool2d.ceil_mode)": {**dict.fromkeys(_TRUTHS, (1, 1, 1, 2)), **dict.fromkeys(_NO_TRUTHS, None)},
    "tuple (tile.reps)": _tuple_facts((2, 6), (4, 3)),
    "tuple (reshape.shape)": _tuple_facts((2,), (2, 1)) | {"-2": (1, 2)},
    "tuple (sum.axis)": _tuple_facts((3, 4), (3,)) | {"-2": (3, 5)},
    "name of an attribute (max)": {"____": None, "__x__": (2,), "_____": (2,)},
}
"""What the library reads: the shape of the result, or None where it refuses the text."""


@pytest.mark.parametrize(
    ("title", "text", "shape"),
    [(title, text, shape) for title, texts in FACTS.items() for text, shape in texts.items()],
)
def test_a_spelling_is_read_as_the_library_reads_it(title: str, text: str, shape: Shape | None) -> None:
    assert SITES[title].shape(text) == shape


def recorded() -> list[tuple[str, str, Shape | None]]:
    """Every row of the record: the attribute, the text, and what the library reads."""
    rows: list[tuple[str, str, Shape | None]] = []
    title = ""
    for line in FILE.read_text("utf-8").splitlines()[1:] if FILE.is_file() else []:
        if line.startswith("== "):
            title = re.sub(r"^== (.*) \d+$", r"\1", line)
        else:
            text, outcome, *_ = ast.literal_eval(line.strip())
            found = outcome.removeprefix("library reads ")
            rows.append((title, text, None if found == "refuses" else ast.literal_eval(found)[0]))
    return rows


RECORDED = recorded()


@pytest.mark.skipif(not RECORDED, reason="../shared/findings/cvm_runtime/attribute_texts.txt is not there")
def test_the_record_has_the_attributes_that_are_stated() -> None:
    assert {title for title, _, _ in RECORDED} == set(FACTS)
    assert len(RECORDED) == 52


@pytest.mark.skipif(not RECORDED, reason="../shared/findings/cvm_runtime/attribute_texts.txt is not there")
@pytest.mark.parametrize(("title", "text", "shape"), RECORDED)
def test_a_recorded_spelling_is_read_as_the_library_reads_it(title: str, text: str, shape: Shape | None) -> None:
    assert SITES[title].shape(text) == shape
    assert FACTS[title].get(text, shape) == shape
