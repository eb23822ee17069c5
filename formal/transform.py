"""Transform ops, FORMAL: the document's section "Transform Operators", in its order and with its index names."""

from __future__ import annotations

from math import prod

from formal.tensor import Index, Shape, Tensor, flatten_index

__all__ = ["concatenate", "cvm_lut", "expand_dims", "flatten", "repeat", "reshape", "slice_", "slice_like", "squeeze",
           "take", "tile", "transpose", "where"]  # fmt: skip


def repeat(X: Tensor, *, axis: int, repeats: int) -> Tensor:
    """Y[d_0, .., d_axis, .., d_{N-1}] = X[d_0, .., floor(d_axis / repeats), .., d_{N-1}].

    for d_axis in [0, n_axis * repeats). A negative axis counts from the end (E23).
    """
    n = X.shape
    real_axis = axis if axis >= 0 else axis + len(n)

    def Y(d: Index) -> int:
        return X[(*d[:real_axis], d[real_axis] // repeats, *d[real_axis + 1 :])]

    return Tensor((*n[:real_axis], n[real_axis] * repeats, *n[real_axis + 1 :]), Y)


def tile(X: Tensor, *, reps: tuple[int, ...]) -> Tensor:
    """Y[k_0, .., k_{K-1}] = X[k_{K-N+0} mod n_0, k_{K-N+1} mod n_1, .., k_{K-N+N-1} mod n_{N-1}].

    for k_i in [0, S_i), where K = max{M, N}; S_i = SX_i * SR_i;
    SX_p = n_{p-K+N} for p in [K-N, K), 1 for p in [0, K-N);
    SR_q = m_{q-K+M} for q in [K-M, K), 1 for q in [0, K-M) (E24).
    """
    n, m = X.shape, reps
    N, M = len(n), len(m)
    K = max(M, N)
    SX = [n[p - K + N] if p >= K - N else 1 for p in range(K)]
    SR = [m[q - K + M] if q >= K - M else 1 for q in range(K)]

    def Y(k: Index) -> int:
        return X[tuple(k[K - N + i] % n[i] for i in range(N))]

    return Tensor([SX[i] * SR[i] for i in range(K)], Y)


def flatten(X: Tensor) -> Tensor:
    """Y[flatten_index(d_0, .., d_{N-1}, n_0, .., n_{N-1})] = X[d_0, .., d_{N-1}]. Y has one dimension (E25).

    Read backwards: d_i = floor(y / prod_{j=i+1}^{N-1} n_j) mod n_i.
    """
    n = X.shape
    N = len(n)
    steps = [prod(n[i + 1 :]) for i in range(N)]
    return Tensor((prod(n),), lambda y: X[tuple(y[0] // steps[i] % n[i] for i in range(N))])


def concatenate(*I: Tensor, axis: int) -> Tensor:  # noqa: E741 - the document's name
    """Y[d_0, .., d_{axis-1}, new_idx, d_{axis+1}, .., d_{N-1}] = I^i[d_0, .., d_{N-1}], for i in [0, M).

    where new_idx = sum_{j=0}^{i-1} n^j_axis + d_axis. A negative axis counts from the end (E23).
    """
    n = I[0].shape
    M = len(I)
    real_axis = axis if axis >= 0 else axis + len(n)
    starts = [sum(I[j].shape[real_axis] for j in range(i)) for i in range(M + 1)]

    def Y(y: Index) -> int:
        new_idx = y[real_axis]
        i = max(i for i in range(M) if starts[i] <= new_idx)
        return I[i][(*y[:real_axis], new_idx - starts[i], *y[real_axis + 1 :])]

    return Tensor((*n[:real_axis], starts[M], *n[real_axis + 1 :]), Y)


def transpose(X: Tensor, *, axes: tuple[int, ...]) -> Tensor:
    """Y[d_{real_axes_0}, d_{real_axes_1}, .., d_{real_axes_{N-1}}] = X[d_0, d_1, .., d_{N-1}].

    where real_axes_i = axes_i if M = N and axes_i >= 0; axes_i + N if M = N and axes_i < 0; N-1-i if M = 0.
    """
    n = X.shape
    N, M = len(n), len(axes)
    real_axes = [N - 1 - i if M == 0 else axes[i] if axes[i] >= 0 else axes[i] + N for i in range(N)]

    def Y(y: Index) -> int:
        return X[tuple(y[real_axes.index(j)] for j in range(N))]

    return Tensor([n[axis] for axis in real_axes], Y)


def slice_(X: Tensor, *, begin: tuple[int, ...], end: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """Y[d_0, .., d_{N-1}] = X[K[0], .., K[N-1]], where K[i] = b_vec[i] + s_arr[i] * d_i.

    for d_j in [0, ceil((e_vec[j] - b_vec[j]) / s_arr[j])), where
    b_arr[b] = begin[b] + n_b if begin[b] < 0, begin[b] if begin[b] >= 0, 0 if b >= B;
    e_arr[e] = end[e] + n_e if end[e] < 0, end[e] if end[e] >= 0, n_e if e >= E;
    s_arr[s] = strides[s], 1 if s >= S;
    b_range(i) = -1 if s_arr[i] < 0, else 0; e_range(i) = n_i - 1 if s_arr[i] < 0, else n_i;
    b_vec[b] = clip(b_arr[b], b_range(b), e_range(b)); e_vec[e] = clip(e_arr[e], b_range(e), e_range(e)) (E28).
    """
    n = X.shape
    N, B, E, S = len(n), len(begin), len(end), len(strides)
    b_arr = [0 if b >= B else begin[b] + n[b] if begin[b] < 0 else begin[b] for b in range(N)]
    e_arr = [n[e] if e >= E else end[e] + n[e] if end[e] < 0 else end[e] for e in range(N)]
    s_arr = [1 if s >= S else strides[s] for s in range(N)]
    b_range = [-1 if s_arr[i] < 0 else 0 for i in range(N)]
    e_range = [n[i] - 1 if s_arr[i] < 0 else n[i] for i in range(N)]
    b_vec = [max(b_range[b], min(b_arr[b], e_range[b])) for b in range(N)]
    e_vec = [max(b_range[e], min(e_arr[e], e_range[e])) for e in range(N)]
    # ceil(a / s) = -floor(-a / s); for s < 0 both a and s are negative.
    shape = [-((b_vec[j] - e_vec[j]) // s_arr[j]) for j in range(N)]
    return Tensor(shape, lambda d: X[tuple(b_vec[i] + s_arr[i] * d[i] for i in range(N))])


def slice_like(X: Tensor, shape_like: Tensor, *, axes: tuple[int, ...]) -> Tensor:
    """Y[d_0, .., d_{N-1}] = X[d_0, .., d_{N-1}], for d_j in [0, m_j) if j in sliced_axes, else [0, n_j).

    where sliced_axes = the axes, j + N for a negative j, if K > 0; {0, .., M-1} if K = 0. Of shape_like only the
    shape counts.
    """
    n, m = X.shape, shape_like.shape
    N, M, K = len(n), len(m), len(axes)
    sliced_axes = [j if j >= 0 else j + N for j in axes] if K > 0 else list(range(M))
    return Tensor([m[j] if j in sliced_axes else n[j] for j in range(N)], lambda d: X[d])


def take(X: Tensor, indices: Tensor, *, axis: int | None = None) -> Tensor:
    """1. Case axis is None: Y[d_0, .., d_{M-1}] = T[clip(xidx, 0, |T| - 1)].

    where T = flatten(X) and xidx = indices[d_0, .., d_{M-1}].

    2. Case axis is int: Y[d_0, .., d_{M+N-2}] = X[d_0, .., d_{real_axis-1}, xidx, d_{real_axis+M}, .., d_{M+N-2}],
    where xidx = clip(indices[d_{real_axis}, .., d_{real_axis+M-1}], 0, n_{real_axis} - 1).
    """
    n, m = X.shape, indices.shape
    N, M = len(n), len(m)
    if axis is None:
        T = flatten(X)
        return Tensor(m, lambda d: T[max(0, min(indices[d], prod(n) - 1)),])

    real_axis = axis if axis >= 0 else axis + N

    def Y(d: Index) -> int:
        xidx = max(0, min(indices[d[real_axis : real_axis + M]], n[real_axis] - 1))
        return X[(*d[:real_axis], xidx, *d[real_axis + M :])]

    return Tensor((*n[:real_axis], *m, *n[real_axis + 1 :]), Y)


def cvm_lut(X: Tensor, indices: Tensor) -> Tensor:
    """Y = take(X, indices, axis = None)."""
    return take(X, indices, axis=None)


def expand_dims(X: Tensor, *, axis: int, num_newaxis: int) -> Tensor:
    """Y[d_0, .., d_{real_axis-1}, 0, 0, .., 0, d_{real_axis}, .., d_{N-1}] = X[d_0, .., d_{N-1}], num_newaxis zeros.

    where real_axis = axis if axis >= 0, else axis + N + 1: the axis counts the gaps between dimensions (E33).
    """
    n = X.shape
    N = len(n)
    real_axis = axis if axis >= 0 else axis + N + 1
    shape = (*n[:real_axis], *(1,) * num_newaxis, *n[real_axis:])
    return Tensor(shape, lambda y: X[y[:real_axis] + y[real_axis + num_newaxis :]])


def reshape(X: Tensor, *, target_shape: Shape) -> Tensor:
    """Y[d_0, .., d_{M-1}] = T[flatten_index(d_0, .., d_{M-1}, m_0, .., m_{M-1})], where T = flatten(X)."""
    T = flatten(X)
    return Tensor(target_shape, lambda d: T[flatten_index(d, target_shape),])


def squeeze(X: Tensor, *, axes: tuple[int, ...]) -> Tensor:
    """Y[d_{I(0)}, d_{I(1)}, .., d_{I(N-K-1)}] = X[d_0, d_1, .., d_{N-1}].

    where real_axes = the axes, axis + N for a negative axis, if M > 0; all axes with n_axis = 1 if M = 0;
    I numbers the other axes in increasing order.
    """
    n = X.shape
    N, M = len(n), len(axes)
    real_axes = [a if a >= 0 else a + N for a in axes] if M > 0 else [a for a in range(N) if n[a] == 1]
    I = [i for i in range(N) if i not in real_axes]  # noqa: E741 - the document's name

    def Y(y: Index) -> int:
        return X[tuple(y[I.index(i)] if i in I else 0 for i in range(N))]

    # If no axis is left, Y has one element, and its shape is (1,), since rank 0 does not exist (E6).
    return Tensor([n[i] for i in I] or [1], Y)


def where(Cond: Tensor, A: Tensor, B: Tensor) -> Tensor:
    """1. Case shape of Cond is same as others: Y[d_0, .., d_{N-1}] = A[..] if Cond[d_0, .., d_{N-1}] != 0, else B[..].

    2. Case Cond is a 1d tensor: Y[d_0, .., d_{N-1}] = A[..] if Cond[d_0] != 0, else B[..].
    """
    if Cond.shape == A.shape:
        return Tensor(A.shape, lambda d: A[d] if Cond[d] != 0 else B[d])
    return Tensor(A.shape, lambda d: A[d] if Cond[d[0],] != 0 else B[d])
