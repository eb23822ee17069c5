"""docs/api.md has every public name, and the classes that the public functions take and give."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import cvm
from tools.generated_pages import api

PAGE = (Path(__file__).parents[2] / "docs" / "api.md").read_text("utf-8")


def test_every_public_name_has_a_section() -> None:
    titles = set(re.findall(r"^### (\S+)$", PAGE, re.MULTILINE))
    assert {f"cvm.{name}" for name in cvm.__all__ if name != "errors"} <= titles


def test_every_public_function_and_method_has_a_docstring() -> None:
    for function in api.FUNCTIONS:
        assert inspect.getdoc(function), function
    for kind in api.CLASSES:
        for name, member in vars(kind).items():
            if not name.startswith("_") and inspect.isfunction(member):
                assert member.__doc__, (kind, name)


def test_what_functions_give_is_on_the_page() -> None:
    given = {str(inspect.signature(function).return_annotation).strip("'") for function in api.FUNCTIONS}
    names = {kind.__name__ for kind in api.CLASSES}
    assert {name for name in given if name.isidentifier()} <= names
