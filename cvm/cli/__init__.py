"""The command line: ``cvm``. One module per command; results on stdout, everything else on stderr."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line ``arguments`` (None: those of the process) and return the exit code."""
    if "numpy" not in sys.modules:
        # All products use one thread (`cvm.blas`). OpenBLAS starts the others when NumPy is imported, which would take
        # 0.1 s of processor time.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        from cvm.cli.application import execute

        return execute(arguments)
    except KeyboardInterrupt:  # while Python still reads the program
        print("cvm: interrupted", file=sys.stderr)
        return 130
