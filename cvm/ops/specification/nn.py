"""The statements about the NN ops."""

from __future__ import annotations

from cvm.ops.specification.operands import constant, given
from cvm.ops.specification.statement import Each, Example, Statement

__all__ = ["STATEMENTS"]

_PLANE = "The bounds of R(X), with their hull over the last two axes."

STATEMENTS = {
    "conv2d": Statement(
        where=(
            "N, C, H, WD = X.shape",
            "OC, IC, KH, KW = W.shape",
            "(PH, PW), (SH, SW), (DH, DW) = padding, stride, dilation",
            "P = (H + 2 * PH - DH * (KH - 1) - 1) // SH + 1",
            "Q = (WD + 2 * PW - DW * (KW - 1) - 1) // SW + 1",
        ),
        shapes=("(N, OC, P, Q)",),
        work="Y.size * IC * KH * KW",
        interval=(
            (
                "R(X) is taken per channel. Let t(oc, ki, kj) be the sum over ic of the products of the intervals "
                "X[(oc div OPG) * IC + ic] and W[oc, ic, ki, kj], OPG = OC div groups: lower bounds and upper "
                "bounds are summed apart, and the product of two intervals is [least, largest] of the four "
                "products of their ends."
            ),
            (
                "The interval of channel oc is the hull, over all output positions (p, q), of the sum of t(oc, ki, "
                "kj) over the taps that read an element: 0 <= p * SH - PH + ki * DH < H and 0 <= q * SW - PW + kj "
                "* DW < WD; a sum of no taps is [0, 0]."
            ),
            (
                "If R(W) has more than 2^18 bounds along its last two axes together, positions are not distinguished: "
                "the interval is the sum over all taps, with X replaced by the hull of X and 0."
            ),
            "The interval of B[oc] is added. Y has a bound for each of the OC channels, whatever R(W) has.",
        ),
        example=Example(
            (
                given((1, 1, 2, 3), (1, 2, 3, 4, 5, 6), (0, 7)),
                constant((2, 1, 2, 2), (1, 0, -1, 2, 3, 1, 1, 1)),
                constant((2,), (10, -20)),
            ),
            {"padding": (0, 1)},
        ),
    ),
    "dense": Statement(
        where=("M, K = X.shape", "N = W.shape[0]"),
        shapes=("(M, N)",),
        work="M * N * K",
        interval=(
            (
                "The interval of column n is the sum over k of the products of the intervals X[k] and W[n, k]: "
                "lower bounds and upper bounds are summed apart, and the product of two intervals is [least, "
                "largest] of the four products of their ends. A bound that stands for all k counts K times."
            ),
            (
                "X[k] is the hull of column k of R(X) over all rows. Only where R(W) has extent 1 along N and R(X) "
                "has at most 2^18 bounds is the sum formed for each row of R(X), and the hull of these sums taken."
            ),
            (
                "The interval of B[n] is added. The bounds of Y have extent 1 along M, and along N the larger of the "
                "extents of R(W) along N and of R(B)."
            ),
        ),
        example=Example(
            (given((1, 2), (3, -4), (-4, 3)), constant((2, 2), (1, 2, -3, 4)), constant((2,), (100, 0))),
        ),
    ),
    "relu": Statement(
        shapes=("X.shape",),
        interval=Each("max(0, X.lo)", "max(0, X.hi)"),
        example=Example((given((4,), (-8, -1, 0, 6), (-8, 7)),)),
    ),
    "max_pool2d": Statement(
        where=(
            "N, C, H, WD = X.shape",
            "(PSH, PSW), (PH, PW), (SH, SW) = pool_size, padding, strides",
            "P = -((PSH - H - 2 * PH) // SH) + 1 if ceil_mode else (H + 2 * PH - PSH) // SH + 1",
            "Q = -((PSW - WD - 2 * PW) // SW) + 1 if ceil_mode else (WD + 2 * PW - PSW) // SW + 1",
        ),
        shapes=("(N, C, P, Q)",),
        work="Y.size * PSH * PSW",
        interval=(_PLANE,),
        example=Example(
            (given((1, 1, 2, 3), (1, -2, 3, -4, 5, -6), (-6, 5)),), {"pool_size": (2, 2), "ceil_mode": True}
        ),
        formulas=("P and Q are the numbers of outputs of C4.",),
    ),
    "upsampling": Statement(
        where=("N, C, H, WD = X.shape",),
        shapes=("(N, C, H * scale, WD * scale)",),
        interval=(_PLANE,),
        example=Example((given((1, 1, 1, 2), (3, -4), (-8, 7)),), {"scale": 2}),
    ),
}
