"""What the two backends of the C++ library compute, op by op, as its notes describe them; for the tests alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.vectors_cvm_runtime import mapping

from .library_rules import Array, Attributes, Hazard, ranges, reduced, windows


def wrapped(x: Array) -> Array:
    """Modulo 2^32."""
    return (x + 2**31) % 2**32 - 2**31


def clipped(x: Array, precision: int) -> Array:
    alpha = 2 ** (precision - 1) - 1
    return np.clip(x, -alpha, alpha)


def computed(backend: str, op: str, a: Attributes, x: list[Array]) -> list[Array]:
    """The results of an op on int32 elements."""
    if op in ("get_valid_counts",):
        return _valid(a, x[0])
    if op == "non_max_suppression":
        return [_suppressed(backend, a, x[0], x[1])]
    return [wrapped(np.asarray(_single(backend, op, a, x)))]


def _single(backend: str, op: str, a: Attributes, x: list[Array]) -> Array:
    match op:
        case "abs":
            return np.abs(x[0])
        case "negative":
            return -x[0]
        case "relu":
            return np.maximum(x[0], 0)
        case "cvm_precision":
            lengths = [max(1, abs(int(v)).bit_length()) for v in x[0].ravel()]
            return np.array(lengths, np.int64).reshape(x[0].shape)
        case "elemwise_add" | "broadcast_add":
            return x[0] + x[1]
        case "elemwise_sub" | "broadcast_sub":
            return x[0] - x[1]
        case "broadcast_mul":
            return x[0] * x[1]
        case "broadcast_max":
            return np.maximum(x[0], x[1])
        case "broadcast_greater":
            return (x[0] > x[1]).astype(np.int64)
        case "broadcast_div":
            divisor = np.where(x[1] == 0, 1, x[1])
            quotient = np.abs(x[0]) // np.abs(divisor) * np.sign(x[0]) * np.sign(divisor)
            return np.where(x[1] == 0, 0, quotient)
        case "clip":
            return np.clip(x[0], a["a_min"], a["a_max"])
        case "cvm_clip":
            return clipped(x[0], a["precision"])
        case "cvm_right_shift":
            return _shift_right(backend, a["precision"], a["shift_bit"], x[0])
        case "cvm_left_shift":
            if backend == "cpu":
                raise Hazard("the left shift fails")
            return clipped(wrapped(x[0] << a["shift_bit"]), a["precision"])
        case "sum" | "max":
            return _reduced(backend, op, a, x[0])
        case "flatten":
            return x[0].reshape(len(x[0]), -1)
        case "reshape":
            return x[0].reshape(mapping.reshape_codes({"target_shape": a["shape"]}, x[0].shape)["target_shape"])
        case "concatenate":
            return np.concatenate(x, axis=a["axis"])
        case "repeat":
            return x[0].repeat(a["repeats"], a["axis"])
        case "tile":
            return np.tile(x[0], a["reps"])
        case "expand_dims":
            axis = a["axis"] % (x[0].ndim + 1)
            return x[0].reshape(*x[0].shape[:axis], *(1,) * a["num_newaxis"], *x[0].shape[axis:])
        case "squeeze":
            left = x[0].squeeze(tuple(set(a["axis"])) or None)
            return left if left.ndim else left.reshape(1)
        case "transpose":
            return x[0].transpose(a["axes"] or None)
        case "strided_slice":
            if max(map(len, (a["begin"], a["end"], a["stride"]))) > x[0].ndim:
                raise Hazard("entries beyond the rank")
            return x[0][np.ix_(*map(list, ranges(a, x[0].shape)))]
        case "slice_like":
            axes = [axis % x[0].ndim for axis in a["axis"]] or list(range(x[0].ndim))
            return x[0][tuple(slice(x[1].shape[i] if i in axes else None) for i in range(x[0].ndim))]
        case "take" | "cvm_lut":
            table, places = (x[0], x[1]) if op == "take" else (x[1], x[0])
            axis = a.get("axis")
            table, axis = (table.ravel(), 0) if axis is None else (table, axis)
            return np.take(table, np.clip(places, 0, table.shape[axis] - 1), axis=axis)
        case "where":
            if x[0].ndim < x[1].ndim:
                raise Hazard("rows are copied in part")
            return np.where(x[0] != 0, x[1], x[2])
        case "conv2d":
            return _convolved(backend, a, x)
        case "dense":
            return x[0] @ x[1].T + (x[2] if len(x) > 2 else 0)
        case "max_pool2d":
            return _pooled(a, x[0])
        case "upsampling":
            return x[0].repeat(a["scale"], 2).repeat(a["scale"], 3)
    raise AssertionError(op)


def _shift_right(backend: str, precision: int, shift: int, x: Array) -> Array:
    if backend == "formal":
        return clipped(wrapped((x >> (shift - 1)) + 1) >> 1, precision)
    if precision == 1:
        return np.zeros_like(x)  # a vector shows that much of it
    if shift >= 31:
        return x >> 31
    rounded = ((x >> (shift - 1)) + 1) >> 1
    if shift == 1 and precision + 1 >= 32:
        rounded = wrapped((x >> (shift - 1)) + 1) >> 1
    return rounded if precision + shift >= 32 else clipped(rounded, precision)


def _reduced(backend: str, op: str, a: Attributes, x: Array) -> Array:
    over = tuple(reduced(a, x.ndim))
    if backend == "cpu" and x.ndim > 1 and 1 in x.shape:
        raise Hazard("extents of 1 are dropped, and then strides are wrong")
    if op == "sum":
        found = x.sum(axis=over, keepdims=a["keepdims"])
    else:
        found = x.max(axis=over, keepdims=a["keepdims"])
        found = found if a["axis"] else np.maximum(found, 0)
    return found if np.ndim(found) else np.reshape(found, 1)


def _convolved(backend: str, a: Attributes, x: list[Array]) -> Array:
    data, weight = x[:2]
    if weight.shape != (a["channels"], data.shape[1] // a["groups"], *a["kernel_size"]):
        raise Hazard("the weight's shape is not looked at")
    if backend == "cpu" and a["groups"] == 1:
        data, weight = (item.astype(np.int8).astype(np.int64) for item in (data, weight))
    (ph, pw), (sh, sw), (dh, dw) = a["padding"], a["strides"], a["dilation"]
    padded = np.pad(data, ((0, 0), (0, 0), (ph, ph), (pw, pw)))
    channels, inner, kh, kw = weight.shape
    height, width = (
        (padded.shape[2 + i] - d * (k - 1) - 1) // s + 1 for i, (d, k, s) in enumerate(((dh, kh, sh), (dw, kw, sw)))
    )
    per_group = channels // a["groups"]
    found = np.zeros((data.shape[0], channels, height, width), np.int64)
    for group in range(a["groups"]):
        some = slice(group * per_group, (group + 1) * per_group)
        part = padded[:, group * inner : (group + 1) * inner]
        for i in range(kh):
            for j in range(kw):
                rows = slice(i * dh, i * dh + sh * (height - 1) + 1, sh)
                columns = slice(j * dw, j * dw + sw * (width - 1) + 1, sw)
                found[:, some] += np.einsum("nchw,oc->nohw", part[:, :, rows, columns], weight[some, :, i, j])
    return found if len(x) < 3 else found + x[2].reshape(-1, 1, 1)


def _pooled(a: Attributes, x: Array) -> Array:
    (kh, kw), (sh, sw) = a["pool_size"], a["strides"]
    ph, pw = a["padding"] * (3 - len(a["padding"]))
    height = windows(x.shape[2], kh, ph, sh, a["ceil_mode"])
    width = windows(x.shape[3], kw, pw, sw, a["ceil_mode"])
    found = np.empty((*x.shape[:2], height, width), np.int64)
    for p in range(height):
        for q in range(width):
            rows = slice(max(0, p * sh - ph), p * sh - ph + kh)
            columns = slice(max(0, q * sw - pw), q * sw - pw + kw)
            found[:, :, p, q] = x[:, :, rows, columns].max(axis=(2, 3))
    return found


def _valid(a: Attributes, x: Array) -> list[Array]:
    found = np.full(x.shape, -1, np.int64)
    counts = np.zeros(len(x), np.int64)
    for b, rows in enumerate(x):
        kept = rows[rows[:, 1] > a["score_threshold"]]
        counts[b] = len(kept)
        found[b, : len(kept)] = kept
    return [counts, found]


def _overlap(r: Array, s: Array) -> int:
    r1, s1 = [int(v) for v in r], [int(v) for v in s]
    area = sum((box[4] - box[2]) * (box[5] - box[3]) for box in (r1, s1))
    if area <= 0:
        return 0
    width = max(0, min(r1[4], s1[4]) - max(r1[2], s1[2]))
    height = max(0, min(r1[5], s1[5]) - max(r1[3], s1[3]))
    o = width * height
    u = area - o
    if u <= 0:
        return 0
    return o // (u // 100) if o > (2**63 - 1) // 100 else 100 * o // u


def _suppressed(backend: str, a: Attributes, x: Array, counts: Array) -> Array:
    found = np.full(x.shape, -1, np.int64)
    for b, rows in enumerate(x):
        total = max(min(len(rows), int(counts[b])), 0)
        if backend == "cpu" and int(counts[b]) <= 0:
            if b + 1 < len(x):
                raise Hazard("batches after an empty one are not written")
            return found
        ordered = [rows[i] for i in sorted(range(total), key=lambda i: (-rows[i, 1], i))]
        if backend == "cpu" and 0 < a["top_k"] < total:
            raise Hazard("the input is written to")
        scanned = ordered[: a["top_k"]] if a["top_k"] >= 0 else ordered
        found[b] = _kept(backend, a, scanned, rows)
    return found


def _kept(backend: str, a: Attributes, scanned: list[Array], rows: Array) -> Any:
    result = np.full(rows.shape, -1, np.int64)
    limit = math.inf if a["max_output_size"] < 0 else a["max_output_size"]
    if backend == "cpu" and a["max_output_size"] == 0:
        limit = math.inf
    if backend == "cpu" and a["force_suppress"] and any(row[0] < 0 for row in scanned):
        raise Hazard("rows with negative ids suppress others")
    kept: list[Array] = []
    for row in scanned:
        if len(kept) >= limit:
            break
        if row[0] < 0:
            if backend == "cpu":
                break
            continue
        rivals = [other for other in kept if a["force_suppress"] or other[0] == row[0]]
        if all(_overlap(row, other) < a["iou_threshold"] for other in rivals):
            kept.append(row)
    for place, row in enumerate(kept):
        result[place] = row
    return result
