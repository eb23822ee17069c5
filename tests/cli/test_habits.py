"""What people expect of a command line: completion, whole summaries, the cache, pictures, times, a spinner."""

from __future__ import annotations

import io
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from cvm import selftest
from cvm.cli import doctor, feeds, models, output
from cvm.cli.application import COMMANDS
from cvm.cli.declaration import Group
from cvm.demo import LANGUAGE_MODEL, MODEL
from cvm.program import load
from tests.api import small
from tests.cli.conftest import Outcome

Cvm = Callable[..., Outcome]
ROOT = Path(__file__).resolve().parents[2]


def test_summaries_are_whole_sentences(cvm: Cvm) -> None:
    for words in ([], *([name] for name, entry in COMMANDS.items() if isinstance(entry, Group))):
        shown = cvm(*words, "--help").out.split("Commands:")[1].split("Exit codes:")[0]
        assert "..." not in shown
        lines = re.split(r"\n  (?=[a-z])", shown.rstrip())[1:]
        commands = COMMANDS if not words else COMMANDS[words[0]].commands
        assert {line.split()[0] for line in lines} == set(commands)
        for line in lines:
            assert line.endswith("."), line
            assert " ".join(line.split()[1:]) == commands[line.split()[0]].summary


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The script for bash, in a file."""
    path = tmp_path_factory.mktemp("completion") / "cvm.bash"
    made = subprocess.run([sys.executable, "-m", "cvm", "completion", "bash"], capture_output=True, check=True)
    path.write_bytes(made.stdout)
    return path


def completed(script: Path, *words: str) -> list[str]:
    """What bash offers for the last of the words."""
    asks = 'source "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _cvm; printf "%s\\n" "${COMPREPLY[@]}"'
    found = subprocess.run(["bash", "-c", asks, script, *words], capture_output=True, text=True, check=True)
    assert found.stderr == ""
    return found.stdout.split()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["cvm", "insp"], ["inspect"]),
        (["cvm", "receipt", ""], ["show", "verify", "page", "diff", "sign"]),
        (["cvm", "receipt", "verify", "--lev"], ["--level"]),
        (["cvm", "receipt", "verify", "r.receipt", "--level", "f"], ["formal"]),
        (["cvm", "run", "m.cvm", "--out-of-range", ""], ["refuse", "warn", "clamp"]),
        (["cvm", "run", "m.cvm", "--cod"], ["--codes"]),
        (["cvm", "run", "m"], []),
        (["cvm", "nothing", "-"], []),
    ],
)
def test_bash_completes(script: Path, words: list[str], offered: list[str]) -> None:
    assert completed(script, *words) == offered


def test_bash_completes_every_command_and_option(script: Path) -> None:
    assert sorted(completed(script, "cvm", "")) == sorted(COMMANDS)
    page = (ROOT / "docs" / "cli.md").read_text("utf-8")
    for section in page.split("\n## cvm ")[1:]:
        options = set(re.findall(r"(--[a-z-]+)", " ".join(re.findall(r"^\| `(-.*?)`", section, re.MULTILINE))))
        assert options <= set(completed(script, "cvm", *section.splitlines()[0].split(), "-"))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_offered_the_same(cvm: Cvm, shell: str) -> None:
    script = cvm("completion", shell).out
    assert all(name in script for name in COMMANDS)
    assert script.count("out-of-range") >= 2
    assert cvm("completion", shell, "--json").document["script"] == script


def test_a_shell_that_is_not_known_is_refused(cvm: Cvm) -> None:
    outcome = cvm("completion", "tcsh")
    assert outcome.code == 2
    assert "expected a shell, bash, zsh, fish; found 'tcsh'" in outcome.err


def test_the_cache_is_shown_and_cleared(cvm: Cvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "cache" / "native"
    assert cvm("cache", "show").out.startswith(f"cache  {folder} (0 files, 0 bytes)\n")
    (folder / ("a1" * 32)).write_bytes(bytes(100))
    (folder / f".constants-{'b2' * 32}.{'c3' * 8}.tmp").write_bytes(bytes(50))
    (folder / "notes.txt").write_bytes(b"not of cvm")
    (folder / ("d4" * 32 + ".txt")).write_bytes(b"not of cvm")
    (folder / ("f6" * 32)).mkdir()
    (tmp_path / "other").write_bytes(b"stays")
    (folder / ("e5" * 32)).symlink_to(tmp_path / "other")
    document = cvm("cache", "show", "--json").document
    assert document == {"version": 1, "folder": str(folder), "files": 2, "bytes": 150, "trouble": None}
    assert cvm("cache", "clear").out == f"deleted 2 files, 150 bytes, of {folder}\n"
    left = {"notes.txt", "d4" * 32 + ".txt", "e5" * 32, "f6" * 32}
    assert {path.name for path in folder.iterdir()} == left
    assert (tmp_path / "other").read_bytes() == b"stays"
    assert cvm("cache", "clear", "--json").document["files"] == 0


def test_a_cache_that_is_not_used_is_not_cleared(cvm: Cvm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    assert cvm("cache", "show").out.startswith("cache  not used: CVM_CACHE is empty\n")
    outcome = cvm("cache", "clear")
    assert (outcome.code, outcome.out) == (3, "")
    assert "no compiled code is kept: CVM_CACHE is empty [cache.unusable]" in outcome.err
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache" / "native").mkdir(parents=True)
    (tmp_path / "cache" / "native" / ("a1" * 32)).write_bytes(b"x")
    (tmp_path / "cache").chmod(0o777)
    assert "can be written by other users" in cvm("cache", "clear").err
    assert (tmp_path / "cache" / "native" / ("a1" * 32)).exists()


def test_doctor_names_extras_as_they_are_installed(cvm: Cvm, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selftest, "run_selftest", lambda names: [])
    whole = doctor._version
    monkeypatch.setattr(doctor, "_version", lambda name: None if name == "cryptography" else whole(name))
    document = cvm("doctor", "--json").document
    missing = {item["name"]: item["missing"] for item in document["extras"]}
    assert missing["sign"] == ["cryptography"]
    assert "pip install 'cvm[sign]'" in cvm("doctor").out
    assert document["machine"]["threads"] >= 1
    assert set(document["cache"]) == {"folder", "files", "bytes", "trouble"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for item in document["extras"]:
        named = {re.split("[>=]", text)[0] for text in extras[item["name"]]}
        assert set(item["packages"]) <= named


def test_a_program_is_drawn(cvm: Cvm, files: Path) -> None:
    outcome = cvm("inspect", MODEL, "--draw", "net.svg", "--json")
    assert outcome.document["file"] == {"path": "net.svg", "bytes": Path("net.svg").stat().st_size}
    root = ElementTree.parse("net.svg").getroot()
    assert root.tag.endswith("svg")
    boxes = root.findall("{http://www.w3.org/2000/svg}g")
    assert len(boxes) == len(outcome.document["nodes"]) + len(outcome.document["inputs"])
    assert "wrote   net.svg" in cvm("inspect", MODEL, "--draw", "net.svg").out
    assert "prefers-color-scheme:dark" in Path("net.svg").read_text("utf-8")


def test_the_time_of_every_node_is_shown(cvm: Cvm, files: Path) -> None:
    for name in ("negated.cvm", "counter.cvm", "pair.cvm", str(MODEL)):
        document = cvm("inspect", name, "--profile", "--json").document
        nodes = cvm("inspect", name, "--json").document["nodes"]
        assert [node["op"] for node in document["nodes"]] == [node["op"] for node in nodes]
        assert all(node["seconds"] >= 0 for node in document["nodes"])
    text = cvm("inspect", "negated.cvm", "--profile").out
    assert "microseconds" in text
    assert "by numpy, node by node" in text
    outcome = cvm("inspect", "negated.cvm", "--profile", "--cost")
    assert outcome.code == 2
    assert "give one" in outcome.err


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_spinner_within_another_changes_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    said: list[str] = []
    with output.working("outer"):
        output._spinners[0] = said.append
        with output.working("inner") as tell:
            tell("later")
        assert said == ["inner", "later"]
    assert output._spinners == []


def test_opening_a_program_shows_a_spinner(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    seen: list[int] = []
    whole = models._opened

    def opened(*arguments: object) -> object:
        seen.append(len(output._spinners))
        return whole(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(models, "_opened", opened)
    assert models.open_program(Path("negated.cvm")).program == load("negated.cvm") == small.negated()
    assert seen == [1]


@pytest.mark.parametrize(
    ("spec", "parts"),
    [
        (r"C:\data\x.npz", (None, r"C:\data\x.npz", None)),
        (r"C:\data\x.npz:image", (None, r"C:\data\x.npz", "image")),
        (r"image=C:\data\x.npz", ("image", r"C:\data\x.npz", None)),
        ("image=D:/data/x.npz:a", ("image", "D:/data/x.npz", "a")),
        ("x.npz:C", (None, "x.npz", "C")),
        ("C:x", (None, "C", "x")),
    ],
)
def test_the_colon_of_a_drive_begins_no_member(spec: str, parts: tuple[str | None, str, str | None]) -> None:
    assert feeds.parts(spec) == parts


def test_a_command_runs_a_program_without_a_library_of_validators(tmp_path: Path) -> None:
    program, result = str(LANGUAGE_MODEL), str(tmp_path / "result.npz")
    values = tmp_path / "token.npy"
    declared = load(LANGUAGE_MODEL).inputs[0].value
    np.save(values, np.full(declared.shape, declared.lo, np.int32))
    arguments = ["run", program, "-i", f"{declared.name}={values}", "--codes", "-o", result]
    code = "import sys; from cvm.cli import main; print(main(sys.argv[1:]), 'pydantic' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0 False", done.stderr
