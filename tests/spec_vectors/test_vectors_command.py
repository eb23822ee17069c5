"""External programs: the consumer passes; programs that break the protocol fail their cases and harm nothing else."""

from __future__ import annotations

import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cvm.errors import Invalid
from cvm.vectors import CommandRunner, check
from tests.spec_vectors.shipped import FOLDER, ROOT, files, op_cases

CONSUMER = ROOT / "tools" / "consume_vectors.py"
ALLOWED = {"contextlib", "itertools", "math", "pathlib", "signal", "struct", "sys"}

FRAMES = """
import sys, struct, time, os
def questions():
    while True:
        header = sys.stdin.buffer.read(4)
        if len(header) < 4:
            return
        body = sys.stdin.buffer.read(struct.unpack("<I", header)[0])
        at = body.index(b"\\xa2id") + 3
        yield body[at:at + 1]
def answer(body):
    sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
    sys.stdout.buffer.flush()
def verdict(number, text, *rest):
    name = bytes([0xa0 + len(text)]) + text
    return bytes([0x82 + len(rest) // 2]) + b"\\xa2id" + number + b"\\xa7verdict" + name + b"".join(rest)
"""


def program(tmp_path: Path, body: str) -> str:
    """The command of a program that answers with ``body`` for every ``number``."""
    path = tmp_path / "a program.py"
    path.write_text(f"{FRAMES}\nfor number in questions():\n    {body}\n", "utf-8")
    return shlex.join([sys.executable, "-S", "-E", str(path)])


def message(command: str, timeout: float = 20) -> str:
    """What the first case of abs says."""
    with CommandRunner(command, timeout) as runner:
        answer = runner.op(op_cases("abs")[0])
    assert answer.verdict == "error"
    return answer.message


def test_the_consumer_passes_all_values_of_the_ops_that_it_has() -> None:
    with CommandRunner(shlex.join([sys.executable, "-I", str(CONSUMER), "--serve"])) as runner:
        report = check(FOLDER, runner, ["value"])
    assert report.first is None
    skipped = {tally.op for tally in report.tallies if tally.skipped and "/" not in tally.op}
    assert skipped == {"get_valid_count", "non_max_suppression", "upsampling"}
    assert all(tally.skipped in (0, tally.cases) for tally in report.tallies)


def test_the_consumer_reads_the_files_itself_and_says_what_it_skips() -> None:
    command = [sys.executable, "-I", str(CONSUMER), str(FOLDER)]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = dict(line.split(": ", 1) for line in result.stdout.splitlines())
    assert len(lines) == len(files())
    values = sum(case.verdict == "value" for case in op_cases("conv2d"))
    assert lines["conv2d"] == f"{values} passed, {len(op_cases('conv2d')) - values} skipped, failed: []"
    assert lines["upsampling"].startswith("0 passed, ")


def test_the_consumer_is_short_and_uses_the_standard_library_only() -> None:
    lines = CONSUMER.read_text("utf-8").splitlines()
    assert len(lines) < 310  # 240 for op-set 1, 70 more for op-set 2
    imports = [line for line in lines if line.startswith(("import ", "from "))]
    assert {line.split()[1] for line in imports} <= ALLOWED


def test_a_refusal_with_its_code_passes(tmp_path: Path) -> None:
    code = b"ops.clip.C1"
    refuse = f"answer(verdict(number, b'invalid', b'\\xa4code', b'\\xab' + {code!r}))"
    case = next(case for case in op_cases("clip") if case.code == "ops.clip.C1")
    with CommandRunner(program(tmp_path, refuse)) as runner:
        answer = runner.op(case)
    assert (answer.verdict, answer.code) == ("invalid", "ops.clip.C1")


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("sys.exit()", "the program ended without an answer"),
        ("answer(b'\\xc1')", "the answer is not msgpack"),
        ("answer(b'\\x80' + bytes(3))", "the answer is not msgpack"),
        ("answer(b'')", "the answer is not msgpack"),
        ("answer(b'\\x90')", "the answer is no map with id 1"),
        ("answer(verdict(b'\\x07', b'invalid'))", "the answer is no map with id 1"),
        ("answer(verdict(number, b'maybe'))", "the verdict is none of "),
        ("sys.stdout.buffer.write(b'\\xff' * 4); sys.stdout.flush()", "announced a frame of 4294967295 bytes"),
        ("sys.stdout.buffer.write(b'\\x09\\x00\\x00\\x00abc'); sys.exit()", "ended after 3 of 9 bytes"),
        ("answer(verdict(number, b'value', b'\\xa7outputs', b'\\x01'))", "outputs has the type int, expected list"),
        ("answer(verdict(number, b'value', b'\\xa7outputs', b'\\x91\\x90'))", "a tensor is [dtype, shape, data]"),
        (
            "answer(verdict(number, b'value', b'\\xa7outputs', b'\\x91\\x93\\xa5int32\\x91\\x02\\xc4\\x04abcd'))",
            "a tensor has 4 bytes for int32 elements of shape [2]",
        ),
        (
            "answer(verdict(number, b'value', b'\\xa7outputs', b'\\x91\\x93\\xa5int32\\x91\\xc3\\xc4\\x04abcd'))",
            "a tensor has the shape [True]",
        ),
        ("answer(verdict(number, b'invalid', b'\\xa4code', b'\\x01'))", "code has the type int, expected str"),
        ("answer(verdict(number, b'error', b'\\xa7message', b'\\xa2no'))", "no"),
    ],
)
def test_a_program_that_breaks_the_protocol_fails_the_case(tmp_path: Path, body: str, expected: str) -> None:
    assert expected in message(program(tmp_path, body))


def test_a_program_that_does_not_answer_fails_the_case_in_time(tmp_path: Path) -> None:
    started = time.monotonic()
    assert message(program(tmp_path, "time.sleep(600)"), 0.5) == "no answer within 0.5 seconds"
    assert time.monotonic() - started < 20


def test_a_program_that_does_not_read_fails_the_case_in_time(tmp_path: Path) -> None:
    path = tmp_path / "deaf.py"
    path.write_text("import time; time.sleep(600)", "utf-8")
    big = max(op_cases("tile"), key=lambda case: sum(len(x.data) for x in (*case.inputs, *case.outputs)))
    with CommandRunner(shlex.join([sys.executable, str(path)]), 0.5) as runner:
        assert runner.op(big).message == "no answer within 0.5 seconds"


def test_a_program_that_failed_is_started_again_and_given_up_after_three_failures(tmp_path: Path) -> None:
    log = tmp_path / "log"
    body = f"open({str(log)!r}, 'a').write('asked '); sys.exit() if open({str(log)!r}).read().count('asked') < 3 else "
    cases = op_cases("abs")
    with CommandRunner(program(tmp_path, body + "answer(verdict(number, b'unsupported'))")) as runner:
        assert [runner.op(case).verdict for case in cases[:4]] == ["error", "error", "unsupported", "unsupported"]
    with CommandRunner(program(tmp_path, "sys.exit()")) as runner:
        messages = [runner.op(case).message for case in cases[:5]]
    assert messages[2:] == ["the program ended without an answer", *["the program was given up after 3 failures"] * 2]


def test_a_program_ends_with_its_input(tmp_path: Path) -> None:
    mark = tmp_path / "ended"
    path = tmp_path / "a program.py"
    path.write_text(f"{FRAMES}\nfor number in questions(): pass\nopen({str(mark)!r}, 'w').close()\n", "utf-8")
    CommandRunner(shlex.join([sys.executable, str(path)])).close()
    assert mark.exists()


def test_the_command_is_split_without_a_shell(tmp_path: Path) -> None:
    mark = tmp_path / "made by a shell"
    with pytest.raises(Invalid) as caught:
        CommandRunner(f"no-such-program-anywhere; touch {shlex.quote(str(mark))}")
    assert caught.value.code == "vectors.command"
    assert not mark.exists()


@pytest.mark.parametrize("command", ["", "   ", "no-such-program-anywhere", "'unclosed", "a\0b"])
def test_a_command_that_cannot_be_started_is_named(command: str) -> None:
    with pytest.raises(Invalid) as caught:
        CommandRunner(command)
    assert caught.value.code == "vectors.command"
