"""What the tools do that generate a page of docs: write it, or with --check say that it is stale."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

__all__ = ["write_or_check"]


def write_or_check(page: Path, text: Callable[[], str], tool: str, description: str | None) -> int:
    """The command line of the tool in the file ``tool``, which generates ``page``; returns its exit code."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        page.write_text(text(), encoding="utf-8")
        return 0
    if page.is_file() and page.read_text(encoding="utf-8") == text():
        return 0
    print(f"{page} is stale: run {Path(tool).name}", file=sys.stderr)
    return 1
