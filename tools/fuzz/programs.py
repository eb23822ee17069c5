"""Fuzzer of program files: the programs among the test vectors, with bytes or parts of their tree damaged.

    python -m tools.fuzz.programs --count 100000 --seed 1

What is decoded must encode to the same bytes, whatever the verifier says of it.
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgpack

from cvm.program import decode, encode, verify
from cvm.vectors.format import ProgramCase
from cvm.vectors.format import decode as decode_vectors
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes

__all__ = ["FUZZER"]

_VECTORS = Path(__file__).parents[2] / "spec_vectors" / "programs"
_LARGEST = 4096  # bytes; larger programs have weights rather than more structure
_VALUES = (0, 1, -1, 2, 7, 127, 128, 255, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), "", "x", b"", b"\0", True)


@lru_cache(maxsize=1)
def _programs() -> tuple[bytes, ...]:
    cases = (case for path in sorted(_VECTORS.glob("*.msgpack")) for case in decode_vectors(path.read_bytes()).cases)
    valid = (case.program for case in cases if isinstance(case, ProgramCase) and case.verdict == "value")
    return tuple(program for program in valid if len(program) <= _LARGEST)


def make(random_: random.Random) -> bytes:
    """A program with damaged bytes, or written again after a part of it was changed."""
    data = random_.choice(_programs())
    if random_.random() < 0.3:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    tree = msgpack.unpackb(data, strict_map_key=False)
    for _ in range(random_.choice((1, 1, 2, 3))):
        tree = _changed(random_, tree)
    return _pack(tree)


def _changed(random_: random.Random, tree: Any) -> Any:
    """A tree with one part of it, on a random way down, changed."""
    if isinstance(tree, list) and tree and random_.random() < 0.9:
        at = random_.randrange(len(tree))
        match random_.randrange(12):
            case 0:
                return tree[:at] + tree[at + 1 :]
            case 1:
                return [*tree, tree[at]]
            case 2:
                return tree[::-1]
        return [*tree[:at], _changed(random_, tree[at]), *tree[at + 1 :]]
    if isinstance(tree, dict) and tree and random_.random() < 0.9:
        key = random_.choice(sorted(tree))
        if random_.random() < 0.1:
            return {name: item for name, item in tree.items() if name != key}
        return {**tree, key: _changed(random_, tree[key])}
    if isinstance(tree, int) and not isinstance(tree, bool) and random_.random() < 0.5:
        return max(-(2**63), min(tree + random_.choice((-1, 1)), 2**63 - 1))
    if isinstance(tree, bytes) and random_.random() < 0.7:
        return mutate_bytes(random_, tree, 1)
    alike = [value for value in _VALUES if type(value) is type(tree)]
    return random_.choice(alike if alike and random_.random() < 0.9 else _VALUES)


def _pack(tree: Any) -> bytes:
    def ordered(item: Any) -> Any:
        if isinstance(item, dict):
            return {name: ordered(item[name]) for name in sorted(item)}
        return [ordered(child) for child in item] if isinstance(item, list) else item

    packed: bytes = msgpack.packb(ordered(tree), use_bin_type=True)
    return packed


def examine(case: bytes) -> str:
    """Decode and verify a program."""
    program = decode(case)
    assert encode(program) == case, "a program does not encode to the bytes that it was decoded from"
    verify(program)
    return "valid"


FUZZER = Fuzzer("tools.fuzz.programs", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
