"""The program that generates: one decode step, and the choice of the next token in the same program.

Its inputs are ``prompt``, the token of this cycle or -1 for the one that was chosen in the last cycle, and ``seed``, a
seed that the random generator begins with in this cycle or 0 to go on. Its own state is ``chosen`` and ``random``. Its
output is ``token``, the token chosen in this cycle. A greedy program has neither ``seed`` nor ``random``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

import numpy as np

from cvm.errors import Invalid, Location
from cvm.generation.decoding import Decoder
from cvm.generation.emission import Emitter
from cvm.generation.sampling import advanced, chosen
from cvm.generation.settings import SEEDS, Sampling
from cvm.limits import PROFILES
from cvm.program import Output, Program, ProgramBuilder
from cvm.program.model import Provenance
from cvm.program.verifier import VerifiedProgram, verify

__all__ = ["CONTINUE", "composed", "sampler"]

CONTINUE = -1
"""The ``prompt`` of a cycle that goes on with the token that was chosen."""


def composed(decoder: Decoder, sampling: Sampling) -> VerifiedProgram:
    """The verified program that generates; equal decoders and samplings give equal digests.

    Its values have the names of the decoder's program where they can. Raises `Invalid` (``generation.top_k``) for more
    candidates than tokens, ``generation.name`` for a decoder with a state called as one of the new tensors, and
    `LimitExceeded`.
    """
    if sampling.top_k is not None and sampling.top_k > decoder.size:
        message = f"expected at most {decoder.size} candidates (top_k), the size of the vocabulary"
        raise Invalid("generation.top_k", f"{message}; found {sampling.top_k}")
    program = decoder.verified.program
    builder = ProgramBuilder(PROFILES[program.limits])
    emit = Emitter(builder)
    own = ["prompt", *_state(builder, "chosen", 0, decoder.size - 1)]
    builder.input("prompt", (1,), CONTINUE, decoder.size - 1)
    if not sampling.greedy:
        own += ["seed", *_state(builder, "random", *SEEDS)]
        builder.input("seed", (1,), 0, SEEDS[1])
    names = _kept(builder, program, own)
    token = _token(emit, decoder.size)
    random = None if sampling.greedy else _random(emit)
    names[decoder.token] = emit.reshaped(token, decoder.verified.shapes[decoder.token], "current")
    _copy_nodes(builder, program, names)
    logits = emit.reshaped(names[decoder.logits.value], (1, decoder.size), "logits")
    new = chosen(emit, logits, decoder.scale, sampling, random)
    builder.update("chosen", new)
    if random is not None:
        builder.update("random", random)
    return verify(builder.build([Output("token", new)], _provenance(program, names)))


def sampler(decoder: Decoder, sampling: Sampling) -> VerifiedProgram:
    """The verified program of the choice alone: ``logits``, (1, V), and ``random``, unless it is greedy."""
    builder = ProgramBuilder(PROFILES[decoder.verified.program.limits])
    logits = builder.input("logits", (1, decoder.size), *decoder.verified.ranges[decoder.logits.value].hull())
    random = None if sampling.greedy else builder.input("random", (1,), *SEEDS)
    new = chosen(Emitter(builder), logits, decoder.scale, sampling, random)
    return verify(builder.build([Output("token", new)]))


def _state(builder: ProgramBuilder, name: str, lo: int, hi: int) -> list[str]:
    """Add a state of one element, which begins with the least; returns its name and that of its initial constant."""
    initial = builder.constant(np.array([lo], np.int8), f"{name}.initial")
    return [builder.state(name, initial, lo, hi), initial]


def _token(emit: Emitter, size: int) -> str:
    """The token of this cycle: the prompt's, or the one chosen before."""
    given = emit.greater("prompt", emit.constant([CONTINUE], "continue"), "given")
    return emit.op("where", given, emit.clip("prompt", 0, size - 1, "current"), "chosen", name="current")


def _random(emit: Emitter) -> str:
    """The random number of this cycle: the next one after the seed, or after that of the last cycle."""
    return advanced(emit, emit.op("where", "seed", emit.clip("seed", *SEEDS, "start"), "random", name="start"))


def _kept(builder: ProgramBuilder, program: Program, own: Collection[str]) -> dict[str, str]:
    """Add the constants and the state of a program; returns the names of their values by those in the program."""
    for item in program.state:
        if item.value.name in own:
            message = "the program that generates has a tensor of this name: give the state of the model another name"
            raise Invalid("generation.name", message, Location(tensor=item.value.name))
    names = {}
    for constant in program.constants:
        names[constant.name] = builder.same(constant)
    for item in program.state:
        value = item.value
        names[value.name] = builder.state(value.name, names[item.initial], value.lo, value.hi)
    return names


def _copy_nodes(builder: ProgramBuilder, program: Program, names: dict[str, str]) -> None:
    """Add the nodes of a program, and the updates of its state; ``names`` gets the names of their results."""
    for node in program.nodes:
        outputs = [value.name for value in node.outputs]
        wish = outputs[0] if len(outputs) == 1 else outputs[0].rpartition(".")[0] or outputs[0]
        found = builder.add(node.op, [names[name] for name in node.inputs], node.attributes, wish)
        names.update(zip(outputs, found, strict=True))
    for item in program.state:
        builder.update(item.value.name, names[item.update])


def _provenance(program: Program, names: Mapping[str, str]) -> Provenance:
    """That of the model, with the values' names in the new program."""
    known = program.provenance
    exactness = tuple(replace(item, value=names.get(item.value, item.value)) for item in known.exactness)
    return replace(known, exactness=exactness)
