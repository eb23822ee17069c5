"""Draw the weights of a GPT of any size, for measurements of time and memory that need no trained model.

    python -m tools.tiny_gpt.drawn_weights -o weights.npz [--blocks 12] [--width 768] [--context 128] [--vocabulary 256]

``weights.npz`` has the float32 weights under the names of `tools.train_tiny_gpt`, drawn as there before training: of
standard deviation 0.02, less in the layers that write to the residual stream. Equal arguments give equal weights. The
defaults have the size of GPT-2, with 85 million weights in its blocks, and the vocabulary of bytes. With ``--data``,
``data.npz`` gets random tokens, from which `cvm quantize` takes its ranges, one per cycle or ``--tokens`` at once.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path

import numpy as np

from cvm.arrays import npz_bytes
from tools.tiny_gpt.onnx_model import Weights

__all__ = ["drawn"]


def drawn(blocks: int, width: int, context: int, vocabulary: int, seed: int = 1) -> Weights:
    """The weights of a GPT of this size, before training."""
    generator = np.random.default_rng(seed)
    deep = math.sqrt(2 * blocks)
    found: Weights = {}

    def layer(name: str, outputs: int, inputs: int, divisor: float = 1.0) -> None:
        found[f"{name}.weight"] = generator.standard_normal((outputs, inputs), np.float32) * np.float32(0.02 / divisor)

    def dense(name: str, outputs: int, inputs: int, divisor: float = 1.0) -> None:
        layer(name, outputs, inputs, divisor)
        found[f"{name}.bias"] = np.zeros(outputs, np.float32)

    def norm(name: str) -> None:
        found[f"{name}.weight"], found[f"{name}.bias"] = np.ones(width, np.float32), np.zeros(width, np.float32)

    layer("embedding", vocabulary, width)
    layer("position", context, width)
    for block in range(blocks):
        norm(f"blocks.{block}.first_norm")
        norm(f"blocks.{block}.second_norm")
        dense(f"blocks.{block}.query_key_value", 3 * width, width)
        dense(f"blocks.{block}.projection", width, width, deep)
        dense(f"blocks.{block}.widen", 4 * width, width)
        dense(f"blocks.{block}.narrow", width, 4 * width, deep)
    norm("norm")
    layer("head", vocabulary, width)
    return found


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True)
    for name, usual in (("blocks", 12), ("width", 768), ("context", 128), ("vocabulary", 256), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--tokens", type=int, default=1)
    given = parser.parse_args()
    weights = drawn(given.blocks, given.width, given.context, given.vocabulary, given.seed)
    with open(given.output, "wb") as file:
        file.write(npz_bytes(weights))
    if given.data is not None:
        shape = (1, given.context // given.tokens, given.tokens)
        tokens = np.random.default_rng(given.seed).integers(0, given.vocabulary, shape)
        np.savez(given.data, token=tokens if given.tokens == 1 else tokens[0])


if __name__ == "__main__":
    main()
