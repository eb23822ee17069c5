"""The samples of a comparison: the same numbers as codes for the exact programs, and as the file wants them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.model import FileInput, Model
from cvm.inputs import Feed, Intake, arrange
from cvm.program.model import ProgramParts
from cvm.quantization import LinearQuantizer
from cvm.quantization.exact import dequantize
from cvm.records import dataclass

__all__ = ["Samples", "arranged", "drawn", "samples"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False, slots=True)
class Samples:
    """The samples, twice."""

    feeds: tuple[Feed, ...]
    """The codes of each sample, for the exact programs."""
    inputs: Mapping[str, Array]
    """For engines: the name that the file has for each input, and its samples along a further first axis."""


def samples(model: Model, arrays: Mapping[str, Any], codes: bool = False) -> Samples:
    """The samples in arrays of a caller, one array for each input. ``codes``: integers are codes, not real numbers.

    Where the file wants floats, real numbers become float32 first, for both sides. Raises as `cvm.inputs.arrange` does.
    """
    return arranged(model.whole.program, model.inputs, arrays, codes)


def arranged(
    program: ProgramParts, wishes: Mapping[str, FileInput], arrays: Mapping[str, Any], codes: bool = False
) -> Samples:
    """As `samples`, for a program and what the file wants for each of its inputs."""
    given = {name: _float32(np.asarray(array)) for name, array in arrays.items()}
    _, found = arrange(program, given, intake=Intake(codes, "clamp"))
    feeds = tuple(cycles[0] for cycles in found)
    inputs = {}
    for item in program.inputs:
        name, wanted = item.value.name, wishes[item.value.name]
        held = np.stack([feed[name] for feed in feeds])
        if wanted.dtype.kind != "f":
            inputs[wanted.name] = held.astype(wanted.dtype)
        elif given[name].dtype.kind == "f":
            inputs[wanted.name] = given[name].reshape(held.shape).astype(wanted.dtype)
        else:
            inputs[wanted.name] = _decoded(held, item.quantizer).astype(wanted.dtype)
    return Samples(feeds, inputs)


def drawn(model: Model, count: int, seed: int = 0) -> Samples:
    """Samples of uniformly drawn codes."""
    random = np.random.default_rng(seed)
    made = {}
    for item in model.whole.program.inputs:
        value = item.value
        made[value.name] = random.integers(value.lo, value.hi, (count, *value.shape), np.int32, endpoint=True)
    return samples(model, made, codes=True)


def _float32(array: Array) -> Array:
    return array.astype(np.float32) if array.dtype.kind == "f" else array


def _decoded(codes: Array, quantizer: Any) -> Array:
    return dequantize(codes, quantizer) if isinstance(quantizer, LinearQuantizer) else codes
