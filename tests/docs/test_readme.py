import re
from pathlib import Path
from typing import Any

import pytest

from cvm.cli.application import COMMANDS
from cvm.cli.declaration import Group
from tools import (
    generate_cli_page,
    generate_legalize_page,
    generate_nnef_operations_page,
    generate_openvx_page,
    generate_optimize_page,
    generate_webnn_page,
    run_readme,
)

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "README.md").read_text(encoding="utf-8")


def test_every_code_block_runs_and_prints_what_the_page_says():
    assert run_readme.difference(PAGE, run_readme.expected(PAGE)) == ""


def test_a_wrong_output_or_table_would_be_found():
    for right, wrong in (("AGREE ", "DIFFER "), ("`conv2d` ", ""), ("| 130 |", "| 131 |")):
        assert right in PAGE
        assert run_readme.difference(PAGE.replace(right, wrong, 1), PAGE) != ""
    assert run_readme.difference(PAGE, re.sub(r"in \d+\.\d+ s", "in 123.4 s", PAGE)) == ""
    assert run_readme.difference(PAGE, re.sub(r"salt [0-9a-f]{32}", f"salt {'01' * 16}", PAGE)) == ""
    assert run_readme.difference(PAGE, PAGE.replace(" of 28 of 28 tensors", " of 27 of 28 tensors", 1)) != ""


def test_every_link_of_the_page_leads_somewhere():
    for target in re.findall(r"\]\(([^)]+)\)", PAGE):
        assert (ROOT / target).is_file(), target


def test_every_make_target_of_the_page_exists():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"`make ([a-z-]+)`", PAGE)) <= targets


def test_the_page_of_the_command_line_is_what_the_declarations_say():
    assert (ROOT / "docs" / "cli.md").read_text(encoding="utf-8") == generate_cli_page.page()
    for name, entry in COMMANDS.items():
        for sub in entry.commands if isinstance(entry, Group) else [""]:
            assert f"## cvm {name} {sub}".strip() in generate_cli_page.page()


def test_the_page_of_nnef_operations_is_what_the_rules_claim():
    page = generate_nnef_operations_page.PAGE.read_text(encoding="utf-8")
    assert page == generate_nnef_operations_page.markdown()


def test_the_page_of_webnn_is_what_the_declarations_say() -> None:
    assert generate_webnn_page.PAGE.read_text(encoding="utf-8") == generate_webnn_page.page()
    assert "| `conv2d` | 8.9.10 | real |" in generate_webnn_page.page()


def test_the_page_of_openvx_is_what_the_declarations_say() -> None:
    page = generate_openvx_page.PAGE.read_text(encoding="utf-8")
    assert page == generate_openvx_page.markdown()


def test_the_example_of_the_page_of_openvx_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", generate_openvx_page.markdown(), re.DOTALL)
    found: dict[str, Any] = {}
    exec(code, found)
    assert found["maps"].to_float()[0, 4, 4] == 3.375
    assert found["node"].skip_x == 1
    assert (tmp_path / "graph.cvm").is_file()


def test_the_example_of_the_page_of_webnn_gives_what_it_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", generate_webnn_page.page(), re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    feeds = {"x": names["np"].array([[-3, 5, 100, -128]], "int8")}
    assert names["context"].compute(names["graph"], feeds)["y"].tolist() == [[0, 5, 100, 0]]


def test_the_page_of_legalisation_has_the_counts_that_it_has_now():
    page = (ROOT / "docs" / "legalize.md").read_text(encoding="utf-8")
    assert page.startswith(generate_legalize_page.checked())
    assert not page.replace("half_up", "half_down", 1).startswith(generate_legalize_page.checked())


def test_the_words_of_the_page_on_optimisation_are_those_of_the_passes() -> None:
    page = (ROOT / "docs" / "optimize.md").read_text(encoding="utf-8")
    assert page.startswith(generate_optimize_page.checked())
    assert not page.replace("common", "uncommon", 1).startswith(generate_optimize_page.checked())
    assert page.count(generate_optimize_page.TABLES) == 1
