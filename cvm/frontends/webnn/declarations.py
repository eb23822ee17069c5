"""The declaration of each operator of the builder: data types and ranks of its operands, its section, its kind.

`declarations` is the single source of validation, of ``op_support_limits()`` and of the tables of ``docs/webnn.md``.

Source: WebNN, sections 8.9.5 to 8.9.56 ("Constraints" tables). The specification leaves the greatest rank to the
implementation; here it is 8, the greatest rank of the integer machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypeAlias

from cvm.records import dataclass

__all__ = ["DATA_TYPES", "MAX_RANK", "OPERATORS", "Kind", "Operator", "Tensor", "section"]

MAX_RANK = 8

_FLOAT = ("float32", "float16")
_WIDE = ("int32", "uint32", "int64", "uint64")
DATA_TYPES = (*_FLOAT, *_WIDE, "int8", "uint8")
"""Every MLOperandDataType."""

_SIGNED = (*_FLOAT, "int64", "int32", "int8")
_SUMMED = (*_FLOAT, *_WIDE)
_INDEX = ("int32", "uint32", "int64")
_CODES = ("uint8", "int8", "uint32", "int32")
_SAMPLED = (*_FLOAT, "uint8", "int8")
_TRUTH = ("uint8",)

Kind: TypeAlias = Literal["integer", "real", "boundary", "calibrated", "refused"]


@dataclass(frozen=True, slots=True)
class Tensor:
    """The data types and ranks that an operand may have."""

    data_types: tuple[str, ...] = DATA_TYPES
    least: int = 0
    most: int = MAX_RANK


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its operands by their names in the specification, its result, and its kind.

    ``kind``: "integer" operators run on integer tensors, and on real tensors inside of a quantised region; "real" ones
    only inside of a quantised region; "boundary" are quantizeLinear and dequantizeLinear; "calibrated" ones need
    quantisers that calibration finds; "refused" ones are validated, but not built. ``note`` is a remark for the reader
    of the table, or says what to do instead.
    """

    section: str
    operands: Mapping[str, Tensor]
    output: Tensor
    kind: Kind
    note: str = ""
    results: str = "output"
    """The name of the result in the dictionary of support limits."""


OPERATORS: dict[str, Operator] = {}
"""Every operator by its name in the specification, in alphabetical order of families."""


def _enter(
    names: str, section_: str, output: Tensor, kind: Kind = "integer", note: str = "", /, **operands: Tensor
) -> None:
    for name in names.split():
        OPERATORS[name] = Operator(section_, MappingProxyType(dict(operands)), output, kind, note)


_ANY, _REAL, _RANK1, _RANK1_REAL = Tensor(), Tensor(_FLOAT), Tensor(least=1), Tensor(_FLOAT, 1)
_VECTOR, _IMAGE = Tensor(_FLOAT, 1, 1), Tensor(_FLOAT, 4, 4)
_FEWER = "the integers must be proven to fit; 8-bit types need a cast to int32 first"

_enter("argMin argMax", "8.9.5", Tensor(("int32", "int64")), "integer", "ties give the first index", input=_RANK1)
_enter("batchNormalization", "8.9.6", _RANK1_REAL, "real", "constant parameters",
       input=_RANK1_REAL, mean=_VECTOR, variance=_VECTOR, scale=_VECTOR, bias=_VECTOR)  # fmt: skip
_enter("cast", "8.9.7", _ANY, "integer", "from integer to integer: the low bits", input=_ANY)
_enter("clamp", "8.9.8", _ANY, input=_ANY)
_enter("concat", "8.9.9", _RANK1, inputs=_RANK1)
_enter("conv2d", "8.9.10", _IMAGE, "real", input=_IMAGE, filter=_IMAGE, bias=_VECTOR)
_enter("convTranspose2d", "8.9.11", _IMAGE, "real", input=_IMAGE, filter=_IMAGE, bias=_VECTOR)
_enter("cumulativeSum", "8.9.12", Tensor(_SUMMED, 1), "integer", _FEWER, input=Tensor(_SUMMED, 1))
_enter("add sub mul", "8.9.13", _ANY, "integer", "8-bit results wrap; wider ones must be proven to fit", a=_ANY, b=_ANY)
_enter("div", "8.9.13", _ANY, "integer", "truncates toward zero; x / 0 is 0", a=_ANY, b=_ANY)
_enter("max min", "8.9.13", _ANY, a=_ANY, b=_ANY)
_enter("pow", "8.9.13", _ANY, "integer", "8-bit integers; x to a negative power is 1 / x^n truncated, of 0 it is 0",
       a=_ANY, b=_ANY)  # fmt: skip
_enter("equal notEqual greater greaterOrEqual lesser lesserOrEqual", "8.9.14", Tensor(_TRUTH), a=_ANY, b=_ANY)
_enter("logicalNot", "8.9.14", Tensor(_TRUTH), a=Tensor(_TRUTH))
_enter("logicalAnd logicalOr logicalXor", "8.9.14", Tensor(_TRUTH), a=Tensor(_TRUTH), b=Tensor(_TRUTH))
_enter("isNaN isInfinite", "8.9.14", Tensor(_TRUTH), "refused",
       "there is no NaN and no infinity inside of a quantised region: use a constant 0", a=_REAL)  # fmt: skip
_enter("abs neg", "8.9.15", Tensor(_SIGNED), "integer", "of the least int8 it is itself", input=Tensor(_SIGNED))
_enter("sign", "8.9.15", Tensor(_SIGNED), input=Tensor(_SIGNED))
_enter("identity", "8.9.15", _ANY, input=_ANY)
_enter("ceil cos erf exp floor log reciprocal roundEven sin sqrt tan", "8.9.15", _REAL, "real",
       "a table over 8-bit codes", input=_REAL)  # fmt: skip
_CODE = Tensor(_CODES)
_enter("dequantizeLinear", "8.9.16", _REAL, "boundary", input=_CODE, scale=_REAL, zeroPoint=_CODE)
_enter(
    "quantizeLinear",
    "8.9.17",
    _CODE,
    "boundary",
    "rounds half to even, once",
    input=_REAL,
    scale=_REAL,
    zeroPoint=_CODE,
)
_enter("elu", "8.9.18", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("expand", "8.9.19", _ANY, input=_ANY)
_CLAMPED = "an index out of range is clamped"
_enter("gather", "8.9.20", _RANK1, "integer", _CLAMPED, input=_RANK1, indices=Tensor(_INDEX))
_enter(
    "gatherElements",
    "8.9.21",
    _RANK1,
    "integer",
    _CLAMPED,
    input=_RANK1,
    indices=Tensor(_INDEX, 1),
)
_enter(
    "gatherND",
    "8.9.22",
    _ANY,
    "integer",
    _CLAMPED,
    input=_RANK1,
    indices=Tensor(_INDEX, 1),
)
_enter("gelu", "8.9.23", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_MATRIX = Tensor(_FLOAT, 2, 2)
_enter("gemm", "8.9.24", _MATRIX, "real", a=_MATRIX, b=_MATRIX, c=Tensor(_FLOAT, 0, 2))
_STATES = (
    "give build(.., calibration=[..]) representative inputs, which finds quantisers for its gates and states; "
    "or write the steps out with gemm, sigmoid and tanh, and put quantizeLinear and dequantizeLinear after each state"
)
_THIRD = Tensor(_FLOAT, 3, 3)
_enter("gru", "8.9.25", Tensor(_FLOAT, 3, 4), "calibrated", _STATES, input=_THIRD, weight=_THIRD,
       recurrentWeight=_THIRD, bias=_MATRIX, recurrentBias=_MATRIX, initialHiddenState=_THIRD)  # fmt: skip
_enter("gruCell", "8.9.26", _MATRIX, "calibrated", _STATES, input=_MATRIX, weight=_MATRIX, recurrentWeight=_MATRIX,
       hiddenState=_MATRIX, bias=_VECTOR, recurrentBias=_VECTOR)  # fmt: skip
_enter("hardSigmoid", "8.9.27", _REAL, "real", input=_REAL)
_enter("hardSwish", "8.9.28", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_NORM = "constant scale and bias, epsilon above 0; quantise the result"
_enter("instanceNormalization", "8.9.29", _IMAGE, "real", _NORM,
       input=_IMAGE, scale=_VECTOR, bias=_VECTOR)  # fmt: skip
_enter("layerNormalization", "8.9.30", _REAL, "real", _NORM,
       input=_REAL, scale=_REAL, bias=_REAL)  # fmt: skip
_enter("leakyRelu", "8.9.31", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("linear", "8.9.32", _REAL, "real", input=_REAL)
_enter("lstm", "8.9.33", Tensor(_FLOAT, 3, 4), "calibrated", _STATES, input=_THIRD, weight=_THIRD,
       recurrentWeight=_THIRD, bias=_MATRIX, recurrentBias=_MATRIX, peepholeWeight=_MATRIX, initialHiddenState=_THIRD,
       initialCellState=_THIRD)  # fmt: skip
_enter("lstmCell", "8.9.34", _MATRIX, "calibrated", _STATES, input=_MATRIX, weight=_MATRIX, recurrentWeight=_MATRIX,
       hiddenState=_MATRIX, cellState=_MATRIX, bias=_VECTOR, recurrentBias=_VECTOR, peepholeWeight=_VECTOR)  # fmt: skip
_MATRICES = Tensor(_FLOAT, 2)
_enter("matmul", "8.9.35", _MATRICES, "real", a=_MATRICES, b=_MATRICES)
_enter("pad", "8.9.36", _ANY, input=_ANY)
_enter("averagePool2d", "8.9.37.1", _IMAGE, "real", "the mean of the cells that are no padding", input=_IMAGE)
_enter("l2Pool2d", "8.9.37.2", _IMAGE, "real", input=_IMAGE)
_enter("maxPool2d", "8.9.37.3", Tensor(least=4, most=4), "integer", "padding never wins", input=Tensor(least=4, most=4))
_enter(
    "prelu", "8.9.38", Tensor(_SIGNED), "integer", "8-bit results wrap", input=Tensor(_SIGNED), slope=Tensor(_SIGNED)
)
_enter("reduceMax reduceMin", "8.9.39", _ANY, input=_ANY)
_SUMS = Tensor(_SUMMED)
_enter("reduceL1 reduceProduct reduceSum reduceSumSquare", "8.9.39", _SUMS, "integer", _FEWER, input=_SUMS)
_enter("reduceMean", "8.9.39", _REAL, "real", input=_REAL)
_enter("reduceL2", "8.9.39", _REAL, "real", input=_REAL)
_enter(
    "reduceLogSum", "8.9.39", _REAL, "real", "the sum must be proven to be at least 0: clamp its operand", input=_REAL
)
_enter("reduceLogSumExp", "8.9.39", _REAL, "real",
       "of 8-bit codes; of more than four items within the bound that explain() gives", input=_REAL)  # fmt: skip
_enter("relu", "8.9.40", Tensor(_SIGNED), input=Tensor(_SIGNED))
_SAMPLES = Tensor(_SAMPLED, 4, 4)
_enter(
    "resample2d",
    "8.9.41",
    _SAMPLES,
    "integer",
    "linear interpolation of integers is rounded half to even",
    input=_SAMPLES,
)
_enter("reshape", "8.9.42", _ANY, input=_ANY)
_enter("reverse", "8.9.43", _ANY, input=_ANY)
_LAST = "the last of equal indices stays; one out of range is refused if constant, clamped if computed"
_enter("scatterElements", "8.9.44", _RANK1, "integer", _LAST,
       input=_RANK1, indices=Tensor(_INDEX, 1), updates=_RANK1)  # fmt: skip
_enter("scatterND", "8.9.45", _RANK1, "integer", _LAST,
       input=_RANK1, indices=Tensor(_INDEX, 1), updates=_ANY)  # fmt: skip
_enter("sigmoid", "8.9.46", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("slice", "8.9.47", _ANY, input=_ANY)
_enter("softmax", "8.9.48", _RANK1_REAL, "real",
       "of 8-bit codes; of more than two items within the bound that explain() gives", input=_RANK1_REAL)  # fmt: skip
_enter("softplus", "8.9.49", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("softsign", "8.9.50", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("split", "8.9.51", _RANK1, input=_RANK1)
_enter("tanh", "8.9.52", _REAL, "real", "a table over 8-bit codes", input=_REAL)
_enter("tile", "8.9.53", _ANY, input=_ANY)
_enter("transpose", "8.9.54", _ANY, input=_ANY)
_enter("triangular", "8.9.55", Tensor(least=2), input=Tensor(least=2))
_enter("where", "8.9.56", _ANY, condition=Tensor(_TRUTH), trueValue=_ANY, falseValue=_ANY)

_ELSEWHERE = {
    "MLContextOptions": "8.2.1",
    "createContext": "8.2.2",
    "dispatch": "8.3.1",
    "createTensor": "8.3.2",
    "createConstantTensor": "8.3.3",
    "readTensor": "8.3.4",
    "writeTensor": "8.3.6",
    "MLOperandDescriptor": "8.5",
    "MLOperand": "8.6",
    "MLTensorDescriptor": "8.7",
    "MLGraphBuilder": "8.9.1",
    "input": "8.9.2",
    "constant": "8.9.3",
    "build": "8.9.4",
}


def section(op: str) -> str:
    """The section of the specification that defines an operator or a method."""
    return OPERATORS[op].section if op in OPERATORS else _ELSEWHERE[op]
