"""docs/cvm-runtime-loader.md, from the table of cases: ``python -m tests.frontends.cvm_runtime.page`` writes it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .loader_cases import CASES, Case
from .reader_cases import READER_CASES

__all__ = ["PAGE", "markdown"]

PAGE = Path(__file__).parents[3] / "docs" / "cvm-runtime-loader.md"

_INTRODUCTION = """\
# What the loader of cvm-runtime accepts, and what is accepted here

Written from `loader_cases.py` and `reader_cases.py` in `tests/frontends/cvm_runtime` by
`python -m tests.frontends.cvm_runtime.page`; do not edit.

The C++ library was tried with {count} models, most of them with one thing wrong. Every one is rebuilt in the tests and
read here. {same} have the same outcome; {stricter} are accepted there and refused here; {more} are accepted here, or
have the result that they should have, where the library fails or gives another one. *cvm-1* is the mode that
computes what the library's FORMAL backend does (docs/cvm-runtime.md).

"""

_SPELLINGS = """
## Spellings

Further {count} models have one unusual spelling each, in the JSON, in an attribute or in the bytes of the parameters.
The syntax of attributes is exactly the library's: an attribute is a text inside the model, which no other program
reads. The JSON and the parameters have stricter readers here, since other programs read them too and would find
something else: whatever standard JSON is not, or says twice, and whatever is damaged, is refused by name. {same} have
the same outcome, {stricter} are accepted there and refused here, {more} has an outcome there that depends on the
machine.

"""

_HEAD = """\
| model | outcome here | compared | why |
|---|---|---|---|
"""

_KINDS = {"same": "the same", "stricter": "stricter", "more": "different"}


def markdown() -> str:
    """The page."""
    return _filled(_INTRODUCTION, CASES) + _table(CASES) + _filled(_SPELLINGS, READER_CASES) + _table(READER_CASES)


def _filled(text: str, cases: Sequence[Case]) -> str:
    """The text with the numbers of cases of each kind in it."""
    return text.format(count=len(cases), **{kind: sum(case.kind == kind for case in cases) for kind in _KINDS})


def _table(cases: Sequence[Case]) -> str:
    rows = (f"| {_cell(case.name)} | {_outcome(case)} | {_KINDS[case.kind]} | {_cell(case.why)} |\n" for case in cases)
    return _HEAD + "".join(rows)


def _outcome(case: Case) -> str:
    found = f"`{case.error[1]}`" if case.error else "accepted"
    if isinstance(case.formal, str):
        return f"{found}; cvm-1: `{case.formal}`"
    return f"{found}; cvm-1: {list(case.formal)}" if case.formal is not None else found


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    PAGE.write_text(markdown(), "utf-8")
