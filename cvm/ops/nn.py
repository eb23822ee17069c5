"""NN ops (the document's section "NN Operators")."""

from __future__ import annotations

import math
from typing import Annotated, Any

import numpy as np
from pydantic import BeforeValidator, Field

from cvm.ops.declaration import (
    AttributeModel,
    Call,
    Constraint,
    Extent,
    ExtentPair,
    Input,
    Op,
    PaddingPair,
    Positive,
    PositivePair,
    register,
)
from cvm.ops.ranges import Exact, Range, Shape, products
from cvm.ops.windows import hull_of_sums, valid_taps

__all__ = ["Conv2d", "Dense", "MaxPool2d", "Relu", "Upsampling"]


def _bias_fits(call: Call) -> bool:
    return len(call.shapes) < 3 or call.shapes[2] == (call.shapes[1][0],)


class _ConvAttributes(AttributeModel):
    """The geometry of a convolution."""

    padding: PaddingPair = Field(default=(0, 0), description="PH, PW: rows and columns of zeros on each side")
    stride: PositivePair = Field(default=(1, 1), description="SH, SW: steps of the window")
    dilation: PositivePair = Field(default=(1, 1), description="DH, DW: steps between the taps of a window")
    groups: Extent = Field(default=1, description="the number of groups that the channels are cut into")


def _windows(call: Call) -> list[tuple[int, int, int, int, int]]:
    """(extent, taps, stride, padding, dilation) along H and along W."""
    a = call.attributes
    return [
        (call.shapes[0][2 + axis], call.shapes[1][2 + axis], a.stride[axis], a.padding[axis], a.dilation[axis])
        for axis in (0, 1)
    ]


@register
class Conv2d(Op):
    """2-D convolution with zero padding, by groups of channels, with an optional bias.

    Y[n, oc, p, q] = sum over ic, ki, kj of pad(X)[n, (oc div OPG) * IC + ic, p * SH - PH + ki * DH,
    q * SW - PW + kj * DW] * W[oc, ic, ki, kj], plus B[oc]; OPG = OC / groups.
    """

    name = "conv2d"
    family = "nn"
    source = "NN Operators, conv2d"
    inputs = (
        Input("X", "the data, (N, C, H, W)"),
        Input("W", "the weights, (OC, IC, KH, KW)"),
        Input("B", "the bias, (OC,)", optional=True),
    )
    Attributes = _ConvAttributes
    constraints = (
        Constraint("C1", "X of 4 dimensions", lambda c: len(c.shapes[0]) == 4),
        Constraint("C2", "W of 4 dimensions", lambda c: len(c.shapes[1]) == 4),
        Constraint("C3", "C = IC * groups", lambda c: c.shapes[0][1] == c.shapes[1][1] * c.attributes.groups),
        Constraint("C4", "OC mod groups = 0", lambda c: c.shapes[1][0] % c.attributes.groups == 0),
        Constraint("C5", "B, if given, of shape (OC,)", _bias_fits),
        Constraint(
            "C6",
            "DH * (KH - 1) + 1 <= H + 2 * PH and DW * (KW - 1) + 1 <= W + 2 * PW",
            lambda c: all(d * (k - 1) + 1 <= n + 2 * p for n, k, _, p, d in _windows(c)),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        height, width = ((n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in _windows(call))
        return ((call.shapes[0][0], call.shapes[1][0], height, width),)

    def range(self, call: Call) -> tuple[Range, ...]:
        weights = call.shapes[1]
        channels, groups = weights[0], call.attributes.groups
        taps = _exact_taps(call) or _taps(call)
        rows, columns = (valid_taps(*window) for window in _windows(call))
        sums = hull_of_sums(taps.for_terms(math.prod(weights[2:])), rows, columns).moved(
            lambda b: np.broadcast_to(b, (groups, channels // groups, 1, 1, 1)).reshape(1, channels, 1, 1)
        )
        return (_biased(sums, call, (1, -1, 1, 1)),)

    def work(self, call: Call) -> int:
        return math.prod(self.shape(call)[0]) * math.prod(call.shapes[1][1:])


def _taps(call: Call) -> Range:
    """The sums of every tap over the input channels: (group, output channel of the group, 1, row, column)."""
    weights, groups = call.shapes[1], call.attributes.groups
    # (group, output channel of the group, input channel of the group, row, column)
    x = call.ranges[0].over((0, 2, 3)).moved(lambda b: b.reshape(groups if b.size > 1 else 1, 1, -1, 1, 1))
    w = call.ranges[1].moved(lambda b: b.reshape(groups if b.shape[0] > 1 else 1, -1, *b.shape[1:]))
    return (x * w).total((2,), (groups, weights[0] // groups, *weights[1:]))


def _exact_taps(call: Call) -> Range | None:
    """The same for constant weights, at the width that they have; None where there are none, or 64 bits are few."""
    if not isinstance(call.ranges[1], Exact):
        return None
    (OC, IC, KH, KW), groups = call.shapes[1], call.attributes.groups
    x = call.ranges[0].over((0, 2, 3))
    if x.size == 1 or groups == 1:
        x = x.moved(lambda b: np.broadcast_to(b.reshape(1, 1, -1), (1, 1, IC)))
    else:
        x = x.moved(lambda b: np.repeat(b.reshape(groups, 1, IC), OC // groups, axis=0))
    found = products(x, call.ranges[1].values.reshape(OC, IC, KH * KW))
    return None if found is None else found.moved(lambda b: b.reshape(groups, OC // groups, 1, KH, KW))


def _biased(sums: Range, call: Call, shape: Shape) -> Range:
    """``sums`` plus the bias, if there is one, whose range is reshaped to ``shape``."""
    if len(call.ranges) < 3:
        return sums
    return sums.for_terms(2) + call.ranges[2].moved(lambda bounds: bounds.reshape(shape))


@register
class Dense(Op):
    """A fully connected layer: Y[m, n] = sum over k of X[m, k] * W[n, k], plus B[n]."""

    name = "dense"
    family = "nn"
    source = "NN Operators, dense"
    inputs = (
        Input("X", "the data, (M, K)"),
        Input("W", "the weights, (N, K)"),
        Input("B", "the bias, (N,)", optional=True),
    )
    constraints = (
        Constraint("C1", "X of 2 dimensions", lambda c: len(c.shapes[0]) == 2),
        Constraint("C2", "W of 2 dimensions", lambda c: len(c.shapes[1]) == 2),
        Constraint("C3", "X and W of the same K", lambda c: c.shapes[0][1] == c.shapes[1][1]),
        Constraint("C4", "B, if given, of shape (N,)", _bias_fits),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return ((call.shapes[0][0], call.shapes[1][0]),)

    def range(self, call: Call) -> tuple[Range, ...]:
        (rows, terms), (columns, _) = call.shapes[:2]
        x, w = call.ranges[0], call.ranges[1]
        if w.shape[0] > 1:  # bounds for all pairs of a row and a column would be too many
            x = x.over((0,))
        sums = _exact_products(x, w, terms)
        if sums is None:
            pairs = x.moved(lambda b: b[:, None, :]) * w.moved(lambda b: b[None, :, :])
            sums = pairs.total((2,), (rows, columns, terms)).moved(lambda b: b[:, :, 0])
        return (_biased(sums, call, (1, -1)),)

    def work(self, call: Call) -> int:
        return call.shapes[0][0] * math.prod(call.shapes[1])


def _exact_products(x: Range, w: Range, terms: int) -> Range | None:
    """The range of X W^T for constant W, at the width that it has; None where it is none, or 64 bits are few."""
    if not isinstance(w, Exact):
        return None
    rows = x.moved(lambda b: np.broadcast_to(b[:, None, :], (b.shape[0], 1, terms)))
    found = products(rows, w.values[:, :, None])
    return None if found is None else found.moved(lambda b: b.reshape((x.shape[0], w.shape[0])))


@register
class Relu(Op):
    """Each element, but at least 0: Y[d] = max(0, X[d])."""

    name = "relu"
    family = "nn"
    source = "NN Operators, relu"
    inputs = (Input("X", "any tensor"),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].monotone(lambda x: np.maximum(x, 0)),)


def _as_pair(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool):
        return (value, value)
    return tuple(value) if isinstance(value, list) else value


class _PoolAttributes(AttributeModel):
    """The geometry of a pooling window."""

    pool_size: ExtentPair = Field(description="PSH, PSW: the extents of the window")
    padding: Annotated[PaddingPair, BeforeValidator(_as_pair)] = Field(
        default=(0, 0), description="PH, PW: rows and columns of padding on each side; an integer stands for both"
    )
    strides: PositivePair = Field(default=(1, 1), description="SH, SW: steps of the window")
    ceil_mode: bool = Field(default=False, description="whether a last window may reach beyond the padded image")


def _pools(call: Call) -> list[tuple[int, int, int, int, int]]:
    """(extent, window, padding, stride, outputs) along H and along W."""
    found = []
    for axis in (0, 1):
        n, a = call.shapes[0][2 + axis], call.attributes
        k, p, s = a.pool_size[axis], a.padding[axis], a.strides[axis]
        steps = n + 2 * p - k
        found.append((n, k, p, s, (-(-steps // s) if a.ceil_mode else steps // s) + 1))
    return found


@register
class MaxPool2d(Op):
    """The largest element of every window of every plane: Y[n, i, p, q] = max of the X that the window covers."""

    name = "max_pool2d"
    family = "nn"
    source = "NN Operators, max_pool2d"
    inputs = (Input("X", "the data, (N, C, H, W)"),)
    Attributes = _PoolAttributes
    constraints = (
        Constraint("C1", "X of 4 dimensions", lambda c: len(c.shapes[0]) == 4),
        Constraint(
            "C2", "PSH <= H + 2 * PH and PSW <= W + 2 * PW", lambda c: all(k <= n + 2 * p for n, k, p, *_ in _pools(c))
        ),
        Constraint("C3", "PSH > PH and PSW > PW", lambda c: all(k > p for _, k, p, *_ in _pools(c))),
        Constraint(
            "C4",
            "a last window that starts inside the image: (outputs - 1) * stride - padding < extent along H and W",
            lambda c: all((outputs - 1) * s - p < n for n, _, p, s, outputs in _pools(c)),
        ),
    )

    def shape(self, call: Call) -> tuple[Shape, ...]:
        (*_, height), (*_, width) = _pools(call)
        return ((*call.shapes[0][:2], height, width),)

    def range(self, call: Call) -> tuple[Range, ...]:
        # No window is empty (C3, C4): the padding never shows.
        return (call.ranges[0].over((2, 3)),)

    def work(self, call: Call) -> int:
        height, width = call.attributes.pool_size
        return math.prod(self.shape(call)[0]) * int(height * width)


@register
class Upsampling(Op):
    """Every element repeated along both axes of its plane: Y[n, i, h, w] = X[n, i, h div scale, w div scale]."""

    name = "upsampling"
    family = "nn"
    source = "NN Operators, upsampling"
    inputs = (Input("X", "the data, (N, C, H, W)"),)

    class Attributes(AttributeModel):
        """The factor."""

        scale: Positive = Field(description="how many times each row and column is repeated")

    constraints = (Constraint("C1", "X of 4 dimensions", lambda c: len(c.shapes[0]) == 4),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        n, c, h, w = call.shapes[0]
        return ((n, c, h * call.attributes.scale, w * call.attributes.scale),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].over((2, 3)),)
