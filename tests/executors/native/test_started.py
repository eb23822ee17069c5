"""A session that starts from the cache gives the results of one that verifies, and nothing of another file."""

from __future__ import annotations

import gc
import weakref
from fractions import Fraction
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm.session
from cvm.errors import Invalid, Mismatch
from cvm.executors.native.runtime import started
from cvm.program import Output, Program, ProgramBuilder, files, reading
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.session import Session

SCALE = LinearQuantizer((Fraction(1, 3),), (Fraction(-2, 7),), -9, 9)


def program(offset: int = 1) -> Program:
    """y = x + kept + offset with quantisers; the state ``kept``, which begins with (4, 5, -6), becomes x."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3), -9, 9, SCALE)
    kept = builder.state("kept", builder.constant(np.array([[4, 5, -6]])), -9, 9)
    (sums,) = builder.add("broadcast_add", [x, kept])
    (total,) = builder.add("broadcast_add", [sums, builder.constant(np.full((1, 3), offset))])
    builder.update(kept, x)
    return builder.build([Output("y", total, LinearQuantizer((Fraction(1, 2),), (Fraction(1),), -99, 99))])


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of the program, which was never opened before."""
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    path = tmp_path / "program.cvm"
    program().save(path)
    return path


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The programs that are decoded and verified."""
    found: list[object] = []
    verify = files.verify

    def counting(program: Program, limits: object) -> object:
        found.append(program)
        return verify(program, limits)  # type: ignore[arg-type]

    monkeypatch.setattr(files, "verify", counting)
    return found


def runs(session: Session) -> list[list[int]]:
    """The codes of three runs and of one after a reset."""
    feed = {"x": np.array([[1, -2, 3]], np.int32)}
    codes = [session.run(feed, codes=True)["y"].tolist()[0] for _ in range(3)]
    session.reset()
    return [*codes, session.run(feed, codes=True)["y"].tolist()[0]]


def test_the_second_session_gives_the_results_of_the_first_without_verifying(
    file: Path, verified: list[object]
) -> None:
    first = Session(file, "native", 1)
    assert len(verified) == 1
    second = Session(file, None, 1)
    assert runs(first) == runs(second) == [[6, 4, -2], [3, -3, 7], [3, -3, 7], [6, 4, -2]]
    assert second.executor == "native"
    assert repr(second.inputs) == repr(first.inputs)
    real = [session.run({"x": np.full((1, 3), 0.5)}).real("y").tolist() for session in (first, second)]
    assert real[0] == real[1]
    assert len(verified) == 1
    assert second.state.keys() == {"kept"}
    assert second.program == first.program
    assert len(verified) == 3
    feed = {"x": np.array([[1, -2, 3]], np.int32)}
    captured = [session.run(feed, "all", codes=True) for session in (first, second)]
    assert {name: array.tolist() for name, array in captured[0].items()} == {
        name: array.tolist() for name, array in captured[1].items()
    }
    assert repr(second.outputs) == repr(first.outputs)
    assert second.explain()[1:] == first.explain()[1:]


def test_a_session_reads_its_file_once_whether_it_is_in_the_cache_or_not(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    read = reading.read_bytes

    def counting(*arguments: Any) -> bytes:
        data = read(*arguments)
        sizes.append(len(data))
        return data

    monkeypatch.setattr(reading, "read_bytes", counting)
    for number in (1, 2):
        assert runs(Session(file, "native", 1))[0] == [6, 4, -2]
        assert sizes == [file.stat().st_size] * number


def test_a_session_on_another_executor_keeps_it_and_the_program(file: Path, verified: list[object]) -> None:
    Session(file, "native", 1)
    for name in ("numpy", "formal"):
        session = Session(file, name, 1)
        assert session.executor == session._executor.name == name
        assert session.explain()[0] == f"{name}: asked for"
        assert runs(session)[0] == [6, 4, -2]
    assert len(verified) == 3


def test_a_session_keeps_neither_the_program_of_a_file_nor_its_bytes(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first session verifies the program and compiles it, and goes on as one that starts from the cache."""
    programs: list[weakref.ref[Program]] = []
    files_: list[reading.ReadFile] = []
    verify = files.verify

    def noting(program: Program, limits: Any) -> Any:
        programs.append(weakref.ref(program))
        return verify(program, limits)

    class Noted(reading.ReadFile):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            files_.append(self)

    monkeypatch.setattr(files, "verify", noting)
    monkeypatch.setattr(reading, "ReadFile", Noted)
    gc.collect()
    gc.disable()  # what is kept in a cycle would stay for an unknown time
    try:
        sessions = [Session(file, "native", 1) for _ in range(2)]
        assert [program() for program in programs] == [None]
        assert [one._data for one in files_] == [None, None]
    finally:
        gc.enable()
    assert runs(sessions[0]) == runs(sessions[1])


def test_a_read_file_that_was_freed_is_read_again_with_the_hash_of_what_is_there(file: Path) -> None:
    read = reading.ReadFile(file)
    before = read.hash
    assert read.taken() == (file.read_bytes(), before)
    program(offset=2).save(file)
    assert read.taken() == (file.read_bytes(), sha256(file.read_bytes()).hexdigest())
    assert read.taken()[1] != before


def test_an_array_that_is_not_valid_is_refused_by_the_same_error(file: Path) -> None:
    messages = []
    for _ in range(2):
        with pytest.raises(Invalid) as caught:
            Session(file, "native", 1).run({"x": np.array([[1, 10, 0]], np.int32)}, codes=True)
        messages.append(str(caught.value))
    assert messages[0] == messages[1]


def test_another_file_under_the_same_name_is_verified(file: Path, verified: list[object]) -> None:
    Session(file, "native", 1)
    program(offset=2).save(file)
    assert runs(Session(file, "native", 1))[0] == [7, 5, -1]
    assert len(verified) == 2


def test_a_file_that_changes_after_the_start_is_told(file: Path) -> None:
    Session(file, "native", 1)
    session = Session(file, "native", 1)
    program(offset=2).save(file)
    assert runs(session)[0] == [6, 4, -2]
    with pytest.raises(Mismatch, match="SHA-256") as caught:
        _ = session.program
    assert caught.value.code == "session.program"


@pytest.mark.parametrize(("executor", "threads"), [("native", 2), ("numpy", 1), ("formal", 1)])
def test_what_is_kept_is_of_one_executor_and_number_of_threads(
    file: Path, verified: list[object], executor: str, threads: int
) -> None:
    Session(file, "native", 1)
    assert runs(Session(file, executor, threads))[0] == [6, 4, -2]
    assert len(verified) == 2


def test_damaged_and_missing_entries_lead_to_the_usual_way(file: Path, verified: list[object]) -> None:
    Session(file, "native", 1)
    entries = [entry for entry in (file.parent / "cache" / "native").iterdir() if b'"network"' in entry.read_bytes()]
    assert len(entries) == 1
    data = bytearray(entries[0].read_bytes())
    data[-1] ^= 1
    entries[0].write_bytes(data)
    Session(file, "native", 1)
    assert len(verified) == 2
    Session(file, "native", 1)
    assert len(verified) == 2  # the entry was written again
    for entry in (file.parent / "cache" / "native").iterdir():
        if entry != entries[0]:
            entry.unlink()
    assert runs(Session(file, "native", 1))[0] == [6, 4, -2]
    assert len(verified) == 3


def test_an_invalid_file_is_never_kept(file: Path) -> None:
    data = file.read_bytes()
    file.write_bytes(data[:-1])
    for _ in range(2):
        with pytest.raises(cvm.errors.CvmError):
            Session(file, "native", 1)
    assert not (file.parent / "cache" / "native").exists()


def test_a_state_that_begins_with_many_bytes_is_not_kept(
    file: Path, verified: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(started, "MOST", 2)
    for _ in range(2):
        assert runs(Session(file, "native", 1))[0] == [6, 4, -2]
    assert len(verified) == 2


@pytest.mark.parametrize(
    "quantizer",
    [
        None,
        SCALE,
        LinearQuantizer(
            (Fraction(1, 3), Fraction(10**30 + 1, 7)), (Fraction(0), Fraction(-5, 9)), 0, 255, 1, "half_even"
        ),
        LogarithmicQuantizer(-3, 5),
    ],
)
def test_quantisers_are_restored(quantizer: Quantizer | None) -> None:
    import json

    assert started._quantizer(json.loads(json.dumps(started._document(quantizer)))) == quantizer
