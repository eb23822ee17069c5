"""Small models for the tests of reports, written as files, and what they compute in plain Python floats."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from cvm.frontends.nnef import write_tensor

WEIGHTS = [0.5, -1.25, 3.0, 0.125]

CHAIN = """version 1.0;
graph chain( x, y ) -> ( scores, above )
{
    x = external(shape = [1, 4]);
    y = external(shape = [1, 4]);
    w = variable(shape = [1, 4], label = 'w');
    plain = variable(shape = [1, 1], label = 'plain');
    doubled = add(x, x);
    scaled = mul(doubled, w);
    shifted = add(scaled, plain);
    active = relu(shifted);
    same = reshape(active, shape = [1, 4]);
    unused = exp(x);
    table = mul(w, w);
    above = gt(y, x);
    sharp = tanh(same);
    scores = sub(sharp, y);
}
"""

CHAIN_QUANT = """"x": linear_quantize(min = -1.0, max = 1.0, bits = 8);
"y": linear_quantize(min = 0.0, max = 2.0, bits = 4);
"w": linear_quantize(min = -1.0, max = 3.0, bits = 4);
"scaled": linear_quantize(min = -2.0, max = 3.0, bits = 8);
"shifted": linear_quantize(min = -2.0, max = 3.0, bits = 16);
"active": linear_quantize(min = 0.0, max = 1.5, bits = 8);
"same": linear_quantize(min = 0.0, max = 1.5, bits = 8);
"unused": linear_quantize(min = 0.0, max = 3.0, bits = 8);
"sharp": linear_quantize(min = 0.0, max = 1.0, bits = 8);
"scores": linear_quantize(min = -2.0, max = 1.0, bits = 6);
"""


def chain(folder: Path) -> Path:
    """Write the model of `CHAIN`: clipping, sharing, symbolic, dead and constant tensors, a logical output."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.nnef").write_text(CHAIN)
    (folder / "graph.quant").write_text(CHAIN_QUANT)
    store(folder / "w.dat", np.array([WEIGHTS], np.float32))
    store(folder / "plain.dat", np.array([[0.25]], np.float32))
    return folder


def chain_floats(x: list[float], y: list[float]) -> dict[str, list[float]]:
    """All tensors of `CHAIN` for one sample."""
    scaled = [2 * item * weight for item, weight in zip(x, WEIGHTS, strict=True)]
    shifted = [item + 0.25 for item in scaled]
    active = [max(item, 0.0) for item in shifted]
    sharp = [math.tanh(item) for item in active]
    return {
        "x": x,
        "y": y,
        "scaled": scaled,
        "shifted": shifted,
        "active": active,
        "same": active,
        "sharp": sharp,
        "above": [float(b > a) for a, b in zip(x, y, strict=True)],
        "scores": [a - b for a, b in zip(sharp, y, strict=True)],
    }


MEMORY = """version 1.0;
graph memory( step ) -> ( level )
{
    step = external(shape = [1, 2]);
    held = variable(shape = [1, 2], label = 'held');
    sum = add(held, step);
    level = update(held, sum);
}
"""

MEMORY_QUANT = """"step": linear_quantize(min = 0.0, max = 1.0, bits = 4);
"held": linear_quantize(min = 0.0, max = 8.0, bits = 8);
"sum": linear_quantize(min = 0.0, max = 8.0, bits = 8);
"level": linear_quantize(min = 0.0, max = 8.0, bits = 8);
"""


def memory(folder: Path) -> Path:
    """Write a model that adds up its inputs over cycles."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "graph.nnef").write_text(MEMORY)
    (folder / "graph.quant").write_text(MEMORY_QUANT)
    store(folder / "held.dat", np.array([[0.5, 1.0]], np.float32))
    return folder


def store(path: Path, values: np.ndarray) -> None:
    """Write a tensor file."""
    path.write_bytes(write_tensor(values))
