"""Write docs/nnef-operations.md from the claims beside the lowering rules; with --check, fail when it is stale."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from cvm.operations import markdown
from tools.pages import write_or_check

PAGE = Path(__file__).parents[1] / "docs" / "nnef-operations.md"


if __name__ == "__main__":
    sys.exit(write_or_check(PAGE, markdown, __file__, __doc__))
