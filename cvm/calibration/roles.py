"""Facts about operations that calibration uses, as tables over the operations of NNEF 1.0.1 chapter
4 and of Khronos.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from types import MappingProxyType

from cvm.graph import GraphOperation, Operand, QuantizedGraph, makers, names_in, readers
from cvm.records import dataclass

__all__ = [
    "KNOWN_RANGES",
    "NORMALISATIONS",
    "Product",
    "Uses",
    "clips",
    "divides_by",
    "filter_axis",
    "moved_operands",
    "pads_zeros",
]

_MOVING: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"copy": ("x",), "copy_n": ("x",), "relu": ("x",), "clamp": ("x",), "min": ("x", "y"), "max": ("x", "y")}
    | {"split": ("value",), "unstack": ("value",), "concat": ("values",), "stack": ("values",)}
    | {"select": ("true_value", "false_value"), "update": ("variable", "value"), "update_slice": ("input", "update")}
    | dict.fromkeys(("reshape", "squeeze", "unsqueeze", "transpose", "slice", "tile", "pad", "gather"), ("input",))
    | dict.fromkeys(("max_pool", "max_pool_with_index", "max_reduce", "min_reduce", "max_roi_pool"), ("input",))
    | dict.fromkeys(("sample", "nearest_upsample", "nearest_downsample"), ("input",))
)
"""Operations whose results consist of elements of these parameters (or of literals), by operation: a quantiser of their
own would round numbers that are rounded already."""

KNOWN_RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {"sigmoid": (0.0, 1.0), "softmax": (0.0, 1.0), "masked_softmax": (0.0, 1.0), "tanh": (-1.0, 1.0)}
)
"""The ranges of functions that are known without data."""

NORMALISATIONS = frozenset({"layer_normalization", "rms_normalization"})
"""Operations that divide each row by a statistic of it."""


def moved_operands(operation: GraphOperation) -> list[str]:
    """The tensors whose elements make up the results; none for an operation that computes new numbers."""
    return [name for parameter in _MOVING.get(operation.name, ()) for name in names_in(operation.inputs[parameter])]


def clips(operation: GraphOperation) -> bool:
    """Whether the operation only clips one tensor between literals."""
    literals = [value for value in operation.inputs.values() if not isinstance(value, str)]
    return operation.name in ("relu", "clamp", "min", "max") and len(literals) == len(operation.inputs) - 1


def pads_zeros(operation: GraphOperation) -> bool:
    """Whether the operation may read zeros beyond the border of its input."""
    return operation.attributes.get("border") == "constant"


def divides_by(operation: GraphOperation, parameter: str) -> bool:
    """Whether the operation has no result where the parameter is zero."""
    return (operation.name, parameter) in _DIVISORS


_DIVISORS = frozenset(
    {("div", "y"), ("batch_normalization", "variance")}
    | {(name, "x") for name in ("rcp", "rsqr", "rsqrt", "log", "log2", "pow")}
)


@dataclass(frozen=True, slots=True)
class Product:
    """The parts of a product of a computed input with stored weights, by their names."""

    input: str
    filter: str
    channels: int
    """The axis of the result that holds the output channels."""


def filter_axis(operation: GraphOperation, parameter: str, rank: int, second: int) -> int | None:
    """The axis of a filter that holds the output channels; -1 if no axis does; None if the parameter is not a filter.

    ``rank`` and ``second`` (the extent of axis 1) describe the filter.
    """
    match operation.name, parameter:
        case ("conv" | "linear", "filter") | ("separable_conv", "plane_filter" | "point_filter"):
            return 0
        case ("separable_deconv", "plane_filter"):
            return 0
        case ("deconv", "filter") | ("separable_deconv", "point_filter"):
            if operation.attributes["groups"] == 1:
                return 1
            return 0 if second == 1 else -1
        case ("matmul", "B"):
            return rank - 2 if operation.attributes["transposeB"] else rank - 1
        case ("matmul", "A"):
            return rank - 1 if operation.attributes["transposeA"] else rank - 2
    return None


_PRODUCTS: Mapping[str, tuple[tuple[str, str, int], ...]] = MappingProxyType(
    dict.fromkeys(("conv", "deconv", "linear"), (("input", "filter", 1),))
    | {"matmul": (("A", "B", -1), ("B", "A", -2))}
)
"""The operations that are products: their parameters for input and filter, and the axis of channels of the result."""


class Uses:
    """The maker and the readers of each tensor of a graph, and the tensors that are the same in every run."""

    def __init__(self, graph: QuantizedGraph) -> None:
        self.graph = graph
        self.made_by = makers(graph.operations)
        self._readers = readers(graph.operations)
        updated = {name for op in graph.operations if op.name == "update" for name in names_in(op.inputs["variable"])}
        tensors = graph.tensors.values()
        self._fixed = {t.name for t in tensors if t.kind in ("variable", "constant") and t.name not in updated}
        for operation in graph.operations:
            if all(name in self._fixed for operand in operation.inputs.values() for name in names_in(operand)):
                self._fixed.update(operation.outputs)

    def readers(self, name: str) -> list[tuple[GraphOperation, str]]:
        """The operations that read a tensor, each with the parameter through which it reads it."""
        return self._readers.get(name, [])

    def fixed(self, operand: Operand) -> bool:
        """Whether an operand is the same in every run: stored, computed from what is stored, or a literal."""
        return isinstance(operand, bool | Fraction) or all(name in self._fixed for name in names_in(operand))

    def product(self, operation: GraphOperation) -> Product | None:
        """The operation as a product of a computed input with a fixed filter; None if it is not one."""
        for data, weights, axis in _PRODUCTS.get(operation.name, ()):
            x, w = operation.inputs[data], operation.inputs[weights]
            if isinstance(x, str) and isinstance(w, str) and self.fixed(w) and not self.fixed(x):
                rank = len(self.graph.tensors[operation.outputs[0]].shape)
                return Product(x, w, axis % rank)
        return None

    def only_reader(self, name: str) -> tuple[GraphOperation, str] | None:
        """The single reader of a tensor; None where it has another number of readers or is an output of the graph."""
        readers = self.readers(name)
        return readers[0] if len(readers) == 1 and name not in self.graph.outputs else None
