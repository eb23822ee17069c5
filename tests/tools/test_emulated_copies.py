"""The emulator runs asynchronous copies, and finds what is wrong with their use."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools.emulated_kernels import (
    SHARED,
    THREAD,
    found,
    launched,
    module,
)

COPIES = """
  %o = mul i32 %t, 16
  %s = getelementptr i8, ptr addrspace(3) @room, i32 %o
  %g = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %s, ptr addrspace(1) %g)
  call void @llvm.nvvm.cp.async.commit.group()
  %s2 = getelementptr i8, ptr addrspace(3) %s, i32 512
  call void @llvm.nvvm.cp.async.cg.shared.global.16(ptr addrspace(3) %s2, ptr addrspace(1) %g)
  call void @llvm.nvvm.cp.async.commit.group()
  call void @llvm.nvvm.cp.async.wait.group(i32 1)
  call void @llvm.nvvm.barrier0()
  %w = sub i32 496, %o
  %r = getelementptr i8, ptr addrspace(3) @room, i32 %w
  %y = load <4 x i32>, ptr addrspace(3) %r, align 16
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store <4 x i32> %y, ptr addrspace(1) %q, align 16
  ret void"""


def test_copies_arrive_when_they_are_waited_for() -> None:
    x, y = np.arange(128, dtype=np.int32), np.zeros(128, np.int32)
    launched(module(THREAD + COPIES, variables=SHARED), [x], [y])
    assert np.array_equal(y.reshape(32, 4), x.reshape(32, 4)[::-1])


def test_a_copy_fills_what_it_does_not_read_with_zeros() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %t, 4
  %s = getelementptr i8, ptr addrspace(3) @room, i32 %o
  %g = getelementptr i8, ptr addrspace(1) %a0, i32 %o
  %n = urem i32 %t, 5
  call void @llvm.nvvm.cp.async.ca.shared.global.4.s(ptr addrspace(3) %s, ptr addrspace(1) %g, i32 %n)
  call void @llvm.nvvm.cp.async.wait.all()
  %y = load i32, ptr addrspace(3) %s, align 4
  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 %y, ptr addrspace(1) %q, align 4
  ret void"""
    )
    x, y = np.full((32, 4), 7, np.uint8), np.zeros((32, 4), np.uint8)
    write = "  %q = getelementptr i8, ptr addrspace(1) %a1, i32 %o\n  store i32 1, ptr addrspace(1) %q, align 4\n"
    begun = body.split("  call void @llvm.nvvm.cp.async.wait.all()")[0].replace("  %n =", write + "  %n =")
    found(module(begun.replace("%a0, i32 %o", "%a1, i32 0") + "  ret void", variables=SHARED), "race")
    launched(module(body, variables=SHARED), [x], [y])
    assert np.array_equal(y, 7 * (np.arange(4) < np.arange(32)[:, None] % 5))


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("wait.group(i32 1)", "wait.group(i32 2)", "pending copy"),
        ("  call void @llvm.nvvm.cp.async.wait.group(i32 1)\n", "", "pending copy"),
        ("%y = load <4 x i32>, ptr addrspace(3) %r", "%y = load <4 x i32>, ptr addrspace(3) %s2", "pending copy"),
        ("  call void @llvm.nvvm.barrier0()\n", "", "race"),
        ("i32 512\n", "i32 0\n", "pending copy"),
        ("i32 512\n", "i32 1008\n", "outside"),
        ("i32 512\n", "i32 510\n", "misaligned"),
    ],
)
def test_defects_of_copies_are_found(old: str, new: str, kind: str) -> None:
    assert old in COPIES
    found(module(THREAD + COPIES.replace(old, new), variables=SHARED), kind)
