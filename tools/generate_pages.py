"""Write the generated pages of docs/; with --check, say which are stale and exit 1.

    python tools/generate_pages.py [NAME ..] [--check | --measure]

NAME is a module of tools/generated_pages, such as ops or onnx; without one, all pages are written. Text from
declarations is written and checked. Measured numbers are kept, unless --measure measures them again: for that, set
OPENBLAS_NUM_THREADS=1 and run nothing else on the machine.
"""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tools.generated_pages.page import Page

MODULES = Path(__file__).resolve().parent / "generated_pages"
NAMES = sorted(path.stem for path in MODULES.glob("*.py") if path.stem not in ("__init__", "page"))


def page(name: str) -> Page:
    """The page that a module of tools/generated_pages declares."""
    found = import_module(f"tools.generated_pages.{name}").PAGE
    assert isinstance(found, Page)
    return found


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NAMES))
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--check", action="store_true", help="compare only, and only what is the same everywhere")
    what.add_argument("--measure", action="store_true", help="make the measured numbers anew")
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.names) - set(NAMES))
    if unknown:
        parser.error(f"there is no page {', '.join(unknown)}: expected {', '.join(NAMES)}")
    stale = 0
    for name in options.names or NAMES:
        found = page(name)
        if not options.check:
            found.write(options.measure)
        elif not found.fresh():
            print(f"{found.file} is stale: run tools/generate_pages.py {name}", file=sys.stderr)
            stale += 1
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
