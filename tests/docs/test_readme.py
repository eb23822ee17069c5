import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cvm.cli.application import COMMANDS
from cvm.cli.declaration import Group
from tools import generate_pages, run_pages
from tools.generated_pages import cli, legalize, openvx, optimize, webnn

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_every_code_block_runs_and_prints_what_the_page_says():
    assert run_pages.difference(PAGE, run_pages.expected(PAGE)) == ""


def test_a_wrong_output_or_table_would_be_found():
    for right, wrong in (("AGREE ", "DIFFER "), ("`conv2d` ", ""), ("| 130 |", "| 131 |")):
        assert right in PAGE
        assert run_pages.difference(PAGE.replace(right, wrong, 1), PAGE) != ""
    assert run_pages.difference(PAGE, re.sub(r"in \d+\.\d+ s", "in 123.4 s", PAGE)) == ""
    assert run_pages.difference(PAGE, re.sub(r"salt [0-9a-f]{32}", f"salt {'01' * 16}", PAGE)) == ""
    assert run_pages.difference(PAGE, PAGE.replace(" of 28 of 28 tensors", " of 27 of 28 tensors", 1)) != ""


def test_every_link_of_the_page_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / target).is_file(), target


def test_every_make_target_of_the_page_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", PAGE)) <= targets


@pytest.mark.parametrize("name", generate_pages.NAMES)
def test_a_generated_page_is_what_the_declarations_say(name: str) -> None:
    page = generate_pages.page(name)
    assert page.fresh()
    assert page.heading == "" or page.written().count(page.heading) == 1


def test_what_is_not_what_the_declarations_say_is_stale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.generated_pages.page.DOCS", tmp_path)
    for made, right, wrong in ((legalize.PAGE, "half_up", "half_down"), (optimize.PAGE, "common", "uncommon")):
        said = made.text()
        page = replace(made, text=partial(str, said))
        text = said + page.heading
        page.file.write_text(text + "numbers\n", encoding="utf-8")
        assert page.fresh()
        page.file.write_text(text.replace(right, wrong, 1), encoding="utf-8")
        assert not page.fresh()
        page.file.write_text(text.replace(right, wrong, 1) + "numbers\n", encoding="utf-8")
        page.write()
        assert page.written() == text + "numbers\n"


def test_the_pages_name_what_they_must():
    for name, entry in COMMANDS.items():
        for sub in entry.commands if isinstance(entry, Group) else [""]:
            assert f"## cvm {name} {sub}".strip() in cli.PAGE.text()
    assert "| `conv2d` | 8.9.10 | real |" in webnn.PAGE.text()


def test_the_example_of_the_page_of_openvx_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", openvx.PAGE.text(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["maps"].to_float()[0, 4, 4] == 3.375
    assert found["node"].skip_x == 1
    assert (tmp_path / "graph.cvm").is_file()


def test_the_example_of_the_page_of_webnn_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    codes = re.findall(r"```python\n(.*?)```", webnn.PAGE.text(), re.DOTALL)
    assert len(codes) == 2
    integers: dict[str, Any] = {}
    floats: dict[str, Any] = {}
    exec(codes[0], integers)
    feeds = {"x": integers["np"].array([[-3, 5, 100, -128]], "int8")}
    assert integers["context"].compute(integers["graph"], feeds)["y"].tolist() == [[0, 5, 100, 0]]
    exec(codes[1], floats)
    assert floats["graph"].quantization_errors["y"].max_error < 0.01


def test_the_example_of_the_page_of_receipts_gives_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "cvm").symlink_to(ROOT / "cvm")
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "receipts.md").read_text(encoding="utf-8")
    ((code, printed),) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", page, re.DOTALL)
    exec(code, {})
    assert capsys.readouterr().out == printed


def test_decisions_are_numbered_by_section() -> None:
    page = (ROOT / "docs" / "decisions.md").read_text(encoding="utf-8")
    letters = set()
    for section in page.split("\n## ")[1:]:
        numbers = re.findall(r"^\* ([A-Z]+)(\d+)\. ", section, re.MULTILINE)
        assert len(numbers) == len(re.findall(r"^\* ", section, re.MULTILINE)), section[:40]
        assert [int(number) for _, number in numbers] == list(range(1, len(numbers) + 1)), section[:40]
        (found,) = {one for one, _ in numbers}
        assert found not in letters
        letters.add(found)
