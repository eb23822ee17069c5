"""``cvm vectors``: test vectors, against an executor of ours or any program that speaks their protocol."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import Usage
from cvm.cli.options import Json
from cvm.cli.output import say, show, table, working

if TYPE_CHECKING:
    from rich.console import Console

    from cvm.vectors import Report

__all__ = ["GROUP"]


def check(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of vectors, or one file of them.")],
    executor: Annotated[
        str | None, typer.Option("--executor", metavar="NAME", help="An executor of cvm; see `cvm doctor`.")
    ] = None,
    program: Annotated[
        str | None,
        typer.Option("--command", metavar="COMMAND", help="A program that speaks the protocol of the vectors."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="Time for one answer of the program.")
    ] = 60,
    as_json: Json = False,
) -> int:
    """Run test vectors against an executor, or against any program that speaks the protocol of spec_vectors/README.md.

    Per op it says how many cases passed, failed and were skipped, and where the first difference is. The exit code is
    1 if a case failed.
    """
    from cvm.executors import EXECUTORS
    from cvm.vectors import CommandRunner, ExecutorRunner
    from cvm.vectors import check as check_vectors

    if (executor is None) == (program is None):
        raise Usage("expected one of --executor and --command")
    if executor is not None and executor not in EXECUTORS:
        raise Usage(f"there is no executor {executor!r}; there are {', '.join(EXECUTORS)}")
    with ExitStack() as stack, working("checking"):
        if program is not None:
            report = check_vectors(directory, stack.enter_context(CommandRunner(program, timeout)))
        else:
            assert executor is not None
            report = check_vectors(directory, ExecutorRunner(executor))
    document: dict[str, Any] = report.to_json()
    return show(document, lambda console: _render(console, report), as_json, 0 if report.ok else 1)


def _render(console: Console, report: Report) -> None:
    tallies = report.tallies
    rows = ((tally.op, tally.cases, tally.passed, tally.failed, tally.skipped) for tally in tallies)
    table(console, ("op", "cases>", "passed>", "failed>", "skipped>"), rows)
    counts = [sum(getattr(tally, what) for tally in tallies) for what in ("cases", "passed", "failed", "skipped")]
    verdict = "PASSED" if report.ok else "FAILED"
    say(console, "\n{}: {} cases, {} passed, {} failed, {} skipped".format(verdict, *counts))
    if report.first is not None:
        say(console, f"first difference: {report.first}")


GROUP = Group(
    "Run test vectors.",
    {
        "check": Command(
            check,
            (
                "cvm vectors check spec_vectors --executor numpy",
                'cvm vectors check spec_vectors --command "./my-runtime --vectors"',
            ),
        )
    },
)
