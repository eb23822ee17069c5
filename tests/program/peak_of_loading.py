"""The memory and time that loading and verifying takes, each program in a process of its own that does nothing else.

    python -m tests.program.peak_of_loading FILE..

Prints a line for each file: bytes of the file, bytes of memory beyond those of the imported package, milliseconds.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from pathlib import Path

from cvm.errors import Invalid
from cvm.ops import REGISTRY
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.files import load_verified


def warm() -> None:
    """Import and make what is made once, whatever program is loaded."""
    builder = ProgramBuilder()
    names = builder.add("abs", [builder.input("x", (1, 1), 0, 1)])
    verify(builder.build([Output("y", names[0])]))
    for op in REGISTRY.values():
        try:
            op.parse({"none": 0})
        except Invalid:
            continue


def measured(path: Path) -> int:
    """Load in a child of this process; its exit status."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
    load_verified(path)
    used = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    print(path.stat().st_size, used, round(1000 * (time.monotonic() - begin)), flush=True)
    os._exit(0)


if __name__ == "__main__":
    warm()
    sys.exit(max(measured(Path(name)) for name in sys.argv[1:]))
