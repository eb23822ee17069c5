"""A session answers its first run by NumPy while another process makes the machine code; the bytes are the same."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cvm
import cvm.session.session as sessions
from cvm.audit import Recorder
from cvm.errors import CvmError, Invalid
from cvm.executors.native.runtime import cache
from cvm.program import Output, Program, ProgramBuilder, verify
from cvm.session import Session, aside, opening

SIZE = 288
"""The weights of a program take SIZE * SIZE bytes, more than `aside.LEAST`."""
_numbers = iter(range(1, 1000))


@pytest.fixture(scope="module", autouse=True)
def _cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A cache for all tests, in which this machine has passed the trial of the classes that the programs use."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        folder.chmod(0o700)
        patch.setenv("CVM_CACHE", str(folder))
        patch.delenv("CVM_MACHINE", raising=False)
        pytest.importorskip("llvmlite")
        Session(program(), "native", 2)
        yield folder


@pytest.fixture(autouse=True)
def _two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    if os.name != "posix":
        pytest.skip("processes that make machine code are for POSIX")
    monkeypatch.setattr(aside, "cores", lambda: 2)
    yield
    aside.finish()


def program(state: bool = False) -> Program:
    """y = W x with weights that no other program has; with ``state``, the sum of all y so far too."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, SIZE), -127, 127)
    weights = np.random.default_rng(next(_numbers)).integers(-127, 128, (SIZE, SIZE))
    (y,) = builder.add("dense", [x, builder.constant(weights)])
    if not state:
        return builder.build([Output("y", y)])
    (small,) = builder.add("clip", [y], {"a_min": -1000, "a_max": 1000})
    kept = builder.state("kept", builder.constant(np.zeros((1, SIZE), np.int64)), -1000, 1000)
    (total,) = builder.add("broadcast_add", [small, kept])
    builder.update(kept, small)
    return builder.build([Output("y", total)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The file of a program that was never opened before."""
    path = tmp_path / "program.cvm"
    program().save(path)
    assert path.stat().st_size >= aside.LEAST
    return path


@pytest.fixture
def held_back(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[subprocess.Popen[bytes]]]:
    """The processes that make code, each of which stops at once; `go` lets it go on."""
    started: list[subprocess.Popen[bytes]] = []
    wait = "import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n"
    monkeypatch.setattr(aside, "_CHILD", wait + aside._CHILD)
    popen = subprocess.Popen

    def noted(*arguments: Any, **others: Any) -> subprocess.Popen[bytes]:
        started.append(popen(*arguments, **others))
        return started[-1]

    monkeypatch.setattr(subprocess, "Popen", noted)
    yield started
    for process in started:
        process.kill()
        process.wait()


def go(process: subprocess.Popen[bytes]) -> None:
    """Let a process go on that stops itself."""
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)


def feed(seed: int = 0, samples: int | None = None) -> dict[str, Any]:
    shape = (1, SIZE) if samples is None else (samples, 1, SIZE)
    return {"x": np.random.default_rng(seed).integers(-127, 128, shape).astype(np.int32)}


def expected(path: Path, inputs: dict[str, Any]) -> Any:
    return Session(path, "numpy").run(inputs, codes=True)["y"]


def test_the_first_run_is_numpys_and_all_later_ones_are_native(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    assert session.executor == "numpy"
    digest, gas = session.digest, session.gas
    first = session.run(feed(0), codes=True)["y"]
    assert session.executor == "numpy"
    assert len(held_back) == 1
    go(held_back[0])
    for seed in (1, 2):
        found = session.run(feed(seed), codes=True)["y"]
        assert session.executor == "native"
        assert np.array_equal(found, expected(file, feed(seed)))
    assert np.array_equal(first, expected(file, feed(0)))
    assert (session.digest, session.gas) == (digest, gas)
    assert held_back[0].poll() == 0
    again = Session(file)
    assert again.executor == "native"
    assert len(held_back) == 1


@pytest.mark.parametrize("given", ["a program", "a verified program"])
def test_a_program_in_memory_is_answered_by_numpy_first_too(
    given: str, tmp_path: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    made = program()
    path = tmp_path / "program.cvm"
    made.save(path)
    verified = verify(made)
    session = Session(made if given == "a program" else verified)
    assert session.executor == "numpy"
    first = session.run(feed(0), codes=True)["y"]
    assert session.executor == "numpy"
    go(held_back[0])
    assert np.array_equal(session.run(feed(1), codes=True)["y"], expected(path, feed(1)))
    assert np.array_equal(first, expected(path, feed(0)))
    assert session.executor == "native"
    assert held_back[0].poll() == 0
    if given == "a verified program":
        assert session.verified is verified
    assert session.program == made
    for same in (made, verified, path):  # its file would have the same bytes, so it starts from the cache, too
        again = Session(same)
        assert again.executor == "native"
        assert again.digest == made.digest
        assert np.array_equal(again.run(feed(1), codes=True)["y"], expected(path, feed(1)))
    assert len(held_back) == 1


def test_a_program_in_memory_leaves_no_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    session = Session(program())
    assert session._making is not None
    session.run(feed(), codes=True)
    assert list(tmp_path.iterdir()) == []
    session.explain()
    assert session.executor == "native"
    assert list(tmp_path.iterdir()) == []


def test_a_program_in_memory_that_finds_no_room_for_a_file_is_compiled_here(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "missing"))
    session = Session(program())
    assert session.executor == "native"
    assert not held_back


@pytest.mark.parametrize("what", ["state", "a long run", "a name"])
def test_a_program_in_memory_whose_first_run_is_not_numpys_is_compiled_here(
    what: str, monkeypatch: pytest.MonkeyPatch, held_back: list[subprocess.Popen[bytes]]
) -> None:
    if what == "a long run":
        monkeypatch.setattr(sessions, "EARLY", 10)
    session = Session(program(state=what == "state"), "native" if what == "a name" else None)
    assert session.executor == "native"
    assert not held_back


def test_code_that_a_session_made_of_a_program_in_memory_does_not_stand_for_its_file(
    tmp_path: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    made, path = program(), tmp_path / "program.cvm"
    made.save(path)
    assert Session(made, "native").executor == "native"
    session = Session(path)  # whose file nobody has decoded and verified within the limits for files
    assert session.executor == "numpy"
    go(held_back[0])
    assert np.array_equal(session.run(feed(), capture="all", codes=True)["y"], expected(path, feed()))
    assert Session(made).executor == Session(path).executor == "native"
    assert len(held_back) == 1


def test_a_further_session_of_a_program_in_memory_does_not_encode_it_again(monkeypatch: pytest.MonkeyPatch) -> None:
    made = program()
    first = Session(made)
    first.explain()  # waits for the code
    monkeypatch.setattr(Program, "pieces", None)
    again = Session(made)
    assert first.executor == again.executor == "native"
    assert again.run(feed(), codes=True)["y"].shape == (1, SIZE)


def test_the_hash_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    made, path = program(), tmp_path / "program.cvm"
    made.save(path)
    assert made.file_hash == hashlib.sha256(path.read_bytes()).hexdigest()


def test_a_small_program_in_memory_is_not_written_as_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "LEAST", SIZE * SIZE + 1)
    monkeypatch.setattr(Program, "pieces", None)
    session = Session(program(), "native")
    assert session.run(feed(), codes=True)["y"].shape == (1, SIZE)


def test_a_program_in_memory_that_is_not_valid_is_refused_as_ever(held_back: list[subprocess.Popen[bytes]]) -> None:
    right = program()
    wrong = dataclasses.replace(right, outputs=(Output("y", "nothing"),))
    for executor in (None, "native", "numpy"):
        with pytest.raises(Invalid, match=r"program\.undefined"):
            Session(wrong, executor)
    assert not held_back


def test_code_that_is_made_before_the_first_run_answers_it(file: Path) -> None:
    session = Session(file)
    assert session._making is not None
    session._making.wait()
    assert np.array_equal(session.run(feed(), codes=True)["y"], expected(file, feed()))
    assert session.executor == "native"


def test_real_numbers_lists_and_wrong_inputs_are_treated_as_ever(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    with pytest.raises(Invalid) as wrong:
        session.run({"x": np.full((1, SIZE), 128, np.int32)}, codes=True)
    with pytest.raises(Invalid) as as_ever:
        Session(file, "numpy").run({"x": np.full((1, SIZE), 128, np.int32)}, codes=True)
    assert str(wrong.value) == str(as_ever.value)
    session = Session(file)
    for process in held_back:
        go(process)
    codes = feed()["x"]
    assert np.array_equal(session.run({"x": codes.tolist()})["y"], expected(file, feed()))
    with pytest.raises(Invalid, match=r"argument\.inputs"):
        session.run(7)  # type: ignore[arg-type]


WAITING = {
    "a batch": lambda session: session.run(feed(samples=3), codes=True),
    "captured tensors": lambda session: session.run(feed(), capture="all", codes=True),
    "a witness": lambda session: session.run(feed(), witness=Recorder(session.verified), codes=True),
    "a receipt": lambda session: session.run(feed(), receipt=True, codes=True),
    "many runs": lambda session: session.run_many([feed(0), feed(1)], codes=True),
    "fixed arrays": lambda session: session.bind().run(),
    "the state": lambda session: session.state,
    "an explanation": lambda session: session.explain(),
}


@pytest.mark.parametrize("what", WAITING)
def test_what_needs_more_than_the_outputs_of_one_sample_waits_for_the_code(
    what: str, file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    threading.Timer(0.1, go, held_back).start()
    found = WAITING[what](session)
    assert session.executor == "native"
    assert held_back[0].poll() == 0
    if what in ("a batch", "a receipt"):
        batch = feed(samples=3) if what == "a batch" else feed()
        assert np.array_equal(found["y"], expected(file, batch))
    if what == "a receipt":
        assert found.receipt.host.executor == "native"
    if what == "an explanation":
        assert found[0].startswith("native")


def test_out_receives_the_first_run_too(file: Path, held_back: list[subprocess.Popen[bytes]]) -> None:
    session = Session(file)
    given, out = feed(), {"y": np.zeros((1, SIZE), np.int32)}
    session.run(given, codes=True, out=out)
    assert session.executor == "numpy"
    assert np.array_equal(out["y"], expected(file, given))
    go(held_back[0])
    session.run(feed(1), codes=True, out=out)
    assert np.array_equal(out["y"], expected(file, feed(1)))


def test_a_process_that_fails_leaves_the_work_to_the_session(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    session.run(feed(), codes=True)
    held_back[0].kill()
    assert np.array_equal(session.run(feed(1), codes=True)["y"], expected(file, feed(1)))
    assert session.executor == "native"


def test_a_file_that_changes_is_not_compiled_for_the_session(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    right = expected(file, feed(1))
    session.run(feed(0), codes=True)
    other = file.with_name("other.cvm")
    program().save(other)
    os.replace(other, file)
    go(held_back[0])
    assert np.array_equal(session.run(feed(1), codes=True)["y"], right)
    assert session.executor == "native"


def test_several_threads_may_run_the_first_runs(file: Path) -> None:
    session, found = Session(file), {}

    def run(seed: int) -> None:
        found[seed] = session.run(feed(seed), codes=True)["y"]

    threads = [threading.Thread(target=run, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert session.executor == "native"
    assert all(np.array_equal(found[seed], expected(file, feed(seed))) for seed in range(6))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_forked_process_makes_the_code_itself(file: Path, held_back: list[subprocess.Popen[bytes]]) -> None:
    session = Session(file)
    session.run(feed(0), codes=True)
    right = expected(file, feed(1))
    forked = os.fork()
    if not forked:
        code = 1
        try:
            code = 0 if np.array_equal(session.run(feed(1), codes=True)["y"], right) else 2
        finally:
            os._exit(code)
    assert os.waitpid(forked, 0)[1] == 0


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # it has threads
def test_a_process_that_is_forked_while_a_thread_waits_does_not_wait(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file)
    thread = threading.Thread(target=session.explain)
    thread.start()
    making = session._making
    assert making is not None
    while not making.settling.locked():
        time.sleep(0.01)
    time.sleep(0.1)  # until it waits for the process, too
    forked = os.fork()
    if not forked:
        code = 1
        try:
            signal.alarm(60)  # ends the process if it waits
            aside.finish()
            code = 0 if session.run(feed(1), codes=True)["y"].shape == (1, SIZE) else 2
        finally:
            os._exit(code)
    assert os.waitpid(forked, 0)[1] == 0
    go(held_back[0])
    thread.join()
    assert session.executor == "native"


def test_sessions_of_one_file_share_the_process_and_those_of_another_find_no_core_for_theirs(
    file: Path, tmp_path: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    sessions = [Session(file, threads=1) for _ in range(4)]
    assert len(held_back) == 1
    assert [session.run(feed(), codes=True)["y"].shape for session in sessions] == [(1, SIZE)] * 4
    assert {session.executor for session in sessions} == {"numpy"}
    program().save(tmp_path / "other.cvm")
    assert Session(tmp_path / "other.cvm", threads=1).executor == "native"
    assert len(held_back) == 1
    go(held_back[0])
    for session in sessions:
        assert np.array_equal(session.run(feed(1), codes=True)["y"], expected(file, feed(1)))
        assert session.executor == "native"
    del held_back[:]
    program().save(file)
    assert Session(file, threads=1).executor == "numpy"
    assert len(held_back) == 1


def test_threads_that_open_sessions_at_once_begin_one_process(
    file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    found: list[Session] = []
    threads = [threading.Thread(target=lambda: found.append(Session(file, threads=1))) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(held_back) == len(aside._running) == 1


def test_one_run_of_a_session_is_numpys_however_many_threads_run(
    file: Path, held_back: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session(file)
    early: list[bool] = []
    take = aside.Making.take

    def noted(making: aside.Making) -> bool:
        early.append(take(making))
        return early[-1]

    monkeypatch.setattr(aside.Making, "take", noted)
    threads = [threading.Thread(target=session.run, args=(feed(seed),), kwargs={"codes": True}) for seed in range(8)]
    for thread in threads:
        thread.start()
    go(held_back[0])
    for thread in threads:
        thread.join()
    assert early.count(True) == 1


def test_a_program_with_state_waits_when_it_is_opened(tmp_path: Path, held_back: list[subprocess.Popen[bytes]]) -> None:
    path = tmp_path / "state.cvm"
    program(state=True).save(path)

    def later() -> None:
        while not held_back:
            time.sleep(0.01)
        go(held_back[0])

    threading.Thread(target=later, daemon=True).start()
    session, other = Session(path), Session(path, "numpy")
    assert session.executor == "native"
    assert held_back[0].poll() == 0
    for seed in range(3):
        found = session.run(feed(seed), codes=True)["y"]
        assert np.array_equal(found, other.run(feed(seed), codes=True)["y"])


def test_a_run_that_numpy_computes_for_long_waits(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "EARLY", 10)
    assert Session(file).executor == "native"


def test_a_file_that_is_refused_ends_the_process(file: Path, held_back: list[subprocess.Popen[bytes]]) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CvmError):
        Session(file)
    assert held_back[0].poll() == -signal.SIGKILL


def small(file: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(aside, "LEAST", file.stat().st_size + 1)


def refusing(error: Exception) -> Callable[[Path, pytest.MonkeyPatch], None]:
    def patched(file: Path, patch: pytest.MonkeyPatch) -> None:
        def refused(*arguments: object, **others: object) -> None:
            raise error

        patch.setattr(subprocess, "Popen", refused)

    return patched


ALONE: dict[str, Callable[[Path, pytest.MonkeyPatch], object]] = {
    "a small program": small,
    "one core": lambda file, patch: patch.setattr(aside, "cores", lambda: 1),
    "no cache": lambda file, patch: patch.setenv("CVM_CACHE", ""),
    "a server that contains an interpreter": lambda file, patch: patch.setattr(sys, "executable", "/usr/bin/uwsgi"),
    "a program that contains an interpreter": lambda file, patch: patch.setattr(sys, "frozen", True, raising=False),
    "no name of an interpreter": lambda file, patch: patch.setattr(sys, "executable", None),
    "no more processes": refusing(BlockingIOError("no more processes")),
    "a hook that forbids processes": refusing(RuntimeError("forbidden")),
}


@pytest.mark.parametrize("why", ALONE)
def test_where_no_process_helps_the_session_makes_the_code(
    why: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ALONE[why](file, monkeypatch)
    session = Session(file)
    assert session.executor == "native"
    assert np.array_equal(session.run(feed(), codes=True)["y"], expected(file, feed()))


def test_a_machine_that_does_not_exist_is_refused_at_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_MACHINE", "abacus")
    with pytest.raises(Invalid, match=r"executors\.machine"):
        Session(file)


@pytest.mark.parametrize("named", ["native", "numpy", "formal"])
def test_an_executor_that_is_named_computes_every_run(
    named: str, file: Path, held_back: list[subprocess.Popen[bytes]]
) -> None:
    session = Session(file, named)
    assert session.executor == named
    if named != "formal":  # which takes a while
        assert np.array_equal(session.run(feed(), codes=True)["y"], expected(file, feed()))
    assert session.executor == named
    assert not held_back


def script(*lines: str) -> str:
    """A program that opens the file that is its argument, and then runs the lines."""
    begin = "import signal, sys, numpy as np, cvm\nfrom cvm.session import aside\naside.cores = lambda: 2\n"
    return begin + "session = cvm.Session(sys.argv[1])\n" + textwrap.dedent("\n".join(lines))


def test_a_process_shows_its_result_and_ends_when_the_code_is_made(file: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    code = script(
        "(made,) = aside._running.values()",
        "made.send_signal(signal.SIGSTOP)",
        f"open({str(told)!r}, 'w').write(str(made.pid))",
        f"print(session.run({{'x': np.ones((1, {SIZE}), np.int32)}}, codes=True)['y'].sum())",
    )
    ones = {"x": np.ones((1, SIZE), np.int32)}
    right = expected(file, ones).sum()
    with subprocess.Popen([sys.executable, "-c", code, file], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) == right
        made = int(told.read_text())
        assert process.poll() is None  # it waits for the other one, which stands still
        os.kill(made, signal.SIGCONT)
    assert process.returncode == 0
    with pytest.raises(ProcessLookupError):
        os.kill(made, 0)
    assert Session(file).executor == "native"


def test_what_was_printed_is_shown_before_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.BytesIO()
    stream = io.TextIOWrapper(shown)
    monkeypatch.setattr(sys, "stdout", stream)
    monkeypatch.setattr(sys, "stderr", None)  # as under pythonw
    seen: list[bytes] = []

    class Process:
        def wait(self) -> int:
            seen.append(shown.getvalue())
            return 0

    monkeypatch.setattr(aside, "_running", {("", 1): Process()})
    print("the result")
    aside.finish()
    assert seen == [b"the result\n"]


@pytest.mark.parametrize(("ends", "code"), [("KeyboardInterrupt", 0), ("SystemExit(3)", None)])
def test_what_ends_the_wait_ends_what_is_waited_for(ends: str, code: int | None, file: Path, tmp_path: Path) -> None:
    told = tmp_path / "told"
    lines = script(
        "(made,) = aside._running.values()",
        f"open({str(told)!r}, 'w').write(str(made.pid))",
        "made.send_signal(signal.SIGSTOP)",
        "wait, first = made.wait, [True]",
        "def interrupted():",
        "    if first.pop() if first else False:",
        f"        raise {ends}",
        "    return wait()",
        "made.wait = interrupted",
    )
    done = subprocess.run([sys.executable, "-c", lines, file], capture_output=True, text=True, timeout=60)
    if code is not None:
        assert (done.returncode, done.stderr) == (code, "")
    with pytest.raises(ProcessLookupError):
        os.kill(int(told.read_text()), 0)


def test_the_process_takes_no_module_from_the_current_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    for name in ("json", "numpy", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text(f"open({str(told)!r}, 'a').write({name!r})\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")  # as in a shell or a notebook: this process has imported all that it needs
    monkeypatch.setattr(sys, "path", [b"/bytes", None, *sys.path])  # what Python itself passes over
    session = Session(file.name)
    assert session._making is not None
    session._making.wait()
    assert not told.exists()
    assert session.run(feed(), codes=True)["y"].shape == (1, SIZE)
    assert session.executor == "native"


@pytest.mark.parametrize("given", [["-I"], ["-E"], ["-s"], ["-S"], ["-B"], ["-s", "-B"], []])
def test_the_process_has_the_restrictions_of_this_one(given: list[str]) -> None:
    paths = [str(Path(cvm.__file__).parents[1]), *filter(os.path.isabs, sys.path)]
    code = f"import sys; sys.path[:] = {paths}; from cvm.session import aside; print(*aside._flags())"
    told = {"PYTHONDONTWRITEBYTECODE", "PYTHONNOUSERSITE", "PYTHONPATH"}
    environment = {name: value for name, value in os.environ.items() if name not in told}
    done = subprocess.run([sys.executable, *given, "-c", code], capture_output=True, text=True, env=environment)
    implied = ["-I", "-E", "-s"] if given == ["-I"] else given
    assert done.stdout.split() == ["-P", *implied], done.stderr


def test_a_host_that_was_never_seen_needs_no_llvm_for_the_first_answer(file: Path, tmp_path: Path) -> None:
    if not cache._seen():
        pytest.skip("the system does not identify the processor")
    (tmp_path / "empty").mkdir(mode=0o700)
    code = script(
        f"session.run({{'x': np.ones((1, {SIZE}), np.int32)}}, codes=True)",
        "assert session.executor == 'numpy'",
        "print('llvmlite' in sys.modules)",
    )
    environment = {**os.environ, "CVM_CACHE": str(tmp_path / "empty")}
    done = subprocess.run([sys.executable, "-c", code, file], capture_output=True, text=True, env=environment)
    assert done.stdout == "False\n", done.stderr
