"""Fuzzer of one-step proofs: those among the test vectors, with bytes damaged, moved or taken from each other.

    python -m tools.fuzz.steps --count 100000 --seed 1

What is decoded must encode to the same bytes. Only the proofs that are true are accepted, by the product's judge and by
the one that stands alone (tools/verify_step.py).
"""

from __future__ import annotations

import random
import sys
from functools import lru_cache
from pathlib import Path

from cvm.audit.dispute import decode_proof, encode_proof, verify_step
from cvm.errors import CvmError
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes
from tools.verify_step import judged

__all__ = ["FUZZER"]

_VECTORS = Path(__file__).parents[2] / "spec_vectors" / "steps"


@lru_cache(maxsize=1)
def _files() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(_VECTORS.glob("*.step")))


@lru_cache(maxsize=1)
def _true() -> frozenset[bytes]:
    return frozenset(path.read_bytes() for path in _VECTORS.glob("*.step") if not path.stem.startswith("refused_"))


def make(random_: random.Random) -> bytes:
    """A proof: as it is, with damaged bytes, or with a piece of another one at the same place."""
    data = random_.choice(_files())
    kind = random_.random()
    if kind < 0.05:
        return data
    if kind < 0.7:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    other = random_.choice(_files())
    start = random_.randrange(min(len(data), len(other)))
    end = start + random_.choice((1, 4, 8, 32, 100, 1024))
    return data[:start] + other[start:end] + data[end:]


def examine(case: bytes) -> str:
    """Decode a proof, and let both judges look at it."""
    is_true = case in _true()
    accepted, words = judged(case)
    assert accepted == is_true, f"the judge that stands alone says {accepted}, {words}"
    try:
        proof = decode_proof(case)
    except CvmError:
        assert not is_true, "a true proof is not decoded"
        raise
    assert encode_proof(proof) == case, "a proof does not encode to the bytes that it was decoded from"
    verdict = verify_step(proof.claim, proof.witness)
    assert verdict.accepted == is_true, f"the judge says {verdict.reason}"
    return "valid, accepted" if is_true else "refused"


FUZZER = Fuzzer("tools.fuzz.steps", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
