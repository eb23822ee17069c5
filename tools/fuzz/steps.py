"""Fuzzer of one-step proofs: those of the test vectors, with damaged bytes, or about a changed op.

    python -m tools.fuzz.steps --count 100000 --seed 1

A proof that is decoded must encode to the same bytes. The product's judge and the stand-alone one
(cvm/standalone/verify_step.py) must give one verdict, and one kind of fault. For the partials of the vectors, only the
true proofs are accepted. `tools.fuzz.step_mutants` makes proofs about other partials, in programs that need not be
valid; for these the judges must agree.
"""

from __future__ import annotations

import random
import re
import sys
from functools import lru_cache
from pathlib import Path

from cvm.audit.dispute import StepProof, decode_proof, encode_proof, verify_step
from cvm.errors import CvmError
from cvm.standalone.verify_step import judged
from tools.fuzz.harness import Fuzzer, main
from tools.fuzz.mutation import mutate_bytes
from tools.fuzz.step_mutants import mutant

__all__ = ["FUZZER", "kind_of"]

_VECTORS = Path(__file__).parents[2] / "spec_vectors" / "steps"


@lru_cache(maxsize=1)
def _files() -> tuple[bytes, ...]:
    return tuple(path.read_bytes() for path in sorted(_VECTORS.glob("*.step")))


@lru_cache(maxsize=1)
def _true() -> dict[bytes, StepProof]:
    """The proofs to be accepted, by their bytes."""
    paths = (path for path in sorted(_VECTORS.glob("*.step")) if not path.stem.startswith("refused_"))
    return {data: decode_proof(data) for data in (path.read_bytes() for path in paths)}


@lru_cache(maxsize=1)
def _partials() -> frozenset[bytes]:
    """The commitments to the partials of the true proofs, each of which also commits to a location in a run."""
    return frozenset(proof.claim.partials for proof in _true().values())


def make(random_: random.Random) -> bytes:
    """A proof: unchanged, with damaged bytes, with a piece of another proof at the same offset, or about another op."""
    data = random_.choice(_files())
    kind = random_.random()
    if kind < 0.05:
        return data
    if kind < 0.3:
        return mutate_bytes(random_, data, random_.choice((1, 1, 2, 4)))
    if kind < 0.4:
        other = random_.choice(_files())
        start = random_.randrange(min(len(data), len(other)))
        end = start + random_.choice((1, 4, 8, 32, 100, 1024))
        return data[:start] + other[start:end] + data[end:]
    return mutant(random_, random_.choice(list(_true().values())))


def kind_of(code: str) -> str:
    """The kind of fault of a code of the product; all faults of an op are one kind."""
    where, _, rule = code.partition(".")
    if where == "ops" or rule in ("op", "attributes", "outputs", "shift", "terms", "divisor"):
        return "op"
    return rule


def examine(case: bytes) -> str:
    """Decode a proof, and let both judges judge it."""
    accepted, words = judged(case)
    kind = "" if accepted else words[words.rindex("[") + 1 : -1]
    try:
        proof = decode_proof(case)
    except CvmError as error:
        if case in _true():
            raise AssertionError("a true proof is not decoded") from None
        if kind != kind_of(error.code):
            raise AssertionError(f"not decoded for {error.code}; the judge that stands alone says {words}") from None
        raise
    assert encode_proof(proof) == case, "a proof does not encode to the bytes that it was decoded from"
    verdict = verify_step(proof.claim, proof.witness)
    assert verdict.accepted == accepted, f"the judge says {verdict.reason}, the one that stands alone {words}"
    if not accepted:
        assert case not in _true(), f"a true proof is refused: {words}"
        (code,) = re.findall(r"\[([^][]*)\]$", verdict.reason)
        assert kind == kind_of(code), f"refused for {verdict.reason}; the judge that stands alone says {words}"
        return f"refused: {kind}"
    assert case in _true() or proof.claim.partials not in _partials(), "a false proof of these partials is accepted"
    return "valid, accepted"


FUZZER = Fuzzer("tools.fuzz.steps", make, examine)

if __name__ == "__main__":
    sys.exit(main(FUZZER))
