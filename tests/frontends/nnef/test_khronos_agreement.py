"""Agreement with the parser of Khronos (package ``nnef``, the extra ``khronos``) outside of its known defects.

Skipped by name without the package. CVM_KHRONOS_PYTHON names another interpreter that has it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from cvm.frontends import nnef
from cvm.frontends.nnef import syntax
from cvm.frontends.nnef.parser import parse_document
from cvm.frontends.nnef.walk import descendants
from tests.frontends.nnef.documents import SHARED, corpus, folders
from tools.fuzz.grammar import document

FOLDER = SHARED / "nnef" / "corpus"
WORKER = Path(__file__).with_name("khronos_worker.py")
PYTHON = os.environ.get("CVM_KHRONOS_PYTHON") or (sys.executable if importlib.util.find_spec("nnef") else None)

pytestmark = pytest.mark.skipif(PYTHON is None, reason="the package nnef of Khronos (extra khronos) is not installed")

ACCEPTED_WRONGLY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "values of introduced tensors are not counted": ("arg_constant_count", "arg_constant_too_many"),
        "extents of introduced tensors may be zero": ("arg_external_zero_extent", "arg_variable_zero_extent"),
        "labels are not checked": ("arg_label_at", "arg_label_colon", "arg_label_question", "arg_label_shared_shape"),
        "names of borders and methods are not checked": (
            "conv_border_ignore",
            "pool_border_unknown",
            "sample_border_ignore",
            "upsample_method",
        ),
        "sizes and windows are not checked": (
            "conv_filter_too_large_dilated",
            "pool_size_negative",
            "pool_window_too_large",
            "upsample_factor_zero",
        ),
        "axes and ranges are not checked": ("reduce_axis_twice", "slice_end_range"),
        "extensions are separated by commas": ("doc_extension_comma",),
        "logical operators apply to tensors of scalars": ("expr_and_on_scalar_tensors",),
        "the item of 'in' may be of another type": ("expr_in_other_type",),
        "integer() takes the beginning of a string": ("expr_integer_of_real_string",),
        "operator expressions need no extension": (
            "flat_binary_positional",
            "flat_nested_invocation",
            "flat_unary_on_identifier",
        ),
        "identifiers of a graph need not be tensors": ("id_graph_attribute", "id_graph_tensor_array"),
        "a number may end in its point": ("num_no_fraction_digits",),
        "strings have no escapes": ("str_backslash_before_end",),
        "a variable may be updated twice": ("update_twice",),
    }
)
"""Invalid documents of the corpus that the package accepts, by the rule that it does not have."""

REFUSED_WRONGLY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "sample compares the index with the input, not with the output": ("argmax_sample_a",),
        "a bias of one channel is refused": ("conv_bias_singular",),
        "an empty array has no type to be concatenated with": ("expr_array_concat",),
        "logical operators do not apply to tensors of logicals": ("expr_logical_tensors",),
        "there is no unary plus": ("expr_unary_plus",),
        "extensions are separated by commas": ("extension_two_in_one",),
        "nested arrays of tuples crash": ("frag_array_tuple_params",),
        "shape_of, which is deprecated, is not there": ("frag_uses_shape_of",),
        "a comment does not end at a form feed": ("lex_comment_formfeed",),
        "the batch index of a region must be of rank 1": ("roi_pool_a", "roi_resample_a"),
    }
)
"""Valid documents of the corpus that the package refuses, by the defect."""

OTHER_SHAPES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"a literal that is assigned has rank 0, and is no operation": ("frag_constant_result",)}
)
"""Valid documents of which it says other shapes, by the reason."""


def _unary(node: syntax.Expression) -> bool:
    return isinstance(node, syntax.Unary) and not isinstance(node.operand, syntax.Literal)


def _empty_array(node: syntax.Expression) -> bool:
    return type(node) is syntax.ArrayExpression and not node.items


def _escape(node: syntax.Expression) -> bool:
    return isinstance(node, syntax.Literal) and isinstance(node.value, str) and bool(re.search(r"[\\'\"]", node.value))


DEFECTS_OF_EXPRESSIONS: Mapping[str, Callable[[syntax.Expression], bool]] = MappingProxyType(
    {
        "a unary operator swallows the whole expression behind it": _unary,
        "an empty array has no type to be concatenated with, or to be iterated": _empty_array,
        "strings have no escapes": _escape,
    }
)
"""Expressions that it reads as others, or not at all; generated documents with one of them are left out."""


def ask(paths: Iterable[Path]) -> list[dict[str, Any]]:
    """What the package says of documents, in a process that is started again when it dies."""
    pending = [str(path) for path in paths]
    answers: list[dict[str, Any]] = []
    while len(answers) < len(pending):
        command = [str(PYTHON), str(WORKER)]
        given = "".join(f"{path}\n" for path in pending[len(answers) :])
        result = subprocess.run(command, input=given, capture_output=True, text=True, check=False, timeout=300)
        found = [json.loads(line) for line in result.stdout.splitlines()]
        answers += found
        if result.returncode != 0:
            answers.append({"accepted": False, "stage": "crash", "message": f"ended with {result.returncode}"})
        elif not found:
            raise AssertionError(result.stderr)
    return answers


@lru_cache(maxsize=1)
def corpus_answers() -> Mapping[str, dict[str, Any]]:
    entries = [parameter.values[0] for kind in ("valid", "invalid") for parameter in corpus(kind)]
    files = [entry["file"] for entry in entries if entry is not None]
    return dict(zip(files, ask(FOLDER / file for file in files), strict=True))


def reason(table: Mapping[str, tuple[str, ...]], file: str) -> str | None:
    """The defect that a table has for a document."""
    return next((why for why, names in table.items() if Path(file).stem in names), None)


@pytest.mark.parametrize("entry", [*corpus("valid"), *corpus("invalid")])
def test_verdict_and_shapes_agree_but_for_known_defects(entry: dict[str, Any]) -> None:
    file = entry["file"]
    report, answer = nnef.check(FOLDER / file, dialect="1.0.1"), corpus_answers()[file]
    expected = report.valid
    if reason(ACCEPTED_WRONGLY, file) or reason(REFUSED_WRONGLY, file):
        expected = not expected
    assert answer["accepted"] == expected, answer.get("message")
    if report.valid and answer["accepted"]:
        shapes = {name: list(shape) for name, shape in report.shapes.items()}
        same = {name: answer["shapes"].get(name) for name in shapes} == shapes
        assert same == (reason(OTHER_SHAPES, file) is None)


def test_every_document_with_a_known_defect_is_in_the_corpus() -> None:
    stems = {Path(file).stem for file in corpus_answers()}
    for table in (ACCEPTED_WRONGLY, REFUSED_WRONGLY, OTHER_SHAPES):
        assert not stems or {name for names in table.values() for name in names} <= stems


@pytest.mark.parametrize("folder", [*folders("nnef/khronos_cts"), *folders("models/digits"), *folders("models/real")])
def test_shapes_of_networks_agree(folder: Path) -> None:
    path = folder / "graph.nnef"
    (answer,) = ask([path])
    report = nnef.check(path)
    assert report.valid
    assert answer["accepted"], answer.get("message")
    assert {name: answer["shapes"].get(name) for name in report.shapes} == {
        name: list(shape) for name, shape in report.shapes.items()
    }


def test_generated_documents_agree_outside_of_the_known_defects(tmp_path: Path) -> None:
    compared: list[Path] = []
    for seed in range(150):
        text = document(random.Random(seed)).replace("_definitions KHR", "_definitions; extension KHR")
        tree = parse_document(text)
        bodies = [*(fragment.body or () for fragment in tree.fragments), tree.graph.body]
        nodes = [node for body in bodies for statement in body for node in descendants(statement.value)]
        interface = {i.name for i in tree.graph.parameters} & {i.name for i in tree.graph.results}
        if interface or any(defect(node) for defect in DEFECTS_OF_EXPRESSIONS.values() for node in nodes):
            continue  # it also refuses a parameter of a graph that is a result
        compared.append(tmp_path / f"{seed}.nnef")
        compared[-1].write_text(text)
    assert len(compared) > 60
    for path, answer in zip(compared, ask(compared), strict=True):
        report = nnef.check(path, dialect="1.0.1")
        assert answer["accepted"] == report.valid, (path.read_text(), answer.get("message"))
        if report.valid:
            shapes = {name: list(shape) for name, shape in report.shapes.items()}
            assert {name: answer["shapes"].get(name) for name in shapes} == shapes
