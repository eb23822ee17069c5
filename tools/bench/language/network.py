"""The network whose weights all engines get: a GPT as `tools/train_tiny_gpt.py` writes it, evaluated in float32.

Weights are a .npz file with float32 arrays under that program's names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

__all__ = ["EPSILON", "Network", "read"]

Floats = npt.NDArray[np.float32]

EPSILON = 1e-5
"""What layer normalisation adds to the variance."""


@dataclass(frozen=True, eq=False, slots=True)
class Network:
    """Weights by name, and the number of heads, which the weights do not tell."""

    weights: Mapping[str, Floats]
    heads: int

    @property
    def width(self) -> int:
        """The number of channels of the residual stream."""
        return int(self.weights["embedding.weight"].shape[1])

    @property
    def vocabulary(self) -> int:
        """The number of tokens."""
        return len(self.weights["embedding.weight"])

    @property
    def context(self) -> int:
        """The number of positions."""
        return len(self.weights["position.weight"])

    @property
    def blocks(self) -> int:
        """The number of blocks."""
        return len({name.split(".")[1] for name in self.weights if name.startswith("blocks.")})

    @property
    def read_per_token(self) -> int:
        """The weights that one decode step reads, each once: the dense layers and the head, without embeddings."""
        tables = ("embedding.weight", "position.weight")
        return sum(array.size for name, array in self.weights.items() if array.ndim == 2 and name not in tables)

    def logits(self, tokens: npt.NDArray[np.int64]) -> Floats:
        """The logits (n, vocabulary) after each of the tokens (n,)."""
        w, count = self.weights, len(tokens)
        x = w["embedding.weight"][tokens] + w["position.weight"][:count]
        for block in range(self.blocks):
            name = f"blocks.{block}"
            x = x + self._dense(self._attended(self._normalised(x, f"{name}.first_norm"), name), f"{name}.projection")
            wide = self._dense(self._normalised(x, f"{name}.second_norm"), f"{name}.widen")
            x = x + self._dense(_gelu(wide), f"{name}.narrow")
        return np.asarray(self._normalised(x, "norm") @ w["head.weight"].T, np.float32)

    def _normalised(self, x: Floats, name: str) -> Floats:
        centred = x - x.mean(axis=-1, keepdims=True)
        deviation = np.sqrt(np.square(centred).mean(axis=-1, keepdims=True) + np.float32(EPSILON))
        return np.asarray(centred / deviation * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])

    def _dense(self, x: Floats, name: str) -> Floats:
        return np.asarray(x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"])

    def _attended(self, x: Floats, name: str) -> Floats:
        parts = np.split(self._dense(x, f"{name}.query_key_value"), 3, axis=-1)
        q, k, v = (part.reshape(len(x), self.heads, -1).swapaxes(0, 1) for part in parts)
        scores = q @ k.swapaxes(1, 2) / np.float32(math.sqrt(self.width / self.heads))
        scores = np.where(np.tri(len(x), dtype=bool), scores, np.float32(-np.inf))
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        mixed = powers / powers.sum(axis=-1, keepdims=True) @ v
        return np.asarray(mixed.swapaxes(0, 1).reshape(len(x), self.width))


def _gelu(x: Floats) -> Floats:
    """The exact one, with erf."""
    return np.asarray(x * (1 + _ERF(x / np.float32(math.sqrt(2))).astype(np.float32)) / 2)


_ERF = np.frompyfunc(math.erf, 1, 1)


def read(path: Path, heads: int) -> Network:
    """The network of a file of weights."""
    with np.load(path) as stored:
        found = {name: stored[name] for name in stored.files if stored[name].dtype == np.float32}
    return Network(found, heads)
