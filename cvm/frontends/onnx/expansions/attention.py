"""Attention, written out with products of matrices, masks and softmax.

Queries that share a head of keys and values are rows of one batch, so that nothing is repeated. The scale of the
products is one number here; where a model does not give it, it is the float32 number next to 1 / sqrt(size of a head).

Sources: ONNX, Attention; ONNX Runtime, "Contrib operators" (com.microsoft).
"""

from __future__ import annotations

import math
from dataclasses import field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.expansions.rotary import Heads, heads, joined, part_of, rotated, rotation
from cvm.frontends.onnx.model import MICROSOFT
from cvm.frontends.onnx.writing import Writer
from cvm.limits import INT32_MAX
from cvm.records import dataclass

__all__: list[str] = []

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class _Bias:
    """A tensor that is added to scores, and its shape, which broadcasts to (batch, heads, queries, keys)."""

    name: str
    shape: tuple[int, ...]


@dataclass(slots=True)
class _Attention:
    """Queries, keys and values, and what happens between the two products."""

    q: Heads
    k: Heads
    v: Heads
    scale: float
    softcap: float = 0.0
    allowed: Array | None = None
    """Which keys a query sees, of shape (queries, keys), where that is known."""
    seen: list[_Bias] = field(default_factory=list)
    """Computed truth values: a query sees the keys for which all of them hold, or gives 0 if there are none."""
    added: list[_Bias] = field(default_factory=list)

    @property
    def groups(self) -> int:
        """The number of neighbouring queries that share a head of keys."""
        return self.q.count // self.k.count


def _scale(w: Writer, q: Heads) -> float:
    given = w.call.number("scale", None) if w.call.has("scale") else 0
    return float(given) if given else float(np.float32(1 / math.sqrt(q.size)))


def _in_groups(found: _Attention, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a tensor that broadcasts to (batch, heads, queries, keys), with heads in groups."""
    shape = (1,) * (4 - len(shape)) + shape
    batch, count, *rest = shape
    return (batch, found.k.count, found.groups, *rest) if count > 1 else (batch, 1, 1, *rest)


def _grouped(w: Writer, found: _Attention, bias: _Bias) -> str:
    if found.groups == 1 or len(bias.shape) < 3:
        return bias.name
    return w.reshape(bias.name, _in_groups(found, bias.shape))


def _checked(w: Writer, found: _Attention) -> None:
    q, k, v = found.q, found.k, found.v
    fits = q.size == k.size and k.items == v.items and k.count == v.count and q.count % k.count == 0
    if not fits or len({q.shape[0], k.shape[0], v.shape[0]}) > 1:
        shapes = ", ".join(str(list(item.shape)) for item in (q, k, v))
        raise w.call.invalid("shape", f"queries, keys and values of the shapes {shapes} do not fit")
    whole = (q.shape[0], q.count, q.items, k.items)
    for bias in (*found.seen, *found.added):
        shape = (1,) * (4 - len(bias.shape)) + bias.shape
        if len(shape) != 4 or any(n not in (1, m) for n, m in zip(shape, whole, strict=True)):
            raise w.call.invalid("shape", f"{bias.name!r} of shape {list(bias.shape)} does not fit {list(whole)}")


def _scores(w: Writer, found: _Attention) -> dict[str, str]:
    """The scaled products of queries and keys, and these with a soft bound, by name."""
    q, k, like = found.q, found.k, w.call.operand()
    queries, keys = q.name, w.add("Transpose", [k.name], perm=(0, 1, 3, 2))
    if found.groups > 1:
        queries = w.reshape(queries, (q.shape[0], k.count, found.groups, q.items, q.size))
        keys = w.reshape(keys, (k.shape[0], k.count, 1, k.size, k.items))
    scores = w.add("Mul", [w.add("MatMul", [queries, keys]), w.number(found.scale, like)])
    capped = scores
    if found.softcap:
        bound = w.number(found.softcap, like)
        capped = w.add("Mul", [w.add("Tanh", [w.add("Div", [scores, bound])]), bound])
    return {"scaled": scores, "capped": capped}


def _attend(w: Writer, found: _Attention) -> tuple[Heads, dict[str, str]]:
    """The values, weighted by softmax of the scores; and the scores and shares, by name."""
    _checked(w, found)
    like, results = w.call.operand(), _scores(w, found)
    scores = results["capped"]
    biases = list(found.added)
    if found.allowed is not None and not found.allowed.all():
        mask = np.where(found.allowed, 0.0, -np.inf)
        biases.append(_Bias(w.constant(mask.astype(np.float32), like.data_type), found.allowed.shape))
    for bias in found.seen:
        zero, below = w.number(0.0, like), w.number(-np.inf, like)
        biases.append(replace(bias, name=w.add("Where", [bias.name, zero, below])))
    for bias in biases:
        scores = w.add("Add", [scores, _grouped(w, found, bias)])
    shares = w.add("Softmax", [scores], axis=-1)
    v = found.v
    values = v.name if found.groups == 1 else w.reshape(v.name, (v.shape[0], v.count, 1, v.items, v.size))
    name = _where_seen(w, found, w.add("MatMul", [shares, values]))
    shape = (*found.q.shape[:3], v.size)
    if found.groups > 1:
        name = w.reshape(name, shape)
    return Heads(name, shape), {**results, "shares": shares}


def _where_seen(w: Writer, found: _Attention, name: str) -> str:
    """The results, with zeros for queries that see no key."""
    like, allowed = w.call.operand(), found.allowed
    if not found.seen:
        if allowed is None or allowed.any(axis=-1).all():
            return name
        rows = allowed.any(axis=-1, keepdims=True).astype(np.float32)
        return w.add("Mul", [name, w.constant(rows, like.data_type)])
    every, *others = [_grouped(w, found, bias) for bias in found.seen]
    if allowed is not None and not allowed.all():
        others.append(w.constant(allowed, "bool"))
    for other in others:
        every = w.add("And", [every, other])
    some = w.add("ReduceMax", [w.add("Cast", [every], to=6), w.integers([-1])])
    return w.add("Where", [w.add("Cast", [some], to=9), name, w.number(0.0, like)])


def _window(w: Writer, attribute: str) -> int:
    """How many keys a query sees on one side, from an attribute, clipped to 32 bits; -1: all of them."""
    found = w.call.integer(attribute, -1)
    if found < -1:
        raise w.call.invalid("attribute", f"{attribute} must be -1 or more, found {found}")
    return min(found, INT32_MAX)


def _band(queries: int, keys: int, offset: int, before: int, after: int) -> Array | None:
    """Which keys are at most ``before`` in front of a query and ``after`` behind it (-1: all of these)."""
    distance = np.arange(keys)[None, :] - np.arange(queries)[:, None] - offset
    seen = np.ones((queries, keys), bool)
    if after >= 0:
        seen &= distance <= after
    if before >= 0:
        seen &= -distance <= before
    return seen if before >= 0 or after >= 0 else None


# Attention of ONNX


@expansion("Attention")
def attention(w: Writer) -> None:
    """Attention: softmax(scale * Q K^T + mask) V. Heads of keys and values may be shared by several queries."""
    call = w.call
    call.ignore("softmax_precision")
    q, k, v = (
        heads(w, name, call.operand(index).shape, call.integer(f"{side}_num_heads", 0))
        for index, (name, side) in enumerate(zip(w.required(0, 1, 2), ("q", "kv", "kv"), strict=True))
    )
    past = k.items
    k, v = _with_past(w, k, 4, 1), _with_past(w, v, 5, 2)
    past = k.items - past
    found = _Attention(q, k, v, _scale(w, q), float(call.number("softcap", None)) if call.has("softcap") else 0.0)
    before, after = (_window(w, f"{side}_window_size") for side in ("left", "right"))
    after = 0 if call.flag("is_causal", False) else after
    if call.optional(6) is None:
        found.allowed = _band(q.items, k.items, past, before, after)
    else:
        found.seen.append(_of_lengths(w, found, before, after))
    if call.optional(3) is not None:
        _add_mask(w, found)
    result, parts = _attend(w, found)
    _given(w, result, parts, found)


def _given(w: Writer, result: Heads, parts: dict[str, str], found: _Attention) -> None:
    """The result in the form of the first operand, and the scores if they are wanted."""
    output = w.node.outputs[0]
    if w.call.operand().rank == 3:
        joined(w, result, output)
    else:
        w.add("Identity", [result.name], output)
    mode = w.call.integer("qk_matmul_output_mode", 0)
    if w.wants(3):
        name = {0: "scaled", 1: "capped", 3: "shares"}.get(mode)
        empty = bool(found.seen) or (found.allowed is not None and not found.allowed.any(axis=-1).all())
        if name is None or (mode == 3 and empty):
            raise w.call.refuse(f"scores of the mode {mode} are not given", "use mode 0 or 1")
        w.reshape(parts[name], (*found.q.shape[:3], found.k.items), w.node.outputs[3])


def _with_past(w: Writer, found: Heads, past: int, output: int) -> Heads:
    """Keys or values behind those of the past, which are a further result."""
    before = w.call.optional(past)
    if before is None or 0 in before.shape:
        if output < len(w.node.outputs) and w.node.outputs[output]:
            w.add("Identity", [found.name], w.node.outputs[output])
        return found
    if len(before.shape) != 4 or before.shape[:2] != found.shape[:2] or before.shape[3] != found.size:
        raise w.call.invalid("shape", f"the past has shape {list(before.shape)}, not that of {list(found.shape)}")
    name = w.add("Concat", [w.required(past)[0], found.name], w.node.outputs[output] if w.wants(output) else "", axis=2)
    return Heads(name, (*found.shape[:2], before.shape[2] + found.items, found.size))


def _add_mask(w: Writer, found: _Attention) -> None:
    """The mask, of truth values or numbers. Keys beyond its end are hidden."""
    mask, name, keys = w.call.operand(3), w.required(3)[0], found.k.items
    shape, truths = mask.shape, mask.data_type == "bool"
    if 1 < shape[-1] < keys:
        missing = keys - shape[-1]
        name = w.add("Pad", [name, w.integers([0] * (2 * mask.rank - 1) + [missing])])
        inside = np.broadcast_to(np.arange(keys) < shape[-1], (found.q.items, keys))
        shape = (*shape[:-1], keys)
        if not truths:
            found.allowed = inside if found.allowed is None else found.allowed & inside
    (found.seen if truths else found.added).append(_Bias(name, shape))


def _of_lengths(w: Writer, found: _Attention, before: int, after: int) -> _Bias:
    """Which keys a query sees where the numbers of keys are computed: queries are the last ones of them."""
    lengths, (batch, _, queries, _), keys = w.call.operand(6), found.q.shape, found.k.items
    if lengths.shape != (batch,):
        raise w.call.invalid("shape", f"nonpad_kv_seqlen has shape {list(lengths.shape)}, not [{batch}]")
    length = w.reshape(w.required(6)[0], (batch, 1, 1, 1))

    def compared(op: str, table: Array, number: str) -> str:
        return w.add(op, [w.constant(table.reshape(1, 1, *table.shape), lengths.data_type), number])

    at = np.arange(keys)[None, :]
    seen = compared("Less", at, length)
    distance, offset = at - np.arange(queries)[:, None], w.add("Sub", [length, w.constant(queries, lengths.data_type)])
    if after >= 0:
        seen = w.add("And", [seen, compared("LessOrEqual", distance - after, offset)])
    if before >= 0:
        seen = w.add("And", [seen, compared("GreaterOrEqual", distance + before, offset)])
    return _Bias(seen, (batch, 1, queries if before >= 0 or after >= 0 else 1, keys))


# Attention of ONNX Runtime


@expansion("GroupQueryAttention", domain=MICROSOFT)
def group_query_attention(w: Writer) -> None:
    """GroupQueryAttention: causal attention whose keys are behind those of the past, with rotary embeddings if asked
    for. All keys of the past are valid; at the start of a sequence none are given.
    """
    call = w.call
    count, shared = call.integer("num_heads", 0), call.integer("kv_num_heads", 0)
    if call.flag("smooth_softmax", False) or any(call.optional(index) is not None for index in range(11, 17)):
        raise call.refuse("a softmax with a sink and quantised caches are not computed", "leave them out")
    call.ignore("qk_output", "k_quant_type", "v_quant_type", "kv_cache_bit_width")
    q, k, v = _separate(w, count, shared)
    past = call.optional(3)
    start = 0 if past is None else past.shape[2] if past.rank == 4 else 0
    _check_lengths(w, start, q.items)
    if call.flag("do_rotary", False):
        places = w.constant(np.arange(start, start + q.items).reshape(1, -1), "int64")
        by = rotation(w, 7, 8, w.input(9) or places, call.flag("rotary_interleaved", False))
        q, k = rotated(w, q, by), rotated(w, k, by)
    k, v = _with_past(w, k, 3, 1), _with_past(w, v, 4, 2)
    softcap = float(call.number("softcap", None)) if call.has("softcap") else 0.0
    window = _window(w, "local_window_size")
    found = _Attention(q, k, v, _scale(w, q), softcap)
    found.allowed = _band(q.items, k.items, start, window - 1 if window > 0 else -1, 0)
    if call.optional(10) is not None:
        found.added.append(_Bias(w.required(10)[0], call.operand(10).shape))
    result, _ = _attend(w, found)
    joined(w, result, w.node.outputs[0])


def _separate(w: Writer, count: int, shared: int) -> tuple[Heads, Heads, Heads]:
    """Queries, keys and values, which may lie in one tensor."""
    if count < 1 or shared < 1:
        raise w.call.invalid("attribute", f"num_heads and kv_num_heads must be above 0, found {count} and {shared}")
    source = w.call.operand()
    if w.call.optional(1) is not None:
        names, shapes = w.required(0, 1, 2), [w.call.operand(index).shape for index in range(3)]
    else:
        size, rest = divmod(source.shape[-1], count + 2 * shared)
        if rest or source.rank != 3:
            raise w.call.invalid("shape", f"{list(source.shape)} is not of {count} and two times {shared} heads")
        ends = [0, count * size, (count + shared) * size, (count + 2 * shared) * size]
        names = [part_of(w, w.required(0)[0], *pair) for pair in pairwise(ends)]
        shapes = [(*source.shape[:2], n * size) for n in (count, shared, shared)]
    q, k, v = (heads(w, name, shape, n) for name, shape, n in zip(names, shapes, (count, shared, shared), strict=True))
    return q, k, v


def _check_lengths(w: Writer, start: int, items: int) -> None:
    """Raise `Unsupported` where not all keys of a past are valid. Without one, padding is behind what queries see."""
    lengths, whole = w.call.optional(5), w.call.optional(6)
    for operand, wanted in ((lengths, start + items - 1), (whole, start + items)):
        if not start or operand is None:
            continue
        if operand.values is None or (operand.values != wanted).any():
            message = f"{operand.name!r} must be {wanted} for a past of {start} and {items} further keys"
            raise w.call.refuse(message, "give a past without padding, and make it constant")


@expansion("MultiHeadAttention", domain=MICROSOFT)
def multi_head_attention(w: Writer) -> None:
    """MultiHeadAttention: attention of as many heads of keys and values as of queries."""
    call = w.call
    count = call.integer("num_heads", 0)
    refused = [index for index in (6, 7, 8, 9) if call.optional(index) is not None]
    if refused or call.optional(1) is None or call.operand(1).rank == 5:
        raise call.refuse(
            "keys and values of the past, and those packed in one tensor, are not read", "give them apart"
        )
    names = list(w.required(0, 1, 2))
    if call.optional(3) is not None:
        begin = 0
        for index, name in enumerate(names):
            width = call.operand(index).shape[-1] if call.operand(index).rank == 3 else 0
            names[index] = w.add("Add", [name, part_of(w, w.required(3)[0], begin, begin + width)])
            begin += width
    q, k, v = (heads(w, name, call.operand(index).shape, count) for index, name in enumerate(names))
    found = _Attention(q, k, v, _scale(w, q))
    _runtime_masks(w, found, 4, 5)
    result, _ = _attend(w, found)
    joined(w, result, w.node.outputs[0])


@expansion("Attention", domain=MICROSOFT)
def packed_attention(w: Writer) -> None:
    """Attention of com.microsoft: queries, keys and values are one product of the input."""
    call = w.call
    count, source = call.integer("num_heads", 0), call.operand()
    if call.flag("do_rotary", False) or any(call.optional(index) is not None for index in (4, 6)):
        raise call.refuse("rotary embeddings and a past are not read in it", "write them out")
    whole = w.add("MatMul", w.required(0, 1))
    if call.optional(2) is not None:
        whole = w.add("Add", [whole, w.required(2)[0]])
    width = call.operand(1).shape[-1]
    widths = call.integers("qkv_hidden_sizes") or (width // 3,) * 3
    if sum(widths) != width or source.rank != 3:
        raise call.invalid("shape", f"weights of {width} columns are not those of {list(widths)}")
    ends = np.cumsum([0, *widths]).tolist()
    q, k, v = (
        heads(w, part_of(w, whole, begin, end), (*source.shape[:2], end - begin), count)
        for begin, end in pairwise(ends)
    )
    found = _Attention(q, k, v, _scale(w, q))
    _runtime_masks(w, found, 3, 5)
    result, _ = _attend(w, found)
    joined(w, result, w.node.outputs[0])


def _runtime_masks(w: Writer, found: _Attention, mask: int, bias: int) -> None:
    """The mask of the keys, which is added, a bias, and whether keys behind a query are hidden."""
    call, keys = w.call, found.k.items
    below = float(call.number("mask_filter_value", None)) if call.has("mask_filter_value") else -10000.0
    given = call.optional(mask)
    if given is not None:
        if given.shape != (found.q.shape[0], keys):
            raise call.refuse(f"a mask of shape {list(given.shape)} is not read", "give one number for each key")
        flags = w.add("Cast", [w.reshape(w.required(mask)[0], (given.shape[0], 1, 1, keys))], to=9)
        like = call.operand()
        name = w.add("Where", [flags, w.number(0.0, like), w.number(below, like)])
        found.added.append(_Bias(name, (given.shape[0], 1, 1, keys)))
    if call.optional(bias) is not None:
        found.added.append(_Bias(w.required(bias)[0], call.operand(bias).shape))
    if call.flag("unidirectional", False):
        found.allowed = _band(found.q.items, keys, keys - found.q.items, -1, 0)
