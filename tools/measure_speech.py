"""Measure what 8 bits cost a network that reads features of speech: a table of docs/calibration.md.

    python tools/measure_speech.py FOLDER

FOLDER is that of `tools/train_speech.py`. The utterances that the network was trained on choose the quantisers; the
others are counted.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import cvm
from cvm.calibration import Settings
from cvm.frontends import onnx
from cvm.quantization.calibration import METHODS
from cvm.reference import Reference


def right(logits: npt.NDArray[Any], speakers: npt.NDArray[Any]) -> int:
    """How many utterances have the greatest logit at their speaker."""
    return int((logits.reshape(len(speakers), -1).argmax(axis=1) == speakers).sum())


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    model = Path(arguments[0]) / "speech.onnx"
    with np.load(model.with_suffix(".npz")) as data:
        train, test, speakers = data["train"][:, None], data["test"][:, None], data["test_speakers"]
    exact = Reference(onnx.load(model, floats=True).graph).run({"frames": test})["logits"]
    print(f"of {len(test)} utterances, float {right(exact, speakers)}\n")
    settings = Settings.measured()
    ways = {"default (chosen on the data)": settings, "the same, outputs of 8 bits": replace(settings, output_bits=8)}
    ways |= {method: Settings(per_channel=True, method=method) for method in METHODS}
    print("| " + " | ".join(("method", "right", "of float")) + " |\n|---|---:|---:|")
    for name, chosen in ways.items():
        made = cvm.quantize_program(model, {"frames": train}, chosen)
        result = cvm.Session(made.program, executor="numpy").run({"frames": test}, out_of_range="clamp")
        found = right(result["logits"], speakers)
        print(f"| {name} | {found} | {100 * (found - right(exact, speakers)) / len(test):+.2f} points |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
