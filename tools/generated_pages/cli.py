"""The page ``docs/cli.md``, from the declarations of the commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import get_type_hints

from typer.models import ArgumentInfo, OptionInfo

from cvm.cli.application import COMMANDS, EXIT_CODES
from cvm.cli.declaration import Command, Group
from tools.generated_pages.page import Page

INTRODUCTION = """\
# The command line

Generated from the declarations in `cvm/cli` by `tools/generate_pages.py`; do not edit.

Results go to stdout, everything else to stderr. With `--json` the result is one JSON document on one line, with the
key `version` (now 1). A command that fails prints `{"version": 1, "error": {"class", "code", "message", "location"}}`,
where `code` is stable and `location` holds `file`, `line`, `column`, `tensor` and `op` as far as they are known. Files
are written whole or not at all; a link stands for its target. If the target is a pipe or a character device, such as
`/dev/stdout`, the bytes are written into it.

| exit code | |
|---|---|
"""

FILES = {
    "cvm compile": "nnef cvm-runtime tflite onnx",
    "cvm run": "program pair",
    "cvm generate": "generate",
    "cvm inspect": "program nnef cvm-runtime",
    "cvm quantize": "tflite nnef onnx",
    "cvm report": "program onnx nnef",
    "cvm legalize": "program nnef",
    "cvm nnef check": "nnef",
    "cvm nnef flatten": "nnef",
    "cvm nnef upgrade": "nnef",
    "cvm nnef run": "nnef",
    "cvm digest": "program receipts",
    "cvm receipt show": "program receipts",
    "cvm receipt verify": "program receipts",
    "cvm receipt page": "program receipts",
    "cvm receipt diff": "program receipts",
    "cvm receipt sign": "program receipts",
    "cvm dispute locate": "program dispute",
    "cvm dispute play": "program dispute",
    "cvm dispute verify-step": "program dispute",
}
"""The sets of files (tools/page_files.py) that the examples of a command need, if it is not ``program``."""

NOT_RUN = {
    "--ray": "needs a Ray cluster; tests/audit/test_cluster.py runs one",
    "./my-runtime": "needs a runtime of one's own; tests/spec_vectors tries the command with others",
    "cache clear": "deletes the compiled code of this account; tests/cli/test_habits.py runs it on a folder of its own",
    "~/": "writes into the home folder; tests/cli/test_habits.py tries every shell",
    "--node": "needs a node; tests/audit/chain/test_node.py runs one",
    "--engine": "needs other engines (extra engines); tests/comparison/test_engines.py tries them",
    "check.py": "needs a check of one's own; tests/reduction runs some",
    "fails.cvm": "needs executors that differ; tests/reduction plants failures",
    "--compare": "needs other engines (extra bench); tests/bench/test_engines.py tries them",
}
"""Words in examples that are not run, and the reason."""

EXITS = {
    "cvm dispute locate mine.trace theirs.trace --program model.cvm": " # exits with 1",
    "cvm dispute locate mine.npz theirs.npz --program model.cvm": " # exits with 1",
}
"""The exit codes of examples that do not exit with 0."""


def page() -> str:
    """The whole page."""
    lines = [INTRODUCTION + "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES)]
    for name, entry in COMMANDS.items():
        if isinstance(entry, Group):
            for subname, command in entry.commands.items():
                lines += section(f"cvm {name} {subname}", command)
        else:
            lines += section(f"cvm {name}", entry)
    return "\n".join(lines)


def section(title: str, command: Command) -> Iterator[str]:
    """One command: its synopsis, help, arguments, options and examples."""
    rows = list(parameters(command))
    synopsis = " ".join([title, *(row[0] for row in rows if not row[0].startswith("-")), "[OPTIONS]"])
    yield f"<!-- files: {FILES.get(title, 'program')} -->\n"
    yield f"## {title}\n\n`{synopsis}`\n\n{inspect.cleandoc(command.function.__doc__ or '')}\n"
    yield "| | default | |\n|---|---|---|"
    for name, default, what in rows:
        cells = (f"`{name}`".replace("|", "\\|"), default, what.replace("|", "\\|"))
        yield "| " + " | ".join(cells) + " |"
    yield "\n" + "\n".join(blocks(command.examples))


def blocks(examples: Sequence[str]) -> Iterator[str]:
    """The examples of a command: those that run with the files of its section, and others with the reason."""
    reasons = [next((why for words, why in NOT_RUN.items() if words in example), "") for example in examples]
    for why, group in groupby(zip(reasons, examples, strict=True), key=lambda pair: pair[0]):
        lines = "".join(f"{example}{EXITS.get(example, '')}\n" for _, example in group)
        yield (f"<!-- not run: {why} -->\n" if why else "") + f"```sh\n{lines}```\n"


def parameters(command: Command) -> Iterator[tuple[str, str, str]]:
    """Name, default and meaning of every argument and option."""
    hints = get_type_hints(command.function, include_extras=True)
    for name, parameter in inspect.signature(command.function).parameters.items():
        (info,) = (item for item in hints[name].__metadata__ if isinstance(item, ArgumentInfo | OptionInfo))
        words = [info.metavar or name.upper()]
        if isinstance(info, OptionInfo):
            # In an Annotated the first name of an option stands where its default would.
            names = [item for item in (info.default, *(info.param_decls or ())) if isinstance(item, str)]
            words = [", ".join(sorted(names, key=len)), *([info.metavar] if info.metavar else [])]
        default = parameter.default
        shown = "" if default in (None, False, []) else f"`{default}`"
        shown = "required" if default is inspect.Parameter.empty else shown
        yield " ".join(words), shown, str(info.help)


PAGE = Page("cli.md", page)
