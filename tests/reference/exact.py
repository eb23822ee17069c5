"""The exact meaning of a quantised NNEF document: arithmetic on reals of infinite precision, rounded in one place.

Every tensor that graph.quant names is quantised by its own quantiser right after it is computed (7.1), whatever
computes it: external data, variables on load, activations, data movement. With r = 2^bits - 1 (4.9.5)

    z = clamp(x, min, max),  q = floor((z - min) / (max - min) * r + 1/2),  value = min + q * (max - min) / r.

min, max and literals are the exact rationals of their decimal text, stored and given floats the rationals that they
are. No floating-point arithmetic takes part in any decision.

    evaluate("models/lenet_digits", image)              # {"conv1": array of int64 codes, ...}
    model = load("models/lenet_digits")                 # the same, reading the files once
    evaluation = model.run(image, near=Fraction(1, 10**9))
    evaluation.codes["conv1"], evaluation.ties["conv1"], evaluation.near_ties["conv1"], evaluation.values["conv1"]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .operations import OPERATIONS
from .rational import Rational, Value, from_codes, from_floats
from .reader import (
    Argument,
    Assignment,
    Document,
    Quantiser,
    Reference,
    parse_document,
    parse_quantisation,
    read_tensor,
)

Codes = npt.NDArray[np.int64]
Index = tuple[int, ...]
Array = npt.NDArray[Any]
Inputs = Array | Mapping[str, Array]


@dataclass(frozen=True, eq=False)
class Quantised:
    """The codes of a tensor and the indices of its exact ties (and near ties, if asked for)."""

    codes: Codes
    ties: list[Index]
    near_ties: list[Index] | None


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one run computed, by tensor name; all but `values` for the tensors that graph.quant names.

    `ties`: (x - min) / (max - min) * r is exactly half an odd integer strictly between 0 and r, so that the rounding
    rule (up) decides; `near_ties`: it lies within `near` of such a half, ties included (absent if not asked for).
    `values`: the tensors as later operations see them, quantised or not.
    """

    codes: dict[str, Codes] = field(default_factory=dict)
    ties: dict[str, list[Index]] = field(default_factory=dict)
    near_ties: dict[str, list[Index]] = field(default_factory=dict)
    values: dict[str, Value] = field(default_factory=dict)


def _indices(flags: npt.NDArray[np.bool_]) -> list[Index]:
    return [tuple(int(i) for i in index) for index in np.argwhere(flags)]


def quantise(value: Value, quantiser: Quantiser, near: Fraction | None = None) -> Quantised:
    """Codes, ties and near ties of an exact tensor.

    The clamp is applied to the code: floor(clamp(s, 0, r) + 1/2) = clamp(floor(s + 1/2), 0, r) for every real s, since
    the rounding is monotone and keeps the integers 0 and r. s + 1/2 = k is a tie only for k in 1..r: outside, the
    clamp decides. An item is a near tie if s + 1/2 - near and s + 1/2 + near give different codes.
    """
    scale = 1 / quantiser.step
    start = Fraction(1, 2) - quantiser.min * scale
    floors, whole = value.floors(scale, start)
    codes = _clamped(floors, quantiser.levels)
    ties = whole & np.asarray((floors >= 1) & (floors <= quantiser.levels), dtype=bool)
    if near is None:
        return Quantised(codes, _indices(ties), None)
    below, above = (_clamped(value.floors(scale, start + shift)[0], quantiser.levels) for shift in (-near, near))
    return Quantised(codes, _indices(ties), _indices(ties | (below != above)))


def _clamped(floors: npt.NDArray[np.object_], levels: int) -> Codes:
    return np.asarray(np.clip(floors, 0, levels), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Model:
    """A flat document, its quantisers, and its variables as they are stored (a run quantises them first)."""

    document: Document
    quantisers: Mapping[str, Quantiser]
    variables: Mapping[str, Value]

    def run(
        self, inputs: Inputs, near: Fraction | None = None, continue_with: Mapping[str, Codes] | None = None
    ) -> Evaluation:
        """Evaluates one feed of the graph's inputs (a bare array if there is one input).

        Float arrays are real values, integer arrays are codes of the input's quantiser. `near` asks for `near_ties`.
        Tensors in `continue_with` enter later operations with those codes instead of the computed ones (which are
        still reported), so that each operation of another evaluation can be judged on that evaluation's own operands.
        """
        result = Evaluation()
        feed = self._feed(inputs)
        for assignment in self.document.assignments:
            name = assignment.target
            value = self._result(assignment, feed, result.values)
            quantiser = self.quantisers.get(name)
            if quantiser is not None:
                quantised = quantise(value, quantiser, near)
                result.codes[name], result.ties[name] = quantised.codes, quantised.ties
                if quantised.near_ties is not None:
                    result.near_ties[name] = quantised.near_ties
                codes = (continue_with or {}).get(name, quantised.codes)
                value = from_codes(codes, quantiser.min, quantiser.step)
            result.values[name] = value
        return result

    def _feed(self, inputs: Inputs) -> Mapping[str, Array]:
        feed = inputs if isinstance(inputs, Mapping) else dict.fromkeys(self.document.inputs, inputs)
        if set(feed) != set(self.document.inputs) or (len(feed) > 1 and not isinstance(inputs, Mapping)):
            raise ValueError(f"the graph's inputs are {self.document.inputs}")
        return feed

    def _result(self, assignment: Assignment, feed: Mapping[str, Array], values: Mapping[str, Value]) -> Value:
        if assignment.operation == "variable":
            return self.variables[assignment.target]
        if assignment.operation == "external":
            array = feed[assignment.target]
            if list(array.shape) != assignment.named["shape"]:
                raise ValueError(f"{assignment.target} has shape {array.shape}, not {assignment.named['shape']}")
            return _external(array, self.quantisers.get(assignment.target))
        operation = OPERATIONS[assignment.operation]
        positional = [_resolved(argument, values) for argument in assignment.positional]
        return operation(*positional, **{key: _resolved(item, values) for key, item in assignment.named.items()})


def _resolved(argument: Argument, values: Mapping[str, Value]) -> Any:
    """The argument with every identifier replaced by its tensor."""
    if isinstance(argument, Reference):
        return values[argument.name]
    if isinstance(argument, list | tuple):
        return type(argument)(_resolved(item, values) for item in argument)
    return argument


def _external(array: Array, quantiser: Quantiser | None) -> Rational:
    if np.issubdtype(array.dtype, np.floating):
        return from_floats(array)
    if not np.issubdtype(array.dtype, np.integer) or quantiser is None:
        raise TypeError(f"{array.dtype} is neither real values nor codes of a quantiser")
    if array.size and not 0 <= int(array.min()) <= int(array.max()) <= quantiser.levels:
        raise ValueError(f"codes outside of 0..{quantiser.levels}")
    return from_codes(array.astype(np.int64), quantiser.min, quantiser.step)


def model(graph_text: str, quant_text: str, stored: Callable[[str], Array]) -> Model:
    """A model from the texts of graph.nnef and graph.quant; `stored` gives the float array of a variable's label."""
    document = parse_document(graph_text)
    quantisers = parse_quantisation(quant_text)
    unknown = set(quantisers) - {assignment.target for assignment in document.assignments}
    if unknown:
        raise ValueError(f"quantisation refers to unknown tensors {sorted(unknown)} (5.3)")
    variables: dict[str, Value] = {}
    for assignment in document.assignments:
        if assignment.operation == "variable":
            array = stored(str(assignment.named["label"]))
            if list(array.shape) != assignment.named["shape"]:
                raise ValueError(f"{assignment.target} is stored with shape {array.shape}")
            variables[assignment.target] = from_floats(array)
    return Model(document, quantisers, variables)


def load(model_dir: str | Path) -> Model:
    """The model in a folder with graph.nnef, graph.quant and `<label>.dat` files (5.1)."""
    folder = Path(model_dir)
    return model(
        (folder / "graph.nnef").read_text(encoding="ascii"),
        (folder / "graph.quant").read_text(encoding="ascii"),
        lambda label: read_tensor(folder / f"{label}.dat"),
    )


def evaluate(model_dir: str | Path, input_array: Inputs) -> dict[str, Codes]:
    """The exact code of every quantised tensor of the model in `model_dir` for one input."""
    return load(model_dir).run(input_array).codes
