"""The emulator runs instructions that the threads of a warp execute together."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tools.emulated_kernels import (
    SHARED,
    THREAD,
    applied,
    found,
    launched,
    module,
    samples,
)
from tools.cuda_emulator import KernelDefect


def _products(signs: str, guard: str = "") -> str:
    """One warp multiplies A (16 x 32, by rows) and B (32 x 8, by columns), and adds C (16 x 8)."""
    a = ", ".join(f"i32 %m{k}" for k in range(4))
    lines = [SHARED, "declare { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3))"]
    lines.append("declare { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.b16.p3(ptr addrspace(3))")
    mma = f"@llvm.nvvm.mma.m16n8k32.row.col.{signs}"
    lines.append(f"declare {{ i32, i32, i32, i32 }} {mma}({', '.join(['i32'] * 10)})")
    lines += ["declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()", "declare void @llvm.nvvm.barrier0()"]
    lines.append("define ptx_kernel void @k(ptr addrspace(1) %a0, ptr addrspace(1) %a1, ptr addrspace(1) %a2, "
                 "ptr addrspace(1) %a3) {\nentry:\n  %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()")  # fmt: skip
    lines.append("""
  %o16 = mul i32 %t, 16
  %o8 = mul i32 %t, 8
  %pa = getelementptr i8, ptr addrspace(1) %a0, i32 %o16
  %pb = getelementptr i8, ptr addrspace(1) %a1, i32 %o8
  %va = load <4 x i32>, ptr addrspace(1) %pa, align 16
  %vb = load <2 x i32>, ptr addrspace(1) %pb, align 8
  %sb0 = getelementptr i8, ptr addrspace(3) @room, i32 512
  %sa = getelementptr i8, ptr addrspace(3) @room, i32 %o16
  %sb = getelementptr i8, ptr addrspace(3) %sb0, i32 %o8
  store <4 x i32> %va, ptr addrspace(3) %sa, align 16
  store <2 x i32> %vb, ptr addrspace(3) %sb, align 8
  call void @llvm.nvvm.barrier0()
  %matrix = lshr i32 %t, 3
  %row8 = and i32 %t, 7
  %lower = and i32 %matrix, 1
  %right = lshr i32 %matrix, 1
  %r1 = mul i32 %lower, 8
  %row = add i32 %r1, %row8
  %r2 = mul i32 %row, 32
  %r3 = mul i32 %right, 16
  %ra = add i32 %r2, %r3
  %la = getelementptr i8, ptr addrspace(3) @room, i32 %ra
  %ma = call { i32, i32, i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16.p3(ptr addrspace(3) %la)
  %q2 = mul i32 %row8, 32
  %q3 = mul i32 %lower, 16
  %rb = add i32 %q2, %q3
  %lb = getelementptr i8, ptr addrspace(3) %sb0, i32 %rb
  %mb = call { i32, i32 } @llvm.nvvm.ldmatrix.sync.aligned.m8n8.x2.b16.p3(ptr addrspace(3) %lb)""")
    lines += [f"  %m{k} = extractvalue {{ i32, i32, i32, i32 }} %ma, {k}" for k in range(4)]
    lines += [f"  %n{k} = extractvalue {{ i32, i32 }} %mb, {k}" for k in range(2)]
    lines += ["  %g = lshr i32 %t, 2\n  %l = and i32 %t, 3\n  %g32 = mul i32 %g, 32\n  %l8 = mul i32 %l, 8",
              "  %oc = add i32 %g32, %l8\n  %oc8 = add i32 %oc, 256"]  # fmt: skip
    for k, name in enumerate(("%oc", "%oc8")):
        lines.append(f"  %pc{k} = getelementptr i8, ptr addrspace(1) %a2, i32 {name}")
        lines.append(f"  %pd{k} = getelementptr i8, ptr addrspace(1) %a3, i32 {name}")
        lines.append(f"  %c{k} = load <2 x i32>, ptr addrspace(1) %pc{k}, align 8")
        lines += [f"  %c{k}{i} = extractelement <2 x i32> %c{k}, i64 {i}" for i in range(2)]
    lines.append(guard)
    c = ", ".join(f"i32 %c{k}{i}" for k in range(2) for i in range(2))
    lines.append(f"  %d = call {{ i32, i32, i32, i32 }} {mma}({a}, i32 %n0, i32 %n1, {c})")
    for k in range(2):
        for i in range(2):
            lines.append(f"  %d{k}{i} = extractvalue {{ i32, i32, i32, i32 }} %d, {2 * k + i}")
        lines.append(f"  %w{k} = insertelement <2 x i32> poison, i32 %d{k}0, i64 0")
        lines.append(f"  %x{k} = insertelement <2 x i32> %w{k}, i32 %d{k}1, i64 1")
        lines.append(f"  store <2 x i32> %x{k}, ptr addrspace(1) %pd{k}, align 8")
    lines.append("  br label %done\ndone:\n  ret void\n}" if guard else "  ret void\n}")
    return "\n".join(lines)


@pytest.mark.parametrize("signs", ["s8", "u8", "s8.u8", "u8.s8"])
def test_a_warp_multiplies_matrices(signs: str) -> None:
    random = np.random.default_rng(1)
    kinds = [np.int8 if one == "s8" else np.uint8 for one in (signs.split(".") * 2)[:2]]
    a = random.integers(np.iinfo(kinds[0]).min, np.iinfo(kinds[0]).max, (16, 32), kinds[0], endpoint=True)
    b = random.integers(np.iinfo(kinds[1]).min, np.iinfo(kinds[1]).max, (32, 8), kinds[1], endpoint=True)
    c = random.integers(-(2**31), 2**31, (16, 8), np.int32)
    d = np.zeros((16, 8), np.int32)
    launched(_products(signs), [a, np.ascontiguousarray(b.T), c], [d])
    expected = a.astype(np.int64) @ b.astype(np.int64) + c
    assert np.array_equal(d, expected.astype(np.int32))


def test_a_product_of_matrices_in_divergent_code_is_found() -> None:
    guard = "  %some = icmp slt i32 %t, 31\n  br i1 %some, label %go, label %done\ngo:"
    arrays = [np.zeros(512, np.int8), np.zeros(256, np.int8), np.zeros(128, np.int32)]
    with pytest.raises(KernelDefect, match=r"divergent: thread 0 .* 31 do; kernel k, instruction: %d = call"):
        launched(_products("s8", guard), arrays, [np.zeros(128, np.int32)])


@pytest.mark.parametrize(("mode", "clamp"), [("bfly", 31), ("down", 31), ("up", 0), ("idx", 31)])
def test_threads_of_a_warp_exchange_values(mode: str, clamp: int) -> None:
    x = np.arange(100, 164, dtype=np.int32)
    line = f"  %r = call i32 @llvm.nvvm.shfl.sync.{mode}.i32(i32 -1, i32 %x, i32 5, i32 {clamp})"
    got = applied(line, ["i32"], "i32", x).view(np.int32)[:, 0]
    lane, warp = np.arange(64) % 32, np.arange(64) // 32 * 32
    source = {"bfly": lane ^ 5, "down": lane + 5, "up": lane - 5, "idx": 0 * lane + 5}[mode]
    source = np.where((source >= 0) & (source < 32), source, lane)
    assert np.array_equal(got, x[warp + source])


def test_warps_vote_and_fold() -> None:
    x = np.array(samples(32, 64, 5), np.int32)
    lines = "  %q = icmp sgt i32 %x, 1\n  %r = call i32 @llvm.nvvm.vote.ballot.sync(i32 -1, i1 %q)"
    got = applied(lines, ["i32"], "i32", x).view(np.uint32)[:, 0]
    bits = [sum(1 << k for k in range(32) if x[w + k] > 1) for w in (0, 32)]
    assert got.tolist() == [bits[0]] * 32 + [bits[1]] * 32
    folds = {"add": lambda v: v.sum(dtype=np.int32), "umax": lambda v: v.view(np.uint32).max().astype(np.int32)}
    for name, fold in folds.items():
        line = f"  %r = call i32 @llvm.nvvm.redux.sync.{name}(i32 %x, i32 -1)"
        got = applied(line, ["i32"], "i32", x).view(np.int32)[:, 0]
        assert got.tolist() == [int(fold(x[w : w + 32])) for w in (0, 32) for _ in range(32)]


def test_a_mask_that_leaves_threads_out_is_found() -> None:
    body = THREAD + "  %r = call i32 @llvm.nvvm.shfl.sync.bfly.i32(i32 65535, i32 %t, i32 1, i32 31)\n  ret void"
    found(module(body), "divergent")
