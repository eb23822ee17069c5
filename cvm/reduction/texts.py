"""Tests to paste: the text of a test that fails as long as the reduced network does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cvm.program import Program
from cvm.program.model import Input
from cvm.reduction.judging import Comparison
from cvm.reduction.network import Array, Feed

__all__ = ["builder_lines", "file_test", "program_test", "runs_text", "test_name"]

_SHOWN = 4096
"""A program with more elements than this is read from its file instead of being written into the test."""


def test_name(path: Path) -> str:
    """The name of the test of a file."""
    return "test_" + (re.sub(r"\W+", "_", path.name.removesuffix(path.suffix)).strip("_") or "reduced")


test_name.__test__ = False  # type: ignore[attr-defined]  # pytest would take it for a test


def builder_lines(program: Program) -> list[str]:
    """The lines of Python that build a program again, without indentation; the last one sets ``program``."""
    lines = ["builder = ProgramBuilder()"]
    known: dict[str, str] = {}
    for number, one in enumerate(program.inputs):
        known[one.value.name] = f"x{number}"
        lines.append(_input(f"x{number}", one))
    for number, constant in enumerate(program.constants):
        known[constant.name] = f"k{number}"
        kind = "parameter" if constant.kind == "parameter" else "constant"
        items = f"np.array({list(constant.integers())}).reshape({constant.shape})"
        lines.append(f"k{number} = builder.{kind}({items})")
    for number, kept in enumerate(program.state):
        known[kept.value.name] = f"s{number}"
        value = kept.value
        lines.append(f"s{number} = builder.state({value.name!r}, {known[kept.initial]}, {value.lo}, {value.hi})")
    for number, node in enumerate(program.nodes):
        results = [f"y{number}_{k}" for k in range(len(node.outputs))]
        known |= {value.name: result for value, result in zip(node.outputs, results, strict=True)}
        inputs = ", ".join(known[name] for name in node.inputs)
        lines.append(f"{', '.join(results)}, = builder.add({node.op!r}, [{inputs}], {dict(node.attributes)})")
    lines += [f"builder.update({kept.value.name!r}, {known[kept.update]})" for kept in program.state]
    outputs = ", ".join(f"Output({one.name!r}, {known[one.value]})" for one in program.outputs)
    return [*lines, f"program = builder.build([{outputs}])"]


def _input(name: str, one: Input) -> str:
    value = one.value
    return f"{name} = builder.input({value.name!r}, {value.shape}, {value.lo}, {value.hi})"


def runs_text(runs: Sequence[Feed]) -> str:
    """The data of runs as a list of Python."""
    shown = ("{" + ", ".join(f"{key!r}: {_text(fed)}" for key, fed in feed.items()) + "}" for feed in runs)
    return f"[{', '.join(shown)}]"


def _text(fed: Array) -> str:
    first = int(fed.flat[0])
    if (fed == first).all():
        return f"np.full({fed.shape}, {first}, np.int32)"
    return f"np.array({fed.tolist()}, np.int32)"


def program_test(program: Program, runs: Sequence[Feed], comparison: Comparison, path: Path) -> str:
    """A test that builds a program and compares executors; one of the file where the program is large."""
    elements = sum(constant.array().size for constant in program.constants)
    elements += sum(int(np.prod(one.value.shape)) for one in program.inputs) * len(runs)
    if comparison.command or elements > _SHOWN:
        return file_test(comparison, path, bool(program.state))
    samples = "[runs]" if program.state else "[[run] for run in runs]"
    body = [
        *builder_lines(program),
        f"runs = {runs_text(runs)}",
        "verified = verify(program)",
        f"executors = [create(name, verified) for name in {comparison.executors!r}]",
        f"assert compare(program, executors, {samples}).difference is None",
    ]
    return _whole(
        [
            "import numpy as np",
            "",
            "from cvm.agreement import compare",
            "from cvm.executors import create",
            "from cvm.program import Output, ProgramBuilder, verify",
        ],
        test_name(path),
        body,
    )


def file_test(comparison: Comparison, path: Path, cycles: bool = False) -> str:
    """A test that reads the written files, which lie beside it."""
    data = path.name.removesuffix(path.suffix) + ".npz"
    names = f"here / {path.name!r}", f"here / {data!r}"
    if comparison.command:
        words: list[Any] = [repr(word) for word in comparison.command]
        imports = ["import subprocess", "from pathlib import Path"]
        body = [f"words = [{', '.join(words)}, {names[0]}, {names[1]}]", "assert subprocess.run(words).returncode == 0"]
    else:
        imports = ["from pathlib import Path", "", "from cvm.reduction import Comparison, outcome"]
        how = f"executors={comparison.executors!r}"
        if comparison.engine is not None:
            imports.insert(2, "from cvm.comparison import Setting")
            how = f"engine={comparison.engine!r}"
        more = ", cycles=True" if cycles else ""
        body = [f"assert outcome({names[0]}, {names[1]}, Comparison({how}){more}) == ''"]
    return _whole(imports, test_name(path), ["here = Path(__file__).parent", *body])


def _whole(imports: list[str], name: str, body: list[str]) -> str:
    return "\n".join([*imports, "", "", f"def {name}() -> None:", *(f"    {line}" for line in body), ""])
