"""Exported C of random programs on machines of other word sizes and byte orders, and without an operating system."""

from __future__ import annotations

import pytest

from tools.c_targets import TARGETS
from tools.check_c import main

OTHERS = [name for name in TARGETS if name not in ("gcc", "clang")]


@pytest.mark.long
@pytest.mark.parametrize("name", OTHERS)
def test_random_programs_agree(name, capsys):
    if missing := TARGETS[name].missing():
        pytest.skip(missing)
    arguments = ["random", "--seed", "5", "--count", "3", "--batch", "1", "--target", name, "--options=-O2"]
    assert main(arguments) == 0
    assert " 0 differences" in capsys.readouterr().out


def test_a_target_without_its_compiler_is_skipped_by_name(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert main(["random", "--count", "1", "--target", "s390x"]) == 2
    assert "s390x: skipped, no s390x-linux-gnu-gcc" in capsys.readouterr().out
