"""Mutants of a small package of its own: what is changed, which tests are run, what is remembered and reported."""

from __future__ import annotations

import ast
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from tools import mutate

from tools.mutation.changes import Change, Key, changes, is_program, mutated  # isort: skip - found through tools.mutate
from tools.mutation.planner import Budget, planned  # isort: skip
from tools.mutation.recordings import Recording, needs_coverage, recordings, test_files as files_of_tests  # isort: skip
from tools.mutation.verdicts import Entry, Log, accepted, problems, table  # isort: skip

recorded = pytest.mark.skipif(importlib.util.find_spec("coverage") is None, reason=needs_coverage)

MODULE = "pkg/sums.py"
SOURCE = '''\
"""Sums of 1."""

LIMIT = 3


def clipped(x: int = 0) -> "int":
    return min(x, LIMIT)


def unused(x):
    return x + 1


def emptied(n):
    if n > 0:
        n = 0
    return n
'''
TESTS = """\
import pytest
from pkg.sums import clipped, emptied


@pytest.mark.parametrize("x", range(6))
def test_clipped(x):
    assert clipped(x) == (x if x < 3 else 3)


def test_emptied():
    assert emptied(4) == 0


def test_that_fails_anyway():
    assert emptied(2) == 2
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with one package, one module and one file of tests."""
    tree = tmp_path / "tree"
    for name, text in {
        "pkg/__init__.py": "",
        MODULE: SOURCE,
        "tests/test_sums.py": TESTS,
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
    }.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text, "utf-8")
    return tree


def texts(source: str) -> list[tuple[str, str, str]]:
    return [(item.key.function, item.key.old, item.key.new) for item in changes(MODULE, source.encode())]


def change(old: str, new: str, source: str = SOURCE) -> Change:
    found = [item for item in changes(MODULE, source.encode()) if (item.key.old, item.key.new) == (old, new)]
    assert len(found) == 1
    return found[0]


# --- what is changed --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return a < b", "return a <= b"),
        ("return a < b", "return a >= b"),
        ("return a in b", "return a not in b"),
        ("return a is not b", "return a is b"),
        ("return a and b", "return a or b"),
        ("return a << b", "return a >> b"),
        ("return a & b", "return a | b"),
        ("return a ^ b", "return a | b"),
        ("return a / b", "return a * b"),
        ("return a // b", "return (-(-a // b))"),
        ("return f(a, 7)", "return f(a, 8)"),
        ("return not a", "return a"),
        ("return a if f(b) else 0", "return a if (not f(b)) else 0"),
        ("return a[b:]", "return a[b + 1:]"),
        ("return max(a, b)", "return min(a, b)"),
        ("return True", "return False"),
    ],
)
def test_one_token_is_changed_and_the_rest_of_the_text_stays(old: str, new: str) -> None:
    assert ("f", old, new) in texts(f"def f(a, b):\n    {old}\n")


def test_spaces_comments_and_line_breaks_around_an_operator_stay() -> None:
    source = "def f(a, b):\n    return (  # both\n        a  <  # less\n        b and   a\n    )\n"
    assert ("f", "b and   a", "b or   a") in texts(source)
    assert ("f", "x = 'é' + 'è'; y = a  <=  b", "x = 'é' + 'è'; y = a  <  b") in texts(
        "def f(a, b):\n    x = 'é' + 'è'; y = a  <=  b\n"
    )


@pytest.mark.parametrize(
    "source",
    [
        '"""Text of 1 and 2."""\n__all__ = ["a", "b"]\n',
        "from typing import TypeAlias\nPair: TypeAlias = 'tuple[int, int] | None'\nx: int | None\n",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    LIMIT = 5\n",
        "@dataclass(frozen=True)\nclass A:\n    'Text.'\n    x: int\n",
        "def f(x: Literal[1] | None) -> int | None:\n    raise ValueError(x + 1)\n",
        "def f(x):\n    return Invalid('code', f'{x + 1} of 3', Location(line=x + 1))\n",
        "def f(x):\n    return f'{x + 1}'\n",
        "def f(x):\n    return made(x, note=x + 1, label=2)\n",
        "def explain(x):\n    return x + 1\nclass A:\n    def cost(self):\n        return 1\n",
    ],
)
def test_what_no_result_depends_on_is_not_changed(source: str) -> None:
    ast.parse(source)
    assert texts(source) == []


def test_messages_of_assertions_stay_and_their_conditions_do_not() -> None:
    assert texts("assert x < 1, 2 + 3\n") == [
        ("<module>", "assert x < 1, 2 + 3", "assert x <= 1, 2 + 3"),
        ("<module>", "assert x < 1, 2 + 3", "assert x >= 1, 2 + 3"),
        ("<module>", "assert x < 1, 2 + 3", "assert x < 2, 2 + 3"),
        ("<module>", "assert x < 1, 2 + 3", "assert x < 0, 2 + 3"),
    ]


def test_results_are_changed_where_a_function_returns_an_integer() -> None:
    found = texts("class A:\n    def f(self, x) -> int:\n        return x\n")
    assert found == [("A.f", "return x", f"return ({new})") for new in ("x + 1", "x - 1", "-x")]


def test_keys_do_not_depend_on_the_location_and_equal_changes_are_numbered() -> None:
    twice = "def f(x):\n    if x:\n        return 1\n    return 1\n"
    moved = "# more\n\n" + twice
    keys = [item.key for item in changes(MODULE, twice.encode())]
    assert keys == [item.key for item in changes(MODULE, moved.encode())]
    assert Key(MODULE, "f", "return 1", "return 2", 2) in keys
    assert len(set(keys)) == len(keys)


def test_every_change_of_the_product_has_its_own_key_and_most_are_programs() -> None:
    root = Path(__file__).parents[2]
    for module in ("cvm/quantization/steps.py", "cvm/executors/numpy/reduce.py"):
        source = (root / module).read_bytes()
        found = changes(module, source)
        assert len({item.key for item in found}) == len(found) > 30
        programs = [item for item in found if is_program(mutated(source, item))]
        assert len(programs) > 0.99 * len(found)
        assert all(ast.dump(ast.parse(mutated(source, item))) != ast.dump(ast.parse(source)) for item in programs)


# --- which tests are run ----------------------------------------------------------------------------------------------

LINES = {"3": [""], "6": [""], "7": ["t::a[1]", "t::a[2]", "t::slow"], "15": ["t::b"], "16": ["t::b"]}
SECONDS = {"t::a[1]": 0.01, "t::a[2]": 0.02, "t::b": 0.5, "t::slow": 9.0, "t::other": 0.1}
RECORDING = Recording("t", "", {}, SECONDS, {MODULE: LINES})
ROOMY = Budget(100, 100.0)


def test_the_tests_that_run_a_line_are_planned_the_fastest_first() -> None:
    assert list(planned(change("n = 0", "n = 1"), [RECORDING], ROOMY)) == ["t::b"]
    assert list(planned(change("return min(x, LIMIT)", "return max(x, LIMIT)"), [RECORDING], ROOMY)) == [
        "t::a[1]",
        "t::slow",
        "t::a[2]",
    ]


def test_a_second_case_of_a_test_comes_behind_the_first_case_of_every_test() -> None:
    seconds = {"t::a[1]": 0.1, "t::a[2]": 0.1, "t::a[3]": 0.1, "t::b": 5.0}
    recording = Recording("t", "", {}, seconds, {MODULE: {"7": list(seconds)}})
    plan = planned(change("return min(x, LIMIT)", "return max(x, LIMIT)"), [recording], Budget(2, 100.0))
    assert plan == {"t::a[1]": 0.1, "t::b": 5.0}


def test_a_line_that_runs_on_import_has_all_tests_of_the_file_those_of_the_module_first() -> None:
    for old, new in (
        ("LIMIT = 3", "LIMIT = 4"),
        ('def clipped(x: int = 0) -> "int":', 'def clipped(x: int = 1) -> "int":'),
    ):
        plan = list(planned(change(old, new), [RECORDING], ROOMY))
        assert plan == ["t::a[1]", "t::b", "t::slow", "t::a[2]", "t::other"]


def test_a_line_that_no_test_runs_is_not_covered() -> None:
    assert planned(change("return x + 1", "return x - 1"), [RECORDING], ROOMY) == {}


@pytest.mark.parametrize(
    ("budget", "plan"),
    [
        (Budget(1, 100.0), ["t::a[1]"]),
        (Budget(9, 1.0), ["t::a[1]", "t::a[2]"]),
        (Budget(9, 0.0), ["t::a[1]"]),
    ],
)
def test_a_plan_keeps_to_its_budget_and_has_one_test_at_least(budget: Budget, plan: list[str]) -> None:
    assert list(planned(change("return min(x, LIMIT)", "return max(x, LIMIT)"), [RECORDING], budget)) == plan


# --- what is remembered and reported ----------------------------------------------------------------------------------

KEY = Key(MODULE, "f", "return x > 0", "return x >= 0")


def entry(verdict: str, key: Key = KEY) -> Entry:
    return Entry(key, "digest", verdict, 1, 3, 1.5, "t::a" if verdict == "killed" else "")  # type: ignore[arg-type]


def test_the_log_is_read_again_and_an_entry_counts_for_its_text_only(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "log.jsonl"
    log = Log(path)
    log.add(entry("survived"))
    log.add(entry("killed"))
    again = Log(path)
    assert again.find(KEY, "digest") == entry("killed")
    assert again.find(KEY, "another digest") is None
    assert len(path.read_text().splitlines()) == 2


def test_a_line_of_the_log_that_was_broken_off_is_left_out_and_the_next_begins_a_new_one(tmp_path: Path) -> None:
    path = tmp_path / "log.jsonl"
    Log(path).add(entry("killed"))
    path.write_text(path.read_text() + '{"key": {"modu')
    log = Log(path)
    other = Key(MODULE, "g", "a", "b")
    log.add(entry("survived", other))
    again = Log(path)
    assert (again.find(KEY, "digest"), again.find(other, "digest")) == (entry("killed"), entry("survived", other))


def test_only_survivors_without_a_reason_are_problems() -> None:
    assert problems([entry("survived")], {}, {}) == [f"survived: {KEY}"]
    assert problems([entry("survived")], {KEY: "0 is no input"}, {MODULE: {KEY}}) == []
    assert problems([entry("killed"), entry("not covered")], {}, {}) == []


@pytest.mark.parametrize("verdict", ["killed", "timeout"])
def test_an_accepted_mutant_that_is_killed_is_a_problem(verdict: str) -> None:
    (problem,) = problems([entry(verdict)], {KEY: "0 is no input"}, {MODULE: {KEY}})
    assert problem.startswith("accepted as equivalent, but")


def test_an_accepted_mutant_that_does_not_exist_is_a_problem_where_its_module_was_looked_at() -> None:
    (problem,) = problems([], {KEY: "0 is no input"}, {MODULE: set()})
    assert problem == f"accepted as equivalent, but there is no such mutant: {KEY}"
    assert problems([], {KEY: "0 is no input"}, {"pkg/other.py": set()}) == []


def test_the_table_counts_by_package_and_leaves_equivalent_ones_out_of_the_rate() -> None:
    keys = [Key(MODULE, "f", "a", str(index)) for index in range(5)]
    verdicts = ("killed", "timeout", "survived", "survived", "not covered")
    entries = [entry(verdict, key) for verdict, key in zip(verdicts, keys, strict=True)]
    rows = table({"pkg": entries, "empty": []}, {keys[3]: "the same"}).splitlines()
    assert rows[1].split() == ["pkg", "5", "1", "1", "1", "1", "1", "50", "%"]
    assert rows[2].split() == ["empty", "0", "0", "0", "0", "0", "0", "-"]
    assert rows[3].split()[1:] == rows[1].split()[1:]


def test_accepted_mutants_have_reasons(tmp_path: Path) -> None:
    path = tmp_path / "accepted.toml"
    fields = f"[[equivalent]]\nmodule = '{MODULE}'\nfunction = 'f'\nold = '{KEY.old}'\nnew = '{KEY.new}'\n"
    path.write_text(fields + "reason = '0 is no input'\n")
    assert accepted(path) == {KEY: "0 is no input"}
    path.write_text(fields)
    with pytest.raises(ValueError, match="has no reason"):
        accepted(path)
    path.write_text(2 * (fields + "reason = '0 is no input'\n"))
    with pytest.raises(ValueError, match="twice"):
        accepted(path)


def test_the_table_of_accepted_mutants_names_mutants_that_exist() -> None:
    reasons = accepted(mutate.ROOT / "tools" / "mutation" / "accepted.toml")
    existing: dict[str, set[Key]] = {}
    for module in {key.module for key in reasons}:
        path = mutate.ROOT / module
        existing[module] = {item.key for item in changes(module, path.read_bytes())} if path.is_file() else set()
    assert problems([], reasons, existing) == []


# --- whole runs -------------------------------------------------------------------------------------------------------


def run(root: Path, *arguments: str, equivalent: Mapping[Key, str] | None = None) -> int:
    table_of_accepted = root.parent / "accepted.toml"
    table_of_accepted.write_text(
        "".join(
            f"[[equivalent]]\nmodule = '{key.module}'\nfunction = '{key.function}'\nold = '{key.old}'\n"
            f"new = '{key.new}'\nreason = '{reason}'\n"
            for key, reason in (equivalent or {}).items()
        )
    )
    options = ["--root", str(root), "--accepted", str(table_of_accepted), "--grace", "20", "--workers", "2"]
    return mutate.main(["pkg", *options, *arguments])


def verdicts(root: Path) -> dict[tuple[str, str], str]:
    lines = (root / ".mutation" / "log.jsonl").read_text("utf-8").splitlines()
    found = [json.loads(line) for line in lines]
    return {(item["key"]["old"], item["key"]["new"]): item["verdict"] for item in found}


@pytest.mark.long
@recorded
def test_mutants_are_killed_by_the_tests_that_run_them_and_the_tree_is_left_alone(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert run(root) == 1
    after = {path.relative_to(root): path.read_bytes() for path in root.rglob("*") if path.is_file()}
    assert {path: data for path, data in after.items() if path.parts[0] != ".mutation"} == before
    found = verdicts(root)
    assert found["return min(x, LIMIT)", "return max(x, LIMIT)"] == "killed"
    assert found["LIMIT = 3", "LIMIT = 4"] == "killed"
    assert found["return x + 1", "return x - 1"] == "not covered"
    assert found["if n > 0:", "if n >= 0:"] == "survived"
    printed = capsys.readouterr().out
    assert "-    if n > 0:\n+    if n >= 0:" in printed
    assert f"survived: {MODULE}: emptied: 'if n > 0:' -> 'if n >= 0:'" in printed
    assert f"{MODULE}:15 (emptied)" in printed


@pytest.mark.long
@recorded
def test_a_run_is_taken_up_again_and_a_changed_module_is_tried_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(root, "--sample", "2", "--seed", "3")
    first = verdicts(root)
    assert len(first) == 2
    with monkeypatch.context() as patch:
        patch.setattr(mutate, "recordings", lambda *arguments: pytest.fail("nothing is left to be tried"))
        run(root, "--sample", "2", "--seed", "3")
    assert verdicts(root) == first
    run(root, "--sample", "4", "--seed", "3")
    assert len(verdicts(root)) == 4
    assert set(first) < set(verdicts(root))
    (root / MODULE).write_text("# moved\n" + SOURCE)
    capsys.readouterr()
    run(root, "--sample", "2", "--seed", "3")
    assert "recorded tests/test_sums.py" in capsys.readouterr().out
    assert len((root / ".mutation" / "log.jsonl").read_text().splitlines()) == 6


@recorded
def test_accepted_mutants_are_always_tried_and_must_survive(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = Key(MODULE, "emptied", "if n > 0:", "if n > 0 + 0:")
    killed = Key(MODULE, "clipped", "return min(x, LIMIT)", "return max(x, LIMIT)")
    assert run(root, "--sample", "0", equivalent={same: "0 + 0 = 0", killed: "a mistake"}) == 1
    printed = capsys.readouterr().out
    assert f"accepted as equivalent, but there is no such mutant: {same}" in printed
    assert "accepted as equivalent, but killed by tests/test_sums.py::test_clipped[" in printed


@pytest.mark.long
@recorded
def test_a_mutant_that_does_not_end_counts_as_killed_by_its_time(root: Path) -> None:
    (root / MODULE).write_text(SOURCE.replace("if n > 0:\n        n = 0", "while n > 0:\n        n = n - 1"))
    endless = Key(MODULE, "emptied", "n = n - 1", "n = n + 1")
    assert run(root, "--sample", "0", "--grace", "6", equivalent={endless: "a mistake"}) == 1
    assert verdicts(root) == {(endless.old, endless.new): "timeout"}


@pytest.mark.long
@recorded
def test_a_test_that_fails_or_is_gone_without_a_change_kills_nothing(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The recording holds it as if it had passed, as one that needs the original location of the tree would."""
    made = mutate.recordings

    def with_others(*arguments: object) -> list[Recording]:
        (recording,) = made(*arguments)  # type: ignore[arg-type]
        others = {f"tests/test_sums.py::test_{name}": 0.0 for name in ("that_fails_anyway", "gone")}
        lines = {MODULE: {line: [*names, *others] for line, names in recording.lines[MODULE].items()}}
        return [Recording(recording.file, "", {}, {**recording.seconds, **others}, lines)]

    monkeypatch.setattr(mutate, "recordings", with_others)
    (root / MODULE).write_text(SOURCE.replace("    return n\n", "    return n * 2\n"))
    lives = Key(MODULE, "emptied", "return n * 2", "return n * 3")
    assert run(root, "--sample", "0", equivalent={lives: "n is 0"}) == 0
    assert verdicts(root) == {(lives.old, lives.new): "survived"}


@pytest.mark.long
@recorded
def test_recordings_are_kept_until_the_tests_or_the_module_change(root: Path, tmp_path: Path) -> None:
    said: list[str] = []

    def made() -> Recording:
        files = files_of_tests(root, ["tests"])
        (found,) = recordings(root, ["pkg"], files, tmp_path / "store", 1, 60.0, said.append)
        return found

    first = made()
    assert set(first.seconds) == {*(f"tests/test_sums.py::test_clipped[{x}]" for x in range(6)), EMPTIED}
    assert first.tests(MODULE, [15]) == {EMPTIED}
    assert first.tests(MODULE, [3]) == {""}
    assert first.tests(MODULE, [11]) == set()
    assert made() == first
    assert len(said) == 1
    (root / MODULE).write_text("\n" + SOURCE)
    assert made().tests(MODULE, [16]) == {EMPTIED}
    (root / "tests" / "test_sums.py").write_text(TESTS.replace("test_emptied", "test_again"))
    assert made().tests(MODULE, [16]) == {"tests/test_sums.py::test_again"}
    assert len(said) == 3


EMPTIED = "tests/test_sums.py::test_emptied"


def test_a_missing_coverage_is_named(
    root: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "coverage" else found(name))
    assert run(root, "--sample", "1") == 2
    assert capsys.readouterr().err == f"skipped: {needs_coverage}\n"


def test_a_list_of_mutants_tries_none(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(root, "--list", "--sample", "3") == 0
    assert capsys.readouterr().out.count("+++ mutant") == 3
    assert not (root / ".mutation").exists()


@pytest.mark.parametrize("arguments", [["--only-tests", "tests/test_other.py"], ["other"]])
def test_tests_and_packages_that_do_not_exist_are_named(
    root: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    assert run(root, *arguments) == 2
    assert "there are none below" in capsys.readouterr().err
