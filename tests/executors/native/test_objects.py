"""Object files in memory: what LLVM would load, to the same addresses' results; anything else is left to it."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import random
import struct
import sys

import numpy as np
import pytest

from cvm.executors.native.runtime import jit, objects
from cvm.executors.native.runtime.objects import placed
from tests.executors.native.comparison import MACHINES

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="object files of Linux on x86-64"
)

TEXT = """
@table = private constant [4 x i32] [i32 7, i32 -5, i32 2147483647, i32 11], align 64
declare i32 @sched_yield()
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal i32 @entry_of(i64 %place) noinline nounwind {
  %at = getelementptr i32, ptr @table, i64 %place
  %found = load i32, ptr %at
  ret i32 %found
}

define i32 @looked_up(i64 %place) nounwind {
  %found = call i32 @entry_of(i64 %place)
  %more = add i32 %found, 1000
  ret i32 %more
}

define void @library(ptr %target, ptr %source, i64 %size) nounwind {
  %ignored = call i32 @sched_yield()
  call void @llvm.memset.p0.i64(ptr %target, i8 90, i64 %size, i1 false)
  %half = lshr i64 %size, 1
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %half, i1 false)
  %next = getelementptr i8, ptr %target, i64 1
  call void @llvm.memmove.p0.p0.i64(ptr %next, ptr %target, i64 %half, i1 false)
  ret void
}
"""


@pytest.fixture(scope="module")
def code() -> bytes:
    return jit.compiled(TEXT, MACHINES[-1])


def test_functions_find_their_constants_and_one_another(code: bytes) -> None:
    found = placed(code)
    assert found is not None
    looked_up = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(found.address("looked_up"))
    assert [looked_up(index) for index in range(4)] == [1007, 995, -(2**31) + 999, 1011]
    assert found.address("no such function") == 0


def test_functions_of_the_library_are_found_however_far_they_are(code: bytes) -> None:
    found = placed(code)
    assert found is not None
    run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(found.address("library"))
    source, target = np.arange(5000, dtype=np.uint8), np.zeros(5000, np.uint8)
    run(target.ctypes.data, source.ctypes.data, 5000)
    expected = np.full(5000, 90, np.uint8)
    expected[:2500] = source[:2500]
    expected[1:2501] = expected[:2500].copy()
    assert np.array_equal(target, expected)


def test_nobody_can_write_to_code(code: bytes) -> None:
    found = placed(code)
    assert found is not None
    address = found.address("looked_up")
    with open("/proc/self/maps") as file:
        spans = [line.split()[:2] for line in file]
    (rights,) = [right for span, right in spans if int(span.split("-")[0], 16) <= address < int(span.split("-")[1], 16)]
    assert rights == "r-xp"


def test_memory_goes_with_the_object(code: bytes) -> None:
    def executable() -> int:
        """Bytes; neighbours may be told as one."""
        with open("/proc/self/maps") as file:
            spans = [line.split()[0].split("-") for line in file if " r-xp " in line]
        return sum(int(end, 16) - int(start, 16) for start, end in spans)

    before = executable()
    kept = [placed(code) for _ in range(9)]
    assert executable() >= before + 9 * mmap.PAGESIZE
    kept.clear()
    assert executable() == before


def test_code_that_calls_anything_else_is_left_to_llvm() -> None:
    text = "declare i32 @getpid()\ndefine i32 @f() nounwind {\n  %found = call i32 @getpid()\n  ret i32 %found\n}\n"
    code = jit.compiled(text, MACHINES[-1])
    assert placed(code) is None
    library = jit.loaded(code, MACHINES[-1])
    assert ctypes.CFUNCTYPE(ctypes.c_int32)(library.address("f"))() == os.getpid()


def test_variables_are_left_to_llvm() -> None:
    text = "@count = global i32 3\ndefine ptr @f() nounwind {\n  ret ptr @count\n}\n"
    code = jit.compiled(text, MACHINES[-1])
    assert placed(code) is None
    library = jit.loaded(code, MACHINES[-1])
    address = ctypes.CFUNCTYPE(ctypes.c_void_p)(library.address("f"))()
    assert ctypes.c_int32.from_address(address).value == 3


def test_another_system_is_left_to_llvm(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_protect", lambda: None)
    assert placed(code) is None
    library = jit.loaded(code, MACHINES[-1])
    assert ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)(library.address("looked_up"))(0) == 1007


def test_a_system_that_forbids_it_leaves_it_to_llvm(code: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_protect", lambda: lambda *_: -1)
    assert placed(code) is None


@pytest.mark.parametrize("size", [0, 1, 63, 64, 200, 1000])
def test_a_part_of_a_file_is_no_file(code: bytes, size: int) -> None:
    assert placed(code[:size]) is None


def test_another_kind_of_file_is_left_to_llvm(code: bytes) -> None:
    for index, value in ((0, 0), (4, 1), (5, 2), (16, 2), (18, 183)):  # magic, bits, order, not relocatable, ARM
        assert placed(code[:index] + bytes([value]) + code[index + 1 :]) is None


def test_a_section_of_a_terabyte_is_refused_before_memory_is_asked_for(code: bytes) -> None:
    (start,) = struct.unpack_from("<Q", code, 40)
    for number in range(struct.unpack_from("<H", code, 60)[0]):
        flags, size = (struct.unpack_from("<Q", code, start + 64 * number + index)[0] for index in (8, 32))
        if flags & 2 and size:
            harmed = bytearray(code)
            struct.pack_into("<Q", harmed, start + 64 * number + 32, 2**40)
            assert placed(bytes(harmed)) is None


def test_whatever_the_bytes_nothing_but_none_or_code_comes_back(code: bytes) -> None:
    """Tables with any byte changed: placing may refuse, but raises nothing and writes nowhere else."""
    choose = random.Random(0)
    (start,) = struct.unpack_from("<Q", code, 40)
    for _ in range(2000):
        harmed = bytearray(code)
        for _ in range(choose.choice((1, 1, 2, 5))):
            index = choose.randrange(start, len(code)) if choose.random() < 0.7 else choose.randrange(len(code))
            harmed[index] = choose.choice((0, 1, 0x7F, 0x80, 0xFF, choose.randrange(256)))
        placed(bytes(harmed))
