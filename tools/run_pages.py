"""Run the code blocks of README.md and docs/ and compare their output with the pages; --write updates the pages.

    python tools/run_pages.py [PAGE ..] [--write]

Every fenced block is one of these:

* ``console``: lines that begin with ``$`` are commands, run in order in one folder; the other lines are their output.
* ``sh``: commands, run in order in one folder; their output is not compared. Commands for a fresh machine (make, pip,
  venv) are not run: make targets must exist, and pip lines must be those of the Makefile.
* ``python``: a program; a ``text`` block after it is its output.
* any other block, or one of these that cannot run, has the comment ``<!-- not run: why -->`` before it. If all other
  blocks of a page are of one sort, the page says ``<!-- not run on this page: why -->`` once instead.

A command that ends in ``# exits with N`` must have that exit code, any other command 0. Two comments say what the
blocks below them need: ``<!-- files: SET .. -->`` begins a new folder with sets of files of ``tools/page_files.py``,
and ``<!-- needs: MODULE .. -->`` inside it names Python modules; if one is missing, these blocks are not run.

Durations in seconds, and elements drawn with a fresh salt, are not compared.
Text between ``<!-- name -->`` and ``<!-- -->`` is generated from declarations.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from cvm.cli.application import EXIT_CODES
from cvm.executors import EXECUTORS
from cvm.operations import nnef_operations
from cvm.ops import REGISTRY
from tools import page_files

ROOT = Path(__file__).resolve().parents[1]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
BLOCK = re.compile(r"^(?P<indent> *)```(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```\n", re.DOTALL | re.MULTILINE)
REASONS = re.compile(r"<!-- not run(?: on this page)?: ([^>]+) -->")
FOLDER = re.compile(r"^<!-- files:([^>]*) -->$", re.MULTILINE)
NEEDS = re.compile(r"^<!-- needs: ([^>]+) -->$", re.MULTILINE)
EXIT = re.compile(r"# exits with (\d+)$")
RUNNING = ("console", "sh", "python")
SECONDS = re.compile(r"\b\d+\.\d+ s\b")
JUDGED = re.compile(r"\d+ elements of (\d+ of \d+ tensors) in \d+ runs by FORMAL, salt [0-9a-f]{32}\b")
SALT = re.compile(r"\bsalt [0-9a-f]{32}\b")


@dataclass(frozen=True)
class Part:
    """A part of a page whose blocks run in a folder of their own."""

    text: str
    files: tuple[str, ...]
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        """The first heading of the part, or the first words of its prose."""
        heading = re.search(r"^#+ (.+)$", self.text, re.MULTILINE)
        return re.sub(r"\W+", "-", heading[1].lower()).strip("-") if heading else "begin"

    @property
    def missing(self) -> list[str]:
        """The Python modules that the part needs and that are not installed."""
        return [name for name in self.needs if find_spec(name) is None]


def parts(page: str) -> list[Part]:
    """The parts of a page in order; joined, their texts are the page."""
    cuts = [0, *(match.start() for match in FOLDER.finditer(page)), len(page)]
    found = []
    for begin, end in pairwise(cuts):
        text = page[begin:end]
        files, needs = FOLDER.match(text), NEEDS.search(text)
        found.append(Part(text, tuple(files[1].split()) if files else (), tuple(needs[1].split()) if needs else ()))
    return found


def reason(text: str, block: re.Match[str]) -> str | None:
    """The reason why a block is not run, from the comment before it or from the page's comment; None without one."""
    if block["kind"] not in RUNNING and "<!-- not run on this page: " in text:
        return "see the page"
    before = text[: block.start()].rstrip()
    found = REASONS.match(before, before.rindex("<!--")) if before.endswith("-->") else None
    return None if found is None else found[1].strip()


def runs(part: Part) -> bool:
    """Whether a part has a block that runs."""
    return any(reason(part.text, block) is None for block in BLOCK.finditer(part.text))


def untried(page: str) -> Iterator[str]:
    """The first lines of blocks that neither run nor have a reason not to."""
    follows = False
    for block in BLOCK.finditer(page):
        kind = block["kind"]
        if reason(page, block) is None and not (kind in RUNNING or (kind == "text" and follows)):
            yield f"```{kind}: {block['body'].partition(chr(10))[0]}"
        follows = kind == "python"


def listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def claimed(kind: str) -> str:
    """The NNEF operations that are exact, bounded or refused; if there are many, only their number."""
    names = sorted(entry["name"] for entry in nnef_operations() if entry["claim"] == kind)
    return f"{len(names)}" + (f": {listed(names)}" if 0 < len(names) <= 10 else "")


def tables() -> dict[str, str]:
    """The texts that declarations give, by the name of the comment."""
    codes = "".join(f"| {code} | {meaning} |\n" for code, meaning in EXIT_CODES)
    return {
        "executors": listed(EXECUTORS),
        "ops": listed(REGISTRY),
        **{f"nnef {kind}": claimed(kind) for kind in ("exact", "bounded", "refused")},
        "exit codes": f"\n\n| exit code | |\n|---|---|\n{codes}",
    }


def _between(text: str, match: re.Match[str]) -> str:
    return match[1] + text + match[2]


def with_tables(page: str) -> str:
    """The page with current tables."""
    for name, text in tables().items():
        page = re.sub(
            f"(<!-- {name} -->).*?(<!-- -->)",
            partial(_between, text),
            page,
            flags=re.DOTALL,
        )
    return page


def with_outputs(text: str, folder: Path, quiet: bool = True) -> str:
    """A part of a page with the output of its blocks, run in ``folder``; ``quiet``: stderr must be empty."""
    pending: str | None = None

    def run(block: re.Match[str]) -> str:
        nonlocal pending
        indent, kind = block["indent"], block["kind"]
        body = re.sub(f"^{indent}", "", block["body"], flags=re.MULTILINE)
        before, pending = pending, None
        if reason(text, block) is not None:
            return block[0]
        if kind == "console":
            commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            body = "".join(f"$ {command}\n{printed(['bash', '-c', command], folder)}" for command in commands)
        elif kind == "python":
            pending = printed([sys.executable, "-c", body], folder, quiet)
        elif kind == "text":
            if before is None:
                raise ValueError("a text block without a program before it")
            body = before
        elif kind == "sh":
            run_commands(body, folder)
        else:
            raise ValueError(f"a block of the kind {kind!r}: it needs the comment 'not run', with the reason")
        return (
            f"{indent}```{kind}\n"
            + "".join(indent * (line != "\n") + line for line in body.splitlines(True))
            + f"{indent}```\n"
        )

    return BLOCK.sub(run, text)


def run_commands(body: str, folder: Path) -> None:
    """Run the lines of a ``sh`` block; lines that install are only compared with the Makefile."""
    lines = [line for line in body.replace("\\\n", " ").splitlines() if line and not line.startswith("#")]
    if any(line.split()[0] == "make" or "install" in line.split() for line in lines):
        check_installation(lines)
        return
    for line in lines:
        printed(["bash", "-c", line], folder, quiet=False)


def printed(command: list[str], folder: Path, quiet: bool = True) -> str:
    """The stdout of a command. It must have the stated exit code and, if ``quiet``, print nothing on stderr."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONSAFEPATH": "1",  # the folder may contain another ``cvm``
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    exits = EXIT.search(command[-1])
    if done.returncode != (int(exits[1]) if exits else 0) or (quiet and done.stderr):
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}{done.stdout if not quiet else ''}")
    return done.stdout


def check_installation(lines: Iterable[str]) -> None:
    """Require that the commands for a fresh machine are those of the Makefile."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in lines:
        words = line.split()
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True)
        elif "install" in words:
            wanted = " ".join(words[words.index("--editable") :])
            if f"{wanted}\n" not in makefile:
                raise ValueError(f"the Makefile installs nothing with {wanted!r}")


def renewed(part: Part) -> str:
    """The text of a part as it should be; unchanged if a module is missing."""
    if part.missing or not runs(part):
        return part.text
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "cvm").mkdir()
        for link in ("cvm/demo", "spec_vectors", "tools"):
            (folder / link).symlink_to(ROOT / link)
        page_files.make(part.files, folder)
        return with_outputs(part.text, folder, quiet=not part.needs)  # other libraries may print on stderr


def expected(page: str) -> str:
    """The page as it should be."""
    return "".join(renewed(part) for part in parts(with_tables(page)))


def comparable(text: str) -> str:
    """The text without the parts that change each time: durations, fresh salts, and the number of judged elements."""
    text = JUDGED.sub(r"0 elements of \1 in 0 runs by FORMAL, salt 00", SECONDS.sub("0.0 s", text))
    return SALT.sub("salt 00", text)


def difference(page: str, wanted: str, name: str = "README.md") -> str:
    """The differences except durations and draws, as a unified diff."""
    old, new = (comparable(text).splitlines(keepends=True) for text in (page, wanted))
    return "".join(difflib.unified_diff(old, new, name, "what is printed today"))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", nargs="*", type=Path, metavar="PAGE", help="by default README.md and all of docs/")
    parser.add_argument("--write", action="store_true", help="put what is printed into the pages")
    options = parser.parse_args(arguments)
    differ = 0
    for file in options.pages or PAGES:
        page = file.read_text(encoding="utf-8")
        wanted = expected(page)
        found = difference(page, wanted, file.name)
        if options.write and found:
            file.write_text(wanted, encoding="utf-8")
        elif found:
            print(found, end="")
            differ += 1
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
