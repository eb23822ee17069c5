"""``cvm export --format c``."""

from __future__ import annotations

from pathlib import Path

from tests.api import small


def test_the_command_writes_the_files(cvm, tmp_path):
    small.negated().save(tmp_path / "m.cvm")
    outcome = cvm("export", tmp_path / "m.cvm", "--format", "c", "-o", tmp_path / "out", "--name", "net", "--json")
    assert outcome.code == 0
    document = outcome.document
    assert [Path(item["path"]).name for item in document["files"]] == ["net.h", "net.c"]
    assert document["c"]["bytes"] == {"arena": 12, "state": 0, "constants": 0}
    people = cvm("export", tmp_path / "m.cvm", "--format", "c", "-o", tmp_path / "out")
    assert "memory  12 bytes for a run, 0 bytes of state\n" in people.out
    wrong = cvm("export", tmp_path / "m.cvm", "--format", "cvm-runtime", "-o", tmp_path / "o", "--trace")
    assert (wrong.code, "--format c" in wrong.err) == (2, True)
