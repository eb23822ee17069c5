"""Write docs/openvx.md from the declarations of the front end; with --check, fail when it is stale."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cvm.frontends.openvx.page import markdown

PAGE = Path(__file__).parents[1] / "docs" / "openvx.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        PAGE.write_text(markdown(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == markdown():
        return 0
    print(f"{PAGE} is stale: run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
