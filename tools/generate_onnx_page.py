"""Write docs/onnx.md from the declarations of its operators; with --check, fail when it is stale.

Its last section is kept: `python -m tools.onnx_networks.report --write` writes that one.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cvm.frontends.onnx.page import MEASURED, markdown
from tools.pages import write_or_check

PAGE = Path(__file__).parents[1] / "docs" / "onnx.md"


def page() -> str:
    """The text of the page."""
    found = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    return markdown(found.partition(MEASURED)[2])


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, page, __file__, __doc__))
