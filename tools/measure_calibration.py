"""Measure what calibration costs two networks that classify digits: the tables of docs/calibration.md.

    python tools/measure_calibration.py FOLDER

FOLDER holds lenet_digits and mobilenet_digits with test_inputs.npy and test_labels.npy. The data for calibration are
the training images of these networks, from scikit-learn: `load_digits` without 500 test images, by
`train_test_split(test_size=500, random_state=11, stratify=target)`.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import cvm
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.quantization.calibration import Method
from cvm.reference import Reference

METHODS: tuple[Method, ...] = ("minmax", "percentile", "mse", "entropy")
NETWORKS = ("lenet_digits", "mobilenet_digits")
WIDTHS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("8-bit activations, 8-bit weights", {}),
    ("8-bit activations, 4-bit weights", {"weight_bits": 4}),
    ("8-bit activations, 3-bit weights", {"weight_bits": 3}),
    ("4-bit activations, 4-bit weights", {"bits": 4}),
    ("8-bit activations, powers of two with 4-bit exponents", {"form": "logarithmic"}),
)


def training_images() -> npt.NDArray[np.float32]:
    """The 1297 images that the networks were trained on, as pixels in 0 .. 1."""
    digits = load_digits()
    pixels = (digits.data / 16).reshape(-1, 1, 8, 8).astype(np.float32)
    train: npt.NDArray[np.float32]
    train, _ = train_test_split(pixels, test_size=500, random_state=11, stratify=digits.target)
    return train


def right(probabilities: npt.NDArray[Any], labels: npt.NDArray[Any]) -> int:
    """How many images have the largest probability at their label."""
    return int((probabilities.reshape(len(labels), -1).argmax(axis=1) == labels).sum())


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    train = training_images()
    for name in NETWORKS:
        folder = Path(arguments[0]) / name
        images, labels = np.load(folder / "test_inputs.npy"), np.load(folder / "test_labels.npy")
        exact = Reference(nnef.load(folder, quant=False)).run({"image": images})["probs"]
        given = cvm.Session(cvm.compile(folder)).run({"image": images})["probs"]
        print(f"{name}: of {len(labels)} images, float {right(exact, labels)}, given {right(given, labels)}")
        print("| | " + " | ".join(METHODS) + " |\n|---|" + "---|" * len(METHODS))
        for width, choice in WIDTHS:
            for per_channel in (False, True) if choice.get("form") != "logarithmic" else (False,):
                counts = []
                for method in METHODS:
                    found = cvm.quantize(folder, {"image": train}, method=method, per_channel=per_channel, **choice)
                    codes = cvm.Session(lower(found.graph)).run({"image": images})["probs"]
                    counts.append(right(codes, labels))
                kind = ", per channel" if per_channel else ""
                print(f"| {width}{kind} | " + " | ".join(map(str, counts)) + " |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
