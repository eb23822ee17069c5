"""The page of the verifier: its limits are those of the code, and every code of the verifier is on it."""

from __future__ import annotations

import re
from pathlib import Path

from cvm.limits import PROFILES
from tests.spec_vectors.shipped import program_cases, verdict_cases

PAGE = (Path(__file__).parents[2] / "docs" / "verifier.md").read_text("utf-8")


def number(text: str) -> int:
    """A number as the page writes it."""
    base, _, power = text.replace(",", "").partition("^")
    return int(base) ** int(power or 1)


def test_the_limits_are_those_of_the_profiles() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ([\d,^]+) \| ([\d,^]+) \| .+ \|$", PAGE, flags=re.MULTILINE)
    assert [name for name, *_ in rows] == ["program_bytes", "entries", "elements", "constants", "name_bytes", "work"]
    for name, *bounds in rows:
        assert [number(bound) for bound in bounds] == [getattr(PROFILES[of], name) for of in ("default", "large")]


def test_every_code_of_a_refused_program_is_on_the_page() -> None:
    codes = {case.code for case in (*verdict_cases(), *program_cases()) if case.code}
    codes = {code for code in codes if not re.fullmatch(r"ops\.\w+\.(C\d+|arity|attribute\.\w+)", code)}
    assert codes <= set(re.findall(r"`([a-z_.]+)`", PAGE))
    assert {"`ops.<op>.C<n>`", "`ops.<op>.arity`", "`ops.<op>.attribute.<name>`"} <= set(re.findall(r"`[^`]+`", PAGE))
