"""The exact meaning of a quantised NNEF document: arithmetic on reals of infinite precision, rounded once.

Every tensor that graph.quant names is quantised by its own quantiser right after it is computed (7.1), whatever
computes it: external data, variables on load, activations, data movement. min, max, scales and literals are the exact
rationals of their decimal text, stored and given floats the rationals that they are. No floating-point arithmetic takes
part in any decision. What cannot be decided within 400 digits raises `Undecided`.

    evaluate("models/lenet_digits", image)              # {"conv1": array of int64 codes, ...}
    model = load("models/lenet_digits")                 # the same, reading the files once
    evaluation = model.run(image, near=Fraction(1, 10**9))
    evaluation.codes["conv1"], evaluation.ties["conv1"], evaluation.near_ties["conv1"], evaluation.values["conv1"]
    first, second = model.run_cycles([row0, row1])      # variables keep their updates from cycle to cycle

Codes of linear quantisers are those of graph.quant's algorithm (0..2^bits - 1, or signed for those of the Khronos
tools), of logarithmic ones sign(x) * (q - (m - r) + 1) with q, m and r of 4.9.5, and 0 for 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .elementwise import cast
from .files import Stored, read_tensor
from .operations import OPERATIONS
from .quantization import Coded, Codes, Index, Quantised, Quantiser, quantise
from .reader import (
    Argument,
    Assignment,
    Document,
    Fragment,
    Reference,
    Target,
    names_in,
    parse_document,
    parse_quantisation,
)
from .real import Undecided
from .tensors import Tensor, from_array

__all__ = ["Codes", "Evaluation", "Model", "Quantised", "Undecided", "evaluate", "load", "model", "quantise"]

Array = npt.NDArray[Any]
Inputs = Array | Mapping[str, Array]
Values = dict[str, Any]


@dataclass(frozen=True, eq=False)
class Evaluation:
    """What one cycle computed, by tensor name; all but `values` and `state` for tensors with a quantiser.

    `codes` also has the results of quantisation operations in the graph, unless graph.quant quantises them once more.
    `ties`: the item lies exactly in the middle between two codes, so that the rounding rule (up) decides; `near_ties`:
    it lies within `near` of that, ties included (absent if not asked for). `values`: the tensors as later operations
    see them, quantised or not. `state`: the content of the variables after the cycle, by label in lower case.
    """

    codes: dict[str, Codes] = field(default_factory=dict)
    ties: dict[str, list[Index]] = field(default_factory=dict)
    near_ties: dict[str, list[Index]] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    state: dict[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Model:
    """A document, its quantisers, and its variables as they are stored, by label in lower case.

    `axes` gives, by tensor name, the dimension that a quantiser with lists runs along; it may be absent where only one
    dimension has the length of the list.
    """

    document: Document
    quantisers: Mapping[str, Quantiser]
    variables: Mapping[str, Tensor]
    axes: Mapping[str, int] = field(default_factory=dict)
    _kept: dict[Any, tuple[Quantised, Tensor]] = field(default_factory=dict, init=False, repr=False)

    def run(
        self,
        inputs: Inputs,
        near: Fraction | None = None,
        continue_with: Mapping[str, Codes] | None = None,
        state: Mapping[str, Tensor] | None = None,
    ) -> Evaluation:
        """Evaluates one feed of the graph's inputs (a bare array if there is one input).

        Float arrays are real values; integer arrays are codes of the input's quantiser, or, of external<integer> and
        external<logical>, values. `near` asks for `near_ties`. Tensors in `continue_with` enter later operations with
        those codes instead of the computed ones (which are still reported), so that each operation of another
        evaluation can be judged on that evaluation's own operands. `state` is the content of the variables, by default
        the stored one.
        """
        feed = self._feed(inputs)
        content = {**self.variables, **(state or {})}
        result = Evaluation()
        updates: dict[str, Tensor] = {}
        for assignment in self.document.assignments:
            found = self._result(assignment, feed, content, result.values)
            for name, value in _bound(assignment.target, found).items():
                result.values[name] = self._quantised(name, value, near, continue_with or {}, result)
            if assignment.operation == "update":
                variable, value = (result.values[name] for name in _update_arguments(assignment))
                if variable.shape != value.shape:
                    raise ValueError("not satisfied: the shape of value equals that of variable")
                updates[self._label(_update_arguments(assignment)[0])] = value
        result.state.update({**content, **updates})
        return result

    def run_cycles(self, feeds: Iterable[Inputs], near: Fraction | None = None) -> list[Evaluation]:
        """Evaluates one feed after another, from the stored variables on; updates take effect at the end of a cycle.

        A variable gets the value that the tensor `value` of its update has, quantised by the latter's own quantiser;
        the next cycle reads it through the variable's quantiser, as any content of the variable.
        """
        evaluations: list[Evaluation] = []
        for feed in feeds:
            evaluations.append(self.run(feed, near, state=evaluations[-1].state if evaluations else None))
        return evaluations

    def quantiser(self, name: str, shape: Sequence[int]) -> Quantiser | None:
        """The quantiser of a tensor of that shape, if graph.quant names it."""
        found = self.quantisers.get(name)
        return found.on_axis(shape, self.axes.get(name)) if found else None

    def _feed(self, inputs: Inputs) -> Mapping[str, Array]:
        feed = inputs if isinstance(inputs, Mapping) else dict.fromkeys(self.document.inputs, inputs)
        if set(feed) != set(self.document.inputs) or (len(feed) > 1 and not isinstance(inputs, Mapping)):
            raise ValueError(f"the graph's inputs are {self.document.inputs}")
        return feed

    def _label(self, name: str) -> str:
        for assignment in self.document.assignments:
            if assignment.operation == "variable" and assignment.target == name:
                return str(assignment.named["label"]).lower()
        raise ValueError(f"{name!r} is no variable")

    def _quantised(
        self, name: str, value: Tensor, near: Fraction | None, continue_with: Mapping[str, Codes], result: Evaluation
    ) -> Tensor:
        quantiser = self.quantiser(name, value.shape)
        if quantiser is None:
            if isinstance(value, Coded) and value.codes is not None:
                result.codes[name] = value.codes
            return value
        as_stored = any(value is stored for stored in self.variables.values())
        kept = self._kept.get((name, near)) if as_stored else None
        if kept is None:
            quantised = quantise(value, quantiser, near)
            kept = quantised, quantiser.values(quantised.codes)
        if as_stored:
            self._kept[name, near] = kept
        quantised, seen = kept
        result.codes[name], result.ties[name] = quantised.codes, quantised.ties
        if quantised.near_ties is not None:
            result.near_ties[name] = quantised.near_ties
        return quantiser.values(continue_with[name]) if name in continue_with else seen

    def _result(
        self, assignment: Assignment, feed: Mapping[str, Array], content: Mapping[str, Tensor], values: Values
    ) -> Any:
        if assignment.operation == "variable":
            return content[str(assignment.named["label"]).lower()]
        if assignment.operation == "external":
            name = str(assignment.target)
            array = np.asarray(feed[name])
            if list(array.shape) != assignment.named["shape"]:
                raise ValueError(f"{name} has shape {array.shape}, not {assignment.named['shape']}")
            return _external(array, assignment.type_name, self.quantiser(name, array.shape))
        if assignment.operation == "update":
            return values[_update_arguments(assignment)[1]]
        return _invoked(assignment, values, self.document.fragments)


def _update_arguments(assignment: Assignment) -> tuple[str, str]:
    """The names of variable and value of an update."""
    bound = dict(zip(("variable", "value"), assignment.positional, strict=False)) | dict(assignment.named)
    variable, value = bound["variable"], bound["value"]
    if not isinstance(variable, Reference) or not isinstance(value, Reference):
        raise ValueError("not satisfied: update takes two tensors")
    return variable.name, value.name


def _invoked(assignment: Assignment, values: Values, fragments: Mapping[str, Fragment]) -> Any:
    """The result of an operation or of a fragment, whose inner tensors carry no quantisation."""
    positional = [_resolved(argument, values) for argument in assignment.positional]
    named = {key: _resolved(item, values) for key, item in assignment.named.items()}
    fragment = fragments.get(assignment.operation)
    if fragment is None:
        if assignment.operation == "cast":
            return cast(assignment.type_name, *positional, **named)
        return OPERATIONS[assignment.operation](*positional, **named)
    inner = {key: _resolved(item, {}) for key, item in fragment.parameters.items() if item is not None}
    inner |= dict(zip(fragment.parameters, positional, strict=False)) | named
    if set(inner) != set(fragment.parameters):
        raise ValueError(f"{fragment.name} has the parameters {list(fragment.parameters)}")
    for line in fragment.assignments:
        inner |= _bound(line.target, _invoked(line, inner, fragments))
    results = tuple(inner[name] for name in fragment.results)
    return results[0] if len(results) == 1 else results


def _resolved(argument: Argument, values: Values) -> Any:
    """The argument with every identifier replaced by its tensor."""
    if isinstance(argument, Reference):
        return values[argument.name]
    if isinstance(argument, list | tuple):
        return type(argument)(_resolved(item, values) for item in argument)
    return argument


def _bound(target: Target, found: Any) -> Values:
    """The identifiers of a left-hand side with the corresponding results."""
    if isinstance(target, str):
        return {target: found}
    if not isinstance(found, list | tuple) or len(found) != len(target):
        raise ValueError(f"{target} does not fit the results")
    return {name: value for part, item in zip(target, found, strict=True) for name, value in _bound(part, item).items()}


def _external(array: Array, type_name: str, quantiser: Quantiser | None) -> Tensor:
    if array.dtype.kind == "f" or (type_name != "scalar" and quantiser is None):
        return from_array(array)
    if array.dtype.kind not in "iu" or quantiser is None:
        raise TypeError(f"{array.dtype} is neither real values nor codes of a quantiser")
    return quantiser.values(array.astype(np.int64))


def _variable(assignment: Assignment, stored: Array | Stored, owner: Model) -> Tensor:
    """The stored content of a variable. Codes (of item types 2 and 3) are decoded by the quantiser in graph.quant."""
    found = stored if isinstance(stored, Stored) else Stored(from_array(np.asarray(stored)))
    if list(found.values.shape) != assignment.named["shape"]:
        raise ValueError(f"{assignment.target} is stored with shape {found.values.shape}")
    if not found.are_codes:
        return found.values
    quantiser = owner.quantiser(str(assignment.target), found.values.shape)
    if quantiser is None:
        raise ValueError(f"{assignment.target} is stored as codes, but graph.quant has no quantiser for it")
    return quantiser.values(found.values.integers())


def model(
    graph_text: str,
    quant_text: str,
    stored: Callable[[str], Array | Stored],
    axes: Mapping[str, int] | None = None,
) -> Model:
    """A model from the texts of graph.nnef and graph.quant; `stored` gives the items of a variable's label.

    `axes` gives, by tensor name, the dimension of quantisers with lists where more than one has the list's length.
    """
    document = parse_document(graph_text)
    quantisers = parse_quantisation(quant_text)
    names = {name for assignment in document.assignments for name in names_in(assignment.target)}
    if not set(quantisers) <= names:
        raise ValueError(f"quantisation refers to unknown tensors {sorted(set(quantisers) - names)} (5.3)")
    variables: dict[str, Tensor] = {}
    result = Model(document, quantisers, variables, axes or {})
    for assignment in document.assignments:
        if assignment.operation == "variable" and str(assignment.named["label"]).lower() not in variables:
            label = str(assignment.named["label"])
            variables[label.lower()] = _variable(assignment, stored(label), result)
    return result


def load(model_dir: str | Path, axes: Mapping[str, int] | None = None) -> Model:
    """The model in a folder with graph.nnef, graph.quant (if any) and `<label>.dat` files (5.1)."""
    folder = Path(model_dir)
    quant = folder / "graph.quant"
    return model(
        (folder / "graph.nnef").read_text(encoding="ascii"),
        quant.read_text(encoding="ascii") if quant.exists() else "",
        lambda label: read_tensor(folder / f"{label}.dat"),
        axes,
    )


def evaluate(model_dir: str | Path, input_array: Inputs) -> dict[str, Codes]:
    """The exact code of every quantised tensor of the model in `model_dir` for one input."""
    return load(model_dir).run(input_array).codes
