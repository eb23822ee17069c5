"""The site is built of all pages without a warning, and a link that leads nowhere is one."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tools.site import hooks

ROOT = Path(__file__).parents[2]
needs_mkdocs = pytest.mark.skipif(
    any(find_spec(name) is None for name in ("mkdocs", "material")), reason="mkdocs is not installed (extra docs)"
)


def build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "mkdocs", "build"]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def copied(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(ROOT / "tools" / "site", tmp_path / "tools" / "site")
    return tmp_path / "tools" / "site"


@needs_mkdocs
@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = copied(tmp_path)
    done = build(site)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stdout + done.stderr
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    page = (tmp_path / "build" / "site" / "index.html").read_text("utf-8")
    assert 'href="extra.css"' in page
    assert (tmp_path / "build" / "site" / "extra.css").read_text("utf-8") == (site / "extra.css").read_text("utf-8")
    assert 'href="bring-your-model.html">Bring your model</a>: three commands' in page
    assert pages <= {path.stem for path in (tmp_path / "build" / "site").glob("*.html")}


@needs_mkdocs
@pytest.mark.slow
@pytest.mark.parametrize("link", ["nowhere.md", "index.md#nothing"])
def test_a_link_that_leads_nowhere_is_found(tmp_path: Path, link: str) -> None:
    site = copied(tmp_path)
    with (tmp_path / "docs" / "glossary.md").open("a", encoding="utf-8") as file:
        file.write(f"\n[word]({link})\n")
    done = build(site)
    assert done.returncode != 0
    assert link.partition("#")[2] or link in done.stderr


def test_the_menu_is_that_of_the_index() -> None:
    first, *sections = hooks.menu((ROOT / "docs" / "index.md").read_text("utf-8"))
    assert first == "index.md"
    named = [page for section in sections for pages in section.values() for page in pages]
    assert set(named) == {path.name for path in (ROOT / "docs").glob("*.md")} - {"index.md"}


def test_links_have_the_titles_of_pages_and_name_files_outside_of_them() -> None:
    text = (
        "[errata](../formal/ERRATA.md), [ops](ops.md), [ops.md](ops.md), [errors.md](errors.md#input), [no.md](no.md)"
    )
    shown = hooks.on_page_markdown(text, {"docs_dir": str(ROOT / "docs")})
    assert shown == (
        "errata (`formal/ERRATA.md`), [ops](ops.md), [Ops](ops.md), [Error codes](errors.md#input), [no.md](no.md)"
    )


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_file_outside_of_the_pages_that_a_page_links_to_exists(page: Path) -> None:
    for _, target in hooks.OUTSIDE.findall(page.read_text("utf-8")):
        assert (ROOT / target.partition("#")[0]).exists(), target
