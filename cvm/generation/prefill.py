"""Prefill: programs that read several tokens of a prompt at once.

A prefill program has the state of the decode step, tensor by tensor, and leaves in it what as many decode steps leave.
It is a way to compute faster and no part of what is generated: programs, tokens, states and receipts are those of one
token after the other. For a receipt, the states between the tokens are taken from the state after all of them, since a
decode step appends one row at its position and keeps the rest; and the tokens that those cycles chose are computed from
the logits of all positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from cvm.audit.receipt import Run
from cvm.audit.record import Observation, Recorder
from cvm.audit.split import SplitRun
from cvm.errors import Invalid, Location, Mismatch
from cvm.executors import Int32Array
from cvm.generation.composition import CONTINUE, sampler
from cvm.generation.decoding import POSITION, Decoder, logits_of
from cvm.generation.settings import MODULUS, MULTIPLIER, Sampling
from cvm.program import Output
from cvm.program.appends import appends
from cvm.program.commitments import tensor_root
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass
from cvm.session import Session

__all__ = ["Prefill", "Reading", "agree", "prefill_of"]


@dataclass(frozen=True, eq=False, slots=True)
class Prefill:
    """A program that reads ``tokens`` tokens at once."""

    verified: VerifiedProgram
    token: str
    """The name of its input."""
    tokens: int
    logits: Output | None
    """The logits of all tokens, if it gives them."""


def prefill_of(verified: VerifiedProgram, decoder: Decoder) -> Prefill:
    """What a verified program is as a prefill program of a decode step.

    Raises `Invalid` (``generation.prefill``) for a program that is none.
    """
    program = verified.program
    if len(program.inputs) != 1:
        raise _wrong(f"one input, the tokens; found {len(program.inputs)} inputs", None)
    token = program.inputs[0].value
    if token.lo > 0 or token.hi < decoder.size - 1:
        wish = f"an input that takes the tokens 0 to {decoder.size - 1}"
        raise _wrong(f"{wish}; found [{token.lo}, {token.hi}]", token.name)
    own, theirs = ({item.value.name: item for item in each.program.state} for each in (verified, decoder.verified))
    if set(own) != set(theirs):
        name = min(set(own) ^ set(theirs))
        raise _wrong("the state of the decode step", name)
    constants = [{item.name: item for item in each.program.constants} for each in (verified, decoder.verified)]
    for name, item in own.items():
        other = theirs[name]
        begins = [found[state.initial] for found, state in zip(constants, (item, other), strict=True)]
        same = item.value == other.value and np.array_equal(begins[0].array(), begins[1].array())
        if not same:
            raise _wrong("the state of the decode step, with the same shape, interval and beginning", name)
    count = math.prod(token.shape)
    return Prefill(verified, token.name, count, _logits(verified, decoder, count))


def _logits(verified: VerifiedProgram, decoder: Decoder, count: int) -> Output | None:
    """The output that holds the logits of every token, by the quantiser of the decode step."""
    found = logits_of(verified.program.outputs)
    if found is None or math.prod(verified.shapes[found.value]) != count * decoder.size:
        return None
    return found if found.quantizer == decoder.logits.quantizer else None


def _wrong(expected: str, tensor: str | None) -> Invalid:
    message = f"not a prefill program of this decode step: expected {expected} (docs/language-models.md)"
    return Invalid("generation.prefill", message, Location(tensor=tensor))


def agree(prefill: Prefill, decoder: Decoder, executor: str | None = None) -> None:
    """Compare a prefill program with the decode step, on tokens that fill one run after the first few tokens.

    Raises `Mismatch` (``generation.prefill``) if they leave another state or give other logits.
    """
    drawn = np.random.default_rng(prefill.tokens)
    before = 1 + prefill.tokens // 3
    if decoder.context is not None:
        before = max(0, min(before, decoder.context - prefill.tokens))
    tokens = drawn.integers(0, decoder.size, before + prefill.tokens).astype(np.int32)
    step, logits = Session(decoder.verified, executor), []
    other = Session(prefill.verified, executor)
    single, whole = step.bind(), other.bind()
    for number, token in enumerate(tokens):
        if number == before:
            other.held.load(dict(step.held))
        single.inputs[decoder.token][...] = token
        single.run()
        logits.append(single.outputs[decoder.logits.value].reshape(-1).copy())
    whole.inputs[prefill.token][...] = tokens[before:].reshape(whole.inputs[prefill.token].shape)
    whole.run()
    wrong = [name for name in step.held if not np.array_equal(step.held[name], other.held[name])]
    if prefill.logits is not None and not np.array_equal(
        whole.outputs[prefill.logits.value].reshape(prefill.tokens, -1), np.stack(logits[before:])
    ):
        wrong.append(prefill.logits.name)
    if wrong:
        message = f"the program of {prefill.tokens} tokens gives other codes than the decode step, in {wrong[0]}"
        raise Mismatch(
            "generation.prefill", f"{message}: make both with the same quantisers", Location(tensor=wrong[0])
        )


class Reading:
    """Reads the beginning of a prompt with prefill programs, into the state of the session that generates.

    ``prefills`` are those of ``decoder``; ``executor`` and ``threads`` are those of their sessions.
    """

    def __init__(
        self,
        decoder: Decoder,
        sampling: Sampling,
        prefills: Sequence[Prefill],
        executor: str | None,
        threads: int | None,
    ) -> None:
        self._decoder, self._sampling = decoder, sampling
        self._settings = executor, threads
        self._prefills = sorted(prefills, key=lambda item: -item.tokens)
        self._sessions: dict[int, Session] = {}
        self._sampler: Session | None = None

    def read(self, main: Session, tokens: Sequence[int], seed: int, recorder: Recorder | None) -> list[int]:
        """Read as many of the tokens as fill runs of the prefill programs, from the initial state of a session on.

        Returns the tokens that these cycles chose; without a recorder nothing needs them, and they are -1. With one, it
        gets the runs of these cycles. Raises `Invalid` (``generation.prefill``) for programs that it cannot be done
        with.
        """
        found: list[int] = []
        random = seed
        for prefill in self._prefills:
            run = None
            while len(tokens) - len(found) >= prefill.tokens:
                run = run or self._runs(main, prefill)
                given = tokens[len(found) : len(found) + prefill.tokens]
                if recorder is None:
                    run(given)
                    found += [CONTINUE] * prefill.tokens
                    random = random * pow(MULTIPLIER, prefill.tokens, MODULUS) % MODULUS
                else:
                    cycles = _Cycles(main, prefill, recorder, seed if not found else 0)
                    chosen, random = cycles.run(run, given, random, self._chosen)
                    found += chosen
        if found and recorder is None and not self._sampling.greedy:
            main.held.load({"random": np.array([random], np.int32)})
        return found

    def _runs(self, main: Session, prefill: Prefill) -> Callable[[Sequence[int]], Int32Array | None]:
        """A function that reads tokens into the state of a session, and returns their logits, (tokens, V)."""
        if prefill.tokens not in self._sessions:
            self._sessions[prefill.tokens] = Session(prefill.verified, *self._settings)
        session = self._sessions[prefill.tokens]
        session.share(main)
        shared = session.held.storage is main.held.storage
        bound = session.bind()
        given, logits = bound.inputs[prefill.token], prefill.logits

        def run(tokens: Sequence[int]) -> Int32Array | None:
            given[...] = np.reshape(tokens, given.shape)
            if not shared:
                session.held.load({name: main.held[name] for name in session.held})
            bound.run()
            if not shared:
                main.held.load(dict(session.held))
            return None if logits is None else bound.outputs[logits.value].reshape(prefill.tokens, -1)

        return run

    def _chosen(self, logits: Int32Array, random: int) -> int:
        """The token that follows from a row of logits."""
        if self._sampler is None:
            self._sampler = Session(sampler(self._decoder, self._sampling), *self._settings)
        feed = {"logits": np.ascontiguousarray(logits.reshape(1, -1))}
        if not self._sampling.greedy:
            feed["random"] = np.array([random], np.int32)
        return int(self._sampler.run(feed, codes=True)["token"][0])


class _Cycles:
    """The cycles of the program that generates which one run of a prefill program stands for."""

    def __init__(self, main: Session, prefill: Prefill, recorder: Recorder, seed: int) -> None:
        self._main, self._prefill, self._recorder, self._seed = main, prefill, recorder, seed
        self._single = appends(main.program)
        several = appends(prefill.verified.program)
        kept = {item.value.name for item in prefill.verified.program.state} - {POSITION}
        for name in kept:
            found = [known.get(name) for known in (self._single, several)]
            expected = [(POSITION, count) for count in (1, prefill.tokens)]
            axes = {item.axis for item in found if item is not None}
            if [item and (item.index, item.count) for item in found] != expected or len(axes) != 1:
                raise _unrecorded("does not append one row for each token, at `position`,", name)
        if POSITION not in main.held or prefill.logits is None:
            raise _unrecorded("has no `position`, or its prefill program gives no logits of all tokens", None)

    def run(
        self,
        run: Callable[[Sequence[int]], Int32Array | None],
        tokens: Sequence[int],
        random: int,
        choose: Callable[[Int32Array, int], int],
    ) -> tuple[list[int], int]:
        """Run, and record the cycles. Returns the tokens that they chose, and the random number of the last one."""
        held, states = self._main.held, self._recorder.states
        first = int(held[POSITION].reshape(-1)[0])
        split = SplitRun(states, held, self._single, first, len(tokens))
        logits = run(tokens)
        assert logits is not None
        split.ran()
        last = int(held[POSITION].reshape(-1)[0])
        if last != first + len(tokens):
            message = f"the program of {len(tokens)} tokens counts from {first} to {last}"
            raise Mismatch("generation.prefill", message, Location(tensor=POSITION))
        chosen: list[int] = []
        others: dict[str, Int32Array] = {}
        for number, token in enumerate(tokens):
            random = random * MULTIPLIER % MODULUS
            chosen.append(choose(logits[number], random))
            others = {"chosen": np.array([chosen[-1]], np.int32), "random": np.array([random], np.int32)}
            others = {name: codes for name, codes in others.items() if name in held}
            position = np.full(held.shapes[POSITION], first + number + 1, np.int32)
            before = split.roots
            after = split.step(number, {**others, POSITION: position})
            self._keep(token, 0 if number else self._seed, before, after, others["chosen"])
        held.load(others)
        split.end()
        return chosen, random

    def _keep(
        self, token: int, seed: int, before: Mapping[str, bytes], after: Mapping[str, bytes], chosen: Int32Array
    ) -> None:
        """Record one cycle."""
        program = self._main.program
        given = {"prompt": token, "seed": seed}
        inputs = tuple(tensor_root(np.array([given[item.value.name]], np.int32)) for item in program.inputs)
        names = [item.value.name for item in program.state]
        roots = [tuple(known[name] for name in names) for known in (before, after)]
        self._recorder.keep([Observation(Run(inputs, roots[0], (tensor_root(chosen),), roots[1]), None)])


def _unrecorded(what: str, tensor: str | None) -> Invalid:
    message = f"a receipt cannot follow a prompt through prefill programs if the decode step {what}"
    return Invalid("generation.prefill", f"{message}: leave the prefill program out", Location(tensor=tensor))
