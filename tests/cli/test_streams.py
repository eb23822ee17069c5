"""Commands whose stdout or stderr is full, closed, or read by nobody, in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from cvm.demo import MODEL
from tests.api import small
from tests.selection import mostly_long

VERBS = {
    "help": (["--help"], 0),
    "help of a verb": (["run", "--help"], 0),
    "version": (["--version"], 0),
    "compile": (["compile", str(MODEL)], 0),
    "run": (["run", "negated.cvm", "-i", "codes.npy", "--codes"], 0),
    "check": (["check", "negated.cvm", "-i", "codes.npy", "--codes", "--executors", "formal,numpy"], 0),
    "inspect": (["inspect", "negated.cvm"], 0),
    "legalize": (["legalize", "negated.cvm"], 0),
    "ops": (["ops"], 0),
    "nnef flatten": (["nnef", "flatten", str(MODEL)], 0),
    "receipt show": (["receipt", "show", "r.receipt"], 0),
    "receipt verify": (["receipt", "verify", "r.receipt", "--program", "negated.cvm", "-i", "codes.npy", "--codes"], 0),
    "receipt verify, another program": (["receipt", "verify", "r.receipt", "--program", "channels.cvm"], 5),
}
"""Command lines, and their exit codes."""
JSON = [name for name in VERBS if name not in ("help", "help of a verb", "version")]
SENTENCE = "cvm: stdout cannot be written: {}; what was printed is not complete [output.stdout]\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from cvm.cli import main

    made = tmp_path_factory.mktemp("streams")
    small.negated().save(made / "negated.cvm")
    small.channels().save(made / "channels.cvm")
    np.save(made / "codes.npy", np.zeros((2, 2, 3), np.int64))
    arguments = ["run", made / "negated.cvm", "-i", made / "codes.npy", "--codes", "--receipt", made / "r.receipt"]
    assert main([*map(str, arguments)]) == 0
    return made


def ended(
    folder: Path, arguments: list[str], redirection: str = "", stdout: int = subprocess.DEVNULL
) -> tuple[int, str]:
    """The exit code and what is said on stderr, with a redirection of the shell."""
    command = ["sh", "-c", f'exec "$@" {redirection}', "sh", sys.executable, "-m", "cvm", *arguments]
    result = subprocess.run(command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=120)
    return result.returncode, result.stderr


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A full device: of the tests' own where that can be made."""
    path = tmp_path_factory.mktemp("devices") / "full"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 7))
        path.open("wb").close()
    except OSError:
        pytest.skip("only root, and only on some file systems, can make devices")
    return path


@contextlib.contextmanager
def abandoned() -> Iterator[int]:
    """A pipe that nobody reads."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        yield writer
    finally:
        os.close(writer)


WITH_JSON = [[name] for name in VERBS] + [[name, "--json"] for name in JSON]
FULL, CLOSED, UNREAD = WITH_JSON[::2], WITH_JSON[1::4], WITH_JSON[3::4]
"""What is tried always of each: together every verb; the long suites try each with each."""


@pytest.mark.parametrize("which", mostly_long(WITH_JSON, FULL), ids=" ".join)
def test_a_full_stdout_is_74_and_one_sentence(folder: Path, full: Path, which: list[str]) -> None:
    arguments = [*VERBS[which[0]][0], *which[1:]]
    assert ended(folder, arguments, f">{full}") == (74, SENTENCE.format("No space left on device"))


@pytest.mark.parametrize("which", mostly_long(WITH_JSON, CLOSED), ids=" ".join)
def test_a_closed_stdout_is_74_and_one_sentence(folder: Path, which: list[str]) -> None:
    arguments = [*VERBS[which[0]][0], *which[1:]]
    assert ended(folder, arguments, ">&-") == (74, SENTENCE.format("it is closed"))


@pytest.mark.parametrize("which", mostly_long(WITH_JSON, UNREAD), ids=" ".join)
def test_a_pipe_that_nobody_reads_is_no_error_and_keeps_the_exit_code(folder: Path, which: list[str]) -> None:
    arguments, code = VERBS[which[0]]
    with abandoned() as writer:
        assert ended(folder, [*arguments, *which[1:]], stdout=writer) == (code, "")


def test_a_reader_that_takes_the_first_line_only_is_no_error(folder: Path) -> None:
    command = f"set -o pipefail; {sys.executable} -m cvm ops --json | head -c 10"
    result = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, timeout=60)
    assert (result.returncode, result.stdout, result.stderr) == (0, '{"version"', "")


def test_what_was_written_to_files_stays(folder: Path) -> None:
    assert ended(folder, [*VERBS["run"][0], "-o", "out.npz"], ">&-")[0] == 74
    with np.load(folder / "out.npz") as data:
        assert data.files


@pytest.mark.parametrize("redirection", [">&-", ">{full}"])
def test_an_error_whose_document_is_lost_is_told_on_stderr(folder: Path, full: Path, redirection: str) -> None:
    redirection = redirection.format(full=full)
    code, said = ended(folder, ["inspect", "nothing"], redirection)
    assert (code, said) == (3, "cvm: nothing: cannot be read: No such file or directory [nnef.container.unreadable]\n")
    code, lost = ended(folder, ["inspect", "nothing", "--json"], redirection)
    assert code == 74
    assert lost.startswith(said + "cvm: stdout cannot be written: ")


@pytest.mark.parametrize("redirection", ["2>&-", "2>{full}"])
def test_a_lost_stderr_changes_neither_the_exit_code_nor_the_document(
    folder: Path, full: Path, redirection: str
) -> None:
    shell = f'exec "$@" {redirection.format(full=full)}'
    command = ["sh", "-c", shell, "sh", sys.executable, "-m", "cvm", "inspect", "nothing"]
    plain = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=60)
    assert (plain.returncode, plain.stdout) == (3, "")
    told = subprocess.run([*command, "--json"], cwd=folder, stdout=subprocess.PIPE, text=True, timeout=60)
    assert told.returncode == 3
    assert json.loads(told.stdout)["error"]["class"] == "Invalid"


def test_all_streams_may_be_closed(folder: Path) -> None:
    assert ended(folder, VERBS["inspect"][0], "<&- >&- 2>&-")[0] == 74


def test_the_streams_of_who_calls_main_are_given_back() -> None:
    from cvm.cli import main

    before = sys.stdout, sys.stderr
    assert main(["--version"]) == 0
    assert (sys.stdout, sys.stderr) == before
