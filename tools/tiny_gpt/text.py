"""The training text as numbers of characters, and the runs from which `cvm quantize` takes its ranges.

    python -m tools.tiny_gpt.text TEXT -o calibration.npz [--windows N] [--vocabulary tiny_gpt.vocabulary.json]

``calibration.npz`` holds ``token``, of shape (windows, 256, 1): windows at random places of the first nine tenths of
the text, a character for each cycle. The vocabulary is written as a JSON list of its characters, in the order of their
numbers.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tools.tiny_gpt.onnx_model import CONTEXT

__all__ = ["tokens_of"]


def tokens_of(text: Path) -> tuple[str, npt.NDArray[np.int64]]:
    """The characters that occur, in rising order of their code points, and the number of each character of the text."""
    words = text.read_text("utf-8")
    vocabulary = "".join(sorted(set(words)))
    numbers = {character: number for number, character in enumerate(vocabulary)}
    return vocabulary, np.array([numbers[character] for character in words], np.int64)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--windows", type=int, default=4)
    parser.add_argument("--vocabulary", type=Path)
    given = parser.parse_args()
    vocabulary, tokens = tokens_of(given.text)
    if given.vocabulary is not None:
        given.vocabulary.write_text(json.dumps(list(vocabulary)) + "\n", "utf-8")
    seen = tokens[: len(tokens) * 9 // 10]
    starts = np.random.default_rng(1).integers(0, len(seen) - CONTEXT, given.windows)
    windows = np.stack([seen[start : start + CONTEXT] for start in starts.tolist()])
    np.savez(given.output, token=windows[:, :, None])


if __name__ == "__main__":
    main()
