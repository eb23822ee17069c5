"""Count the lines of code that docs/trust.md asks readers to believe, and write the counts into its tables.

    python tools/count_trusted.py [--check]

A row begins with file patterns in backquotes, optionally followed by ``without`` and more patterns; its second cell is
the number of lines. The row ``together`` is the sum of its table, which its last cell limits. With ``--check`` nothing
is written: a wrong count, a pattern without a file, and a sum above its limit are printed, and the exit code is 1.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "trust.md"

_ROW = re.compile(r"\| (?P<files>`.*|together) \| (?P<lines>[\d,]+) \| (?P<what>.*) \|")


def lines_of(root: Path, files: str) -> int:
    """The lines of the files that a first cell names. Raises ValueError for a pattern that matches none."""
    named, _, others = files.partition(" without ")
    left_out = _matched(root, others)
    return sum(len(path.read_bytes().splitlines()) for path in _matched(root, named) - left_out)


def _matched(root: Path, patterns: str) -> set[Path]:
    found: set[Path] = set()
    for pattern in re.findall(r"`([^`]+)`", patterns):
        matches = set(root.glob(pattern))
        if not matches:
            raise ValueError(f"{pattern} matches no file")
        found |= matches
    return found


def counted(root: Path, text: str) -> tuple[str, list[str]]:
    """The page with correct counts, and a message for each sum above its limit."""
    total, made, above = 0, [], []
    for line in text.splitlines():
        row = _ROW.fullmatch(line)
        if row is None:
            total = total if line.startswith("|") else 0
            made.append(line)
            continue
        if row["files"] == "together":
            count = total
            limit = int(re.findall(r"[\d,]+", row["what"])[0].replace(",", ""))
            above += [f"{count} lines are trusted, at most {limit} may be"] if count > limit else []
        else:
            count = lines_of(root, row["files"])
            total += count
        made.append(f"| {row['files']} | {count:,} | {row['what']} |")
    return "\n".join(made) + "\n", above


def main(arguments: list[str]) -> int:
    """The command line."""
    text = PAGE.read_text("utf-8")
    page, found = counted(ROOT, text)
    if arguments == ["--check"]:
        found += [f"{PAGE}: {new}" for old, new in zip(text.splitlines(), page.splitlines(), strict=True) if old != new]
    else:
        PAGE.write_text(page, "utf-8")
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
