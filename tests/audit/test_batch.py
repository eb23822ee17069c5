"""Folders of receipts: every answer found, none twice, and none believed from a log that is not whole."""

from __future__ import annotations

import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from cvm.arrays import npz_bytes
from cvm.audit import Judging, save_receipt
from cvm.audit.batch import Order, receipts_in, verify_all
from cvm.audit.batch.work import read_task
from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.executors import EXECUTORS
from cvm.workers import AHEAD, RETRIES
from cvm.workers.processes import Processes
from tests.audit.examples import Subject, subject

PROGRAM = subject("negated").verified
ORDER = Order((PROGRAM.program.to_bytes(),), codes=True)


@pytest.fixture
def folder(tmp_path):
    """Twelve receipts of which eight are true."""
    root = tmp_path / "receipts"
    (root / "inner").mkdir(parents=True)
    for number in range(12):
        image = np.full((1, 2, 3), number)
        receipt = Subject(PROGRAM, {"image": image}).receipt(trace=number % 2 == 0)
        if number == 3:
            (run,) = receipt.claim.runs
            false = replace(run, outputs=run.outputs[::-1])
            receipt = replace(receipt, claim=replace(receipt.claim, runs=(false,)))
        if number == 5:
            receipt = subject("pair").receipt()
        path = root / ("inner" if number > 8 else "") / f"{number:02}.receipt"
        save_receipt(path, receipt)
        if number != 7:
            path.with_suffix(".npz").write_bytes(npz_bytes({"image": image}))
    (root / "04.receipt").write_bytes(b"no receipt")
    return root


FALSE = {"03.receipt": "DIVERGED", "04.receipt": "CANNOT_RECOMPUTE", "05.receipt": "CANNOT_RECOMPUTE"}
EXPECTED = {
    **{f"{number:02}.receipt": "REPRODUCED" for number in range(9)},
    **{f"inner/{number:02}.receipt": "REPRODUCED" for number in range(9, 12)},
    **FALSE,
    "07.receipt": "CANNOT_RECOMPUTE",
}


def verified(folder: Path, log: Path | None = None, order: Order = ORDER, jobs: int = 2):
    return list(verify_all(folder, receipts_in(folder), order, log, Processes(jobs)))


def test_what_is_called_a_receipt_and_is_no_file_is_answered_by_name(folder, tmp_path):
    (folder / "dangling.receipt").symlink_to("nowhere")
    (folder / "ring.receipt").symlink_to("ring.receipt")
    (folder / "empty.receipt").mkdir()
    (folder / "device.receipt").symlink_to("/dev/zero")
    (folder / "inner" / "elsewhere.receipt").symlink_to(tmp_path)
    (folder / "whole.receipt").symlink_to("00.receipt")
    os.mkfifo(folder / "inner" / "pipe.receipt")
    os.mkfifo(folder / "07.npz")
    (folder / "whole.npz").symlink_to("00.npz")
    begin = time.monotonic()
    found = {item.path: item for item in verified(folder, tmp_path / "log")}
    assert time.monotonic() - begin < 60
    assert {path: item.answer for path, item in found.items()} == {
        **EXPECTED,
        "whole.receipt": "REPRODUCED",
        "dangling.receipt": "CANNOT_RECOMPUTE",
        "ring.receipt": "CANNOT_RECOMPUTE",
        "empty.receipt": "CANNOT_RECOMPUTE",
        "device.receipt": "CANNOT_RECOMPUTE",
        "inner/elsewhere.receipt": "CANNOT_RECOMPUTE",
        "inner/pipe.receipt": "CANNOT_RECOMPUTE",
    }
    assert found["dangling.receipt"].reason == "cannot be read: No such file or directory"
    assert "this is not a regular file" in found["inner/pipe.receipt"].reason
    assert "this is not a regular file" in found["07.receipt"].reason
    again = {item.path: item.answer for item in verified(folder, tmp_path / "log")}
    assert again == {path: item.answer for path, item in found.items()}


def test_a_folder_inside_that_cannot_be_read_is_an_error(folder, monkeypatch):
    honest = os.scandir

    def scandir(path):
        if os.path.basename(path) == "inner":
            raise PermissionError(13, "Permission denied", path)
        return honest(path)

    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(Invalid, match="the folder cannot be read: Permission denied") as caught:
        receipts_in(folder)
    assert caught.value.location.file == str(folder / "inner")


def test_every_receipt_has_its_answer_and_a_second_look_needs_no_work(folder, tmp_path):
    log = tmp_path / "log"
    found = verified(folder, log)
    assert {item.path: item.answer for item in found} == EXPECTED
    assert not any(item.resumed for item in found)
    again = verified(folder, log)
    assert all(item.resumed for item in again)
    assert sorted((item.path, item.answer, item.level, item.reason) for item in again) == sorted(
        (item.path, item.answer, item.level, item.reason) for item in found
    )


def test_a_file_that_changed_is_verified_again(folder, tmp_path):
    log = tmp_path / "log"
    verified(folder, log, jobs=1)
    (folder / "00.npz").write_bytes(npz_bytes({"image": np.full((1, 2, 3), 9)}))
    (folder / "01.receipt").write_bytes((folder / "03.receipt").read_bytes())
    (folder / "02.npz").unlink()
    again = {item.path: item for item in verified(folder, log, jobs=1)}
    assert {path for path, item in again.items() if not item.resumed} == {"00.receipt", "01.receipt", "02.receipt"}
    assert all(again[path].answer == "CANNOT_RECOMPUTE" for path in ("00.receipt", "01.receipt", "02.receipt"))


def test_a_torn_line_is_dropped_and_the_log_goes_on(folder, tmp_path):
    log = tmp_path / "log"
    verified(folder, log, jobs=1)
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    log.write_bytes(b"".join(lines[:5]) + lines[5][:50])
    again = verified(folder, log, jobs=1)
    assert sum(item.resumed for item in again) == 4
    assert {item.path: item.answer for item in again} == EXPECTED
    assert sum(item.resumed for item in verified(folder, log, jobs=1)) == 12


def test_a_log_that_was_edited_is_refused(folder, tmp_path):
    log = tmp_path / "log"
    verified(folder, log, jobs=1)
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    edits = [
        whole.replace(b"DIVERGED", b"REPRODUCED"),
        whole.replace(b"CANNOT_RECOMPUTE\tstructure", b"REPRODUCED\tstructure"),
        whole.replace(b"03.receipt", b"02.receipt"),
        b"".join(lines[:3] + lines[4:]),
        b"".join([*lines[:2], lines[3], lines[2], *lines[4:]]),
        b"".join(lines[1:]),
        whole + whole,
        b"\n" + whole,
        b"\xff\n",
    ]
    for edited in edits:
        assert edited != whole
        log.write_bytes(edited)
        with pytest.raises((Malformed, Invalid)) as caught:
            verified(folder, log)
        assert caught.value.code == "audit.log"


def test_a_log_of_another_question_is_refused(folder, tmp_path):
    log = tmp_path / "log"
    verified(folder, log, jobs=1)
    pair = subject("pair").verified.program
    others = [
        (replace(ORDER, level="structure"), "--level was not given, and is structure now"),
        (replace(ORDER, executor="formal"), "--executor was not given, and is formal now"),
        (replace(ORDER, level="outputs", sample=1), "--level was not given"),
        (replace(ORDER, sample=1), "--sample was not given, and is 1 now"),
        (replace(ORDER, codes=False), "--codes was True, and is not given now"),
        (replace(ORDER, signers=(bytes(range(32)),)), f"--signer was not given, and is {bytes(range(32)).hex()} now"),
        (replace(ORDER, programs=(*ORDER.programs, pair.to_bytes())), f"--program was {PROGRAM.program.digest[:9]}"),
    ]
    for other, message in others:
        with pytest.raises(Invalid, match=re.escape(f"the log is of another question: {message}")) as caught:
            verified(folder, log, other)
        assert caught.value.code == "audit.log"
        assert "give the options of the log, or name another file" in str(caught.value)


def test_the_salt_is_no_question(folder, tmp_path):
    verified(folder, tmp_path / "log", jobs=1)
    again = verified(folder, tmp_path / "log", replace(ORDER, judging=Judging(salt="00ff")), jobs=1)
    assert all(item.resumed for item in again)


@pytest.mark.parametrize(
    ("first", "message"),
    [
        ("cvm-audit-log 2 0123", "of another version of cvm"),
        ("cvm-audit-log 3 {", "of another version of cvm"),
        ("cvm-audit-log 3 " + "[" * 100_000, "of another version of cvm"),
        ("cvm-audit-log 3 []", "of another version of cvm"),
        ("cvm-audit-log 3 {}", "cvm was not given"),
        ("something else", "of another version of cvm"),
    ],
)
def test_a_log_with_another_first_line_is_refused(folder, tmp_path, first, message):
    link = sha256(f"\n{first}".encode()).hexdigest()
    (tmp_path / "log").write_text(f"{link} {first}\n")
    with pytest.raises(Invalid, match=message) as caught:
        verified(folder, tmp_path / "log")
    assert caught.value.code == "audit.log"


def test_a_log_with_an_option_that_is_not_known_is_refused(folder, tmp_path):
    first = "cvm-audit-log 3 " + json.dumps({**ORDER.options(), "--new": 1}, sort_keys=True)
    link = sha256(f"\n{first}".encode()).hexdigest()
    (tmp_path / "log").write_text(f"{link} {first}\n")
    with pytest.raises(Invalid, match="has options that this version of cvm does not know"):
        verified(folder, tmp_path / "log")


def test_there_must_be_something_to_verify_and_something_that_can(folder, tmp_path):
    (tmp_path / "empty").mkdir()
    for where, order, code in (
        (tmp_path / "empty", ORDER, "audit.none"),
        (folder, replace(ORDER, executor="abacus"), "executors.unknown"),
    ):
        with pytest.raises(Invalid) as caught:
            verified(where, None, order)
        assert caught.value.code == code


@pytest.mark.parametrize("executor", EXECUTORS)
def test_every_executor_finds_the_same_answers(folder, executor):
    found = verified(folder, None, replace(ORDER, executor=executor), jobs=1)
    assert {item.path: item.answer for item in found} == EXPECTED


def test_what_is_no_log_is_refused(folder, tmp_path):
    with pytest.raises(CvmError):
        verified(folder, tmp_path)
    with pytest.raises(Invalid):
        verified(folder, tmp_path / "nowhere" / "log")


def test_a_process_that_is_killed_loses_no_receipt(folder):
    for number in range(20, 80):
        for suffix in ("receipt", "npz"):
            (folder / f"{number}.{suffix}").write_bytes((folder / f"06.{suffix}").read_bytes())
    rounds = []

    class Watched(Processes):
        def _round(self, job, given, waiting):
            rounds.append(len(given))  # what a dead process had not finished
            return super()._round(job, given, waiting)

    found = []
    for finished in verify_all(folder, receipts_in(folder), ORDER, None, Watched(2)):
        found.append(finished)
        if len(found) == 5:
            (victim, *_) = multiprocessing.active_children()
            os.kill(victim.pid, signal.SIGKILL)
    assert len(rounds) >= 2
    assert rounds[0] == 0 < rounds[-1] <= 2 * AHEAD
    assert len(found) == 72
    assert {item.path: item.answer for item in found} == {
        f"{n}.receipt": "REPRODUCED" for n in range(20, 80)
    } | EXPECTED


class Deadly:
    """Ends every process that it is sent to."""

    def __reduce__(self):
        return os._exit, (9,)


def test_work_that_ends_every_process_is_given_up():
    with pytest.raises(LimitExceeded) as caught:
        list(Processes(1).answers(Deadly(), [("a", 1)]))
    assert caught.value.code == "limit.memory"
    assert f"{RETRIES + 1} times in a row" in caught.value.message


def test_the_bytes_that_are_judged_are_those_that_are_named(folder):
    found = {item.path: item for item in verified(folder, jobs=1)}
    for path in receipts_in(folder):
        files = (folder / path, (folder / path).with_suffix(".npz"))
        there = tuple(sha256(file.read_bytes()).hexdigest() if file.exists() else "-" for file in files)
        assert found[path].files == read_task(folder, path).digests == there
    (folder / "big.receipt").touch()
    os.truncate(folder / "big.receipt", 2**40)
    task = read_task(folder, "big.receipt")
    assert (task.receipt, task.digests) == (None, ("-", "-"))
    assert "limit.receipt_bytes" in task.problem


def test_a_killed_verification_goes_on_where_it_was(folder, tmp_path):
    for number in range(20, 60):
        for suffix in ("receipt", "npz"):
            (folder / f"{number}.{suffix}").write_bytes((folder / f"06.{suffix}").read_bytes())
    PROGRAM.program.save(tmp_path / "m.cvm")
    log = tmp_path / "log"
    command = [sys.executable, "-m", "cvm", "receipt", "verify", folder, "--codes", "--program", tmp_path / "m.cvm"]
    command += ["--resume", log, "--jobs", "1"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    process = subprocess.Popen(
        [*map(str, command)], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline:
        if log.exists() and log.read_bytes().count(b"\n") > 3:
            break
        time.sleep(0.005)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)  # of the session that was just started, with its workers
    process.wait()
    known = log.read_bytes().count(b"\n") - 1
    assert known >= 3
    counts = Counter((item.resumed, item.answer) for item in verified(folder, log, jobs=1))
    assert sum(count for (resumed, _), count in counts.items() if resumed) == known
    assert counts.total() == 52
    assert counts[True, "REPRODUCED"] + counts[False, "REPRODUCED"] == 48
