"""The state of one lowering: the graph that is read, the program that is built, and the form of each tensor."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from cvm.bounds import narrowest
from cvm.errors import CvmError, Invalid, Location, Unsupported
from cvm.graph import GraphTensor, Operand, QuantizedGraph, TensorData
from cvm.limits import DEFAULT, INT32_MAX, Limits
from cvm.lowering.claims import CLAIMS, Claim, with_accuracy
from cvm.lowering.forms.emission import Emission, Value
from cvm.lowering.forms.form import (
    Form,
    Known,
    LinearForm,
    Shape,
    TableForm,
    Term,
    code_form,
    constant_of,
    known_codes,
    scale_and_offset,
)
from cvm.lowering.forms.known import KnownTensors
from cvm.lowering.forms.logarithms import decoded, known_power_codes, known_powers
from cvm.lowering.forms.unquantized import unquantized
from cvm.lowering.proofs.decide import TooWide
from cvm.lowering.proofs.pieces import clamped
from cvm.lowering.proofs.table import Operand as FormOperand
from cvm.lowering.proofs.table import lattice, tabulate
from cvm.program.model import OP_SET, Exactness
from cvm.quantization import LinearQuantizer, LogarithmicQuantizer, Quantizer
from cvm.quantization.exact import quantize, quantize_rationals
from cvm.quantization.rationals import Rationals

__all__ = ["RULES", "Coded", "Lowering", "Result", "Rule", "rule"]


class Coded:
    """A result whose codes a rule has computed itself: the value of the codes, and the bound of their error in codes.

    With ``any_rounding`` the codes are rounded as the quantiser says. Otherwise they are rounded half up, and a
    quantiser with another rounding is refused.
    """

    def __init__(self, value: Value, bound: Fraction = Fraction(0), note: str = "", any_rounding: bool = False) -> None:
        self.value = value
        self.bound = bound
        self.note = note
        self.any_rounding = any_rounding


Result: TypeAlias = "Form | Known | Coded"
Rule: TypeAlias = "Callable[[Lowering], Sequence[Result]]"

RULES: dict[str, Rule] = {}
"""The lowering rule of each operation, by its name in the graph."""


def rule(*operations: str, claim: Claim, accuracy: str = "default") -> Callable[[Rule], Rule]:
    """A decorator that enters a lowering rule and its claim for the named operations, with the given ``accuracy``."""
    names = [with_accuracy(name, accuracy) for name in operations]

    def enter(function: Rule) -> Rule:
        RULES.update(dict.fromkeys(names, function))
        CLAIMS.update(dict.fromkeys(names, claim))
        return function

    return enter


class Lowering(Emission):
    """One lowering of one graph. Rules read operands and emit ops; the driver quantises what they return."""

    def __init__(self, graph: QuantizedGraph, limits: Limits = DEFAULT, op_set: int = OP_SET) -> None:
        super().__init__(limits, op_set)
        self.graph = graph
        self.forms: dict[str, Form] = {}
        self.lattices: dict[str, LinearForm] = {}
        """The linear forms of tensors that have a form of another kind, for which an operation has asked."""
        self.known = KnownTensors()
        self.values: dict[str, Value] = {}
        """The value of the program that holds the codes of each quantised tensor."""

    # What rules read

    def tensor(self, operand: Operand, parameter: str) -> GraphTensor:
        """The tensor that an operand names."""
        if not isinstance(operand, str):
            raise self.unsupported(f"{parameter} must be a tensor here, not a literal")
        return self.graph.tensors[operand]

    def operand(self, parameter: str) -> FormOperand:
        """The form of an operand of the operation, by the name of the parameter; a literal is a constant."""
        return self.operand_of(self.operation.inputs[parameter], parameter)

    def operand_of(self, operand: Operand, parameter: str) -> FormOperand:
        """The same as `operand`, for an item of an array of operands."""
        if isinstance(operand, str):
            return self.forms[operand] if operand in self.forms else self.known[operand]
        if isinstance(operand, tuple):
            raise self.unsupported(f"{parameter} must be one tensor, not an array")
        value = Fraction(operand)
        codes = np.array([value.numerator], dtype=object)
        return Known(codes, Rationals.scalar(Fraction(1, value.denominator), 1), Rationals.scalar(0, 1))

    def stored(self, parameter: str) -> FormOperand:
        """The same as `operand`, but the codes of a constant have as few bits as they are stored in.

        Only for rules that move them, or that add them up in as many bits as the sums need.
        """
        name = self.operation.inputs[parameter]
        return self.known.held(name) if isinstance(name, str) and name in self.known else self.operand(parameter)

    def constant(self, parameter: str) -> Known:
        """An operand whose contents are known when compiling: a variable, a constant or a literal."""
        operand = self.operand(parameter)
        if not isinstance(operand, Known):
            name = self.operation.inputs[parameter]
            raise self.unsupported(f"{parameter} must be constant, but {name!r} is computed")
        return operand

    def linear(self, parameter: str) -> LinearForm:
        """An operand as a linear form without a pending clamp. A constant becomes a form without terms.

        Raises `Unsupported` (``lowering.unquantized``) if no linear form of int32 tensors is exact.
        """
        return self.linear_of(self.operation.inputs[parameter], parameter)

    def linear_of(self, operand: Operand, parameter: str) -> LinearForm:
        """The same as `linear`, for an item of an array of operands."""
        found = self.operand_of(operand, parameter)
        if isinstance(found, Known):
            return LinearForm(found.shape, (), found.rationals())
        if isinstance(found, LinearForm) and not found.clamped:
            return found
        name = str(operand)
        if name in self.lattices:
            return self.lattices[name]
        form = self._linear(found, name)
        if form is None:
            raise self.needs_quantization(name)
        # The table remains the form of the tensor, since functions of the tensor are lowered from the table.
        self.lattices[name] = form
        return form

    def _linear(self, found: Form, name: str) -> LinearForm | None:
        """A linear form that equals a form of another kind, or None if there is none.

        It is computed by a table or, for a clamped sum, by comparing the sum with its bounds.
        """
        if not isinstance(found, TableForm):
            try:
                found = tabulate(self, [found], lambda x: x, found.shape)
            except Unsupported:
                if not isinstance(found, LinearForm):
                    return None
                try:
                    with self.serving(name), self.part("clamped"):
                        return clamped(self, found)
                except TooWide:
                    return None
        with self.serving(name):
            return lattice(found)

    def single(self, parameter: str) -> tuple[Value, Rationals, Rationals, LinearForm]:
        """An operand factor * X + constant, for one value X of full extent: (X, factor, constant, form)."""
        form = self.linear(parameter)
        operand = self.operation.inputs[parameter]
        if all(term.factor.is_zero() for term in form.terms):
            known = self.known.get(str(operand)) or constant_of(form)
            value = self.tensor_constant(known.codes, parameter)
            form = LinearForm(form.shape, (Term(value, known.scale),), known.offset)
        if len(form.terms) != 1 or form.terms[0].value.shape != form.shape:
            raise self.needs_quantization(str(operand))
        return form.terms[0].value, form.terms[0].factor, form.constant, form

    def coded(self, parameter: str) -> tuple[Value, Fraction, Fraction, LinearForm]:
        """The same as `single`, for an operand with one positive factor and one constant for the whole tensor."""
        value, factor, constant, form = self.single(parameter)
        if not (factor.uniform and constant.uniform) or factor.item() == 0:
            raise self.needs_quantization(str(self.operation.inputs[parameter]))
        if factor.item() < 0:
            value, factor = -value, -factor
            form = replace(form, terms=(Term(value, factor),))
        return value, factor.item(), constant.item(), form

    def quantizer(self) -> Quantizer | None:
        """The quantiser of the operation's only result, if it has one."""
        return self.graph.tensors[self.operation.outputs[0]].quantizer

    def linear_quantizer(self) -> LinearQuantizer | None:
        """The same as `quantizer`, for operations that can only compute codes of linear quantisers.

        Raises `Unsupported` (``lowering.logarithmic``) for a logarithmic quantiser.
        """
        quantizer = self.quantizer()
        if isinstance(quantizer, LogarithmicQuantizer):
            name = self.operation.outputs[0]
            message = f"{self.operation.name} gives linear codes, but {name!r} has a logarithmic quantiser"
            raise Unsupported("lowering.logarithmic", message, self.location)
        return quantizer

    def hold(self, tensor: GraphTensor, value: Value) -> None:
        """Record that ``value`` holds the codes of a quantised tensor, and enter the form of the tensor.

        Raises `Unsupported` (``lowering.logarithmic``) if there are too many logarithmic codes.
        """
        shape, quantizer = tensor.shape or (1,), tensor.quantizer
        self.values[tensor.name] = value
        if not isinstance(quantizer, LogarithmicQuantizer):
            assert quantizer is not None
            self.forms[tensor.name] = code_form(value, shape, quantizer)
            return
        try:
            with self.serving(tensor.name):
                self.forms[tensor.name] = decoded(value, shape, quantizer)
        except Unsupported as error:
            raise Unsupported(error.code, error.message, _located(tensor)) from None

    def output_shape(self, index: int = 0) -> Shape:
        """The shape of a result in the program, where rank 0 is (1,)."""
        return self.graph.tensors[self.operation.outputs[index]].shape or (1,)

    # What goes wrong

    def needs_quantization(self, tensor: str) -> Unsupported:
        """The error for a tensor that the operation needs as integers of one scale. It says what to change."""
        found = self.graph.tensors.get(tensor)
        where = self.location
        needs = f"{self.operation.name} needs {tensor!r} as integers, but"
        if found is not None and isinstance(found.quantizer, LogarithmicQuantizer):
            least = found.quantizer.top - found.quantizer.hi + 1
            apart = f"its powers from 2^{least} to 2^{found.quantizer.top} are too far apart: give it fewer bits"
            return Unsupported("lowering.logarithmic", f"{needs} {apart}", where)
        if found is not None and isinstance(found.quantizer, LinearQuantizer):
            codes = "its codes under this quantiser are not integers of one scale that fit 32 bits"
            return Unsupported("lowering.unquantized", f"{needs} {codes}", where)
        return unquantized(f"{needs} that tensor carries no quantisation; give it a quantiser in graph.quant", where)

    # Tensors that no operation computes

    def introduce(self, tensor: GraphTensor) -> None:
        """Enter an external tensor as an input of the program, a variable or a constant as a known tensor."""
        if tensor.kind == "external":
            self._external(tensor)
        elif tensor.kind in ("variable", "constant"):
            self.known[tensor.name] = self._contents(tensor)

    def _external(self, tensor: GraphTensor) -> None:
        quantizer = tensor.quantizer
        if quantizer is None and tensor.dtype != "scalar":
            self._external_integers(tensor)
            return
        if quantizer is None:
            raise unquantized(
                "an external tensor needs a quantiser in graph.quant: the program takes its codes",
                _located(tensor),
            )
        shape = tensor.shape or (1,)
        self.hold(tensor, Value(self.builder.input(tensor.name, shape, quantizer=quantizer), self))
        self.report.append(Exactness(tensor.name, tensor.name, Fraction(0), note="input"))

    def _external_integers(self, tensor: GraphTensor) -> None:
        """Enter an external tensor of integers or logical values (0 and 1), which needs no quantiser."""
        shape = tensor.shape or (1,)
        lo, hi = (0, 1) if tensor.dtype == "logical" else (-INT32_MAX, INT32_MAX)
        value = Value(self.builder.input(tensor.name, shape, lo, hi), self)
        one, zero = (Rationals.scalar(item, len(shape)) for item in (1, 0))
        self.forms[tensor.name] = LinearForm(shape, (Term(value, one),), zero)
        self.values[tensor.name] = value
        self.report.append(Exactness(tensor.name, tensor.name, Fraction(0), note="input"))

    def _contents(self, tensor: GraphTensor) -> Known:
        if tensor.data is None:
            raise Invalid("lowering.contents", "the contents of a variable are needed to compile", _located(tensor))
        try:
            known = _contents(tensor.data, tensor.quantizer, tensor.shape or (1,))
        except CvmError as error:
            raise error.at(tensor=tensor.name) from None
        if tensor.quantizer is not None:
            self.report.append(Exactness(tensor.name, "", Fraction(0), note=tensor.kind))
        return known


def _located(tensor: GraphTensor) -> Location:
    at = tensor.location
    return Location(at.file, at.line, at.column, tensor.name)


def _contents(data: TensorData, quantizer: Quantizer | None, shape: Shape) -> Known:
    """A constant tensor: its stored contents, quantised by ``quantizer`` if there is one."""
    if quantizer is None and isinstance(data.quantizer, LinearQuantizer):
        return known_codes(_codes(data.values.reshape(shape)), data.quantizer)
    if quantizer is None:
        return _stored(data, shape)
    if isinstance(quantizer, LogarithmicQuantizer):
        return known_powers(_stored(data, shape).rationals(), quantizer)
    if data.quantizer is None:
        codes = quantize(data.values.reshape(shape), quantizer, dtype=narrowest(quantizer.lo, quantizer.hi))
        return known_codes(codes, quantizer)
    if data.quantizer == quantizer:
        return known_codes(_codes(data.values.reshape(shape)), quantizer)
    return known_codes(quantize_rationals(_stored(data, shape).rationals(), quantizer), quantizer)


def _codes(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Stored codes without a change if `KnownTensors` widens them when they are read, else as 64-bit integers."""
    return values if values.dtype in (np.int8, np.uint8, np.int16, np.int32) else values.astype(np.int64)


def _stored(data: TensorData, shape: Shape) -> Known:
    """Stored contents as exact numbers: codes of their own quantiser, integers, or floats over a power of two."""
    values, rank = data.values.reshape(shape), len(shape)
    if isinstance(data.quantizer, LogarithmicQuantizer):
        return known_power_codes(values, data.quantizer)
    if data.quantizer is not None:
        return Known(values.astype(np.int64), *scale_and_offset(data.quantizer, rank))
    zero = Rationals.scalar(0, rank)
    if values.dtype.kind in "iub":
        return Known(values.astype(object), Rationals.scalar(1, rank), zero)
    if not np.isfinite(values).all():
        raise Invalid("quantization.nan", "an item is NaN or infinite: not a real number")
    return Known.of(Rationals.of_floats(values))
