"""``cvm generate``: let a language model write, and leave a receipt of every token."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.declaration import Command
from cvm.cli.failures import Usage
from cvm.cli.options import ExecutorName, ExpectDigest, Json, Model, Threads
from cvm.cli.output import print_document, printable, working, write_file
from cvm.errors import CvmError, Invalid

if TYPE_CHECKING:
    from fractions import Fraction

    from cvm.generation import Generation, Generator, LanguageModel, Request

__all__ = ["COMMAND"]

_Prompt = Annotated[str, typer.Option("--prompt", metavar="TEXT", help="The text to go on from.")]
_Tokens = Annotated[int, typer.Option("--tokens", min=1, metavar="N", help="How many tokens to generate.")]
_TopK = Annotated[
    int | None,
    typer.Option(
        "--top-k", min=1, metavar="K", help="Draw among the K tokens with the greatest logits; by default among all."
    ),
]
_Temperature = Annotated[
    str,
    typer.Option(
        "--temperature",
        metavar="T",
        help="Logits are divided by T, a decimal, before a token is drawn; 0 draws nothing and takes the greatest.",
    ),
]
_Seed = Annotated[
    int,
    typer.Option(
        "--seed",
        min=1,
        max=2**31 - 2,
        metavar="S",
        help="Decides which random numbers are drawn. The receipt commits to it.",
    ),
]
_VocabularyFile = Annotated[
    Path | None,
    typer.Option(
        "--vocabulary",
        metavar="FILE",
        help="A JSON list of the texts of all tokens; by default NAME.vocabulary.json beside NAME.cvm.",
    ),
]
_Context = Annotated[
    int | None,
    typer.Option(
        "--context",
        min=1,
        metavar="N",
        help="How many tokens the program takes; by default what its state `position` can count.",
    ),
]
_Prefill = Annotated[
    list[Path] | None,
    typer.Option(
        "--prefill",
        metavar="PROGRAM",
        help="A program with the same state that reads several tokens of the prompt at once; may be repeated.",
    ),
]
_SaveModel = Annotated[
    Path | None,
    typer.Option(
        "--save-model",
        metavar="OUT.model",
        help="Compare the programs of --prefill with PROGRAM, and write all to one file with their constants once.",
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option("-o", "--output", metavar="OUT.cvm", help="Where to write the program that generates."),
]
_SaveInputs = Annotated[
    Path | None,
    typer.Option("--save-inputs", metavar="OUT.npz", help="Where to write its inputs: prompt and seed of every cycle."),
]
_Receipt = Annotated[
    Path | None,
    typer.Option("--receipt", metavar="FILE", help="Write a receipt of all cycles; see `cvm receipt verify`."),
]
_Trace = Annotated[
    bool,
    typer.Option("--trace", help="Let the receipt commit to every tensor of every cycle, not only to the tokens."),
]


def command(
    program: Model,
    prompt: _Prompt,
    tokens: _Tokens,
    top_k: _TopK = None,
    temperature: _Temperature = "1",
    seed: _Seed = 1,
    vocabulary: _VocabularyFile = None,
    context: _Context = None,
    prefill: _Prefill = None,
    save_model: _SaveModel = None,
    executor: ExecutorName = None,
    threads: Threads = None,
    expect_digest: ExpectDigest = None,
    output: _Output = None,
    save_inputs: _SaveInputs = None,
    receipt: _Receipt = None,
    trace: _Trace = False,
    as_json: Json = False,
) -> int:
    """Let a language model go on from a prompt; the same text on every machine.

    PROGRAM takes one token and gives the logits of the next; or it is a file of --save-model. The choice of tokens
    becomes a part of a new program, so that `cvm receipt verify` replays it and a dispute about a token ends at one
    step. The text is printed as it comes; what was written, and the command that verifies it, are printed on stderr.
    """
    if trace and receipt is None:
        raise Usage("--trace says what is in a receipt: expected --receipt FILE")
    exact = _checked(temperature, top_k)
    settings = {"temperature": exact, "top_k": top_k, "context": context, "executor": executor, "threads": threads}
    with working("preparing"):
        model = _model(program, prefill or [], expect_digest)
        generator = _generator(program, model, vocabulary, settings)
        request = generator.request(prompt, tokens, seed)
        _ = generator.session  # the spinner ends before the first token
    made = _generated(generator, prompt, request, receipt is not None, trace, as_json)
    document = {
        "model": model.decode.program.digest,
        "digest": made.program.digest,
        "executor": made.executor,
        "prompt": {"text": prompt, "tokens": list(made.prompt)},
        "sampling": {"temperature": temperature, "top_k": top_k, "seed": seed},
        "text": made.text,
        "tokens": list(made.tokens),
        **_written(made, output, save_inputs, receipt),
        **({} if save_model is None else {"language_model": _saved(model, save_model, executor)}),
    }
    print_document(document) if as_json else _report(document)
    return 0


def _model(path: Path, prefill: list[Path], expect_digest: str | None) -> LanguageModel:
    """The programs of the model. Raises `CvmError`."""
    from cvm.cli.models import open_program
    from cvm.generation import LanguageModel
    from cvm.generation.archive import is_language_model, load_model
    from cvm.program.files import require_digest

    if is_language_model(path):
        found = load_model(path)
        require_digest(found.decode.program, expect_digest, str(path))
    else:
        found = LanguageModel(open_program(path, expect_digest=expect_digest))
    return LanguageModel(found.decode, (*found.prefill, *map(open_program, prefill)))


def _saved(model: LanguageModel, path: Path, executor: str | None) -> dict[str, Any]:
    """Write the model, if its programs agree; returns what was written. Raises `CvmError`."""
    from cvm.generation.decoding import decoder_of
    from cvm.generation.prefill import agree, prefill_of

    decoder = decoder_of(model.decode)
    for item in model.prefill:
        agree(prefill_of(item, decoder), decoder, executor)
    pieces = tuple(model.pieces())
    write_file(path, *pieces)
    return {"path": str(path), "bytes": sum(map(len, pieces))}


def _generator(path: Path, model: LanguageModel, vocabulary: Path | None, settings: Mapping[str, Any]) -> Generator:
    """The generator of a program. Raises `CvmError` with the program's file in its location."""
    from cvm.generation import Generator

    words = _vocabulary(path, vocabulary)
    try:
        return Generator(model, vocabulary=words, **settings)
    except CvmError as error:
        raise error.at(file=str(path)) from None


def _generated(
    generator: Generator, prompt: str, request: Request, receipt: bool, trace: bool, as_json: bool
) -> Generation:
    """What the model writes, which is printed as it comes unless there is to be a document."""
    if as_json:
        return generator.run(request, "trace" if trace else receipt)
    _stream(prompt)
    made = generator.run(request, "trace" if trace else receipt, lambda _, text: _stream(text))
    _stream("\n")
    return made


def _vocabulary(program: Path, given: Path | None) -> Path:
    """The file of the vocabulary. Raises `Usage` if none is given and there is none beside the program."""
    from cvm.generation.vocabulary import beside

    found = beside(program) if given is None else given
    if given is None and not found.is_file():
        raise Usage(f"expected --vocabulary FILE, or the vocabulary beside the program: there is no {found}")
    return found


def _checked(temperature: str, top_k: int | None) -> Fraction:
    """The temperature of the option. Raises `Usage` for options that do not say how to choose a token."""
    from cvm.generation import Sampling
    from cvm.generation.settings import temperature_of

    try:
        return Sampling(temperature_of(temperature), top_k).temperature
    except Invalid as error:
        raise Usage(f"--{error.code.rpartition('.')[2].replace('_', '-')}: {error.message}") from None


def _stream(text: str) -> None:
    sys.stdout.write(printable(text))
    sys.stdout.flush()


def _written(made: Generation, program: Path | None, inputs: Path | None, receipt: Path | None) -> dict[str, Any]:
    """Write the files that were asked for; returns what they are."""
    from cvm.arrays import npz_bytes
    from cvm.audit import encode_receipt

    found: dict[str, Any] = {}
    if program is not None:
        pieces = made.program.pieces()
        write_file(program, *pieces)
        found["program"] = {"path": str(program), "bytes": sum(map(len, pieces))}
    if inputs is not None:
        data = npz_bytes(made.inputs)
        write_file(inputs, data)
        found["inputs"] = {"path": str(inputs), "bytes": len(data)}
    if receipt is not None and made.receipt is not None:
        write_file(receipt, encode_receipt(made.receipt))
        claim = made.receipt.claim
        found["receipt"] = {
            "path": str(receipt),
            "id": made.receipt.id,
            "runs": len(claim.runs),
            "traced": made.receipt.traced,
        }
    return found


def _report(document: dict[str, Any]) -> None:
    """What was run and written, and how others verify it, on stderr."""
    import shlex

    lines = [f"executor  {document['executor']}", f"digest    {document['digest']}"]
    files = {name: document[name]["path"] for name in ("program", "inputs", "receipt") if name in document}
    if "receipt" in document:
        lines.append(f"receipt   {document['receipt']['id']}")
    lines += [f"wrote     {path}" for path in files.values()]
    if "language_model" in document:
        lines.append(f"wrote     {document['language_model']['path']}")
    if len(files) == 3:
        words = ["cvm", "receipt", "verify", files["receipt"], "--program", files["program"], "-i", files["inputs"]]
        lines.append(f"verify    {shlex.join([*words, '--cycles'])}")
    print(printable("\n".join(lines)), file=sys.stderr)


COMMAND = Command(
    command,
    (
        'cvm generate gpt.cvm --prompt "Once upon" --tokens 40',
        'cvm generate gpt.cvm --prompt "Once upon" --tokens 40 --top-k 5 --temperature 0.8 --seed 7',
        'cvm generate gpt.cvm --prompt "Once upon" --tokens 40 --prefill gpt_8.cvm --save-model gpt.model',
        'cvm generate gpt.cvm --prompt "Once upon" --tokens 40 --receipt a.receipt -o a.cvm --save-inputs a.npz',
    ),
)
