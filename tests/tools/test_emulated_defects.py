"""The emulator finds each planted defect by its name, and refuses what it does not know."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from cvm.errors import CvmError, Invalid, LimitExceeded, Malformed
from cvm.executors.cuda.device.protocol import Prepared
from tests.tools.emulated_kernels import (
    REVERSE,
    SHARED,
    THREAD,
    applied,
    found,
    launched,
    module,
)
from tools.cuda_emulator import EmulatedDevice, KernelDefect, NotEmulated


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        ("  call void @llvm.nvvm.barrier0()\n", "", "race"),
        ("i8, ptr addrspace(3) @room, i32 %o", "i8, ptr addrspace(3) @room, i32 0", "race"),
        ("store i32 %x, ptr addrspace(3) %s", "store i32 5, ptr addrspace(3) @room", "race"),
        ("i32 252, %o", "i32 508, %o", "unwritten"),
        ("i32 252, %o", "i32 248, %o", "outside"),
        ("i32 252, %o", "i32 1272, %o", "outside"),
        ("i32 252, %o", "i32 254, %o", "misaligned"),
        ("ptr addrspace(1) %q, align 4", "ptr addrspace(1) %p, align 4", "constant"),
        ("ptr addrspace(1) %a1, i32 %oa", "ptr addrspace(1) %a1, i32 %o", "block race"),
        ("%x = load i32, ptr addrspace(1) %p", "%x = load i32, ptr addrspace(1) %q", "unwritten"),
        ("mul i32 %t, 4", "mul i32 %t, 32", "outside"),
        ("%y = load i32, ptr addrspace(3) %r", "%y = load i32, ptr addrspace(1) null", "outside"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("threads", [64, 1 << 15])
def test_defects_of_memory_are_found(old: str, new: str, kind: str, threads: int) -> None:
    assert old in REVERSE
    message = found(module(THREAD + REVERSE.replace(old, new), variables=SHARED), kind, 64, (4, 1, 1), threads)
    assert re.search(r"thread \d+ of block \(\d, 0, 0\)", message)


def test_a_barrier_that_orders_nothing_between_blocks_is_no_excuse() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %c, 4
  %p = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 1, ptr addrspace(1) %p, align 4
  call void @llvm.nvvm.barrier0()
  %q = load i32, ptr addrspace(1) %a1, align 4
  ret void"""
    )
    for threads in (1, 8):
        assert "another block has written" in found(module(body), "block race", 1, (4, 1, 1), threads)


BARRIERS = {
    "divergent": """
  %few = icmp slt i32 %t, 40
  br i1 %few, label %in, label %out
in:
  call void @llvm.nvvm.barrier0()
  br label %out
out:
  ret void""",
    "two barriers": """
  %few = icmp slt i32 %t, 40
  br i1 %few, label %in, label %other
in:
  call void @llvm.nvvm.barrier0()
  br label %out
other:
  call void @llvm.nvvm.barrier0()
  br label %out
out:
  ret void""",
    "another count": """
  br label %top
top:
  %k = phi i32 [ 0, %entry ], [ %k1, %top ]
  call void @llvm.nvvm.barrier0()
  %k1 = add i32 %k, 1
  %far = icmp eq i32 %t, 5
  %n = select i1 %far, i32 3, i32 2
  %again = icmp slt i32 %k1, %n
  br i1 %again, label %top, label %out
out:
  ret void""",
}


@pytest.mark.parametrize("body", BARRIERS.values(), ids=BARRIERS)
def test_barriers_that_some_threads_leave_out_are_found(body: str) -> None:
    assert "of 64 threads of block (0, 0, 0) wait" in found(module(THREAD + body), "barrier", 64)


def test_a_barrier_in_code_that_whole_blocks_take_is_no_defect() -> None:
    body = THREAD + "  %odd = and i32 %c, 1\n  %few = icmp eq i32 %odd, 0\n" + BARRIERS["divergent"].split("\n", 2)[2]
    out = "  %o = mul i32 %c, 4\n  %q = getelementptr i8, ptr addrspace(1) %a0, i32 %o\n"
    out += "  store i32 %c, ptr addrspace(1) %q, align 4\n  ret void"
    result = np.zeros(8, np.int32)
    launched(module(body.replace("  ret void", out), 1), [], [result], 1, (8, 1, 1))
    assert result.tolist() == list(range(8))


POISON = {
    "shift": "  %r = shl i32 1, %x",
    "overflow": "  %n = add i32 %x, 2147483600\n  %r = add nsw i32 %n, %x",
    "unsigned": "  %r = sub nuw i32 %t, %x",
    "product": "  %n = add i32 %x, 65536\n  %r = mul nsw i32 %n, %n",
    "division": "  %n = sub i32 %x, 33\n  %r = sdiv i32 1, %n",
    "exact": "  %r = lshr exact i32 %x, 2",
    "disjoint": "  %r = or disjoint i32 %x, 3",
    "zeros": "  %n = sub i32 %x, 33\n  %r = call i32 @llvm.ctlz.i32(i32 %n, i1 true)",
    "float": "  %d = sitofp i32 %x to double\n  %e = fmul double %d, 1.0e9\n  %r = fptosi double %e to i32",
    "trunc": "  %n = mul i32 %x, 1000\n  %s = trunc nsw i32 %n to i8\n  %r = sext i8 %s to i32",
}


@pytest.mark.parametrize("lines", POISON.values(), ids=POISON)
def test_results_that_llvm_leaves_open_are_found(lines: str) -> None:
    with pytest.raises(KernelDefect) as caught:
        applied(lines, ["i32"], "i32", np.arange(10, 50, dtype=np.int32))
    assert caught.value.kind == "poison"


def test_atomic_operations_agree_with_each_other_only() -> None:
    body = (
        THREAD
        + """
  %first = icmp eq i32 %t, 0
  %u = atomicrmw add ptr addrspace(3) @room, i32 %t monotonic
  call void @llvm.nvvm.barrier0()
  %x = load i32, ptr addrspace(3) @room, align 4
  br i1 %first, label %go, label %done
go:
  %v = atomicrmw umax ptr addrspace(1) %a1, i32 %c monotonic
  br label %done
done:
  ret void"""
    )
    start = "store i32 0, ptr addrspace(3) @room, align 4"
    zero = f"  %z = icmp eq i32 %t, 1\n  br i1 %z, label %set, label %on\nset:\n  {start}\n  br label %on\non:\n"
    ready = body.replace("  %first", zero + "  call void @llvm.nvvm.barrier0()\n  %first")
    device = EmulatedDevice()
    address = device.allocate(4)
    device.upload(address, np.zeros(1, np.int32))
    code = device.load(module(ready, variables=SHARED))
    for _ in range(2):
        device.prepare(code, [Prepared("k", (6, 1, 1), 64, 0, (address, address))]).start()
    result = np.zeros(1, np.int32)
    device.download(address, result)
    assert result.tolist() == [5]
    found(module(body.replace("  %first", zero + "  %first"), variables=SHARED), "race", 64)
    found(module(ready.replace("  call void @llvm.nvvm.barrier0()\n  %x", "  %x"), variables=SHARED), "race", 64)
    used = ready.replace("i32 %c monotonic", "i32 %u monotonic")
    found(module(used, variables=SHARED), "order", 64)


def test_memory_that_is_promised_not_to_change_must_not() -> None:
    body = (
        THREAD
        + """
  %o = mul i32 %t, 4
  %p = getelementptr i8, ptr addrspace(1) %a1, i32 %o
  store i32 1, ptr addrspace(1) %p, align 4
  call void @llvm.nvvm.barrier0()
  %x = load i32, ptr addrspace(1) %p, align 4, !invariant.load !0
  ret void"""
    )
    found(module(body) + "\n!0 = !{}", "race")
    launched(module(body).replace(", !invariant.load !0", ""), [np.zeros(1)], [np.zeros(32, np.int32)])


def test_a_kernel_without_an_end_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tools.cuda_emulator.device.STEPS", 100)
    found(module("  br label %top\ntop:\n  br label %top"), "endless")


@pytest.mark.parametrize(
    "body",
    [
        "  switch i32 3, label %a [ i32 0, label %a ]\na:\n  ret void",
        "  %p = inttoptr i64 5 to ptr addrspace(1)\n  ret void",
        "  %x = load volatile i32, ptr addrspace(1) %a0, align 4\n  ret void",
        "  %x = fadd contract double 1.0, 2.0\n  ret void",
        "  fence seq_cst\n  ret void",
        "  call void @llvm.nvvm.membar.cta()\n  ret void",
        "  call void @llvm.nvvm.barrier.cta.sync.aligned.all(i32 1)\n  ret void",
        "  %x = load float, ptr addrspace(1) %a0, align 4\n  ret void",
        '  %x = call i32 asm "popc.b32 $0, $1;", "=r,r"(i32 5)\n  ret void',
        "  unreachable",
    ],
)
def test_what_the_emulator_does_not_know_is_refused_by_name(body: str) -> None:
    with pytest.raises(NotEmulated, match="does not know"):
        launched(module(body), [np.zeros(4)], [np.zeros(4)])


def test_what_llvm_refuses_is_refused() -> None:
    with pytest.raises(Malformed, match="LLVM refuses"):
        EmulatedDevice().load(module("  %x = add i32 1, i64 2\n  ret void"))


def test_a_device_gives_and_takes_memory() -> None:
    device = EmulatedDevice(memory=1000)
    first = device.allocate(600)
    with pytest.raises(LimitExceeded):
        device.allocate(401)
    assert device.available == 400
    with pytest.raises(Invalid):
        device.upload(first + 600, np.zeros(1, np.uint8))
    device.upload(first, np.zeros(1, np.uint8))
    with pytest.raises(KernelDefect, match="byte 1 of allocation 1"):
        device.download(first, np.zeros(2, np.uint8))
    device.free(first)
    with pytest.raises(Invalid):
        device.free(first)
    assert device.available == 1000


@pytest.mark.parametrize("change", [{"grid": (0, 1, 1)}, {"block": 1025}, {"shared": 10**6}, {"addresses": (1, 2, 3)}])
def test_launches_that_no_device_takes_are_refused(change: dict[str, Any]) -> None:
    device = EmulatedDevice()
    address = device.allocate(4)
    launch = {"function": "k", "grid": (1, 1, 1), "block": 1, "shared": 0, "addresses": (address, address), **change}
    with pytest.raises(CvmError):
        device.prepare(device.load(module("  ret void")), [Prepared(**launch)]).start()
    with pytest.raises(Invalid, match="no kernel"):
        device.prepare(device.load(module("  ret void")), [Prepared("other", (1, 1, 1), 1, 0, ())])
