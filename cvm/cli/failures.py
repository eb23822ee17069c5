"""How a command reports failure: one paragraph on stderr and, under ``--json``, one document on stdout."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cvm.cli.advice import next_step
from cvm.cli.output import print_document, printable
from cvm.errors import ClampWarning, CvmError

__all__ = ["BUG", "INTERRUPTED", "Usage", "report_bug", "report_error", "report_interruption", "told_warnings"]

BUG = 70
INTERRUPTED = 130


class Usage(CvmError):
    """The command line itself is wrong."""

    exit_code = 2

    def __init__(self, message: str) -> None:
        super().__init__("usage", message)


def report_error(error: CvmError, command: str, as_json: bool) -> int:
    """Print an error that a user can fix, and return its exit code. ``command`` is the command whose help is offered.

    Below the error stand its notes, such as the line of the file that it is in, and then the next step, if it is not
    obvious.
    """
    hint = f"\nTry '{command} --help'." if isinstance(error, Usage) else ""
    notes, step = getattr(error, "__notes__", ()), next_step(error)
    context = "".join(f"\n{line}" for line in (*notes, step) if line is not None)
    print(f"cvm: {printable(str(error) + context)}{hint}", file=sys.stderr)
    if as_json:
        print_document({"error": error.to_json()})
    return error.exit_code


@contextmanager
def told_warnings() -> Iterator[None]:
    """Print warnings about the user's data as one line each on stderr; warnings for programmers are not changed."""
    with warnings.catch_warnings():
        shown = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, ClampWarning):
                print(f"cvm: warning: {printable(str(message))}", file=sys.stderr)
            else:
                shown(message, category, *place, **more)

        warnings.simplefilter("always", ClampWarning)
        warnings.showwarning = show
        yield


def report_interruption(as_json: bool) -> int:
    """Print that the command was interrupted."""
    print("cvm: interrupted", file=sys.stderr)
    if as_json:
        print_document({"error": {"class": "Interrupted", "code": "interrupted", "message": "", "location": {}}})
    return INTERRUPTED


def report_bug(error: BaseException, words: Sequence[str], as_json: bool) -> int:
    """Ask for a bug report. CVM_DEBUG=1 shows the traceback."""
    from importlib.metadata import version

    import numpy

    if os.environ.get("CVM_DEBUG") == "1":
        traceback.print_exception(error)
    what = " ".join(f"{type(error).__name__}: {error}".split())[:500]
    frame = traceback.extract_tb(error.__traceback__)[-1]
    message = f"{what} ({os.path.basename(frame.filename)}:{frame.lineno})"
    print(
        f"cvm: this is a bug in cvm, not in your input: {printable(message)}. Please report it with the command, "
        f"'{printable(shlex.join(['cvm', *words]))}', the files that it read, and these versions: "
        f"cvm {version('cvm')}, Python {platform.python_version()}, NumPy {numpy.__version__}, "
        f"{platform.system()} {platform.machine()}. With CVM_DEBUG=1 it shows where it happened.",
        file=sys.stderr,
    )
    if as_json:
        print_document({"error": {"class": "Bug", "code": "bug", "message": message, "location": {}}})
    return BUG
