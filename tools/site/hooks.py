"""Hooks of the site: a menu that follows docs/index.md, and text in place of links to files outside docs/."""

from __future__ import annotations

import re
from typing import Any

__all__ = ["menu", "on_config", "on_page_markdown"]

OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./([^)\s]+)\)")
LINE = re.compile(r"^\* \[[^\]]+\]\(([\w-]+\.md)\)", re.MULTILINE)


def menu(index: str) -> list[Any]:
    """The sections of docs/index.md with their pages."""
    sections = index.split("\n## ")[1:]
    return ["index.md", *({part.partition("\n")[0]: LINE.findall(part)} for part in sections)]


def on_config(config: Any) -> Any:
    """Give the site its menu."""
    with open(f"{config['docs_dir']}/index.md", encoding="utf-8") as file:
        config["nav"] = menu(file.read())
    return config


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace links to files of the repository outside docs/ by their names."""
    return OUTSIDE.sub(r"\1 (`\2`)", markdown)
