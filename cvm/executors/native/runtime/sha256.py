"""SHA-256 of many messages of one size, on processors that have instructions for it (x86's SHA extensions).

A message is one byte, the same for all messages, and a multiple of 64 bytes of data, like the nodes of a Merkle tree
over leaves of 1 KiB. Python's own `hashlib` is as fast for one long message. For millions of short messages, its calls
cost more than the hashing, and it holds Python's lock for messages of less than 2 KiB, so threads do not help. Here one
call hashes all messages, or all levels of a tree, without the lock. It hashes three messages at a time, so that the
processor computes one while it waits for results of the others.

Source: FIPS 180-4. The words lie in registers in the order that the instructions ask for.
"""

from __future__ import annotations

import ctypes
import hashlib
from dataclasses import replace
from functools import cache

from cvm.executors.native.emit.fips180 import ROUNDS, A, B, C, D, E, F, G, H, K
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache as store
from cvm.executors.native.runtime.jit import kept_or_compiled, loaded
from cvm.executors.native.runtime.select import available
from cvm.program.leaves import Hasher
from cvm.program.merkle import Tree

__all__ = ["hasher"]

LANES = 3

_WORDS = "<4 x i32>"
_BYTES = "<16 x i8>"
_SWAPPED = [index // 4 * 4 + 3 - index % 4 for index in range(16)]


class _Text:
    """IR text that is written line by line."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._count = 0

    def __call__(self, expression: str) -> str:
        """Append the instruction ``expression``, and return the name of its value."""
        self._count += 1
        self.lines.append(f"  %v{self._count} = {expression}")
        return f"%v{self._count}"

    def shuffled(self, kind: str, one: str, other: str, indices: list[int]) -> str:
        """Shuffle the elements of two vectors into one."""
        mask = ", ".join(f"i32 {index}" for index in indices)
        return self(f"shufflevector {kind} {one}, {kind} {other}, <{len(indices)} x i32> <{mask}>")

    def words(self, data: str) -> str:
        """Sixteen bytes as four big-endian words."""
        return self(f"bitcast {_BYTES} {self.shuffled(_BYTES, data, data, _SWAPPED)} to {_WORDS}")

    def at(self, pointer: str, offset: str | int) -> str:
        """Load sixteen bytes from any address."""
        address = self(f"getelementptr i8, ptr {pointer}, i64 {offset}")
        return self(f"load {_BYTES}, ptr {address}, align 1")


def _vector(*words: int) -> str:
    return "<" + ", ".join(f"i32 {word}" for word in words) + ">"


State = list[tuple[str, str]]
"""For each lane, the registers (F, E, B, A) and (H, G, D, C)."""


def _compressed(text: _Text, state: State, blocks: list[list[str]]) -> State:
    """Write the compression of one block in every lane, and return the state after it.

    A block is four vectors of words.
    """
    now = list(state)
    words = [list(block) for block in blocks]
    for group in range(ROUNDS // 4):
        constants = _vector(*K[4 * group : 4 * group + 4])
        for lane in range(LANES):
            w = words[lane]
            if group >= 4:
                mixed = text(f"call {_WORDS} @llvm.x86.sha256msg1({_WORDS} {w[-4]}, {_WORDS} {w[-3]})")
                between = text.shuffled(_WORDS, w[-2], w[-1], [1, 2, 3, 4])
                added = text(f"add {_WORDS} {mixed}, {between}")
                w.append(text(f"call {_WORDS} @llvm.x86.sha256msg2({_WORDS} {added}, {_WORDS} {w[-1]})"))
            keyed = text(f"add {_WORDS} {w[group]}, {constants}")
            febA, hgdC = now[lane]
            hgdC = _two_rounds(text, hgdC, febA, keyed)
            febA = _two_rounds(text, febA, hgdC, text.shuffled(_WORDS, keyed, keyed, [2, 3, 2, 3]))
            now[lane] = (febA, hgdC)
    return [
        (text(f"add {_WORDS} {one[0]}, {other[0]}"), text(f"add {_WORDS} {one[1]}, {other[1]}"))
        for one, other in zip(state, now, strict=True)
    ]


def _two_rounds(text: _Text, one: str, other: str, keyed: str) -> str:
    return text(f"call {_WORDS} @llvm.x86.sha256rnds2({_WORDS} {one}, {_WORDS} {other}, {_WORDS} {keyed})")


# Each level overwrites the level below. That is safe: a message is read before its digest is written, and digests are
# shorter than messages, so they never reach a message that has not been read.
_TREE = """define void @tree(ptr %data, i64 %size, i64 %count, i64 %more, ptr %nodes) {
entry:
  call void @hash(i8 0, ptr %data, i64 %size, i64 %count, ptr %nodes)
  %all = add i64 %count, %more
  br label %look
look:
  %level = phi i64 [ %all, %entry ], [ %above, %next ]
  %several = icmp sgt i64 %level, 1
  br i1 %several, label %pairs, label %done
pairs:
  %half = lshr i64 %level, 1
  call void @hash(i8 1, ptr %nodes, i64 64, i64 %half, ptr %nodes)
  %odd = and i64 %level, 1
  %above = add i64 %half, %odd
  %alone = icmp ne i64 %odd, 0
  br i1 %alone, label %move, label %next
move:
  %whence = mul i64 %half, 64
  %where = mul i64 %half, 32
  %from = getelementptr i8, ptr %nodes, i64 %whence
  %to = getelementptr i8, ptr %nodes, i64 %where
  %node = load <32 x i8>, ptr %from, align 1
  store <32 x i8> %node, ptr %to, align 1
  br label %next
next:
  br label %look
done:
  ret void
}"""


def _module() -> str:
    """The IR of the functions ``hash(i8 prefix, ptr data, i64 size, i64 count, ptr digests)`` and `_TREE`."""
    text = _Text()
    put = text.lines.append
    put("define void @hash(i8 %prefix, ptr %data, i64 %size, i64 %count, ptr %digests) nounwind {")
    put(f"entry:\n  %stride = mul i64 %size, {LANES}\n  %end = add i64 %count, -1\n  %some = icmp sgt i64 %count, 0")
    put(f"  %p0 = insertelement {_BYTES} undef, i8 %prefix, i64 0\n  br i1 %some, label %pair, label %done")
    put("pair:\n  %i = phi i64 [ 0, %entry ], [ %next, %final ]")
    numbers = ["%i"] + [
        text(f"call i64 @llvm.smin.i64(i64 {text(f'add i64 %i, {lane}')}, i64 %end)") for lane in range(1, LANES)
    ]
    messages = [text(f"getelementptr i8, ptr %data, i64 {text(f'mul i64 {number}, %size')}") for number in numbers]
    kept = _whole_blocks(text, messages)
    put("final:")
    _store_digests(text, numbers, _compressed(text, kept, _last_blocks(text, messages)))
    put(f"  %next = add i64 %i, {LANES}\n  %again = icmp slt i64 %next, %count")
    put("  br i1 %again, label %pair, label %done\ndone:\n  ret void\n}")
    put(_TREE)
    put(f"declare {_WORDS} @llvm.x86.sha256rnds2({_WORDS}, {_WORDS}, {_WORDS})")
    put(f"declare {_WORDS} @llvm.x86.sha256msg1({_WORDS}, {_WORDS})")
    put(f"declare {_WORDS} @llvm.x86.sha256msg2({_WORDS}, {_WORDS})")
    put("declare i64 @llvm.smin.i64(i64, i64)\ndeclare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return "\n".join(text.lines) + "\n"


def _whole_blocks(text: _Text, messages: list[str]) -> State:
    """Write the compression of all blocks but the last one of each message. The first block starts with the prefix."""
    put, lanes = text.lines.append, range(LANES)
    first = []
    for message in messages:
        head = text.shuffled(_BYTES, text.at(message, 0), "%p0", [16, *range(15)])
        first.append([text.words(head), *(text.words(text.at(message, offset)) for offset in (15, 31, 47))])
    begin = [(_vector(F, E, B, A), _vector(H, G, D, C))] * LANES
    state = _compressed(text, begin, first)
    put("  br label %more")
    put("more:\n  %at = phi i64 [ 63, %pair ], [ %on, %body ]")
    kept = [(f"%x{lane}", f"%y{lane}") for lane in lanes]
    for lane in lanes:
        put(f"  %x{lane} = phi {_WORDS} [ {state[lane][0]}, %pair ], [ %x{lane}n, %body ]")
        put(f"  %y{lane} = phi {_WORDS} [ {state[lane][1]}, %pair ], [ %y{lane}n, %body ]")
    put("  %on = add i64 %at, 64\n  %left = icmp slt i64 %on, %size\n  br i1 %left, label %body, label %final")
    put("body:")
    blocks = []
    for message in messages:
        start = text(f"getelementptr i8, ptr {message}, i64 %at")
        ahead = text(f"getelementptr i8, ptr {start}, i64 %stride")
        put(f"  call void @llvm.prefetch.p0(ptr {ahead}, i32 0, i32 3, i32 1)")
        blocks.append([text.words(text.at(start, offset)) for offset in (0, 16, 32, 48)])
    for lane, (x, y) in enumerate(_compressed(text, kept, blocks)):
        put(f"  %x{lane}n = add {_WORDS} {x}, zeroinitializer\n  %y{lane}n = add {_WORDS} {y}, zeroinitializer")
    put("  br label %more")
    return kept


def _last_blocks(text: _Text, messages: list[str]) -> list[list[str]]:
    """The last block of each message: one byte of data, the bit 1 of the padding, zeros, and the length in bits."""
    text.lines.append("  %bytes = add i64 %size, 1\n  %last = add i64 %size, -1\n  %bits = shl i64 %bytes, 3")
    bits = text("trunc i64 %bits to i32")
    blocks = []
    for message in messages:
        last = text(f"getelementptr i8, ptr {message}, i64 %last")
        byte = text(f"load i8, ptr {last}")
        byte = text(f"zext i8 {byte} to i32")
        byte = text(f"shl i32 {byte}, 24")
        word = text(f"or i32 {byte}, {0x80 << 16}")
        head = text(f"insertelement {_WORDS} zeroinitializer, i32 {word}, i64 0")
        tail = text(f"insertelement {_WORDS} zeroinitializer, i32 {bits}, i64 3")
        blocks.append([head, "zeroinitializer", "zeroinitializer", tail])
    return blocks


def _store_digests(text: _Text, numbers: list[str], state: State) -> None:
    """Store the digests of the messages with these numbers."""
    for number, (x, y) in zip(numbers, state, strict=True):
        digest = text(f"getelementptr i8, ptr %digests, i64 {text(f'shl i64 {number}, 5')}")
        for offset, taken in ((0, [3, 2, 7, 6]), (16, [1, 0, 5, 4])):
            words = text(f"bitcast {_WORDS} {text.shuffled(_WORDS, x, y, taken)} to {_BYTES}")
            target = text(f"getelementptr i8, ptr {digest}, i64 {offset}")
            text.lines.append(
                f"  store {_BYTES} {text.shuffled(_BYTES, words, words, _SWAPPED)}, ptr {target}, align 1"
            )


def _with_instructions(machine: Machine) -> Machine:
    """A machine for whose code LLVM uses the SHA instructions, on a processor that has them.

    A machine that states its features leaves them out, and LLVM ends the process where it cannot select an instruction.
    """
    return machine if machine.features is None else replace(machine, features=f"{machine.features},+sha")


@cache
def hasher() -> Hasher | None:
    """The hasher of this processor, or None if it has no SHA instructions or the hasher disagrees with `hashlib`."""
    if not store.host().has("sha") or not available():
        return None
    machine, text = _with_instructions(available()[0]), _module()
    library = loaded(kept_or_compiled("sha256", text, machine), machine)
    types = (ctypes.c_uint8, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)
    hash_ = ctypes.CFUNCTYPE(None, *types)(library.address("hash"))
    tree_ = ctypes.CFUNCTYPE(None, ctypes.c_void_p, *types[2:4], ctypes.c_int64, ctypes.c_void_p)(
        library.address("tree")
    )

    def messages(prefix: int, data: int, size: int, count: int, digests: int, library: object = library) -> None:
        hash_(prefix, data, size, count, digests)

    def tree(data: int, size: int, count: int, more: int, nodes: int, library: object = library) -> None:
        tree_(data, size, count, more, nodes)

    made = Hasher(messages, tree)
    return made if _agrees(made) else None


def _agrees(run: Hasher) -> bool:
    """Whether a hasher gives the digests of `hashlib`, for odd and even numbers of messages of several sizes."""
    return _messages_agree(run) and _trees_agree(run)


def _messages_agree(run: Hasher) -> bool:
    for size in (64, 128, 1024):
        for count in (1, 2, 5):
            data = bytes((k * k + k // 7) % 256 for k in range(size * count))
            source = ctypes.create_string_buffer(data, len(data))
            digests = ctypes.create_string_buffer(32 * count)
            run.messages(count, ctypes.addressof(source), size, count, ctypes.addressof(digests))
            messages = (bytes([count]) + data[size * k : size * (k + 1)] for k in range(count))
            if digests.raw != b"".join(hashlib.sha256(message).digest() for message in messages):
                return False
    return True


def _trees_agree(run: Hasher) -> bool:
    data = bytes((k * k + k // 5) % 256 for k in range(64 * 9))
    source = ctypes.create_string_buffer(data, len(data))
    leaves = [data[64 * k : 64 * (k + 1)] for k in range(9)]
    for count in range(1, 9):
        for more in (0, 1):
            known = hashlib.sha256(b"\0" + leaves[count]).digest() * more
            nodes = ctypes.create_string_buffer(bytes(32 * count) + known, 32 * (count + more))
            run.tree(ctypes.addressof(source), 64, count, more, ctypes.addressof(nodes))
            if nodes.raw[:32] != Tree.of(leaves[: count + more]).root:
                return False
    return True
