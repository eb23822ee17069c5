"""docs/errors.md has every code that cvm raises, each with what to do."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm.errors import CvmError
from tools.error_advice import ADVICE, FAMILIES
from tools.error_codes import ROOT, Source, raised
from tools.generated_pages import errors

PAGE = (ROOT / "docs" / "errors.md").read_text("utf-8")
CODES = re.findall(r"^\| `([^`]+)` \|", PAGE, re.MULTILINE)
PATTERN = re.compile("|".join(re.sub(r"<\w+>", r"[\\w-]+", re.escape(code)) for code in CODES))
CALL = re.compile(r"\b(?:Malformed|Invalid|Unsupported|LimitExceeded|Mismatch)\(\s*\"([\w.-]+)\"")


@pytest.mark.slow
def test_every_code_that_stands_in_the_source_is_in_the_page() -> None:
    written = {code for file in (ROOT / "cvm").rglob("*.py") for code in CALL.findall(file.read_text("utf-8"))}
    assert len(written) > 200
    assert written - set(CODES) == set()
    assert {item.code for item in raised()} == set(CODES)


@pytest.mark.slow
def test_every_call_of_an_error_class_gives_a_code() -> None:
    # A code that the collector does not understand would be missing from the page without a word.
    for file in (ROOT / "cvm").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in ("Malformed", "Invalid", "Unsupported", "LimitExceeded"):
                assert isinstance(node.args[0], ast.Constant | ast.JoinedStr | ast.Name | ast.Attribute), file


def test_every_code_has_something_to_do_and_every_sentence_is_used() -> None:
    beginnings = {max((one for one in ADVICE if code.startswith(one)), key=len) for code in CODES}
    assert beginnings == set(ADVICE)
    assert {errors.family(item) for item in raised()} == set(FAMILIES)


def test_codes_are_followed_through_functions(tmp_path: Path) -> None:
    (tmp_path / "house" / "room").mkdir(parents=True)
    (tmp_path / "house" / "room" / "faults.py").write_text(
        "def fault(rule, message):\n    return Invalid(f'room.{rule}', message)\n\n"
        "class Node:\n    def invalid(self, rule, message):\n"
        "        return fault(f'node.{rule}', f'{self.name}: {message}')\n"
    )
    (tmp_path / "house" / "room" / "reading.py").write_text(
        "from house.room.faults import Node, fault\n\n"
        "def read(node, size, which):\n"
        "    if size:\n        raise fault('size', f'found {size}')\n"
        "    if which:\n        raise node.invalid('left' if which == 1 else 'right', 'no')\n"
        "    raise fault(which, 'open')\n"
    )
    found = {(item.code, item.message) for item in Source(tmp_path / "house").raised()}
    assert found == {
        ("room.size", "found {size}"),
        ("room.node.left", "{name}: no"),
        ("room.node.right", "{name}: no"),
        ("room.<which>", "open"),
    }


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: cvm.compile("nowhere"),
        lambda: cvm.compile(ROOT / "README.md"),
        lambda: cvm.load(ROOT / "cvm" / "demo" / "digits.npz"),
        lambda: cvm.run_op("conv", []),
        lambda: cvm.run_op("conv2d", []),
        lambda: cvm.run_op("abs", [np.zeros((0,), np.int64)]),
        lambda: cvm.run_op("abs", [np.array([1.5])]),
        lambda: cvm.run_op("sum", [[1]], {"axes": "all"}),
        lambda: cvm.run_op("dense", [[1], [2]]),
        lambda: cvm.quantize(ROOT / "cvm" / "demo" / "lenet_digits", {}),
    ],
)
def test_the_code_of_what_is_wrong_is_in_the_page(wrong: Callable[[], object]) -> None:
    with pytest.raises(CvmError) as caught:
        wrong()
    assert PATTERN.fullmatch(caught.value.code), caught.value.code
