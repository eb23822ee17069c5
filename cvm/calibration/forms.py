"""The form that lowering gives each tensor of a graph, as far as it decides where a quantiser is needed.

Lowering keeps a tensor without a quantiser symbolic (`cvm.lowering.forms`): a sum of integer tensors with rational
coefficients, a function of the codes of one tensor, a clip that is still to be applied. Some operations read such a
form directly; others need the codes of a quantiser. The rules of this module say which, operation by operation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, TypeAlias

from cvm.calibration.roles import Uses, filter_axis
from cvm.graph import GraphOperation, GraphTensor, QuantizedGraph, names_in
from cvm.quantization.reals import FUNCTIONS
from cvm.records import dataclass

__all__ = ["FIXED", "Form", "Reading", "filters_of", "form_of_result"]


@dataclass(frozen=True, slots=True)
class Form:
    """The form of a tensor.

    * ``fixed``: the same in every run;
    * ``codes``: one number for each code of ``root``, at equal distances;
    * ``function``: one number for each code of ``root``;
    * ``sum``: a number of ``terms``, each an integer tensor times a coefficient;
    * ``pending``: a sum that is still to be clipped or divided by a root, which only a quantiser can do;
    * ``rounded``: a tensor that exists only as codes, so that it needs a quantiser itself.
    """

    kind: Literal["fixed", "codes", "function", "sum", "pending", "rounded"]
    root: str = ""
    terms: int = 1


FIXED, PENDING, ROUNDED, SUM = Form("fixed"), Form("pending"), Form("rounded"), Form("sum")

MOST_TERMS = 2
"""The most integer tensors in one sum: proofs for two are quick; for more they are slow or find no form in 64 bits."""


class Reading:
    """One operation: the forms of its operands, and the operands that must get codes first (``needed``)."""

    def __init__(self, operation: GraphOperation, uses: Uses, forms: Mapping[str, Form]) -> None:
        self.operation, self.uses, self.graph = operation, uses, uses.graph
        self._forms = forms
        self.needed: dict[str, None] = {}

    @property
    def result(self) -> GraphTensor:
        """The first result."""
        return self.graph.tensors[self.operation.outputs[0]]

    def names(self, *parameters: str) -> list[str]:
        """The tensors of some parameters, or of all; tensors that are the same in every run are left out."""
        chosen = parameters or tuple(self.operation.inputs)
        found = [name for item in chosen for name in names_in(self.operation.inputs[item])]
        return [name for name in found if self.form(name).kind != "fixed"]

    def form(self, name: str) -> Form:
        """The form of an operand; after `need` asked for its codes, it has codes."""
        return Form("codes", name) if name in self.needed else self._forms[name]

    def need(self, names: Sequence[str], *kinds: str) -> None:
        """Record that operands are needed as codes, except those whose form is of one of the given kinds."""
        for name in names:
            if self.form(name).kind not in ("codes", *kinds):
                self.needed[name] = None

    def fixed(self, parameter: str) -> bool:
        """Whether a parameter is the same in every run."""
        return self.uses.fixed(self.operation.inputs[parameter])

    def same_root(self, names: Sequence[str]) -> str | None:
        """The one tensor of whose codes all these tensors are functions; None where there is none."""
        roots = {self.form(name).root for name in names if self.form(name).kind in ("codes", "function")}
        return (
            roots.pop() if len(roots) == 1 and all(self.form(n).kind in ("codes", "function") for n in names) else None
        )


_Rule: TypeAlias = "Callable[[Reading], Form]"
_RULES: dict[str, _Rule] = {}


def _rule(*names: str) -> Callable[[_Rule], _Rule]:
    def enter(function: _Rule) -> _Rule:
        _RULES.update(dict.fromkeys(names, function))
        return function

    return enter


def form_of_result(reading: Reading) -> Form:
    """The form of the results of an operation; afterwards, `Reading.needed` holds the operands that need codes.

    `FUNCTIONS` lists the functions of one number. An operation without a rule here needs codes and gives codes.
    """
    if not reading.names():
        return FIXED
    name = reading.operation.name
    found = _RULES.get(name) or (_function if name in FUNCTIONS else _unknown)
    return found(reading)


def _is_uniform(graph: QuantizedGraph, operand: object) -> bool:
    """Whether a fixed operand is a single number: a literal, or a tensor of one element."""
    if not isinstance(operand, str):
        return True
    tensor = graph.tensors[operand]
    if tensor.data is None or tensor.data.quantizer is not None:
        return all(extent == 1 for extent in tensor.shape)
    values = tensor.data.values.ravel()
    return bool((values == values[:1]).all())


def _unknown(reading: Reading) -> Form:
    reading.need(reading.names())
    return ROUNDED


@_rule("copy", "reshape", "squeeze", "unsqueeze", "transpose", "slice", "split", "unstack", "tile", "nearest_upsample")
def _moved(reading: Reading) -> Form:
    (name,) = reading.names()[:1]
    form = reading.form(name)
    same = reading.operation.name == "copy"
    return form if same or form.kind not in ("codes", "function") else Form(form.kind, reading.result.name)


@_rule("gather")
def _gathered(reading: Reading) -> Form:
    reading.need(reading.names("indices"))
    data = reading.operation.inputs["input"]
    if reading.fixed("input"):
        return Form("codes", reading.result.name) if isinstance(data, str) else FIXED
    if not reading.fixed("indices"):
        reading.need(reading.names("input"))
    return _moved(reading)


@_rule("concat", "stack")
def _joined(reading: Reading) -> Form:
    names = reading.names()
    reading.need(names, "sum")
    return Form("sum", terms=max(reading.form(name).terms for name in names))


@_rule("select")
def _selected(reading: Reading) -> Form:
    arms = reading.names("true_value", "false_value")
    reading.need(arms, "sum")
    return Form("sum", terms=1 + sum(reading.form(name).terms for name in arms))


@_rule("max_pool", "max_reduce", "min_reduce", "sample", "nearest_downsample", "pad", "update", "update_slice")
def _chosen(reading: Reading) -> Form:
    """Elements of the operands; the new value of a variable shares a quantiser with the variable."""
    reading.need(reading.names())
    return Form("codes", reading.result.name)


@_rule("argmax_reduce", "argmin_reduce", "argmax_pool", "cast")
def _position(reading: Reading) -> Form:
    reading.need(reading.names(), "sum" if reading.operation.name == "cast" else "codes")
    return Form("codes", reading.result.name)


@_rule("lt", "gt", "le", "ge", "eq", "ne")
def _compared(reading: Reading) -> Form:
    names = reading.names()
    if reading.same_root(names) is None:
        reading.need(names, "sum")
    return Form("codes", reading.result.name)


@_rule("conv", "deconv", "linear", "matmul", "avg_pool", "box", "debox",
       "multilinear_upsample", "area_downsample", "separable_conv", "separable_deconv")  # fmt: skip
def _summed(reading: Reading) -> Form:
    reading.need(reading.names())
    return SUM


@_rule("sum_reduce", "mean_reduce")
def _reduced(reading: Reading) -> Form:
    (name,) = reading.names()
    reading.need([name], "sum")
    return Form("sum", terms=reading.form(name).terms)


@_rule("batch_normalization")
def _normalised(reading: Reading) -> Form:
    others = [name for name in reading.operation.inputs if name != "input"]
    if not all(map(reading.fixed, others)):
        return _unknown(reading)
    reading.need(reading.names("input"), "sum")
    return PENDING


@_rule("layer_normalization", "rms_normalization")
def _standardised(reading: Reading) -> Form:
    """The squares of a row are summed: its scale must be a short number, that of a quantiser of its own. A product of a
    chosen scale and a number of the model is none.
    """
    reading.need(reading.names())
    for name in reading.names("input"):
        root, maker = reading.form(name).root, reading.uses.made_by.get(name)
        if (
            root != name
            and maker is not None
            and maker.name != "copy"
            and reading.graph.tensors[root].quantizer is None
        ):
            reading.needed[name] = None
    return ROUNDED


@_rule("neg")
def _negated(reading: Reading) -> Form:
    (name,) = reading.names()
    reading.need([name], "sum", "function")
    return reading.form(name)


@_rule("add", "sub", "add_n")
def _added(reading: Reading) -> Form:
    names = reading.names()
    root = reading.same_root(names)
    if root is not None and (len(names) > 1 or reading.form(names[0]).kind == "function"):
        if _alike(reading, names):
            return Form("function", root)
        reading.need(names)
    reading.need(names, "sum")
    if sum(reading.form(name).terms for name in names) > MOST_TERMS:
        reading.need(names)
    if len(names) == 1 and reading.form(names[0]).kind == "codes" and _alike(reading, names):
        return reading.form(names[0])
    return Form("sum", terms=sum(reading.form(name).terms for name in names))


def _alike(reading: Reading, names: Sequence[str]) -> bool:
    """Whether the result is one function of the codes for all elements: all other operands are single numbers."""
    shapes = {reading.graph.tensors[name].shape for name in names}
    others = [value for value in reading.operation.inputs.values() if reading.uses.fixed(value)]
    return shapes == {reading.result.shape} and all(_is_uniform(reading.graph, value) for value in others)


@_rule("mul", "div")
def _multiplied(reading: Reading) -> Form:
    names = reading.names()
    root = reading.same_root(names)
    inverse = reading.operation.name == "div" and not reading.fixed("y")
    if len(names) == 1 and not inverse:
        return _scaled(reading, names[0])
    if root is not None and _alike(reading, names):
        return Form("function", root)
    reading.need(names)
    return ROUNDED if inverse else SUM


def _scaled(reading: Reading, name: str) -> Form:
    alike = _alike(reading, [name])
    reading.need([name], "sum", *(["function"] if alike else []))
    form = reading.form(name)
    return form if alike else Form("sum", terms=form.terms)


@_rule("relu", "clamp")
def _clipped(reading: Reading) -> Form:
    names = reading.names()
    if len(names) > 1 or not _alike(reading, names):
        return _unknown(reading)
    form = reading.form(names[0])
    return PENDING if form.kind in ("sum", "pending") else Form("function", form.root)


@_rule("min", "max")
def _lesser(reading: Reading) -> Form:
    """The minimum or maximum: codes of both operands with the result's quantiser, or a function of
    one operand's codes.
    """
    names = reading.names()
    root = reading.same_root(names)
    if root is not None and _alike(reading, names):
        return Form("function", root)
    reading.need(names, "sum")
    return ROUNDED


@_rule("pow", "prelu")
def _function_of_two(reading: Reading) -> Form:
    names = reading.names()
    if len(names) > 1:
        return _unknown(reading)
    return _function(reading)


@_rule("elu", "gelu", "selu", "softabs", "leaky_relu")
def _function(reading: Reading) -> Form:
    """A table over the codes of one tensor."""
    names = reading.names()
    reading.need(names, "function")
    return Form("function", reading.form(names[0]).root)


@_rule("and", "or", "not")
def _logical(reading: Reading) -> Form:
    return Form("codes", reading.result.name)


def filters_of(reading: Reading) -> list[str]:
    """The operands of a product that are the same in every run, which are its filters."""
    found = []
    for parameter, operand in reading.operation.inputs.items():
        if isinstance(operand, str) and reading.uses.fixed(operand):
            shape = reading.graph.tensors[operand].shape
            if filter_axis(reading.operation, parameter, len(shape), shape[1] if len(shape) > 1 else 1) is not None:
                found.append(operand)
    return found
