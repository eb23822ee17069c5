"""The output of commands: one document, or tables and lines for people; and progress on stderr."""

from __future__ import annotations

import json
import sys
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING, Any, Literal

from cvm import writing

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "PATIENCE",
    "VERSION",
    "counted",
    "headroom",
    "meaning",
    "narrated",
    "print_document",
    "printable",
    "progress",
    "say",
    "show",
    "table",
    "working",
    "write_file",
]

PATIENCE = 2.0
"""Seconds before a spinner is shown."""
VERSION = 1
"""The version of all documents that commands print under ``--json``."""

_WIDTH = 10_000
"""Columns of a table that is not printed to a terminal: so many that no line that a program may read is broken."""


_NAMES = 2
"""The first columns of a table hold names, which are not broken into lines."""


def printable(text: str) -> str:
    """The text with control characters made visible, so that no file can send commands to a terminal."""
    return "".join(
        character if character == "\n" or unicodedata.category(character)[0] != "C" else repr(character)[1:-1]
        for character in text
    )


def counted(number: int, what: str, several: str | None = None) -> str:
    """A number of things in words: "1 run", "3 runs". ``several`` is the plural where it is not ``what`` with an s."""
    return f"{number} {what}" if number == 1 else f"{number} {several or what + 's'}"


def print_document(document: Mapping[str, Any]) -> None:
    """Print one JSON document, on one line. Raises `cvm.cli.streams.Undelivered`."""
    sys.stdout.write(json.dumps({"version": VERSION, **document}, allow_nan=False) + "\n")
    sys.stdout.flush()


def show(document: Mapping[str, Any], render: Callable[[Console], None], as_json: bool, code: int = 0) -> int:
    """Print a result, as a document or for people; returns ``code``. Raises `cvm.cli.streams.Undelivered`."""
    if as_json:
        print_document(document)
        return code
    render(_console(sys.stdout))
    sys.stdout.flush()
    return code


def _console(stream: Any) -> Console:
    from rich.console import Console

    width = None if stream.isatty() else _WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False, soft_wrap=True)


def say(console: Console, text: str = "") -> None:
    """Print a line."""
    console.print(printable(text))


def table(console: Console, headings: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table. A heading that ends in ``>`` aligns its column to the right; all headings may be empty."""
    from rich import box
    from rich.table import Table

    ruled = box.SIMPLE_HEAD if console.is_terminal and any(headings) else None
    grid = Table(box=ruled, pad_edge=False, header_style="bold", show_header=any(headings))
    for index, heading in enumerate(headings):
        justify: Literal["left", "right"] = "right" if heading.endswith(">") else "left"
        grid.add_column(heading.removesuffix(">"), justify=justify, overflow="fold", no_wrap=index < _NAMES)
    for row in rows:
        grid.add_row(*(printable(str(cell)) for cell in row))
    with console.capture() as capture:
        console.print(grid, soft_wrap=False)
    lines = capture.get().splitlines()
    console.file.write("".join(f"{line.rstrip()}\n" for line in lines if line.strip()))


_spinners: list[Callable[[str], None]] = []
"""The spinner that is or will be shown, as the function that changes its words."""


@contextmanager
def working(what: str) -> Iterator[Callable[[str], None]]:
    """Show a spinner if stderr is a terminal and the block takes more than `PATIENCE` seconds.

    Yields a function that sets the words for the current step. In a nested block, this function changes the words of
    the outer spinner.
    """
    if _spinners:
        _spinners[0](what)
        yield _spinners[0]
        return
    if not sys.stderr.isatty():
        yield lambda now: None
        return
    status = _console(sys.stderr).status(printable(what))
    timer = Timer(PATIENCE, status.start)
    timer.daemon = True
    timer.start()
    _spinners.append(lambda now: status.update(printable(now)))
    try:
        yield _spinners[0]
    finally:
        _spinners.clear()
        timer.cancel()
        timer.join()  # it may just be starting the spinner
        status.stop()


@contextmanager
def progress(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar if stderr is a terminal; yields a function that takes the number of finished steps."""
    with narrated(what, total) as (advance, _):
        yield advance


@contextmanager
def narrated(what: str, total: int) -> Iterator[tuple[Callable[[int], None], Callable[[str], None]]]:
    """As `progress`; yields a second function, which sets the words for the current step."""
    if not sys.stderr.isatty():
        yield lambda done: None, lambda words: None
        return
    from rich.progress import Progress

    with Progress(console=_console(sys.stderr), transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.update(task, completed=done), lambda words: bar.update(task, description=words)


def meaning(bound: str) -> str:
    """A proven bound, a rational number of codes, in words."""
    codes = float(Fraction(bound))
    return "exact" if codes == 0 else f"within {codes:.3g} code{'' if codes == 1 else 's'}"


def headroom(interval: Sequence[int], width: int) -> int:
    """The bits of a signed integer of ``width`` bits that an interval leaves unused."""
    return width - 1 - max(abs(interval[0]), abs(interval[1])).bit_length()


def write_file(path: Path, *data: bytes) -> None:
    """Write a result, one piece after the other (see `cvm.writing`). Raises `Invalid` (``output.unwritable``)."""
    with writing.unwritable(path):
        writing.write_file(path, *data)
