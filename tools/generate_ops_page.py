"""Write docs/ops.md from the op declarations; with --check, fail when the page is stale instead."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cvm.ops.catalogue import markdown
from tools.pages import write_or_check

PAGE = Path(__file__).parents[1] / "docs" / "ops.md"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, markdown, __file__, __doc__))
