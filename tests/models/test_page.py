"""docs/models.md says what the networks give today."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tools import compare_models
from tools.compare_models import DIGITS, MODELS, PAGE, REAL, Accuracy, Difference

needs_shared = pytest.mark.skipif(not MODELS.is_dir(), reason="../shared/models is not there")


@pytest.mark.slow
@needs_shared
def test_the_page_has_the_tables_of_today() -> None:
    assert PAGE.read_text(encoding="utf-8") == compare_models.page(MODELS)


def test_the_page_has_a_row_for_every_network() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in page for name in (*REAL, *DIGITS))


@needs_shared
@pytest.mark.parametrize("name", REAL)
def test_all_codes_of_a_real_network_are_exact_and_some_of_tflite_s_are_not(name: str) -> None:
    found = compare_models.real(MODELS, name)
    assert (found["cvm"].differing, found["cvm"].steps, found["cvm"].classes) == (0, 0, 0)
    exact = name == "micro_speech"
    assert all((found[f"TFLite {kernels}"].differing == 0) == exact for kernels in ("optimised", "reference"))


RIGHT = {"lenet_digits": 249, "lenet_digits_qdat": 249, "lenet_digits_logw": 239, "mobilenet_digits": 248,
         "mlp_cancer": 145, "rnn_digits": 243}  # fmt: skip
"""Inputs whose label is the first of the largest output codes."""


@needs_shared
@pytest.mark.parametrize("name", DIGITS)
def test_so_many_inputs_are_classified_right(name: str) -> None:
    found = compare_models.accuracy(MODELS, name)
    assert isinstance(found, Accuracy)
    assert found.right == RIGHT[name]
    assert found.inputs == (150 if name == "mlp_cancer" else 250)


def test_differences_are_counted() -> None:
    found = np.array([[5, 1, 0], [2, 3, 3]])
    exact = np.array([[5, 1, 4], [4, 3, 0]])
    assert Difference.between(found, exact) == Difference(6, 3, 4, 2, 1)
    assert Difference.between(found, exact).cells() == ("50.0 %", "4", "1 of 2")


def test_a_folder_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["compare_models.py", str(Path("absent"))])
    assert compare_models.main() == 2
    assert "absent is not there" in capsys.readouterr().err
