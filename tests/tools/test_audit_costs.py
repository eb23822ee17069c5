"""What evidence costs: the tool runs, and counts the bytes of a trace."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from cvm.audit import trace_bytes
from tests.audit.examples import subject

ROOT = Path(__file__).parents[2]


def test_the_tool_measures_a_program(tmp_path):
    program = subject("counter").verified.program
    program.save(tmp_path / "m.cvm")
    result = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "audit_costs.py"), str(tmp_path / "m.cvm"), "--repeat", "2"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{len(program.nodes)} ops, {trace_bytes(program)} bytes of trace" in result.stdout
    assert len(re.findall(r"^.* [0-9.]+ ms, processors +[0-9.]+ ms$", result.stdout, re.MULTILINE)) == 7
    assert len(re.findall(r"share \d+%$", result.stdout, re.MULTILINE)) == 4
