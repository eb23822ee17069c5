"""The declaration of each operator: its kind, the data types that it accepts here, and the reason of a refusal.

`OPERATORS` is the single source of validation and of the tables of ``docs/onnx.md``. An operator that it does not hold
is refused as unknown. ``docs/onnx.md`` explains the kinds.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, TypeAlias

from cvm.frontends.onnx.model import LEARNING, MICROSOFT, STANDARD
from cvm.records import dataclass

__all__ = ["FIRST", "LAST", "OPERATORS", "TYPES", "Kind", "Operator", "functions"]

FIRST, LAST = 13, 28
"""The opset versions in which every operator of the table is read; most operators are read in older versions, too."""

Kind: TypeAlias = Literal["integer", "real", "boundary", "written out", "folded", "refused"]

_FLOATS = ("float32", "float16", "bfloat16", "float64")
_SIGNED = ("int8", "int16", "int32", "int64")
_INTEGERS = (*_SIGNED, "uint8", "uint16", "uint32", "uint64")
_NARROW = ("int4", "uint4", "int2", "uint2")
_TRUTH = ("bool",)

TYPES: dict[str, tuple[str, ...]] = {
    "any": (*_FLOATS, *_INTEGERS, *_TRUTH, *_NARROW),
    "number": (*_FLOATS, *_INTEGERS),
    "signed": (*_FLOATS, *_SIGNED),
    "real": _FLOATS,
    "integer": _INTEGERS,
    "bool": _TRUTH,
    "8-bit": ("int8", "uint8"),
    "code": ("int8", "uint8", "int16", "uint16", "int32", *_NARROW),
    "sized": (*_FLOATS, *_INTEGERS, *_TRUTH),
}
"""Names of sets of data types."""


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator: its kind, the data types of its first operand, and a remark for the reader of the table.

    ``since`` is the first version whose rules are implemented here.
    """

    kind: Kind
    types: str = "any"
    note: str = ""
    since: int = FIRST
    advice: str = ""
    """What a user can do where the operator is refused, if the remark does not say it."""


OPERATORS: dict[tuple[str, str], Operator] = {}
"""Every operator, by domain and name."""


def _enter(
    names: str, kind: Kind, types: str = "any", note: str = "", domain: str = STANDARD, since: int = FIRST
) -> None:
    for name in names.split():
        OPERATORS[domain, name] = Operator(kind, types, note, since)


_WRAPS = "integers of 8 and 16 bits wrap, wider ones must be proven to fit"
_TABLE = "a table over the codes"
_STANDARDISED = "constant scale and bias; codes are found bit by bit, exactly"

_enter("Add Sub Mul", "integer", "number", _WRAPS)
_enter("Sum", "integer", "number", _WRAPS)
_enter("Div", "integer", "number", "integers truncate toward zero; x / 0 is 0")
_enter("Mod", "integer", "integer", "x mod 0 is x")
_enter("Max Min", "integer", "number")
_enter("Mean", "real", "real")
_enter("Pow", "integer", "number", "a table over the codes of both; a constant exponent from 1 to 8 is a product")
_enter("Neg Abs", "integer", "signed", "of the least integer of 8 or 16 bits it is itself")
_enter("Sign", "integer", "number")
_enter("Relu", "integer", "signed")
_enter("Clip", "integer", "number", "constant bounds")
_enter("PRelu", "integer", "number", _WRAPS)
_enter("Equal", "integer", "sized")
_enter("Greater GreaterOrEqual Less LessOrEqual", "integer", "number")
_enter("And Or Xor Not", "integer", "bool")
_enter("BitwiseAnd BitwiseOr BitwiseXor BitwiseNot", "integer", "integer", "a table for each byte", since=18)
_enter("BitShift", "integer", "integer", "to the right is a floor; to the left must be proven to fit, or wraps")
_enter("BitCast", "integer", "sized", "between integers of one width", since=26)
_enter("Where", "integer", "bool")
_enter(
    "Cast CastLike",
    "integer",
    "sized",
    "to integers of 8 and 16 bits the low bits; a float is truncated; to a float it is the same number",
)
_enter("Identity Dropout", "integer")
_enter("Reshape Flatten Squeeze Unsqueeze Transpose Expand Tile Concat Split", "integer", note="constant shapes")
_enter("Slice", "integer", note="constant bounds")
_enter("Pad", "integer", "sized", "constant widths; all modes")
_enter("DepthToSpace SpaceToDepth", "integer", "sized")
_enter("Trilu", "integer", "sized", "constant diagonal", since=14)
_enter("Gather GatherElements GatherND", "integer", note="an index out of range is clipped to those that exist")
_enter(
    "ScatterElements ScatterND",
    "integer",
    note="the last of equal ones stays; computed indices that do not exist write nothing; no reduction",
)
_enter(
    "TensorScatter",
    "integer",
    note="one start for each item of the batch, clipped so that the update fits; mode linear",
    since=24,
)
_enter("OneHot", "integer", "integer", "constant depth")
_enter("CumSum", "integer", "number", "integers must be proven to fit")
_enter("CumProd", "integer", "number", "at most 64 items; integers must be proven to fit", since=26)
_enter("ReduceMax ReduceMin", "integer", "sized")
_enter(
    "ReduceSum ReduceL1 ReduceSumSquare ReduceProd",
    "integer",
    "number",
    "integers must be proven to fit; ReduceProd of at most 64 factors",
)
_enter("ReduceMean", "real", "real")
_enter("ArgMax ArgMin", "integer", "number", "first or last of equal ones, as asked for")
_enter("TopK", "integer", "number", "constant k; at most 256 items; of equal ones the first")
_enter("MatMul Gemm", "integer", "number", "integers must be proven to fit")
_enter("MatMulInteger ConvInteger", "integer", "8-bit", "constant or computed zero points; must be proven to fit")
_enter("MaxPool", "integer", "number", "padding never wins; no indices")
_enter("GlobalMaxPool", "integer", "real")
_enter("Conv ConvTranspose", "real", "real", "1, 2 or 3 dimensions")
_enter("AveragePool", "real", "real")
_enter("GlobalAveragePool", "real", "real")
_enter(
    "Resize",
    "integer",
    "number",
    "nearest on integers; nearest, linear and cubic on real numbers, by exact rational weights; constant sizes",
)
_enter("BatchNormalization", "real", "real", "constant parameters; inference")
_enter("InstanceNormalization", "real", "real", _STANDARDISED)
_enter("LayerNormalization", "real", "real", f"{_STANDARDISED}; no mean and no deviation as results")
_enter("ReduceL2", "real", "real", "the root is exact")
_enter("ReduceLogSum", "real", "real", "of a sum that is proven not to be negative")
_enter("ReduceLogSumExp", "real", "real", "of more than four items within the bound that the report gives")
_enter("Softmax", "real", "real", "of 8-bit codes; of more than two items within the bound that the report gives")
_enter(
    "Acos Acosh Asin Asinh Atan Atanh Ceil Cos Cosh Erf Exp Floor Log Reciprocal Round Sigmoid Sin Sinh Softplus Sqrt "
    "Tan Tanh",
    "real",
    "real",
    _TABLE,
)
_enter("Elu Selu Celu LeakyRelu ThresholdedRelu Shrink", "real", "real", _TABLE)
_enter("HardSigmoid HardSwish Softsign Mish", "real", "real", _TABLE)
_enter("Gelu", "real", "real", _TABLE, since=20)
_enter("Gelu", "real", "real", "as ONNX's", MICROSOFT)
_enter("Swish", "real", "real", _TABLE, since=24)
_enter("QuantizeLinear", "boundary", "number", "rounds half to even, once; to integers of 2, 4, 8 and 16 bits")
_enter("DequantizeLinear", "boundary", "code")
_enter("QuantizeLinear", "boundary", "number", "as ONNX's", MICROSOFT)
_enter("DequantizeLinear", "boundary", "code", "as ONNX's", MICROSOFT)
_enter("QLinearConv QLinearMatMul", "written out", "8-bit")
_enter(
    "QLinearAdd QLinearMul QLinearAveragePool QLinearGlobalAveragePool QLinearSigmoid QLinearLeakyRelu "
    "QLinearReduceMean QLinearSoftmax QLinearConcat QLinearWhere QGemm",
    "written out",
    domain=MICROSOFT,
)
_enter("Constant ConstantOfShape Shape Size Range EyeLike NonZero", "folded", note="when compiling")
OPERATORS[STANDARD, "NonZero"] = replace(
    OPERATORS[STANDARD, "NonZero"],
    advice="the shape of its result depends on the data: end the model before it, or multiply by the truth values",
)

_enter(
    "NonMaxSuppression",
    "written out",
    "real",
    "of at most 256 boxes on the grid of one quantiser; the result has all rows that there may be, those left are -1",
    since=10,
)
_STEPS = "one step after the other; quantise gates and states, or use `cvm quantize`"
_enter(
    "If Loop", "written out", note="of a constant condition and count: the nodes of the branch, or of each iteration"
)
_enter("Scan", "written out", note="the nodes of each iteration", since=9)
_enter("Upsample", "written out", note="as Resize", since=7)
_enter("Scatter", "written out", note="as ScatterElements", since=9)
_enter("LSTM GRU RNN", "written out", "real", _STEPS, since=7)
_enter("LogSoftmax Hardmax", "written out", "real")
_enter("MeanVarianceNormalization", "written out", "real")
_enter("GlobalLpPool", "written out", "real", "p 1 or 2")
_enter("Einsum", "written out", "number", "as products of matrices")
_enter("GroupNormalization RMSNormalization SimplifiedLayerNormalization", "real", "real", _STANDARDISED)
_enter("LRN", "real", "real", "codes are found bit by bit, exactly")
_enter("LpNormalization LpPool", "real", "real", "p 1 or 2")
_enter("BiasGelu FastGelu QuickGelu FusedMatMul FusedGemm FusedConv MatMulNBits SkipLayerNormalization "
       "SkipSimplifiedLayerNormalization", "written out", domain=MICROSOFT)  # fmt: skip
_enter(
    "TreeEnsemble TreeEnsembleRegressor TreeEnsembleClassifier",
    "written out",
    "number",
    "comparisons with thresholds and sums of leaves are exact; SUM and AVERAGE; labels that are integers",
    LEARNING,
)
_enter("LinearRegressor LinearClassifier", "written out", "number", "labels that are integers", LEARNING)
_enter("Scaler Binarizer ArrayFeatureExtractor", "written out", "number", domain=LEARNING)
_enter("Normalizer", "written out", "number", "L1 and L2; MAX of what is proven not to be 0", LEARNING)

_enter(
    "DynamicQuantizeLinear",
    "written out",
    "real",
    "its scales depend on the data: quantise statically, or give it fixed scales with "
    "`cvm quantize MODEL.onnx -i DATA -o model.cvm`",
    since=11,
)
_enter(
    "Unique Compress",
    "refused",
    note="the shape of its result depends on the data: end the model before it",
)
_enter("IsNaN", "folded", note="false of whatever is computed")
_enter("IsInf", "folded", note="when compiling")
OPERATORS[STANDARD, "IsInf"] = replace(
    OPERATORS[STANDARD, "IsInf"], advice="nothing that is computed is infinite: use a constant"
)
_enter(
    "RandomNormal RandomUniform RandomNormalLike RandomUniformLike Multinomial Bernoulli",
    "refused",
    note="it is not deterministic",
)
_INNER = "`cvm quantize` finds scales for what is inside"
_enter("Attention", "written out", "real", f"shared heads, masks, a past and windows; {_INNER}", since=23)
_enter("RotaryEmbedding", "written out", "real", "constant or computed angles", since=23)
_enter("RotaryEmbedding", "written out", "real", "constant or computed angles", MICROSOFT)
_enter("Attention", "written out", "real", f"a mask of one number for each key, no past; {_INNER}", MICROSOFT)
_enter("MultiHeadAttention", "written out", "real", f"a mask of one number for each key, no past; {_INNER}", MICROSOFT)
_enter("GroupQueryAttention", "written out", "real", f"a past without padding; {_INNER}", MICROSOFT)


_SINCE = {
    1: "Conv ConvTranspose Identity Transpose Not GlobalAveragePool GlobalMaxPool Softplus Softsign Constant Shape "
    "Size Softmax LogSoftmax Hardmax Squeeze Unsqueeze Flatten Gather MaxPool MatMul DepthToSpace SpaceToDepth "
    "Cast Dropout LRN LpNormalization GlobalLpPool LpPool Slice TopK LayerNormalization SimplifiedLayerNormalization "
    "If Loop ArgMax ArgMin ReduceMax ReduceMin ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceLogSum "
    "ReduceLogSumExp ReduceSumSquare Sum Mean Max Min",
    2: "Pad Split",
    4: "Concat",
    5: "Reshape",
    6: "Relu Sigmoid Tanh Elu LeakyRelu Selu HardSigmoid Neg Abs Exp Log Sqrt Floor Ceil Reciprocal Tile Clip "
    "InstanceNormalization",
    7: "AveragePool Add Sub Mul Div And Or Xor Equal Greater Less Acos Asin Atan Cos Sin Tan Pow Gemm PRelu "
    "BatchNormalization",
    8: "Expand",
    9: "Where Shrink ConstantOfShape EyeLike Acosh Asinh Atanh Cosh Sinh Sign NonZero OneHot Erf "
    "MeanVarianceNormalization",
    10: "QuantizeLinear DequantizeLinear QLinearConv QLinearMatMul MatMulInteger ConvInteger ThresholdedRelu Mod "
    "Resize",
    11: "BitShift CumSum Range Round GatherElements GatherND ScatterElements ScatterND",
    12: "Celu GreaterOrEqual LessOrEqual Einsum",
}
"""The operators that are read in versions before 13, by version: either the operator has not changed since, apart from
data types, or `cvm.frontends.onnx.expansions.versions` rewrites the older form as the newest one."""
for _version, _names in _SINCE.items():
    for _name in _names.split():
        OPERATORS[STANDARD, _name] = replace(OPERATORS[STANDARD, _name], since=_version)


def functions() -> dict[str, str]:
    """Functions of one real number without attributes: from the operator to the operation of the graph.

    A function that lowering learns needs one line here and one in the declarations above.
    """
    return {
        "Acos": "acos", "Acosh": "acosh", "Asin": "asin", "Asinh": "asinh", "Atan": "atan", "Atanh": "atanh",
        "Ceil": "ceil", "Cos": "cos", "Cosh": "cosh", "Erf": "erf", "Exp": "exp", "Floor": "floor", "Log": "log",
        "Reciprocal": "rcp", "Sigmoid": "sigmoid", "Sin": "sin", "Sinh": "sinh", "Softplus": "softplus",
        "Sqrt": "sqrt", "Tan": "tan", "Tanh": "tanh",
    }  # fmt: skip
