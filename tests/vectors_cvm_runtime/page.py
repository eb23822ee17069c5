"""The page ``docs/cvm-runtime-differences.md``: the tables of `differences`, for readers.

python -m tests.vectors_cvm_runtime.page        # writes it
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from .differences import AGREED, PRECISIONS, VERDICTS, Difference
from .records import Effect

PAGE = Path(__file__).parents[2] / "docs" / "cvm-runtime-differences.md"

_WORDS: Mapping[Effect, str] = {
    "tighter": "smaller here",
    "wider": "larger here",
    "admitted": "admitted here only",
    "refused": "refused here only",
    "shape": "another shape here",
}

_INTRODUCTION = """\
# Differences from cvm-runtime in precisions and verdicts

Written from `tests/vectors_cvm_runtime/differences.py` by `python -m tests.vectors_cvm_runtime.page`; do not edit.

The C++ library CortexFoundation/cvm-runtime was asked about {total} single uses of its ops: does it accept the
attributes, shapes and precisions, and which precision does it derive for the result? INTp stands for a tensor whose
elements lie in [-(2^(p-1) - 1), 2^(p-1) - 1]. The same uses were given to the op declarations of cvm, with inputs of
these intervals. Every use that is judged differently belongs to exactly one class below. Labels like E14 name
entries of `formal/ERRATA.md`.

The tests check the classes, the counts, the examples and this page; and, for every record of precisions, that the
library's result follows its rule as `tests/vectors_cvm_runtime/precisions.py` states it, and that the precision
that cvm derives is the least sound one. So where cvm derives a larger precision, the library's is unsound: a value
occurs that it excludes.
"""


def markdown() -> str:
    """The page."""
    total = sum(_total(table) + sum(AGREED[file].values()) for file, table in _TABLES.items())
    lines = [_INTRODUCTION.format(total=total)]
    for file, (title, what) in _TITLES.items():
        lines += [f"## {title}", "", *_summary(file, what), "", *_rows(_TABLES[file]), ""]
    return "\n".join(lines)


_TABLES: Mapping[str, Sequence[Difference]] = {"precision_rules.json": PRECISIONS, "rejections.json": VERDICTS}
_TITLES: Mapping[str, tuple[str, str]] = {
    "precision_rules.json": ("Precisions", "precision"),
    "rejections.json": ("Attributes and shapes", "shape"),
}


def _total(table: Sequence[Difference]) -> int:
    return sum(sum(item.counts.values()) for item in table)


def _summary(file: str, what: str) -> Iterator[str]:
    both, different = AGREED[file], _total(_TABLES[file])
    yield (
        f"{sum(both.values()) + different} records: {both['accepted']} accepted by both with the same {what}, "
        f"{both['refused']} refused by both, {different} judged differently:"
    )


def _rows(table: Sequence[Difference]) -> Iterator[str]:
    yield "| class | records | reason | example |"
    yield "|---|---|---|---|"
    for item in table:
        counts = "; ".join(f"{count} {_WORDS[effect]}" for effect, count in item.counts.items())
        yield f"| {item.name} | {counts} | {item.reason} | {item.example} |"


if __name__ == "__main__":
    PAGE.write_text(markdown(), encoding="utf-8")
