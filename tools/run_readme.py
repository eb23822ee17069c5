"""Run the code blocks of README.md and compare what they print with what the page says; --write puts it there.

* ``console``: lines that begin with ``$`` are commands, run in order in one folder; the others are what they print.
* ``python``: a program; a ``text`` block after it is what it prints.
* ``sh``: commands for a fresh machine. Make targets must exist; pip lines must be those of the Makefile.

Durations in seconds, and what was drawn with a fresh salt, are not compared.
Comments ``<!-- name -->..<!-- -->`` hold what the declarations say.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from cvm.cli.application import EXIT_CODES
from cvm.executors import EXECUTORS
from cvm.operations import nnef_operations
from cvm.ops import REGISTRY

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "README.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)
SECONDS = re.compile(r"\b\d+\.\d+ s\b")
JUDGED = re.compile(r"\d+ elements of (\d+ of \d+ tensors) in \d+ runs by FORMAL, salt [0-9a-f]{32}\b")
SALT = re.compile(r"\bsalt [0-9a-f]{32}\b")


def listed(names: Iterable[str]) -> str:
    return " ".join(f"`{name}`" for name in names)


def claimed(kind: str) -> str:
    """The NNEF operations that are exact, bounded or refused; a long list as its length."""
    names = sorted(entry["name"] for entry in nnef_operations() if entry["claim"] == kind)
    return f"{len(names)}" + (f": {listed(names)}" if 0 < len(names) <= 10 else "")


def tables() -> dict[str, str]:
    """What the declarations say, by the name of the comment."""
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
    """The page with the tables of today."""
    for name, text in tables().items():
        page = re.sub(
            f"(<!-- {name} -->).*?(<!-- -->)",
            partial(_between, text),
            page,
            flags=re.DOTALL,
        )
    return page


def with_outputs(page: str, folder: Path) -> str:
    """The page with what its blocks print when they are run in ``folder``."""
    (folder / "cvm").mkdir()
    (folder / "cvm" / "demo").symlink_to(ROOT / "cvm" / "demo")
    (folder / "spec_vectors").symlink_to(ROOT / "spec_vectors")
    pending: str | None = None

    def run(match: re.Match[str]) -> str:
        nonlocal pending
        kind, body = match[1], match[2]
        if kind == "console":
            commands = [line[2:] for line in body.splitlines() if line.startswith("$ ")]
            body = "".join(f"$ {command}\n{printed(['bash', '-c', command], folder)}" for command in commands)
        elif kind == "python":
            pending = printed([sys.executable, "-c", body], folder)
        elif kind == "text":
            if pending is None:
                raise ValueError("a text block without a program before it")
            body, pending = pending, None
        elif kind == "sh":
            check_installation(body)
        return f"```{kind}\n{body}```\n"

    return BLOCK.sub(run, page)


def printed(command: list[str], folder: Path) -> str:
    """What a command prints on stdout; it must succeed."""
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONSAFEPATH": "1",  # the folder has a ``cvm`` of its own
        "PYTHONPATH": str(ROOT),
    }
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr}")
    return done.stdout


def check_installation(body: str) -> None:
    """The commands for a fresh machine are those that the Makefile knows."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for line in body.splitlines():
        words = line.split()
        if words[0] == "make":
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, capture_output=True, check=True)
        elif "install" in words:
            wanted = " ".join(words[words.index("--editable") :])
            if f"{wanted}\n" not in makefile:
                raise ValueError(f"the Makefile installs nothing with {wanted!r}")


def expected(page: str) -> str:
    """The page as it should be."""
    with tempfile.TemporaryDirectory() as folder:
        return with_outputs(with_tables(page), Path(folder))


def comparable(text: str) -> str:
    """The text without what is another one each time: durations, fresh salts, and how much the budget allowed."""
    text = JUDGED.sub(r"0 elements of \1 in 0 runs by FORMAL, salt 00", SECONDS.sub("0.0 s", text))
    return SALT.sub("salt 00", text)


def difference(page: str, wanted: str) -> str:
    """What differs but for durations and draws, as a unified diff."""
    old, new = (comparable(text).splitlines(keepends=True) for text in (page, wanted))
    return "".join(difflib.unified_diff(old, new, "README.md", "what is printed today"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="put what is printed into the page")
    write = parser.parse_args().write
    page = PAGE.read_text(encoding="utf-8")
    wanted = expected(page)
    found = difference(page, wanted)
    if write and found:
        PAGE.write_text(wanted, encoding="utf-8")
    elif found:
        print(found, end="")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
