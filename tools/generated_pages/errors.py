"""The page ``docs/errors.md``: every code that an error can have, from the source, with what to do about it."""

from __future__ import annotations

from itertools import groupby

from cvm import errors
from tools.error_advice import ADVICE, FAMILIES
from tools.error_codes import Raised, raised
from tools.generated_pages.page import Page

__all__ = ["PAGE", "advice", "family", "page"]

INTRODUCTION = """\
# Error codes

Generated from the source of `cvm` by `tools/generate_pages.py`; do not edit.

Every error that a user can cause has a class of `cvm.errors`, or one derived from it. It has a code, which
does not change once it is released, and a message, whose words may change. It also has a location: file, line and
column, tensor and op, as far as they are known. The command line prints the message and the code in brackets; with
`--json` it prints `{"error": {"class", "code", "message", "location"}}`. From Python, `error.code` and
`error.location` give the same, and `error.errors` lists independent errors that were found together.

The class says why an error is raised:

| class | exit code | |
|---|---|---|
"""

NOTES = """
The tables list all codes, by the part before the first dot. `<name>` in a code and `{name}` in a message stand for
words that only a run knows. If one code has several messages, the table shows one of them. A code that is not here is a
defect: please report it.
"""


def page() -> str:
    """The whole page."""
    kinds = sorted({item.kind for item in raised()} & set(errors.__all__))
    lines = [INTRODUCTION]
    for kind in kinds:
        found = getattr(errors, kind)
        words = " ".join((found.__doc__ or "").split())
        lines.append(f"| {kind} | {found.exit_code} | {words} |\n")
    lines += ["| Usage | 2 | The command line itself is wrong. |\n"]
    lines += ["| Undelivered | 74 | Stdout did not take all of a result. |\n", NOTES]
    for name, items in groupby(sorted(raised(), key=lambda item: (family(item), item)), key=family):
        if name not in FAMILIES:
            raise KeyError(f"tools/error_advice.py has no sentence for the codes {name}..")
        lines += [
            f"\n## {name}\n\n{FAMILIES[name]}\n\n| code | class | what it says | what to do |\n|---|---|---|---|\n"
        ]
        lines += [f"| `{item.code}` | {item.kind} | {cell(item.message)} | {advice(item.code)} |\n" for item in items]
    return "".join(lines)


def family(item: Raised) -> str:
    """The part of a code before the first dot."""
    return "any format" if item.code.startswith("<") else item.code.partition(".")[0]


def advice(code: str) -> str:
    """What to do about a code: the sentence for the longest beginning of the code that has a sentence.

    Raises:
        KeyError: no beginning of the code has a sentence.

    """
    beginning = max((one for one in ADVICE if code.startswith(one)), key=len, default=None)
    if beginning is None:
        raise KeyError(f"tools/error_advice.py does not say what to do about {code}")
    return ADVICE[beginning]


def cell(message: str) -> str:
    """A message as a cell of a table."""
    text = " ".join(message.split()).removeprefix("before byte {offset}: ")
    for sign, shown in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ("|", "\\|"), ("*", "\\*")):
        text = text.replace(sign, shown)
    return text or "the message of what was found"


PAGE = Page("errors.md", page)
