"""NN ops (the document's section "NN Operators")."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from functools import partial
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from cvm.ops.attributes import (
    EXTENT,
    EXTENT_PAIR,
    PADDING,
    PADDING_PAIR,
    POSITIVE,
    POSITIVE_PAIR,
    TRUTH,
    Attribute,
    Integers,
    TypedAttributes,
)
from cvm.ops.declaration import Call, Constraint, Input, Op, register
from cvm.ops.ranges import BLOCK, BOUNDS, Range, Shape, contracted, pointwise
from cvm.ops.windows import hull_of_sums, valid_taps

__all__ = ["Conv2d", "Dense", "MaxPool2d", "Relu", "Upsampling"]


def _bias_fits(call: Call) -> bool:
    return len(call.shapes) < 3 or call.shapes[2] == (call.shapes[1][0],)


class _ConvAttributes(TypedAttributes):
    """The geometry of a convolution."""

    padding = Attribute(PADDING_PAIR, "PH, PW: rows and columns of zeros on each side", default=(0, 0))
    stride = Attribute(POSITIVE_PAIR, "SH, SW: steps of the window", default=(1, 1))
    dilation = Attribute(POSITIVE_PAIR, "DH, DW: steps between the taps of a window", default=(1, 1))
    groups = Attribute(EXTENT, "the number of groups that the channels are split into", default=1)


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
        return (_by_outputs(call, partial(_window_sums, call), (1, -1, 1, 1)),)

    def work(self, call: Call) -> int:
        return math.prod(self.shape(call)[0]) * math.prod(call.shapes[1][1:])


def _window_sums(call: Call, outputs: npt.NDArray[np.int64]) -> Range:
    """The range of the windows' sums of some output channels: one bound for each."""
    (OC, IC, KH, KW), groups = call.shapes[1], call.attributes.groups
    group, alike = outputs // (OC // groups), call.ranges[1].shape[0] == 1
    w = call.ranges[1].moved(lambda b: b[outputs[0] : outputs[-1] + 1] if b.shape[0] > 1 else b)
    weights = w.moved(lambda b: b.reshape(*b.shape[:2], -1))
    x = call.ranges[0].per_channel()
    if x.size == 1 or groups == 1:
        x = x.moved(lambda b: b.reshape(1, 1, -1))
    else:  # all output channels have the same bounds of weights, so the sums of each group are computed once
        x = x.moved(lambda b: b.reshape(groups, 1, IC)[slice(None) if alike else group])
    if math.prod(w.shape[2:]) > BOUNDS:
        return _all_taps(x, weights, IC)
    rows, columns = (valid_taps(*window) for window in _windows(call))
    taps = contracted(x, weights, IC).moved(lambda b: b.reshape(-1, 1, *w.shape[2:])).for_terms(KH * KW)
    sums = hull_of_sums(taps, rows, columns).moved(np.ravel)
    return sums.moved(lambda b: np.broadcast_to(b[group] if alike and b.size > 1 else b, group.shape))


def _all_taps(x: Range, weights: Range, terms: int) -> Range:
    """The range of windows with so many taps that each tap is treated as one that may read the padding."""
    padded, taps = x.union(Range.uniform(3, 0, 0)), weights.shape[2]
    sums = Range.uniform(3, 0, 0)
    for start in range(0, taps, BLOCK):
        block = slice(start, start + BLOCK)
        found = contracted(padded, weights.moved(itemgetter((slice(None), slice(None), block))), terms)
        sums = sums.for_terms(2) + found.total((2,), found.shape).for_terms(2)
    return sums.moved(np.ravel)


def _by_outputs(call: Call, sums: Callable[[npt.NDArray[np.int64]], Range], shape: Shape) -> Range:
    """The range of the sums plus bias of all output channels, in the given shape; some channels at a time."""
    count, *rest = call.shapes[1]
    step = min(BOUNDS, max(1, BLOCK // math.prod(rest)) if call.ranges[1].shape[0] > 1 else count)
    found: list[Range] = []
    for start in range(0, count, step):
        outputs = np.arange(start, min(start + step, count))
        part = _biased(sums(outputs), call, outputs)
        if count > BOUNDS:
            found = [functools.reduce(Range.union, (*found, part.over((0,))))]
        else:
            found.append(part)
    lo, hi = (np.concatenate(ends) for ends in zip(*((part.lo, part.hi) for part in found), strict=True))
    return Range(lo.reshape(shape), hi.reshape(shape))


def _biased(sums: Range, call: Call, outputs: npt.NDArray[np.int64]) -> Range:
    """``sums`` plus the bias of these output channels, if there is one."""
    if len(call.ranges) < 3:
        return sums
    return sums.for_terms(2) + call.ranges[2].part((slice(outputs[0], outputs[-1] + 1),))


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
        (x, w), terms = call.ranges[:2], call.shapes[0][1]
        # A bound for each pair of a row and a column would be too many, so all rows of a column share one bound.
        rows = (x if w.shape[0] == 1 and x.size <= BOUNDS else x.over((0,))).moved(lambda b: b[:, None, :])

        def sums(outputs: npt.NDArray[np.int64]) -> Range:
            weights = w.moved(lambda b: (b[outputs[0] : outputs[-1] + 1] if b.shape[0] > 1 else b)[:, :, None])
            found = contracted(rows, weights, terms).moved(np.ravel)
            return found.over((0,)) if weights.shape[0] == 1 else found

        return (_by_outputs(call, sums, (1, -1)),)

    def work(self, call: Call) -> int:
        return call.shapes[0][0] * math.prod(call.shapes[1])


@register
class Relu(Op):
    """The larger of each element and 0: Y[d] = max(0, X[d])."""

    name = "relu"
    family = "nn"
    source = "NN Operators, relu"
    inputs = (Input("X", "any tensor"),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        return (call.shapes[0],)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (pointwise(call.ranges, lambda x: x.monotone(lambda bounds: np.maximum(bounds, 0))),)


class _PoolAttributes(TypedAttributes):
    """The geometry of a pooling window."""

    pool_size = Attribute(EXTENT_PAIR, "PSH, PSW: the extents of the window")
    padding = Attribute(
        Integers(PADDING, 2, 2, repeats=True),
        "PH, PW: rows and columns of padding on each side; an integer stands for both",
        default=(0, 0),
    )
    strides = Attribute(POSITIVE_PAIR, "SH, SW: steps of the window", default=(1, 1))
    ceil_mode = Attribute(TRUTH, "whether a last window may reach beyond the padded image", default=False)


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
        # Every window holds an element (C3, C4), so the padding is never a maximum.
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

    class Attributes(TypedAttributes):
        """The factor."""

        scale = Attribute(POSITIVE, "how many times each row and column is repeated")

    constraints = (Constraint("C1", "X of 4 dimensions", lambda c: len(c.shapes[0]) == 4),)

    def shape(self, call: Call) -> tuple[Shape, ...]:
        n, c, h, w = call.shapes[0]
        return ((n, c, h * call.attributes.scale, w * call.attributes.scale),)

    def range(self, call: Call) -> tuple[Range, ...]:
        return (call.ranges[0].over((2, 3)),)
