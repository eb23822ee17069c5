"""The vectors' protocol spoken by exported C: values are right, what must be refused is refused before the export."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from cvm.vectors import CommandRunner
from cvm.vectors.check import compare, files
from tools.c_targets import TARGETS

ROOT = Path(__file__).parents[3]
VECTORS = ROOT / "spec_vectors"

pytestmark = pytest.mark.skipif(bool(TARGETS["gcc"].missing()), reason="gcc is not installed")


def asked(names: set[str], every: int) -> tuple[int, list[str]]:
    """How many cases of these files were asked, and the differences; each ``every``-th case of a verdict is asked."""
    wrong, count = [], 0
    with CommandRunner(f"{sys.executable} -m tools.c_vectors --options=-O0") as runner:
        for name, file in files(VECTORS):
            if name in names:
                for case in file.cases[::every]:
                    ask = runner.program if hasattr(case, "program") else runner.op
                    difference = compare(case, ask(case), name)
                    count += 1
                    if difference is not None:
                        wrong.append(str(difference))
    return count, wrong


def test_programs_agree_and_refused_ones_are_never_exported(monkeypatch):
    monkeypatch.chdir(ROOT)
    count, wrong = asked({"programs/refused_invalid", "programs/refused_limits", "programs/refused_malformed"}, 6)
    assert wrong == []
    assert count == 10 + 2 + 9
    count, wrong = asked({"programs/direct", "programs/delay_line", "programs/constants_only"}, 1)
    assert wrong == []
    assert count == 3


def test_ops_agree(monkeypatch):
    monkeypatch.chdir(ROOT)
    count, wrong = asked({"clip", "conv2d", "requantize", "cvm_cilp"}, 40)
    assert wrong == []
    assert count > 8
