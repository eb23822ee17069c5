"""The emulator runs threads that part and meet, blocks, and their memory."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools.emulated_kernels import (
    REVERSE,
    SHARED,
    THREAD,
    found,
    launched,
    module,
)
from tools.cuda_emulator import KernelDefect

COLLATZ = """
  %o = mul i32 %t, 4
  %p = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  %start = load i32, ptr addrspace(1) %p, align 4
  br label %top
top:
  %n = phi i32 [ %start, %entry ], [ %m, %next ]
  %k = phi i32 [ 0, %entry ], [ %k1, %next ]
  %one = icmp eq i32 %n, 1
  br i1 %one, label %done, label %go
go:
  %low = and i32 %n, 1
  %odd = icmp ne i32 %low, 0
  br i1 %odd, label %up, label %down
up:
  %n3 = mul i32 %n, 3
  %u = add i32 %n3, 1
  br label %next
down:
  %d = lshr i32 %n, 1
  br label %next
next:
  %m = phi i32 [ %u, %up ], [ %d, %down ]
  %k1 = add nsw i32 %k, 1
  br label %top
done:
  store i32 %k, ptr addrspace(1) %q, align 4
  ret void"""


def test_threads_part_and_meet_again() -> None:
    starts, steps = np.arange(1, 97, dtype=np.int32), np.zeros(96, np.int32)
    launched(module(THREAD + COLLATZ), [starts], [steps], block=96)

    def length(n: int) -> int:
        return 0 if n == 1 else 1 + length(3 * n + 1 if n % 2 else n // 2)

    assert steps.tolist() == [length(int(n)) for n in starts]


@pytest.mark.parametrize("threads", [64, 128, 1 << 15])
def test_blocks_exchange_values_through_shared_memory(threads: int) -> None:
    x, y = np.arange(320, dtype=np.int32), np.zeros(320, np.int32)
    launched(module(THREAD + REVERSE, variables=SHARED), [x], [y], 64, (5, 1, 1), threads=threads)
    assert np.array_equal(y.reshape(5, 64), x.reshape(5, 64)[:, ::-1])


def test_dynamic_shared_memory_has_the_size_of_the_launch() -> None:
    variables = "@room = external addrspace(3) global [0 x i8], align 16\n"
    x, y = np.arange(64, dtype=np.int32), np.zeros(64, np.int32)
    launched(module(THREAD + REVERSE, variables=variables), [x], [y], 64, shared=256)
    assert np.array_equal(y, x[::-1])
    with pytest.raises(KernelDefect, match="outside"):
        launched(module(THREAD + REVERSE, variables=variables), [x], [y], 64, shared=252)


def test_a_block_has_its_index_in_three_directions() -> None:
    body = "  %x = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()\n  %y = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.y()\n"
    body += "  %z = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.z()\n  %nx = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.x()\n"
    body += "  %ny = call i32 @llvm.nvvm.read.ptx.sreg.nctaid.y()\n  %h = mul i32 %z, %ny\n  %i = add i32 %h, %y\n"
    body += "  %j = mul i32 %i, %nx\n  %k = add i32 %j, %x\n  %o = mul i32 %k, 4\n  %w = mul i32 %z, 100\n"
    body += "  %v = add i32 %w, %x\n  %p = getelementptr i8, ptr addrspace(1) %a0, i32 %o\n"
    body += "  store i32 %v, ptr addrspace(1) %p, align 4\n  ret void"
    out = np.zeros((2, 3, 4), np.int32)
    launched(module(body, 1), [], [out], 1, (4, 3, 2))
    assert np.array_equal(out, np.arange(2)[:, None, None] * 100 + np.arange(4) + np.zeros((1, 3, 1), int))


def test_local_memory_and_constants() -> None:
    variables = '@table = private unnamed_addr constant [4 x i8] c"\\05\\\\\\22\\FF", align 1\n'
    body = (
        THREAD
        + """
  %room = alloca [4 x i32], align 16
  %i = and i32 %t, 3
  %g = getelementptr [4 x i8], ptr @table, i64 0, i32 %i
  %b = load i8, ptr %g, align 1
  %w = zext i8 %b to i32
  %o = mul i32 %i, 4
  %l = getelementptr i8, ptr %room, i32 %o
  store i32 %w, ptr %l, align 4
  %v = load i32, ptr %l, align 4
  %oo = mul i32 %t, 4
  %q = getelementptr i8, ptr addrspace(1) %a0, i32 %oo
  store i32 %v, ptr addrspace(1) %q, align 4
  ret void"""
    )
    out = np.zeros(32, np.int32)
    launched(module(body, 1, variables), [], [out])
    assert out.tolist() == [5, 92, 34, 255] * 8
    read = body.replace("  store i32 %w, ptr %l, align 4\n", "")
    assert "local memory" in found(module(read, 2, variables), "unwritten")
    store = body.replace("store i32 %w, ptr %l, align 4", "store i8 %b, ptr %g, align 1")
    found(module(store, 2, variables), "constant")
