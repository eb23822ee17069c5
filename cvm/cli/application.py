"""All commands in one application, and the way in which every command ends."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.main import get_command

from cvm.cli.declaration import Command, Group
from cvm.cli.failures import BUG, INTERRUPTED, Usage, report_bug, report_error, report_interruption, told_warnings
from cvm.cli.streams import UNDELIVERED, Undelivered, guarded
from cvm.errors import CvmError, LimitExceeded

__all__ = ["COMMANDS", "EXIT_CODES", "application", "execute"]

EXIT_CODES = (
    (0, "fine"),
    (1, "a comparison failed"),
    (2, "wrong usage of the command line"),
    (3, "a model or data that cannot be read, is malformed or invalid, or needs what cvm does not support"),
    (4, "a limit is exceeded"),
    (5, "a claim cannot be recomputed (for commands that verify one)"),
    (BUG, "a bug in cvm"),
    (UNDELIVERED, "stdout cannot be written; a pipe that its reader closes is no error"),
    (INTERRUPTED, "interrupted"),
)
"""The return value of every command."""

_HELP = """Deterministic, integer-only neural networks: the same bytes on every machine.

Results go to stdout, everything else to stderr; with --json a result is one JSON document, also on failure.

\b
Examples:
  cvm demo
  cvm compile model/ -o model.cvm
  cvm run model.cvm -i image=photo.npy -o result.npz
  cvm check model.cvm -i photo.npy
"""

_MODULES = (
    "compile", "run", "map", "generate", "check", "inspect", "quantize", "report", "compare", "explain", "reduce",
    "conformance", "digest", "legalize", "export", "ops", "nnef", "receipt", "dispute", "chain", "vectors", "bench",
    "demo", "doctor", "cache", "completion",
)  # fmt: skip
"""The modules of the commands and groups, which have their names, in the order of the help."""


class _Commands(Mapping[str, Command | Group]):
    """All commands by name. The module of a command is imported when it is asked for: each imports much."""

    def __getitem__(self, name: str) -> Command | Group:
        if name not in _MODULES:
            raise KeyError(name)
        module = import_module(f"cvm.cli.{name}")
        if name == "completion":
            command: Command = module.command_of(lambda: get_command(application()))
            return command
        entry: Command | Group = getattr(module, "COMMAND", None) or module.GROUP
        return entry

    def __iter__(self) -> Iterator[str]:
        return iter(_MODULES)

    def __len__(self) -> int:
        return len(_MODULES)


COMMANDS: Mapping[str, Command | Group] = _Commands()
"""All commands, in the order of the help."""


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"cvm {version('cvm')}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


def application(only: str | None = None) -> typer.Typer:
    """The application with all commands, or with one of them."""
    listed = "\n".join(f"  {code:>3}  {meaning}" for code, meaning in EXIT_CODES)
    app = _group(_HELP, f"\b\nExit codes:\n{listed}")
    app.callback()(_root)
    for name in COMMANDS if only is None else (only,):
        entry = COMMANDS[name]
        if isinstance(entry, Group):
            group = _group(entry.summary)
            for subname, command in entry.commands.items():
                group.command(subname, epilog=command.epilog, short_help=command.summary)(command.function)
            group.callback()(_nothing)  # keeps a group with a single command a group
            app.add_typer(group, name=name, short_help=entry.summary)
        else:
            app.command(name, epilog=entry.epilog, short_help=entry.summary)(entry.function)
    return app


def _group(summary: str, epilog: str | None = None) -> typer.Typer:
    return typer.Typer(
        help=summary, epilog=epilog, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
    )


def _nothing() -> None:
    pass


def execute(arguments: Sequence[str] | None = None) -> int:
    """Run a command line. Every way to end becomes an exit code, and no exception is raised."""
    words = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    as_json = "--json" in words
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    with guarded() as stdout, told_warnings():
        try:
            code = _outcome(words, as_json)
            if code != UNDELIVERED:
                stdout.settle()
            return code
        except Undelivered as error:  # stdout did not take an error's document, or the end of a buffer
            return report_error(error, _command(words), as_json=False)


def _outcome(words: list[str], as_json: bool) -> int:
    try:
        code = _code(get_command(_application(words)).main(words, prog_name="cvm", standalone_mode=False))
        return report_interruption(as_json) if code == INTERRUPTED else code
    except CvmError as error:
        return report_error(error, _command(words), as_json)
    except (KeyboardInterrupt, typer.Abort):
        return report_interruption(as_json)
    except MemoryError:
        return report_error(LimitExceeded("limit.memory", "memory is exhausted"), _command(words), as_json)
    except (Exception, SystemExit) as error:  # Typer calls sys.exit when a pipe breaks
        # Errors of usage have no common base class in all versions of Typer, but each can say what is wrong.
        if hasattr(error, "format_message"):
            return report_error(Usage(error.format_message()), _command(words), as_json)
        return report_bug(error, words, as_json)


def _application(words: list[str]) -> typer.Typer:
    """The application for a command line: with its command alone if the first word names one."""
    return application(words[0] if words[0] in _MODULES else None)


def _command(words: list[str]) -> str:
    """The command in the words of a command line, as far as they name one."""
    entry = COMMANDS.get(words[0])
    named = words[:2] if isinstance(entry, Group) and words[1:] and words[1] in entry.commands else words[:1]
    return " ".join(["cvm", *named]) if entry is not None else "cvm"


def _code(outcome: Any) -> int:
    return outcome if isinstance(outcome, int) else 0
