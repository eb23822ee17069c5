"""The command line for the tests of this folder, in this process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.cli import main
from tests.api import small


@dataclass(frozen=True)
class Outcome:
    """What a command returned and printed; no traceback, ever."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        assert self.out.count("\n") == 1, "one document on one line"
        document = json.loads(self.out)
        assert document["version"] == 1
        return document


@pytest.fixture
def cvm(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        code = main([str(argument) for argument in arguments])
        outcome = Outcome(code, *capfd.readouterr())
        assert "Traceback" not in outcome.out + outcome.err
        return outcome

    return run


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder, made the working one, with programs and inputs."""
    monkeypatch.chdir(tmp_path)
    for name in ("negated", "channels", "pair", "counter"):
        getattr(small, name)().save(f"{name}.cvm")
    codes = np.arange(12).reshape(2, 2, 3)
    np.save("codes.npy", codes)
    np.save("reals.npy", codes / 255)
    np.save("steps.npy", np.array([[[1, 2]], [[3, 4]]]))
    (tmp_path / "inputs.npz").write_bytes(npz_bytes({"a": np.zeros((1, 4)), "b": np.arange(4)}))
    (tmp_path / "image.npz").write_bytes(npz_bytes({"image": codes}))
    (tmp_path / "other.npz").write_bytes(npz_bytes({"image": codes, "label": np.zeros(2)}))
    (tmp_path / "text.txt").write_text("hello\n")
    return tmp_path
