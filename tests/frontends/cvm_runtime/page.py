"""docs/cvm-runtime-loader.md, from the table of cases: ``python -m tests.frontends.cvm_runtime.page`` writes it."""

from __future__ import annotations

from pathlib import Path

from .loader_cases import CASES, Case

__all__ = ["PAGE", "markdown"]

PAGE = Path(__file__).parents[3] / "docs" / "cvm-runtime-loader.md"

_INTRODUCTION = """\
# What the loader of cvm-runtime accepts, and what is accepted here

Written from `tests/frontends/cvm_runtime/loader_cases.py` by `python -m tests.frontends.cvm_runtime.page`; do not edit.

The C++ library was tried with {count} models, most of them with one thing wrong. Every one is rebuilt in the tests and
read here. {same} have the same outcome; {stricter} are accepted there and refused here; {more} are accepted here, or
have the result that they should have, where the library fails or gives another one. *cvm-1* is the mode that
computes what the library's FORMAL backend does (docs/cvm-runtime.md).

| model | outcome here | compared | why |
|---|---|---|---|
"""

_KINDS = {"same": "the same", "stricter": "stricter", "more": "different"}


def markdown() -> str:
    """The page."""
    counts = {kind: sum(case.kind == kind for case in CASES) for kind in _KINDS}
    rows = "".join(
        f"| {_cell(case.name)} | {_outcome(case)} | {_KINDS[case.kind]} | {_cell(case.why)} |\n" for case in CASES
    )
    return _INTRODUCTION.format(count=len(CASES), **counts) + rows


def _outcome(case: Case) -> str:
    found = f"`{case.error[1]}`" if case.error else "accepted"
    if isinstance(case.formal, str):
        return f"{found}; cvm-1: `{case.formal}`"
    return f"{found}; cvm-1: {list(case.formal)}" if case.formal is not None else found


def _cell(text: str) -> str:
    return text.replace("|", "&#124;")


if __name__ == "__main__":
    PAGE.write_text(markdown(), "utf-8")
