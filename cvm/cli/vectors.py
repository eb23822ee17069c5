"""``cvm vectors``: run test vectors against an executor of cvm, or a program that speaks their protocol."""

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


_Values = Annotated[
    bool, typer.Option("--values", help="Leave out the cases that must be refused: for a program without a verifier.")
]
_Directory = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]", help="A folder of vectors, or one file of it; by default the vectors that come with cvm."
    ),
]


def check(
    directory: _Directory = None,
    executor: Annotated[
        str | None, typer.Option("--executor", metavar="NAME", help="An executor of cvm; see `cvm doctor`.")
    ] = None,
    program: Annotated[
        str | None,
        typer.Option("--command", metavar="COMMAND", help="A program that speaks the protocol of the vectors."),
    ] = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="The longest time for one answer.")
    ] = 60,
    values: _Values = False,
    as_json: Json = False,
) -> int:
    """Run test vectors against an executor, or against any program that speaks the protocol of spec_vectors/README.md.

    For each op the command prints how many cases passed and failed, and the first difference. The last line counts
    cases of ops that the program does not have. The exit code is 1 if a case failed, or none ran.
    """
    from cvm.executors import EXECUTORS
    from cvm.vectors import CommandRunner, ExecutorRunner
    from cvm.vectors import check as check_vectors
    from cvm.vectors.format import EXPECTED
    from cvm.vectors.shipped import shipped

    if (executor is None) == (program is None):
        raise Usage("expected one of --executor and --command")
    if executor is not None and executor not in EXECUTORS:
        raise Usage(f"there is no executor {executor!r}; there are {', '.join(EXECUTORS)}")
    verdicts = ("value",) if values else EXPECTED
    folder, given_up = shipped() if directory is None else directory, ""
    with ExitStack() as stack, working("checking"):
        if program is not None:
            runner = stack.enter_context(CommandRunner(program, timeout))
            report = check_vectors(folder, runner, verdicts)
            given_up = runner.given_up
        else:
            assert executor is not None
            report = check_vectors(folder, ExecutorRunner(executor), verdicts)
    document: dict[str, Any] = report.to_json()
    return show(document, lambda console: _render(console, report, given_up), as_json, 0 if report.ok else 1)


def _render(console: Console, report: Report, given_up: str) -> None:
    """Print the ops that ran, all counts, and the first failure; ``given_up`` says why the program was given up."""
    ran = [tally for tally in report.tallies if tally.passed or (tally.failed and not given_up)]
    if ran:
        rows = ((tally.op, tally.cases, tally.passed, tally.failed, tally.skipped) for tally in ran)
        table(console, ("op", "cases>", "passed>", "failed>", "skipped>"), rows)
        say(console)
    if given_up:
        say(console, f"the program was given up after three failures, the last one: {given_up}")
    say(console, f"{'PASSED' if report.ok else 'FAILED'}: {_counts(report)}")
    if report.first is not None:
        say(console, f"first difference: {report.first}")


def _counts(report: Report) -> str:
    """How many cases passed of those that ran, and how many did not."""
    passed, failed, skipped = (
        sum(getattr(tally, what) for tally in report.tallies) for what in ("passed", "failed", "skipped")
    )
    found = f"{passed:,} of {passed + failed:,}"
    if not skipped:
        return f"{found} cases"
    if all(tally.skipped in (0, tally.cases) for tally in report.tallies):
        return f"{found} of these ops; {skipped:,} cases of other ops not run"
    return f"{found} cases; {skipped:,} not run"


def where(as_json: Json = False) -> int:
    """Print the folder of the vectors that come with cvm; its README.md is their specification."""
    from cvm.vectors.shipped import shipped

    folder = str(shipped())
    return show({"folder": folder}, lambda console: say(console, folder), as_json)


GROUP = Group(
    "Run test vectors.",
    {
        "check": Command(
            check,
            (
                "cvm vectors check spec_vectors --executor numpy",
                'cvm vectors check spec_vectors --command "./my-runtime --vectors"',
            ),
        ),
        "where": Command(where, ("cvm vectors where",)),
    },
)
