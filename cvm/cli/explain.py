"""``cvm explain``: the arithmetic that gives an engine's codes where they are not the exact ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cvm.cli.compare import (
    Engines,
    EngineThreads,
    InstructionSets,
    Page,
    QuantizedModel,
    RandomSamples,
    Seed,
    against,
    described,
    require_page,
    say_disagreements,
    say_file,
    shortened,
    written,
)
from cvm.cli.declaration import Command
from cvm.cli.options import Codes, Inputs, Json
from cvm.cli.output import say, show, table, working

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["COMMAND"]

_Work = Annotated[int, typer.Option("--examples", metavar="N", min=0, help="How many elements are worked out.")]


_Rewrites = Annotated[
    bool,
    typer.Option("--rewrites/--no-rewrites", help="Run engines also at each lower level of graph optimisation."),
]


def command(
    model: QuantizedModel,
    engine: Engines = [],  # noqa: B006
    inputs: Inputs = [],  # noqa: B006
    random: RandomSamples = None,
    seed: Seed = 0,
    codes: Codes = False,
    threads: EngineThreads = "",
    isa: InstructionSets = "",
    examples: _Work = 3,
    rewrites: _Rewrites = True,
    output: Page = None,
    as_json: Json = False,
) -> int:
    """Find the arithmetic that gives an engine's codes where they are not the exact ones.

    For each operator that adds a difference of its own, known rounding models of engines are tried on all its codes.
    The one that gives the engine's codes most often is named, with its source, how many differences it explains, and
    one element worked out both ways. An engine that has levels of graph optimisation is run at each of them: a tensor
    whose codes are exact up to some level differs because of a rewrite, and so do outputs that change if the engine
    must keep a quantiser that it drops. Exit code 1 if a difference is left that no model explains.
    """
    from cvm.comparison import explained, searched

    require_page(output)
    opened, runs, samples = against(model, engine, inputs, random, seed, codes, (threads, isa))
    with working("trying rounding models"):
        explanations = [explained(run, samples.feeds) for run in runs]
    with working("looking for rewrites"):
        settings = [run.shown.setting for run in runs if rewrites]
        searches = [searched(opened, each, samples.inputs, samples.feeds) for each in settings]
    found = written(described(opened, runs, explanations, None, searches), output)
    left = sum(item["left"] for each in found["engines"] for item in each["explanations"])
    return show(found, lambda console: _render_explanations(console, found, examples), as_json, 1 if left else 0)


def _render_explanations(console: Console, found: dict[str, Any], examples: int) -> None:
    for engine in found["engines"]:
        say(console, f"{engine['setting']}  {engine['package']}")
        items = engine["explanations"]
        if items:
            headings = ("tensor", "differ>", "explained>", "left>", "astray>", "rounding model")
            table(
                console,
                headings,
                [
                    (shortened(i["tensor"]), i["differ"], i["explained"], i["left"], i["astray"], i["model"] or "none")
                    for i in items
                ],
            )
        say(console, f"{engine['explained']} of {engine['own']} differing codes are explained")
        seen: set[str] = set()
        for item in items:
            if item["example"] is None or item["model"] in seen or len(seen) >= examples:
                continue
            seen.add(item["model"])
            _render_example(console, item)
        if engine.get("rewrites"):
            _render_rewrites(console, engine["rewrites"])
        say(console)
    say_disagreements(console, found)
    say_file(console, found)


def _render_rewrites(console: Console, found: dict[str, Any]) -> None:
    say(console)
    headings = ("optimisation", "own>", "outputs not exact>", "of>", "quantisers gone>", "new operators")
    rows = [
        (i["level"], i["own"], i["outputs"], i["of"], len(i["dropped"]), ", ".join(i["new"])) for i in found["levels"]
    ]
    table(console, headings, rows)
    for item in found["rewritten"]:
        there = f": it is computed by {item['operator']}" if item["operator"] else ""
        say(
            console,
            f"{shortened(item['tensor'])}: exact at level {item['exact_at']}, {item['differ']} codes differ with "
            f"level {item['level']}{there}",
        )
    for item in found["drops"]:
        say(
            console,
            f"a rewrite at level {item['level']} drops quantiser {shortened(item['tensor'])}: {item['before']} codes "
            f"of the outputs are not exact, {item['after']} if it is kept",
        )


def _render_example(console: Console, item: dict[str, Any]) -> None:
    example = item["example"]
    say(console)
    say(console, f"{item['model']}  ({item['source']})")
    say(console, f"  {item['tensor']}, sample {example['sample']}, element {example['index']}")
    say(
        console,
        f"  exactly: {example['exact_result_in_steps']} steps, zero point {example['zero_point']}: {example['exact']}",
    )
    for stage in example["stages"]:
        say(console, f"    {stage['what']}: {stage['value']}")
    say(console, f"  the engine has {example['engine']}")


COMMAND = Command(
    command,
    (
        "cvm explain model.tflite --engine tflite-reference --random 4",
        "cvm explain model.onnx --engine onnxruntime:optimization=none --random 4 --json",
    ),
)
