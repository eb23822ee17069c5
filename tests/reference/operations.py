"""The operations of chapter 4 on exact tensors. Each is a Python function with the document's parameter names.

Arguments are bound by Python: tensors positionally or by name, attributes by name, defaults as in the document's
declarations. Tensor arguments may be literals (3.3.1). Nothing is rounded here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import lcm, prod

import numpy as np

from .exponential import Shares, shares_against_zero, shares_along
from .rational import Integers, Rational, Surd, Value, aligned, integers, literal
from .windows import Padding, taps, window

Tensor = Rational | Fraction | int


def tensor(x: Tensor) -> Rational:
    """A tensor argument: literals become tensors of rank 0; irrational tensors have no place in further operations."""
    if isinstance(x, Rational):
        return x
    if isinstance(x, bool) or not isinstance(x, int | Fraction):
        raise TypeError(f"{type(x).__name__} is not a rational tensor: quantise irrational results before using them")
    return literal(x)


def _require(condition: bool, sentence: str) -> None:
    if not condition:
        raise ValueError(f"not satisfied: {sentence}")


# --- element-wise (4.2.2), activations (4.9.1), normalization (4.9.4) -------------------------------------------------


def _common_rank(*tensors: Rational) -> list[Rational]:
    """Shapes extended by trailing singletons, so that numpy's broadcasting aligns them at dimension 0 (4.2.2)."""
    rank = max(len(x.shape) for x in tensors)
    return [x.map(x.numerators.reshape(x.shape + (1,) * (rank - len(x.shape)))) for x in tensors]


def add(x: Tensor, y: Tensor) -> Rational:
    (left, right), denominator = aligned(_common_rank(tensor(x), tensor(y)))
    return Rational(integers(left + right), denominator)


def sub(x: Tensor, y: Tensor) -> Rational:
    return add(x, tensor(y).scaled(Fraction(-1)))


def mul(x: Tensor, y: Tensor) -> Rational:
    left, right = _common_rank(tensor(x), tensor(y))
    return Rational(integers(left.numerators * right.numerators), left.denominator * right.denominator)


def relu(x: Tensor) -> Rational:
    """max(x, 0.0)."""
    return tensor(x).map(np.maximum(tensor(x).numerators, 0))


def sigmoid(x: Tensor) -> Shares:
    """1 / (1 + e^-x) = e^x / (e^x + e^0)."""
    return shares_against_zero(tensor(x), 1, Fraction(1), Fraction(0))


def tanh(x: Tensor) -> Shares:
    """(e^x - e^-x) / (e^x + e^-x) = 2 * e^2x / (e^2x + e^0) - 1."""
    return shares_against_zero(tensor(x), 2, Fraction(2), Fraction(-1))


def softmax(x: Tensor, axes: Sequence[int] = (1,)) -> Shares:
    """e^(x - m) / sum(e^(x - m)) along axes; the maximum m cancels out of the exact quotient."""
    return shares_along(tensor(x), _axes(axes, len(tensor(x).shape)))


def batch_normalization(
    input: Tensor, mean: Tensor, variance: Tensor, offset: Tensor, scale: Tensor, epsilon: Tensor
) -> Surd:
    """offset + scale * (input - mean) / sqrt(variance + epsilon)."""
    return Surd(*_common_rank(tensor(offset), mul(scale, sub(input, mean)), add(variance, epsilon)))


# --- convolution (4.3.1) and pooling (4.3.2, 4.9.3) -------------------------------------------------------------------


def _grouped_product(items: Integers, weights: Integers, groups: int) -> Integers:
    """Per group, the product over channels: (batch, C, *x) with (c, C / groups) to (batch, c, *x)."""
    parts = [
        np.moveaxis(np.tensordot(w, x, axes=([1], [1])), 0, 1)
        for w, x in zip(np.split(weights, groups, axis=0), np.split(items, groups, axis=1), strict=True)
    ]
    return integers(np.concatenate(parts, axis=1))


def conv(
    input: Tensor,
    filter: Tensor,
    bias: Tensor = 0,
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
    groups: int = 1,
) -> Rational:
    """Correlation over the spatial dimensions, real zeros in the border, plus bias; groups = 0 is depth-wise."""
    x, w = tensor(input), tensor(filter)
    groups = groups or x.shape[1]
    _require(border == "constant", "border 'constant', the only one evaluated here")
    _require(len(x.shape) == len(w.shape) > 2, "the ranks of filter and input are equal")
    _require(w.shape[0] % groups == 0 and w.shape[1] * groups == x.shape[1], "groups divide filters and channels")
    axes = window(
        x.shape,
        (1, 1, *w.shape[2:]),
        [(0, 0), (0, 0), *padding] if padding else (),
        [1, 1, *stride] if stride else (),
        [1, 1, *dilation] if dilation else (),
    )
    weights = w.numerators.reshape(*w.shape[:2], -1)
    total = np.zeros((x.shape[0], w.shape[0], *(axis.output for axis in axes[2:])), dtype=object)
    for kernel, (items, _) in enumerate(taps(x.numerators, axes)):
        total = total + _grouped_product(items, weights[:, :, kernel], groups)
    b = tensor(bias)
    singular = (1,) * len(b.shape)
    _require(b.shape in {singular, (1, w.shape[0], *singular[2:])}, "bias is singular but for its channels")
    return add(Rational(integers(total), x.denominator * w.denominator), b)


def max_pool(
    input: Tensor,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Rational:
    """The largest item of each window; a constant border takes part with its zeros, an ignored one does not."""
    x = tensor(input)
    _require(border in {"constant", "ignore"}, "border 'constant' or 'ignore'")
    axes = window(x.shape, size, padding, stride, dilation)
    outputs = [axis.output for axis in axes]
    best, seen = np.zeros(outputs, dtype=object), np.zeros(outputs, dtype=bool)
    for items, inside in taps(x.numerators, axes):
        counted = inside | (border == "constant")
        best = np.where(counted & (~seen | np.asarray(items > best, dtype=bool)), items, best)
        seen |= counted
    _require(bool(seen.all()), "every window has an item that is not ignored")
    return x.map(best)


def avg_pool(
    input: Tensor,
    size: Sequence[int],
    border: str = "constant",
    padding: Padding = (),
    stride: Sequence[int] = (),
    dilation: Sequence[int] = (),
) -> Rational:
    """box with normalize = true: a constant border divides by the kernel volume, an ignored one by the valid items."""
    x = tensor(input)
    _require(border in {"constant", "ignore"}, "border 'constant' or 'ignore'")
    axes = window(x.shape, size, padding, stride, dilation)
    outputs = [axis.output for axis in axes]
    total, valid = np.zeros(outputs, dtype=object), np.zeros(outputs, dtype=object)
    for items, inside in taps(x.numerators, axes):
        total, valid = total + items, valid + inside.astype(int).astype(object)
    divisors = valid if border == "ignore" else np.full(outputs, prod(size), dtype=object)
    _require(bool(np.all(divisors > 0)), "every window has an item that is not ignored")
    common = lcm(*divisors.flat)
    return Rational(integers(total * (common // divisors)), x.denominator * common)


# --- matrix multiplication (4.7), linear (4.9.2) ----------------------------------------------------------------------


def matmul(A: Tensor, B: Tensor, transposeA: bool = False, transposeB: bool = False) -> Rational:
    """The product of the last two dimensions, the others broadcast as a batch."""
    a, b = tensor(A), tensor(B)
    _require(len(a.shape) == len(b.shape) >= 2, "A and B have one rank, at least 2")
    left = np.swapaxes(a.numerators, -1, -2) if transposeA else a.numerators
    right = np.swapaxes(b.numerators, -1, -2) if transposeB else b.numerators
    return Rational(integers(np.matmul(left, right)), a.denominator * b.denominator)


def linear(input: Tensor, filter: Tensor, bias: Tensor = 0) -> Rational:
    return add(matmul(input, filter, transposeB=True), bias)


# --- reductions (4.4) -------------------------------------------------------------------------------------------------


def _axes(axes: Sequence[int], rank: int) -> tuple[int, ...]:
    _require(len(set(axes)) == len(axes) and all(0 <= axis < rank for axis in axes), "axes are unique and in range")
    return tuple(axes)


def sum_reduce(input: Tensor, axes: Sequence[int], normalize: bool = False) -> Rational:
    x = tensor(input)
    along = _axes(axes, len(x.shape))
    volume = prod(x.shape[axis] for axis in along) if normalize else 1
    return Rational(integers(np.sum(x.numerators, axis=along, keepdims=True)), x.denominator * volume)


def mean_reduce(input: Tensor, axes: Sequence[int]) -> Rational:
    return sum_reduce(input, axes, normalize=True)


def max_reduce(input: Tensor, axes: Sequence[int]) -> Rational:
    x = tensor(input)
    return x.map(np.max(x.numerators, axis=_axes(axes, len(x.shape)), keepdims=True))


# --- shapes (4.5) -----------------------------------------------------------------------------------------------------


def reshape(input: Tensor, shape: Sequence[int]) -> Rational:
    """Row-major; 0 inherits the extent, one -1 is inferred."""
    x = tensor(input)
    return x.map(x.numerators.reshape([x.shape[axis] if extent == 0 else extent for axis, extent in enumerate(shape)]))


def squeeze(input: Tensor, axes: Sequence[int]) -> Rational:
    x = tensor(input)
    return x.map(np.squeeze(x.numerators, axis=_axes(axes, len(x.shape))))


def unsqueeze(input: Tensor, axes: Sequence[int]) -> Rational:
    """axes are the inserted dimensions as they appear in the output."""
    x = tensor(input)
    return x.map(np.expand_dims(x.numerators, _axes(axes, len(x.shape) + len(axes))))


def concat(values: Sequence[Tensor], axis: int) -> Rational:
    parts, denominator = aligned([tensor(value) for value in values])
    return Rational(integers(np.concatenate(parts, axis=axis)), denominator)


OPERATIONS: Mapping[str, Callable[..., Value]] = {
    operation.__name__: operation
    for operation in (
        add,
        sub,
        mul,
        relu,
        sigmoid,
        tanh,
        softmax,
        batch_normalization,
        conv,
        max_pool,
        avg_pool,
        matmul,
        linear,
        sum_reduce,
        mean_reduce,
        max_reduce,
        reshape,
        squeeze,
        unsqueeze,
        concat,
    )
}
"""Every operation but `external` and `variable`, by its name in the document."""
