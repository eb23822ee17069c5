"""Random changes of texts, of bytes and of trees."""

from __future__ import annotations

import random
import re
import struct
from typing import Any

import msgpack

__all__ = [
    "changed_file",
    "changed_tree",
    "enlarged_tree",
    "mutate_bytes",
    "mutate_text",
    "packed_tree",
    "with_long_list",
]

_TOKEN = re.compile(rb"[A-Za-z_][A-Za-z0-9_]*|[0-9][0-9.eE]*|'[^'\n]*'|\s+|->|[<>=!&|]{1,2}|.", re.DOTALL)
_WORDS = (
    b"version extension graph fragment tensor integer scalar logical string shape_of length_of range_of for in yield "
    b"if else true false extent external variable constant update conv reshape split concat relu add x y z ? [] [1] "
    b"(1,2) -1 0 1 2 3 7 16 1.0 0.5 -0.0 1e9 1e-300 1e1199 9223372036854775808 4294967296 00 '' 'label' '../x' \"q\" ; "
    b": , . ( ) [ ] { } < > = == != + - * / ^ && || ! -> tensor<> tensor<?> <scalar> # \x00 \xff \\ ' \xc3\xa9 \r \x0c"
).split(b" ")


_LIKE = 0.7  # how often a token is replaced by one of its kind, so that the text may still fit the grammar


def _alike(random_: random.Random, tokens: list[bytes], at: int) -> bytes:
    """Another token of the same kind, from the text or from the interesting ones."""

    def kind(token: bytes) -> bytes:
        return re.sub(rb"[A-Za-z_]", b"a", re.sub(rb"[0-9]", b"0", token[:1]))

    wanted = kind(tokens[at])
    if not tokens[at].strip() or wanted in b"()[]{}":
        return tokens[at]
    others = [token for token in (*_WORDS, *random_.sample(tokens, min(len(tokens), 60))) if kind(token) == wanted]
    return random_.choice(others) if others else tokens[at]


def mutate_text(random_: random.Random, text: bytes, times: int) -> bytes:
    """A text with some of its tokens left out, doubled, swapped, or replaced by others."""
    tokens = _TOKEN.findall(text)
    for _ in range(times):
        if not tokens:
            return b" ".join(random_.choices(_WORDS, k=5))
        at = random_.randrange(len(tokens))
        if random_.random() < _LIKE:
            tokens[at] = _alike(random_, tokens, at)
            continue
        match random_.randrange(9):
            case 0:
                del tokens[at]
            case 1:
                tokens.insert(at, tokens[at])
            case 2:
                other = random_.randrange(len(tokens))
                tokens[at], tokens[other] = tokens[other], tokens[at]
            case 3:
                tokens[at] = random_.choice(_WORDS)
            case 4:
                tokens.insert(at, random_.choice(_WORDS))
            case 5:
                tokens[at] = random_.choice(tokens)
            case 6:
                end = min(len(tokens), at + random_.randrange(1, 12))
                tokens[at:at] = tokens[at:end] * random_.choice((1, 1, 2, 40))
            case 7:
                del tokens[at : at + random_.randrange(1, 12)]
            case _:
                tokens[at] = mutate_bytes(random_, tokens[at], 1)
    return b"".join(tokens)


_NUMBERS = (0, 1, 2, 7, 8, 127, 128, 255, 256, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1)


def mutate_bytes(random_: random.Random, data: bytes, times: int) -> bytes:
    """Bytes with some of them flipped, replaced, left out, doubled, or overwritten by a number of four bytes."""
    result = bytearray(data)
    for _ in range(times):
        if not result:
            return random_.randbytes(random_.randrange(1, 9))
        at = random_.randrange(len(result))
        match random_.randrange(7):
            case 0:
                result[at] ^= 1 << random_.randrange(8)
            case 1:
                result[at] = random_.choice((0, 1, 0x7F, 0x80, 0xFF, random_.randrange(256)))
            case 2:
                del result[at : at + random_.choice((1, 1, 2, 4, 64))]
            case 3:
                result[at:at] = result[at : at + random_.choice((1, 4, 16, 128))]
            case 4:
                result[at & ~3 : (at & ~3) + 4] = struct.pack("<I", random_.choice(_NUMBERS))
            case 5:
                del result[at:]
            case _:
                result[at:at] = random_.randbytes(random_.randrange(1, 9))
    return bytes(result)


_VALUES = (0, 1, -1, 2, 7, 127, 128, 255, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), "", "x", b"", b"\0", True)


def changed_tree(random_: random.Random, tree: Any) -> Any:
    """A tree with one changed part, found on a random way down."""
    if isinstance(tree, list) and tree and random_.random() < 0.9:
        at = random_.randrange(len(tree))
        match random_.randrange(12):
            case 0:
                return tree[:at] + tree[at + 1 :]
            case 1:
                return [*tree, tree[at]]
            case 2:
                return tree[::-1]
        return [*tree[:at], changed_tree(random_, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, dict) and tree and random_.random() < 0.9:
        key = random_.choice(sorted(tree))
        if random_.random() < 0.1:
            return {name: item for name, item in tree.items() if name != key}
        return {**tree, key: changed_tree(random_, tree[key])}
    if isinstance(tree, int) and not isinstance(tree, bool) and random_.random() < 0.5:
        return max(-(2**63), min(tree + random_.choice((-1, 1)), 2**63 - 1))
    if isinstance(tree, bytes) and random_.random() < 0.7:
        return mutate_bytes(random_, tree, 1)
    alike = [value for value in _VALUES if type(value) is type(tree)]
    return random_.choice(alike if alike and random_.random() < 0.9 else _VALUES)


_VAST = (0, -1, 2**16, 2**24, 2**31 - 1, 2**31, 2**62)

_MOST_PACKED = 2**23
"""The most bytes of a list that was repeated: the fuzzer itself must not need much memory."""


def enlarged_tree(random_: random.Random, tree: Any) -> Any:
    """A tree in which one number is vast, or one list is long."""
    if isinstance(tree, dict) and tree:
        key = random_.choice(sorted(tree))
        return {**tree, key: enlarged_tree(random_, tree[key])}
    if isinstance(tree, list) and tree:
        if random_.random() < 0.1:
            times = random_.choice((2, 100, 1000))
            return tree * max(1, min(times, _MOST_PACKED // len(msgpack.packb(tree, use_bin_type=True))))
        at = random_.randrange(len(tree))
        return [*tree[:at], enlarged_tree(random_, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, int) and not isinstance(tree, bool):
        return random_.choice(_VAST)
    return tree * random_.choice((2, 100)) if isinstance(tree, bytes | str) else tree


def with_long_list(random_: random.Random, data: bytes) -> bytes:
    """The beginning of a msgpack file, then one list of up to a million equal small items."""
    count = random_.choice((1000, 100_000, 1_000_000))
    item = random_.choice((b"\x90", b"\x80", b"\0", b"\x91", b"\xa0", b"\xcf" + b"\xff" * 8))
    return data[:14] + b"\xdd" + count.to_bytes(4, "big") + item * count


def changed_file(random_: random.Random, data: bytes) -> bytes:
    """A msgpack file with damaged bytes, or written again after some of its parts were changed."""
    if random_.random() < 0.3:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    tree = msgpack.unpackb(data, strict_map_key=False)
    for _ in range(random_.choice((1, 1, 2, 3))):
        tree = changed_tree(random_, tree)
    return packed_tree(tree)


def packed_tree(tree: Any) -> bytes:
    """A tree as canonical msgpack."""

    def ordered(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: ordered(item[name]) for name in sorted(item)}
        return [ordered(child) for child in item] if isinstance(item, list) else item

    packed: bytes = msgpack.packb(ordered(tree), use_bin_type=True)
    return packed
