"""Every fenced block of README.md and docs/ runs, or says on the page why it does not."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from tools import run_pages
from tools.run_pages import PAGES, ROOT, Part, parts

RUN = [
    pytest.param(page, part, id=f"{page.name}-{part.name}", marks=[pytest.mark.slow])
    for page in PAGES
    if page.name not in ("README.md", "cli.md")
    for part in parts(page.read_text("utf-8"))
    if run_pages.runs(part)
]
COMMANDS = [
    pytest.param(part, id=part.name, marks=[pytest.mark.long] if part.name == "cvm-bench" else [])
    for part in parts((ROOT / "docs" / "cli.md").read_text("utf-8"))
    if run_pages.runs(part)
]
RESNET = ROOT.parent / "shared" / "gallery" / "mlperf_tiny" / "resnet8_quant.tflite"


def prints_what_it_says(part: Part, name: str) -> None:
    if part.missing:
        pytest.skip(f"{', '.join(part.missing)} is not installed")
    assert run_pages.difference(part.text, run_pages.renewed(part), name) == ""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_runs_or_says_why_not(page: Path) -> None:
    assert list(run_pages.untried(page.read_text("utf-8"))) == []


@pytest.mark.sweep
@pytest.mark.parametrize(("page", "part"), RUN)
def test_the_blocks_of_a_page_run_and_print_what_it_says(page: Path, part: Part) -> None:
    prints_what_it_says(part, page.name)


@pytest.mark.sweep
@pytest.mark.parametrize("part", COMMANDS)
def test_the_examples_of_a_command_run(part: Part) -> None:
    prints_what_it_says(part, "cli.md")


@pytest.mark.slow
@pytest.mark.skipif(not RESNET.is_file(), reason="../shared/gallery is not there")
def test_the_three_commands_for_tflite_take_a_network_of_others(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "bring-your-model.md").read_text("utf-8")
    (part,) = (part for part in parts(page) if part.name == "tflite-quantised")
    (block,) = run_pages.BLOCK.finditer(part.text)
    commands = block["body"].splitlines()
    assert len(commands) == 3
    shutil.copy(RESNET, tmp_path / "model.tflite")
    codes = np.random.default_rng(0).integers(-128, 128, (1, 32, 32, 3)).astype(np.int8)
    for array, words in ((codes.astype(np.float32) + 128, ""), (codes, " --codes")):
        np.save(tmp_path / "photo.npy", array)
        given = [commands[0], *(command + words for command in commands[1:])]
        printed = [run_pages.printed(["bash", "-c", command], tmp_path) for command in given]
        assert "REPRODUCED at level outputs" in printed[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_test_that_a_reason_names_exists(page: Path) -> None:
    for why in run_pages.REASONS.findall(page.read_text("utf-8")):
        for path in re.findall(r"\b(?:tests|tools)/[\w/]+\.py", why):
            assert (ROOT / path).is_file(), path


def test_a_block_without_a_reason_is_found() -> None:
    page = "```text\nwords\n```\n\n<!-- not run: words -->\n```text\nwords\n```\n\n```python\n1\n```\n\n```text\n```\n"
    assert list(run_pages.untried(page)) == ["```text: words"]
    assert list(run_pages.untried("   ```\n   drawing\n   ```\n")) == ["```:    drawing"]


def test_a_block_that_fails_or_prints_something_else_is_found() -> None:
    wrong = ("cvm inspect missing.cvm", "true # exits with 1")
    for text in ("```python\n1 / 0\n```\n", *(f"```sh\n{command}\n```\n" for command in wrong)):
        with pytest.raises(RuntimeError, match="ended with"):
            run_pages.expected(text)
    page = "```console\n$ echo 1\n2\n```\n"
    assert run_pages.difference(page, run_pages.expected(page)) != ""
    right = "1. list\n\n   ```console\n   $ echo 1 # exits with 0\n   1\n   ```\n"
    assert run_pages.expected(right) == right


def test_a_part_has_a_folder_of_its_own_and_says_what_it_needs() -> None:
    page = "```sh\ntouch a\n```\n<!-- files: -->\n```sh\ntest ! -e a\n```\n<!-- files: -->\n<!-- needs: nowhere -->\n"
    assert run_pages.expected(page + "```sh\nfalse\n```\n") == page + "```sh\nfalse\n```\n"
    assert [part.missing for part in parts(page)] == [[], [], ["nowhere"]]
    with pytest.raises(ValueError, match="expected program, nnef"):
        run_pages.expected("<!-- files: secret -->\n```sh\ntrue\n```\n")
