"""What the site needs besides its pages: a menu that follows docs/index.md, titles for links, words for other files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["menu", "on_config", "on_files", "on_page_markdown"]

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s]+)\)")
LINE = re.compile(r"^\* \[[^\]]+\]\(([\w-]+\.md)\)", re.MULTILINE)
NAMED = re.compile(r"\[([\w-]+\.md)\]\((\1(?:#[\w-]+)?)\)")
"""A link whose text is the name of the page, which a reader of the folder types and a reader of the site does not."""


def menu(index: str) -> list[Any]:
    """The sections of docs/index.md with their pages."""
    sections = index.split("\n## ")[1:]
    return ["index.md", *({part.partition("\n")[0]: LINE.findall(part)} for part in sections)]


def title(page: Path) -> str:
    """The first heading of a page."""
    return page.read_text("utf-8").partition("\n")[0].removeprefix("# ")


def on_config(config: Any) -> Any:
    """Give the site its menu."""
    with open(f"{config['docs_dir']}/index.md", encoding="utf-8") as file:
        config["nav"] = menu(file.read())
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the style sheet of this folder."""
    from mkdocs.structure.files import File

    content = Path(config["config_file_path"]).with_name("extra.css").read_text("utf-8")
    files.append(File.generated(config, "extra.css", content=content))
    return files


def on_page_markdown(markdown: str, config: Any, **_: Any) -> str:
    """Call pages by their titles, and name files of the repository outside of docs/ instead of linking to them."""
    folder = Path(config["docs_dir"])

    def named(link: re.Match[str]) -> str:
        page = folder / link[1]
        return f"[{title(page)}]({link[2]})" if page.is_file() else link[0]

    return NAMED.sub(named, OUTSIDE.sub(r"\1 (`\2`)", markdown))
