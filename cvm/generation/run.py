"""Run a program that generates: the prompt first, then on from each chosen token."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt

from cvm.arguments import expected
from cvm.errors import Invalid, LimitExceeded
from cvm.generation.archive import LanguageModel, is_language_model, load_model
from cvm.generation.composition import CONTINUE, composed
from cvm.generation.decoding import Decoder, decoder_of
from cvm.generation.prefill import Reading, prefill_of
from cvm.generation.settings import Sampling, checked_seed, temperature_of
from cvm.generation.vocabulary import Vocabulary
from cvm.program import Program
from cvm.records import dataclass
from cvm.session import Session, verified_of

if TYPE_CHECKING:
    from cvm.audit.receipt import Receipt
    from cvm.audit.record import Recorder
    from cvm.program.verifier import VerifiedProgram

__all__ = ["MOST_CYCLES", "Generation", "Generator", "Request", "generate"]

MOST_CYCLES = 2**20
"""The most tokens of a prompt and of what follows, together."""

Told = Callable[[int, str], None]
"""Called with each chosen token and its text, which is empty without a vocabulary."""


@dataclass(frozen=True, eq=False, slots=True)
class Generation:
    """What was generated, and all that others need to compute it again."""

    prompt: tuple[int, ...]
    """The tokens of the prompt."""
    tokens: tuple[int, ...]
    """The tokens that were chosen after it."""
    text: str
    """The text of these tokens; empty without a vocabulary."""
    program: Program
    """The program that generates, `composed` of the model and the sampling."""
    inputs: dict[str, npt.NDArray[np.int32]]
    """Its inputs, a row for each cycle: ``cvm.verify(receipt, program, inputs, cycles=True)``."""
    outputs: dict[str, npt.NDArray[np.int32]]
    """Its outputs, a row for each cycle; those of the prompt's tokens but the last do not matter.

    -1 stands for a token that was not computed: a prefill program has read the prompt, and there is no receipt.
    """
    executor: str
    receipt: Receipt | None
    """The receipt of all cycles, if it was asked for."""


@dataclass(frozen=True, eq=False, slots=True)
class Request:
    """A prompt, and what is to follow it, as the inputs of a program that generates."""

    prompt: tuple[int, ...]
    """The tokens of the prompt."""
    inputs: dict[str, npt.NDArray[np.int32]]
    """The inputs, a row for each cycle."""


class Generator:
    """Generates with a program of one decode step (docs/language-models.md).

    ``program`` is a program, verified or not, a `LanguageModel`, or the path of a file of either. ``vocabulary`` is the
    vocabulary of the program, its texts or its file; without one, prompts are lists of tokens. ``temperature`` (0: the
    greatest logit) and ``top_k`` (None: all tokens) say how tokens are chosen. A float temperature means its shortest
    decimal, 0.8 exactly 8/10. ``context`` is how many tokens the program takes, by default what its state ``position``
    can count. ``prefill`` are programs that read several tokens of the prompt at once (`cvm.generation.prefill`), which
    changes no token, state or receipt. Raises `CvmError` for a program that is no decode step, and for wrong settings.
    """

    def __init__(
        self,
        program: Program | VerifiedProgram | LanguageModel | str | PathLike[str],
        *,
        vocabulary: Vocabulary | Sequence[str] | str | PathLike[str] | None = None,
        temperature: int | float | str | Decimal | Fraction = 1,
        top_k: int | None = None,
        context: int | None = None,
        prefill: Sequence[Program | VerifiedProgram | str | PathLike[str]] = (),
        executor: str | None = None,
        threads: int | None = None,
    ) -> None:
        self.model = _model(program)
        """The programs of the language model."""
        self._decoder = decoder_of(self.model.decode)
        self._sampling = Sampling(temperature_of(temperature), _counted("top_k", top_k))
        self._words = None if vocabulary is None else _vocabulary(vocabulary, self._decoder)
        self._context = self._decoder.context if context is None else _counted("context", context)
        self._executor, self._threads = executor, threads
        self._verified = composed(self._decoder, self._sampling)
        given = [*self.model.prefill, *map(verified_of, prefill)]
        prefills = [prefill_of(item, self._decoder) for item in given]
        self._reading = Reading(self._decoder, self._sampling, prefills, executor, threads)

    def __repr__(self) -> str:
        return f"Generator({self._decoder.size} tokens, program {self.program.digest})"

    @property
    def program(self) -> Program:
        """The program that generates, `composed` of the model and the sampling."""
        return self._verified.program

    @cached_property
    def session(self) -> Session:
        """The program, ready to run."""
        return Session(self._verified, self._executor, self._threads)

    def request(self, prompt: str | Sequence[int], tokens: int, seed: int = 1) -> Request:
        """The inputs that generate ``tokens`` tokens after a prompt, a text or a list of tokens.

        Raises `Invalid` (``generation.prompt``, ``generation.tokens``, ``generation.seed``) and `LimitExceeded`
        (``limit.context``, ``limit.cycles``).
        """
        given = _prompt(prompt, self._words, self._decoder)
        count = _counted("tokens", tokens)
        if count is None or count < 1:
            raise Invalid("generation.tokens", f"expected at least 1 token to generate, found {tokens}")
        cycles = len(given) + count - 1
        _check_room(cycles, len(given), self._context)
        start = checked_seed(seed)
        return Request(given, _inputs(given, cycles, None if self._sampling.greedy else start))

    def run(self, request: Request, receipt: bool | Literal["trace"] = False, told: Told | None = None) -> Generation:
        """Generate from the initial state. ``receipt`` asks for a receipt of all cycles, "trace" for one that commits
        to every tensor: then no prefill program is used. ``told`` is called with each token as it comes.
        """
        from cvm.audit.record import Recorder, host_facts

        words, session, first = self._words, self.session, len(request.prompt) - 1
        session.reset()
        recorder = Recorder(session.verified, receipt == "trace") if receipt else None
        found: list[int] = []
        if receipt != "trace":
            seed = int(request.inputs["seed"][0, 0]) if "seed" in request.inputs else 1
            found = self._reading.read(session, request.prompt[:first], seed, recorder)
        _run(session, request.inputs, found, recorder, lambda token: _tell(token, told, words), first)
        made = None if recorder is None else recorder.receipt(host_facts(session.executor))
        chosen = tuple(found[first:])
        return Generation(
            prompt=request.prompt,
            tokens=chosen,
            text="" if words is None else words.decode(chosen),
            program=session.program,
            inputs=request.inputs,
            outputs={"token": np.array(found, np.int32).reshape(-1, 1)},
            executor=session.executor,
            receipt=made,
        )


def generate(
    program: Program | VerifiedProgram | LanguageModel | str | PathLike[str],
    prompt: str | Sequence[int],
    tokens: int,
    *,
    vocabulary: Vocabulary | Sequence[str] | str | PathLike[str] | None = None,
    temperature: int | float | str | Decimal | Fraction = 1,
    top_k: int | None = None,
    seed: int = 1,
    context: int | None = None,
    prefill: Sequence[Program | VerifiedProgram | str | PathLike[str]] = (),
    executor: str | None = None,
    threads: int | None = None,
    receipt: bool | Literal["trace"] = False,
    told: Told | None = None,
) -> Generation:
    """Generate ``tokens`` tokens after a prompt, with a program of one decode step (docs/language-models.md).

    The settings but ``seed`` are those of `cvm.generation.Generator`, which serves several prompts. ``prompt`` is a
    text, or a list of tokens. ``seed`` (1 to 2^31 - 2) decides which random numbers are drawn: equal arguments give
    equal tokens, on every machine, executor and number of threads. ``receipt`` asks for a receipt of all cycles,
    "trace" for one that commits to every tensor. ``told`` is called with each token and its text as it comes. Raises
    `CvmError` before anything is run.
    """
    generator = Generator(
        program,
        vocabulary=vocabulary,
        temperature=temperature,
        top_k=top_k,
        context=context,
        prefill=prefill,
        executor=executor,
        threads=threads,
    )
    return generator.run(generator.request(prompt, tokens, seed), receipt, told)


def _run(
    session: Session,
    inputs: dict[str, npt.NDArray[np.int32]],
    found: list[int],
    recorder: Recorder | None,
    tell: Callable[[int], None],
    first: int,
) -> None:
    """Run the cycles after those in ``found``, and add the tokens that they choose, told from cycle ``first`` on."""
    bound = session.bind(recorder)
    (chosen,) = bound.outputs.values()
    feeds = [(bound.inputs[name], rows) for name, rows in inputs.items()]
    for cycle in range(len(found), len(inputs["prompt"])):
        for array, rows in feeds:
            array[0] = rows[cycle, 0]
        bound.run()
        found.append(int(chosen[0]))
        if cycle >= first:
            tell(found[-1])


def _tell(token: int, told: Told | None, words: Vocabulary | None) -> None:
    if told is not None:
        told(token, "" if words is None else words.text(token))


def _inputs(prompt: Sequence[int], cycles: int, seed: int | None) -> dict[str, npt.NDArray[np.int32]]:
    """The inputs of all cycles, (cycles, 1): the prompt and then -1; the seed and then 0."""
    tokens = np.full((cycles, 1), CONTINUE, np.int32)
    tokens[: len(prompt), 0] = prompt
    if seed is None:
        return {"prompt": tokens}
    seeds = np.zeros((cycles, 1), np.int32)
    seeds[0] = seed
    return {"prompt": tokens, "seed": seeds}


def _model(given: object) -> LanguageModel:
    """The programs of a language model, from what a caller passed. Raises as `verified_of` and `load_model` do."""
    if isinstance(given, LanguageModel):
        return given
    if isinstance(given, str | PathLike) and is_language_model(given):
        return load_model(given)
    return LanguageModel(verified_of(given))


def _vocabulary(given: object, decoder: Decoder) -> Vocabulary:
    """The vocabulary. Raises `Invalid` (``vocabulary.size``) if it has another size than the program's."""
    found = Vocabulary.of(given)
    if len(found) != decoder.size:
        message = f"the vocabulary has {len(found)} tokens, the program {decoder.size}: give the one of this program"
        raise Invalid("vocabulary.size", message)
    return found


def _prompt(prompt: str | Sequence[int], words: Vocabulary | None, decoder: Decoder) -> tuple[int, ...]:
    """The tokens of the prompt, one at least. Raises `Invalid` (``generation.prompt``, ``argument.prompt``)."""
    if isinstance(prompt, str):
        if words is None:
            raise Invalid("generation.prompt", "a text needs the vocabulary of the program; or give a prompt of tokens")
        found = words.encode(prompt)
    elif isinstance(prompt, Sequence | np.ndarray):
        found = tuple(_token(item, decoder.size) for item in prompt)
    else:
        raise expected("prompt", "a text, or a list of tokens", prompt)
    if not found:
        raise Invalid("generation.prompt", "the prompt is empty: expected one token at least, to begin with")
    return found


def _token(item: Any, size: int) -> int:
    try:
        token = operator.index(item)
    except TypeError:
        raise expected("prompt", "tokens as whole numbers", item) from None
    if not 0 <= token < size:
        raise Invalid("generation.prompt", f"expected tokens from 0 to {size - 1}, found {token}")
    return token


def _counted(name: str, number: object) -> int | None:
    """A whole number, or None. Raises `Invalid` (``argument.<name>``) for anything else."""
    if number is None:
        return None
    if isinstance(number, bool) or not isinstance(number, int):
        raise expected(name, "a whole number", number)
    return number


def _check_room(cycles: int, prompt: int, context: int | None) -> None:
    """Require that the program takes as many tokens. Raises `LimitExceeded` (``limit.context``, ``limit.cycles``)."""
    if context is not None and cycles > context:
        message = (
            f"the program takes {context} tokens; a prompt of {prompt} and {cycles - prompt + 1} more need {cycles}: "
            "shorten the prompt, or generate fewer tokens"
        )
        raise LimitExceeded("limit.context", message)
    if cycles > MOST_CYCLES:
        raise LimitExceeded("limit.cycles", f"at most {MOST_CYCLES} tokens in all, found {cycles}: ask for fewer")
