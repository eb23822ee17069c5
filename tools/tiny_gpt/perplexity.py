"""Compare the perplexity of the integer program with that of the float model on text that training did not see.

    python -m tools.tiny_gpt.perplexity tiny_gpt.onnx tiny_gpt.cvm TEXT [--windows N]

Windows of 256 characters lie side by side in the last tenth of the text. Every character but the first of a window is
predicted from those before it in the window. The float model is evaluated in float64, a window at a time; the program
reads one character per run and keeps its state.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

import cvm
from cvm.frontends import onnx
from cvm.reference import Reference
from tools.tiny_gpt.onnx_model import CONTEXT
from tools.tiny_gpt.text import tokens_of

Floats = npt.NDArray[np.float64]
Tokens = npt.NDArray[np.int64]


def losses(logits: Floats, tokens: Tokens) -> Floats:
    """The negative log of the probability, in nats, of each token: logits (.., vocabulary), tokens (..)."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, tokens[..., None], -1)[..., 0]
    return np.asarray(np.log(np.exp(shifted).sum(axis=-1)) - chosen)


def of_model(model: Path, windows: Tokens) -> Floats:
    """The logits of the float model after every token of every window."""
    count = windows.shape[1]
    graph = onnx.load(model, {"token": (count,)}, floats=True).graph
    reference = Reference(graph)
    zeros: dict[str, npt.NDArray[Any]] = {}
    for name in graph.inputs:
        tensor = graph.tensors[name]
        zeros[name] = np.zeros((1, *tensor.shape), np.int64 if name == "position" else np.float64)
    return np.concatenate([reference.run(zeros | {"token": window[None]})["logits"] for window in windows])


def of_program(program: cvm.Program, windows: Tokens) -> Floats:
    """The logits of the program after every token of every window."""
    session = cvm.Session(program, threads=1)
    found = []
    for window in windows:
        session.reset()
        result = session.run({"token": window.reshape(-1, 1)}, cycles=True, codes=True)
        found.append(result.real("logits").reshape(len(window), -1))
    return np.stack(found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("text", type=Path)
    parser.add_argument("--windows", type=int, default=64)
    given = parser.parse_args()
    tokens = tokens_of(given.text)[1]
    held_out = tokens[len(tokens) * 9 // 10 :]
    windows = np.stack([held_out[i * CONTEXT : (i + 1) * CONTEXT] for i in range(given.windows)])
    means = []
    for name, logits in (("float model", of_model(given.model, windows)),
                         ("integer program", of_program(cvm.load(given.program), windows))):  # fmt: skip
        means.append(float(losses(logits[:, :-1], windows[:, 1:]).mean()))
        print(f"{name}: {means[-1]:.5f} nats per character, perplexity {math.exp(means[-1]):.4f}")
    ratio = 100 * (math.exp(means[1] - means[0]) - 1)
    print(f"{ratio:+.3f} % on {windows[:, 1:].size} characters in {len(windows)} windows")


if __name__ == "__main__":
    main()
