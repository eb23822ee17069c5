"""What is shipped: complete, small, and exactly what the maker writes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from cvm.ops import REGISTRY
from cvm.program import decode as decode_program
from cvm.vectors import CommandRunner, OpCase, ProgramCase, VerdictCase
from tests.spec_vectors.shipped import FOLDER, ROOT, files, op_cases, program_cases, verdict_cases
from tools.make_vectors import differences, encoded, made, write

MAKER = ROOT / "tools" / "make_vectors.py"
DERIVED = (*FOLDER.rglob("*.receipt"), *FOLDER.rglob("*.step"))


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The maker in a process of its own."""
    command = [sys.executable, str(MAKER), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def contents(folder: Path) -> dict[str, bytes]:
    paths = [path for path in folder.rglob("*") if path.is_file() and path.name != "README.md"]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.slow
def test_files_that_are_not_as_they_would_be_written_are_named_and_written_again(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    clip = tmp_path / "ops" / "elemwise" / "clip.msgpack"
    clip.write_bytes(clip.read_bytes()[:-1] + b"?")
    (tmp_path / "ops" / "nn" / "relu.msgpack").unlink()
    (tmp_path / "programs" / "other.msgpack").write_bytes(b"")
    written = encoded(made())
    assert differences(tmp_path, written) == [
        "missing: ops/nn/relu.msgpack",
        "unexpected: programs/other.msgpack",
        "different: ops/elemwise/clip.msgpack",
    ]
    write(tmp_path, written)
    assert contents(tmp_path) == contents(FOLDER)


@pytest.mark.long
def test_the_bytes_do_not_depend_on_hash_seeds() -> None:
    again = run("--check", PYTHONHASHSEED="12345")
    assert (again.returncode, again.stdout) == (
        0,
        f"{len(files()) + len(DERIVED)} files are as they would be written\n",
    )


@pytest.mark.long
def test_the_command_writes_and_checks(tmp_path: Path) -> None:
    result = run("--check", "--out", str(tmp_path))
    assert result.returncode == 1
    assert result.stdout.splitlines() == [f"missing: {path}" for path in encoded(made())]
    assert run("--out", str(tmp_path)).returncode == 0
    assert contents(tmp_path) == contents(FOLDER)


def test_the_files_lie_where_their_family_says() -> None:
    for path, file in files().items():
        if file.op in REGISTRY:
            assert path == f"ops/{REGISTRY[file.op].family}/{file.op}.msgpack"
        else:
            assert path.startswith("ops/unknown/" if file.op else f"{file.kind}s/")


def test_the_vectors_are_small() -> None:
    assert sum(path.stat().st_size for path in FOLDER.rglob("*.msgpack")) < 3 * 2**20


@pytest.mark.parametrize("op", REGISTRY)
def test_every_op_has_at_least_forty_values(op: str) -> None:
    assert sum(case.verdict == "value" for case in op_cases(op)) >= 40


@pytest.mark.parametrize("op", REGISTRY)
def test_every_constraint_and_attribute_of_an_op_has_a_refusal(op: str) -> None:
    codes = {case.code for case in op_cases(op) if case.verdict != "value"}
    declaration = REGISTRY[op]
    parts = [rule.label for rule in declaration.constraints]
    parts += [f"attribute.{name}" for name in declaration.Attributes.declared]
    assert {f"ops.{op}.{part}" for part in (*parts, "arity")} <= codes


def test_ids_are_unique_in_every_file_and_every_case_says_its_aim() -> None:
    for file in files().values():
        assert max(Counter(case.id for case in file.cases).values()) == 1
        assert all(case.aim and "\n" not in case.aim for case in file.cases)


def test_every_witness_of_the_errata_is_a_case() -> None:
    text = (ROOT / "formal" / "ERRATA.md").read_text("utf-8")
    cases = [case.id for file in files().values() for case in file.cases if case.id.startswith("errata_")]
    assert sorted(cases) == sorted(set(re.findall(r"`(errata_\w+)`", text)))


def test_every_class_of_verdict_occurs_in_ops_or_programs() -> None:
    verdicts = {
        kind: {case.verdict for file in files().values() for case in file.cases if isinstance(case, kind)}
        for kind in (OpCase, ProgramCase, VerdictCase)
    }
    all_of_them = {"value", "invalid", "malformed", "limit"}
    assert verdicts == {OpCase: {"value", "invalid", "limit"}, ProgramCase: all_of_them, VerdictCase: all_of_them}


@pytest.mark.parametrize("op", REGISTRY)
def test_verdicts_have_every_rule_of_every_op_and_five_accepted_programs_of_it(op: str) -> None:
    declaration = REGISTRY[op]
    parts = [rule.label for rule in declaration.constraints]
    parts += [f"attribute.{name}" for name in declaration.Attributes.declared]
    codes = {case.code for case in verdict_cases()}
    assert {f"ops.{op}.{part}" for part in (*parts, "arity")} <= codes
    accepted = [case for case in verdict_cases() if case.id.startswith(f"{op}_") and case.verdict == "value"]
    assert len(accepted) >= 5


def test_there_are_at_least_twelve_whole_programs_some_with_state_over_several_runs() -> None:
    values = [case for case in program_cases() if case.verdict == "value"]
    assert len(values) >= 12
    assert sum(len(case.runs) >= 3 and bool(decode_program(case.program).state) for case in values) >= 3
    ops = {node.op for case in values for node in decode_program(case.program).nodes}
    assert {"conv2d", "dense", "requantize", "get_valid_count", "non_max_suppression", "max_pool2d"} <= ops


def test_the_readme_shows_the_bytes_as_they_are(tmp_path: Path) -> None:
    text = (FOLDER / "README.md").read_text("utf-8")
    blocks = [
        bytes.fromhex("".join(row.split("#")[0].replace(" ", "") for row in block.splitlines()))
        for block in re.findall(r"```hex\n(.*?)```", text, flags=re.DOTALL)
    ]
    file, question, answer = blocks
    assert file == (FOLDER / "ops" / "unknown" / "cvm_cilp.msgpack").read_bytes()
    assert f"`ops/unknown/cvm_cilp.msgpack`, {len(file)} bytes" in text
    assert f"{len(question)} bytes with its length, and its answer, {len(answer)} bytes" in text
    (case,) = (case for case in op_cases("negative") if case.id == "errata_E1_largest_magnitude")
    asked = tmp_path / "asked"
    program = (
        "import sys; from pathlib import Path; "
        f"Path({str(asked)!r}).write_bytes(sys.stdin.buffer.read({len(question)})); "
        f"sys.stdout.buffer.write(bytes.fromhex({answer.hex()!r}))"
    )
    with CommandRunner(f"{sys.executable} -c '{program.replace(chr(39), chr(34))}'") as runner:
        assert runner.op(case).outputs == case.outputs
    assert asked.read_bytes() == question
