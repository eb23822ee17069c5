"""NN ops, FORMAL: the document's section "NN Operators", in its order and with its index names.

The document calls both the kernel weight and the width of the input W; here W is the weight and WD the width (E12).
"""

from __future__ import annotations

from formal.tensor import Index, Tensor

__all__ = ["conv2d", "dense", "max_pool2d", "relu", "upsampling"]

INT32_MIN = -(2**31)


def conv2d(
    X: Tensor,
    W: Tensor,
    B: Tensor | None = None,
    *,
    padding: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> Tensor:
    """Y[n, oc, p, q] = sum over ic in [0, IC) of kernel(n, (oc div OPG) * IC + ic, p, q, oc, ic) + (B[oc] if B else 0).

    for n in [0, N), oc in [0, OC), p in [0, Y_HMAX), q in [0, Y_WMAX), where
    Y_HMAX = floor((H + 2 PH - DH (KH - 1) - 1) / SH) + 1; Y_WMAX = floor((WD + 2 PW - DW (KW - 1) - 1) / SW) + 1;
    OPG = OC / groups;
    kernel(n, j, p, q, o, i) = sum over k_i in [0, KH), k_j in [0, KW) (E13) of
    pad(n, j, p SH - PH + k_i DH, q SW - PW + k_j DW) * W[o, i, k_i, k_j];
    pad(n, j, p, q) = X[n, j, p, q] if p in [0, H) and q in [0, WD), else 0.
    """
    N, _, H, WD = X.shape
    OC, IC, KH, KW = W.shape
    PH, PW = padding
    SH, SW = stride
    DH, DW = dilation
    OPG = OC // groups  # exact: OC mod groups = 0
    Y_HMAX = (H + 2 * PH - DH * (KH - 1) - 1) // SH + 1
    Y_WMAX = (WD + 2 * PW - DW * (KW - 1) - 1) // SW + 1

    def pad(n: int, j: int, p: int, q: int) -> int:
        return X[n, j, p, q] if 0 <= p < H and 0 <= q < WD else 0

    def kernel(n: int, j: int, p: int, q: int, o: int, i: int) -> int:
        total = 0
        for k_i in range(KH):
            for k_j in range(KW):
                total += pad(n, j, p * SH - PH + k_i * DH, q * SW - PW + k_j * DW) * W[o, i, k_i, k_j]
        return total

    def Y(d: Index) -> int:
        n, oc, p, q = d
        total = sum(kernel(n, (oc // OPG) * IC + ic, p, q, oc, ic) for ic in range(IC))
        return total if B is None else total + B[oc,]

    return Tensor((N, OC, Y_HMAX, Y_WMAX), Y)


def dense(X: Tensor, W: Tensor, B: Tensor | None = None) -> Tensor:
    """Y = X W^T + (B if B else 0), that is Y[m, n] = sum over k in [0, K) of X[m, k] * W[n, k] + (B[n] if B else 0)."""
    M, K = X.shape
    N, _ = W.shape

    def Y(d: Index) -> int:
        m, n = d
        total = sum(X[m, k] * W[n, k] for k in range(K))
        return total if B is None else total + B[n,]

    return Tensor((M, N), Y)


def relu(X: Tensor) -> Tensor:
    """Y[d_0, .., d_{N-1}] = max(0, X[d_0, .., d_{N-1}])."""
    return Tensor(X.shape, lambda d: max(0, X[d]))


def max_pool2d(
    X: Tensor, *, pool_size: tuple[int, int], padding: tuple[int, int], strides: tuple[int, int], ceil_mode: bool
) -> Tensor:
    """Y[n, i, p, q] = max of pad(n, i, p', q') over the window.

    p' in [p SH - PH, p SH - PH + PSH), q' in [q SW - PW, q SW - PW + PSW),
    for p in [0, ceil_func((H + 2 PH - PSH) / SH) + 1), q in [0, ceil_func((WD + 2 PW - PSW) / SW) + 1), where
    ceil_func rounds up if ceil_mode is true, else down;
    pad(n, i, p, q) = X[n, i, p, q] if p in [0, H) and q in [0, WD), else INT32_MIN.

    Since PSH > PH, PSW > PW, and the last windows start inside the image (E18), every window holds an element of X.
    All elements exceed INT32_MIN, so the padding is never the maximum (E17).
    """
    N, C, H, WD = X.shape
    PSH, PSW = pool_size
    PH, PW = padding
    SH, SW = strides

    def ceil_func(a: int, b: int) -> int:
        return -(-a // b) if ceil_mode else a // b  # ceil(a / b) = -floor(-a / b)

    def pad(n: int, i: int, p: int, q: int) -> int:
        return X[n, i, p, q] if 0 <= p < H and 0 <= q < WD else INT32_MIN

    def Y(d: Index) -> int:
        n, i, p, q = d
        return max(
            pad(n, i, p_, q_)
            for p_ in range(p * SH - PH, p * SH - PH + PSH)
            for q_ in range(q * SW - PW, q * SW - PW + PSW)
        )

    return Tensor((N, C, ceil_func(H + 2 * PH - PSH, SH) + 1, ceil_func(WD + 2 * PW - PSW, SW) + 1), Y)


def upsampling(X: Tensor, *, scale: int) -> Tensor:
    """Y[n, i, h, w] = X[n, i, floor(h / scale), floor(w / scale)], for h in [0, H scale), w in [0, WD scale)."""
    N, C, H, WD = X.shape

    def Y(d: Index) -> int:
        n, i, h, w = d
        return X[n, i, h // scale, w // scale]

    return Tensor((N, C, H * scale, WD * scale), Y)
