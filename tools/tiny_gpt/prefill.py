"""Compile the model for several tokens at a time, with the quantisers of the program that reads one.

    python -m tools.tiny_gpt.prefill tiny_gpt.onnx calibration.npz tiny_gpt.cvm --tokens N -o prefill.cvm

The quantisers are chosen again from the same data as for ``tiny_gpt.cvm``, whose digest must come out. The program for
N tokens has the same state, so that one can go on where the other has stopped.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import numpy.typing as npt
import onnx as library

import cvm
from cvm.calibration import Settings
from cvm.compiling import program_of
from cvm.frontends import onnx
from cvm.program import Program
from cvm.quantizing import quantize_completed

__all__ = ["BITS_OF", "programs_of"]

BITS_OF = (("start", 16), ("*.middle", 16), ("*.end", 16))
"""The residual stream has 16 bits, everything else 8."""


def programs_of(
    model: library.ModelProto, data: Mapping[str, npt.ArrayLike], counts: tuple[int, ...]
) -> tuple[Program, ...]:
    """The program that reads one token, and programs for the given counts of tokens, all with the same quantisers."""

    def loaded(count: int) -> onnx.Loaded:
        graph = model.graph
        names = [item.name for item in graph.input if item.name != "token"]
        sizes = {item.name: item.type.tensor_type.shape.dim for item in graph.output}
        ranges = {"token": (0, sizes["logits"][1].dim_value - 1), "position": (0, sizes["key_0_next"][2].dim_value)}
        settings = onnx.Settings({"token": (count,)}, ranges, floats=True, outputs=("logits",),
                                 states={name: f"{name}_next" for name in names})  # fmt: skip
        return onnx.loads(model.SerializeToString(), settings)

    settings = Settings(per_channel=True, output_bits=12, bits_of=BITS_OF)
    made = quantize_completed("tiny_gpt.onnx", loaded(1), data, settings, op_set=2, cycles=True)
    quantizers, found = made.calibration.quantizers, [made.program]
    for count in counts:
        graph = loaded(count).graph
        tensors = {
            name: replace(tensor, quantizer=quantizers.get(name, tensor.quantizer))
            for name, tensor in graph.tensors.items()
        }
        found.append(program_of(replace(graph, tensors=MappingProxyType(tensors)), op_set=2))
    return tuple(found)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("data", type=Path)
    parser.add_argument("program", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    given = parser.parse_args()
    with np.load(given.data) as stored:
        step, several = programs_of(library.load(given.model), {"token": stored["token"]}, (given.tokens,))
    if step.digest != cvm.load(given.program).digest:
        raise SystemExit(f"these data give the program {step.digest}, which is not that of {given.program}")
    several.save(given.output)


if __name__ == "__main__":
    main()
