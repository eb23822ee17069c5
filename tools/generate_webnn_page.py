"""Write docs/webnn.md from the declarations of the builder and the record of tools/webnn_conformance.py.

With --check, fail when it is stale.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from cvm.frontends.webnn.page import markdown

DOCS = Path(__file__).parents[1] / "docs"
PAGE, RECORD = DOCS / "webnn.md", DOCS / "webnn-conformance.json"


def page() -> str:
    """The text of the page."""
    return markdown(json.loads(RECORD.read_text(encoding="utf-8")))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    if PAGE.is_file() and PAGE.read_text(encoding="utf-8") == page():
        return 0
    print(f"{PAGE} is stale: run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
