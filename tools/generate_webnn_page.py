"""Write docs/webnn.md from the declarations of the builder and the record of tools/webnn_conformance.py.

With --check, fail when it is stale.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cvm.frontends.webnn.page import markdown
from tools.pages import write_or_check

DOCS = Path(__file__).parents[1] / "docs"
PAGE, RECORD = DOCS / "webnn.md", DOCS / "webnn-conformance.json"


def page() -> str:
    """The text of the page."""
    return markdown(json.loads(RECORD.read_text(encoding="utf-8")))


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __file__, __doc__))
