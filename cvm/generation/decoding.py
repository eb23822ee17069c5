"""Programs of one decode step: what `cvm generate` takes, and what it must know of it."""

from __future__ import annotations

import math
from fractions import Fraction

from cvm.errors import Invalid, LimitExceeded, Location
from cvm.generation.sampling import MOST_VOCABULARY
from cvm.program import Output
from cvm.program.verifier import VerifiedProgram
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["POSITION", "Decoder", "decoder_of", "logits_of"]

POSITION = "position"
"""The state that counts the tokens which a program has seen, if it keeps only so many: as many as it can count."""


@dataclass(frozen=True, eq=False, slots=True)
class Decoder:
    """A program of one decode step: it reads a token and gives the logits of the next one.

    It has one input, with one element whose codes are the tokens 0 .. V - 1. Its logits are V codes of one linear
    quantiser: its only output, or the one called ``logits``.
    """

    verified: VerifiedProgram
    token: str
    logits: Output
    scale: Fraction
    """The scale of the logits."""
    size: int
    """V, the number of tokens of the vocabulary."""
    context: int | None
    """How many tokens the program takes before its memory is full; None: any number."""


def decoder_of(verified: VerifiedProgram) -> Decoder:
    """What a verified program is as a decode step.

    Raises `Invalid` (``generation.program``) for a program that is none, and `LimitExceeded` (``limit.vocabulary``).
    """
    program = verified.program
    if len(program.inputs) != 1:
        raise _wrong(f"one input, the token; found {len(program.inputs)} inputs", None)
    token = program.inputs[0].value
    logits = logits_of(program.outputs)
    if logits is None:
        names = ", ".join(item.name for item in program.outputs)
        raise _wrong(f"one output, or one called 'logits'; found {names}", None)
    shape = verified.shapes[logits.value]
    size = max(shape)
    if math.prod(token.shape) != 1:
        raise _wrong(f"an input of one element, found shape {list(token.shape)}", token.name)
    if math.prod(shape) != size:
        raise _wrong(f"the logits of one step, of shape [1, V], found shape {list(shape)}", logits.name)
    if size > MOST_VOCABULARY:
        message = f"a vocabulary has at most {MOST_VOCABULARY} tokens, found {size}"
        raise LimitExceeded("limit.vocabulary", message, Location(tensor=logits.name))
    if token.lo > 0 or token.hi < size - 1:
        wish = f"an input that takes the tokens 0 to {size - 1}, as many as there are logits"
        raise _wrong(f"{wish}; found [{token.lo}, {token.hi}]", token.name)
    quantizer = logits.quantizer
    if not isinstance(quantizer, LinearQuantizer) or not quantizer.per_tensor:
        raise _wrong("logits with a linear quantiser of one scale, which says what their codes mean", logits.name)
    return Decoder(verified, token.name, logits, quantizer.scale[0], size, _context(verified))


def logits_of(outputs: tuple[Output, ...]) -> Output | None:
    """The logits among the outputs of a program: the only output, or the one called ``logits``."""
    named = [item for item in outputs if item.name == "logits"]
    return named[0] if named else outputs[0] if len(outputs) == 1 else None


def _context(verified: VerifiedProgram) -> int | None:
    """How far the state `POSITION` is proven to count, if there is such a state of one element."""
    for item in verified.program.state:
        if item.value.name == POSITION and math.prod(item.value.shape) == 1:
            (begin, _), (_, end) = (verified.ranges[name].hull() for name in (item.initial, item.update))
            return max(0, end - begin)
    return None


def _wrong(expected: str, tensor: str | None) -> Invalid:
    message = f"not a program of one decode step: expected {expected} (docs/language-models.md)"
    return Invalid("generation.program", message, Location(tensor=tensor))
