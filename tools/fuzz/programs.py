"""Fuzzer of program files: the programs of the test vectors, with damaged bytes or parts of their tree.

    python -m tools.fuzz.programs --count 100000 --seed 1

A program that is decoded must encode to the same bytes, whatever the verifier says.
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from pathlib import Path

from cvm.program import decode, encode, verify
from cvm.vectors.format import ProgramCase
from cvm.vectors.format import decode as decode_vectors
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import changed_file

__all__ = ["FUZZER"]

_VECTORS = Path(__file__).parents[2] / "spec_vectors" / "programs"
_LARGEST = 4096  # bytes; larger programs have more weights, not more structure


@lru_cache(maxsize=1)
def _programs() -> tuple[bytes, ...]:
    cases = (case for path in sorted(_VECTORS.glob("*.msgpack")) for case in decode_vectors(path.read_bytes()).cases)
    valid = (case.program for case in cases if isinstance(case, ProgramCase) and case.verdict == "value")
    return tuple(program for program in valid if len(program) <= _LARGEST)


def make(random_: random.Random) -> bytes:
    """A program with damaged bytes, or written again after one part was changed."""
    return changed_file(random_, random_.choice(_programs()))


def examine(case: bytes) -> str:
    """Decode and verify a program."""
    program = decode(case)
    assert encode(program) == case, "a program does not encode to the bytes that it was decoded from"
    verify(program)
    return "valid"


FUZZER = Fuzzer("tools.fuzz.programs", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
