"""All shipped vectors on every machine that this processor can be."""

from __future__ import annotations

import pytest

from cvm.vectors import ExecutorRunner, check
from tests.executors.native.comparison import NAMES
from tests.spec_vectors.shipped import FOLDER, files


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_machine_passes_all_vectors(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_MACHINE", name)
    report = check(FOLDER, ExecutorRunner("native"))
    assert report.first is None
    assert report.ok
    assert sum(tally.passed for tally in report.tallies) == sum(len(file.cases) for file in files().values())
