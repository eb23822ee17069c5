"""Write docs/onnx.md from the declarations of its operators; with --check, fail when it is stale.

Its last section is kept: `python -m tools.onnx_networks.report --write` writes that one.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from cvm.frontends.onnx.page import MEASURED, markdown

PAGE = Path(__file__).parents[1] / "docs" / "onnx.md"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    found = PAGE.read_text(encoding="utf-8") if PAGE.is_file() else ""
    made = markdown(found.partition(MEASURED)[2])
    if not parser.parse_args().check:
        PAGE.write_text(made, encoding="utf-8")
        return 0
    if found == made:
        return 0
    print(f"{PAGE} is stale: run {Path(__file__).name}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
