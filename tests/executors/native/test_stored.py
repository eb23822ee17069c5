"""Networks on disk: what is restored is what was planned and compiled; LLVM and the planner are needed only once."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cvm.executors.native import NativeExecutor
from cvm.executors.native.runtime import cache, stored
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.executors.native.comparison import MACHINES, compare

ROOT = Path(__file__).parents[3]
GENERIC = MACHINES[-1]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CVM_CACHE", str(tmp_path / "cache"))
    where = cache.folder()
    assert where is not None
    return where


def large(seed: int = 5) -> VerifiedProgram:
    """A product whose weights are a file of their own, and another op, inside of its kernel or not."""
    random = np.random.default_rng(seed)
    builder = ProgramBuilder()
    x = builder.input("x", (1, 300), -128, 127)
    (y,) = builder.add("dense", [x, builder.constant(random.integers(-128, 128, (260, 300)))])
    (z,) = builder.add("relu", [y])
    return verify(builder.build([Output("z", z)]))


def apart(folder: Path) -> list[Path]:
    return sorted(folder.glob("constants-*"))


def test_what_is_restored_is_what_was_made(folder: Path) -> None:
    first, second = (NativeExecutor(large(), 2, GENERIC) for _ in range(2))
    assert [one._main.cached for one in (first, second)] == [False, True]
    made, found = first._main, second._main
    assert (found.plan.arena, found.plan.arrays, found.plan.written) == (
        made.plan.arena,
        made.plan.arrays,
        made.plan.written,
    )
    for one, other in zip(made.plan.calls, found.plan.calls, strict=True):
        assert (one.function, one.units, one.what, one.note, one.cost) == (
            other.function,
            other.units,
            other.what,
            other.note,
            other.cost,
        )
    assert np.array_equal(made.packed, found.packed)
    assert found.packed.ctypes.data % 64 == 0
    assert found.threads == made.threads == 2
    assert first.explain() == second.explain()
    assert found.text() == made.text()
    compare(large(), machines=[GENERIC], threads=[1, 2])


def test_many_constants_are_kept_once_for_all_networks_of_a_program(folder: Path) -> None:
    executor = NativeExecutor(large(), 1, GENERIC)
    NativeExecutor(large(), 2, GENERIC)
    inner = executor._program.nodes[0].outputs[0].name
    executor.run({"x": np.ones((1, 300), np.int32)}, {}, frozenset({inner}))
    assert len(executor._networks) == 2
    (path,) = apart(folder)
    assert path.stat().st_size > 260 * 300


def address(executor: NativeExecutor) -> int:
    """The address of the packed constants, which must leave room for what kernels read behind them."""
    network = executor._main
    assert network.constants == network.packed.ctypes.data
    assert network.constants % 64 == 0
    assert all(job[3] == network.constants for memory in network._free for job in memory.jobs)
    return int(network.constants)


@pytest.mark.parametrize("cached", [True, False])
def test_all_executors_of_a_program_read_the_same_constants(
    folder: Path, cached: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not cached:
        monkeypatch.setenv("CVM_CACHE", "")
    executors = [NativeExecutor(large(), threads, GENERIC) for threads in (1, 2, 1)]
    assert [one._main.cached for one in executors] == [False, False, cached]
    assert len({address(one) for one in executors}) == 1
    feed = {"x": np.arange(300, dtype=np.int32).reshape(1, 300) % 256 - 128}
    results = [one.run(feed, {}).values[executors[0]._program.outputs[0].value].tolist() for one in executors]
    assert results[0] == results[1] == results[2]


def test_constants_of_the_cache_are_the_file_in_memory_and_cannot_be_written(folder: Path) -> None:
    """So all processes that map it have it in memory once."""
    for _ in range(2):
        network = NativeExecutor(large(7), 1, GENERIC)._main
        (path,) = apart(folder)
        file = np.frombuffer(path.read_bytes(), np.uint8)
        start = 2 * cache.DIGEST
        assert file.size == start + network.packed.size + stored.SLACK
        assert np.array_equal(file[start : start + network.packed.size], network.packed)
        assert not network.packed.flags.writeable
        if sys.platform == "linux":
            assert str(path) in _mapped_file(network.constants)
        assert not file[start + network.packed.size :].any()


def _mapped_file(address: int) -> str:
    """The file that the system maps at an address of this process."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, end = (int(part, 16) for part in line.split(" ")[0].split("-"))
        if first <= address < end:
            return line.split(None, 5)[-1]
    raise LookupError(address)


def test_constants_that_no_executor_reads_are_not_kept(folder: Path) -> None:
    executor = NativeExecutor(large(8), 1, GENERIC)
    (path,) = apart(folder)
    assert path.name in stored._in_use
    del executor
    gc.collect()
    assert path.name not in stored._in_use


def _missing(path: Path) -> None:
    path.unlink()


def _one_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1000] ^= 4
    path.write_bytes(data)


def _short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def _long(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\0")


def _writable(path: Path) -> None:
    path.chmod(0o666)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


@pytest.mark.parametrize("harm", [_missing, _one_bit, _short, _long, _writable, _pipe])
def test_constants_that_are_not_whole_and_ours_are_packed_again(folder: Path, harm: Callable[[Path], None]) -> None:
    NativeExecutor(large(), 1, GENERIC)
    (path,) = apart(folder)
    harm(path)
    assert not NativeExecutor(large(), 1, GENERIC)._main.cached
    compare(large(), machines=[GENERIC], threads=[1])
    assert NativeExecutor(large(), 1, GENERIC)._main.cached


def test_other_weights_are_not_taken_for_these(folder: Path) -> None:
    NativeExecutor(large(), 1, GENERIC)
    (path,) = apart(folder)
    content = np.zeros(path.stat().st_size - cache.DIGEST, np.uint8)
    cache.write("constants-of-another", content.data)
    (folder / "constants-of-another").replace(path)
    assert not NativeExecutor(large(), 1, GENERIC)._main.cached


def test_constants_are_kept_however_many_and_code_up_to_a_limit(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    NativeExecutor(large(), 1, GENERIC)
    most = max(path.stat().st_size for path in folder.iterdir() if path not in apart(folder))
    for limit, kept in ((most, True), (most - 1, False)):
        monkeypatch.setattr(cache, "LIMIT", limit)
        for path in folder.iterdir():
            path.unlink()
        assert [NativeExecutor(large(), 1, GENERIC)._main.cached for _ in range(2)] == [False, kept]
        assert len(apart(folder)) == 1
    compare(large(), machines=[GENERIC], threads=[1])


def test_few_constants_lie_behind_the_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored, "MANY", 2**30)
    assert [NativeExecutor(large(), 1, GENERIC)._main.cached for _ in range(2)] == [False, True]
    assert not apart(folder)
    compare(large(), machines=[GENERIC], threads=[1])


SECOND = """
import sys
import numpy as np
from cvm.program import decode
from cvm.session import Session
session = Session(decode(open(sys.argv[1], "rb").read()), "native", int(sys.argv[2]))
result = session.run({"x": (np.arange(300, dtype=np.int32) % 100).reshape(1, 300)})
print(int(result["z"].sum()), session.explain()[0], [name for name in ("llvmlite", "cvm.executors.native.plan.planner")
                                                      if name in sys.modules])
"""


@pytest.mark.skipif(sys.platform != "linux" or os.uname().machine != "x86_64", reason="what `objects` places")
@pytest.mark.parametrize("threads", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_second_process_needs_neither_llvm_nor_the_planner(folder: Path, tmp_path: Path, threads: str) -> None:
    path = tmp_path / "program.cvm"
    large().program.save(path)
    lines = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", SECOND, str(path), threads], cwd=ROOT, capture_output=True, text=True, timeout=300
        )
        assert (done.returncode, done.stderr) == (0, "")
        lines.append(done.stdout)
    assert "['llvmlite', 'cvm.executors.native.plan.planner']" in lines[0]
    assert lines[1] == lines[0].replace("'llvmlite', 'cvm.executors.native.plan.planner'", "")


def test_a_processor_is_asked_for_once_and_again_when_the_system_says_another(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    description = tmp_path / "cpuinfo"
    monkeypatch.setattr(cache, "CPUINFO", description)
    text = "processor\t: 0\nvendor_id\t: V\nmodel\t\t: 7\nflags\t\t: a b\ncpu MHz\t\t: 1000\n\nprocessor\t: 1\n"

    def memos() -> int:
        found = cache.host.__wrapped__()
        assert found == cache.host()
        return len(list(folder.glob("host-*")))

    assert memos() == 0  # there is no description, so LLVM is asked every time
    description.write_text(text)
    assert [memos(), memos()] == [1, 1]
    description.write_text(text.replace("1000", "2000"))  # which is no other processor
    assert memos() == 1
    for word, other in (("a b", "a"), ("7", "8"), ("V", "W")):
        description.write_text(text.replace(word, other))
        before = memos()
        assert before == memos()
    assert memos() == 4
    description.write_text("words\n")
    assert memos() == 4


def test_a_memo_is_read_where_it_is_whole(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = cache.host.__wrapped__()
    (memo,) = folder.glob("host-*")
    cache.write(memo.name, b'{"cpu": "c", "features": "+f,-g", "versions": ["1", "2"]}')
    found = cache.host.__wrapped__()
    assert found == cache.Host("c", "+f,-g", ("1", "2"))
    assert (found.has("f"), found.has("g"), found.has("h")) == (True, False, False)
    memo.write_bytes(memo.read_bytes()[:-1])
    assert cache.host.__wrapped__() == right
