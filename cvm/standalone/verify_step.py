"""Judge one-step proofs with Python's standard library alone: nothing of cvm, nor any other file, is imported.

    python verify_step.py PROOF [--head HEX]
    python verify_step.py --vectors spec_vectors

A proof says: in the run whose state before an op is the head, step j of the fold of one element of the op's output
follows from the partial before it. docs/commitments.md, section 9, gives every byte, and the partials of each op.
Prints what the proof is about, and ACCEPTED (exit code 0) or REFUSED (1); 3 is for files that cannot be read.
--head refuses proofs of another state. The program, whose digest is printed, is assumed to be valid: to rely on
the proof, verify the program, and get the head from a game (docs/disputes.md) or a trace.

Whatever a file holds, the answer takes seconds and less than 64 MiB: a file has at most 2^20 bytes, a list is never
longer than its bytes allow, and attributes are within the limits of their op before anything is computed with them.
"""

# One sitting: bytes and hashes; records of ops; operands; the ops; the proof; the judgement.
# fmt: off
import argparse
import struct
import sys
from hashlib import sha256
from itertools import product
from math import prod
from pathlib import Path
from struct import pack

LONGEST = 2**20
"""The most bytes of a proof that are read."""
SEARCHING = 2**32
"""Partials from this number on are no elements: they count what is left to skip."""

class Refused(Exception):
    """The proof shows nothing: the kind of fault, in the words of `cvm`, and the reason."""

def require(holds, kind, why):
    if not holds:
        raise Refused(kind, why)

# Bytes and hashes: docs/commitments.md, sections 1 to 5 and 8

class _Reader:
    """Reads bytes front to back."""

    def __init__(self, data):
        self.data, self.position = data, 0
    def take(self, size):
        require(size <= len(self.data) - self.position, "truncated", "the bytes end too early")
        self.position += size
        return self.data[self.position - size : self.position]
    def u(self, size, signed=False):
        return int.from_bytes(self.take(size), "little", signed=signed)
    def i(self, size):
        return self.u(size, signed=True)
    def flag(self):
        flag = self.u(1)
        require(flag < 2, "flag", "a flag is 0 or 1")
        return flag == 1
    def tag(self, tag):
        require(self.data.startswith(tag, self.position), "tag", f"expected {tag!r}")
        self.position += len(tag)
    def end(self):
        require(self.position == len(self.data), "trailing", "bytes follow the end")
    def binary(self):
        return self.take(self.u(4))
    def text(self):
        try:
            return self.binary().decode("utf-8")
        except UnicodeDecodeError:
            raise Refused("text", "a text is not UTF-8") from None
    def many(self, item, least):
        count = self.u(4)
        require(count * least <= len(self.data) - self.position, "truncated", "the bytes end too early")
        return [item() for _ in range(count)]
    def roots(self):
        return self.many(lambda: self.take(32), 32)
    def shape(self):
        rank = self.u(1)
        extents = tuple(self.u(8) for _ in range(rank)) if rank <= 8 else ()
        require(extents and min(extents) > 0, "shape", "a tensor has 1 to 8 extents, each 1 or more")
        return extents

def h(*parts):
    return sha256(b"".join(parts)).digest()

def text(s):
    return pack("<I", len(s.encode())) + s.encode()

def shape(extents):
    return pack(f"<B{len(extents)}Q", len(extents), *extents)

def listed(items):
    return pack("<I", len(items)) + b"".join(items)

def list_root(count, root):
    return h(b"cvm1:list\0", pack("<Q", count), root)

def merkle(leaves, count, path):
    """The root of the tree of ``count`` leaves with these leaves at their numbers; None if the path does not fit."""
    last, path = count - 1, iter(path)
    if not leaves or not all(0 <= k <= last for k in leaves):
        return None
    nodes = {k: h(b"\0", leaves[k]) for k in sorted(leaves)}
    while last:
        above = {}
        for k, node in nodes.items():
            if k ^ 1 > last:
                above[k // 2] = node
            elif k % 2 == 0 or k - 1 not in nodes:
                other = nodes[k ^ 1] if k ^ 1 in nodes else next(path, None)
                if other is None:
                    return None
                above[k // 2] = h(b"\1", other, node) if k % 2 else h(b"\1", node, other)
        nodes, last = above, last // 2
    return nodes[0] if next(path, None) is None else None

# Records of ops: the limits of what an op may be. docs/ops.md has every limit.

def integer(least, most):
    return lambda v: type(v) is int and least <= v <= most

def several(least, most, fewest=0, longest=8):
    return lambda v: type(v) is tuple and fewest <= len(v) <= longest and all(least <= i <= most for i in v)

def boolean(v):
    return type(v) is bool

MOST = 2**31 - 1
AXIS, AXES, ELEMENT, BITS = integer(-MOST - 1, MOST), several(-MOST - 1, MOST), integer(-MOST, MOST), integer(1, 32)
EXTENT, PADS, STEPS = integer(1, MOST), several(0, 4096, 2, 2), several(1, 4096, 2, 2)
REDUCE, SHIFT = {"axes": AXES, "keepdims": boolean, "exclude": boolean}, {"precision": BITS, "shift_bit": BITS}
ROUNDINGS = ("half_up", "half_even", "toward_zero")
ATTRIBUTES = {
    "sum": REDUCE, "max": REDUCE, "upsampling": {"scale": integer(1, 4096)},
    "reshape": {"target_shape": several(1, MOST, 1)},
    "conv2d": {"padding": PADS, "stride": STEPS, "dilation": STEPS, "groups": EXTENT},
    "max_pool2d": {"pool_size": several(1, MOST, 2, 2), "padding": PADS, "strides": STEPS, "ceil_mode": boolean},
    "clip": {"a_min": ELEMENT, "a_max": ELEMENT}, "cvm_clip": {"precision": BITS},
    "cvm_right_shift": SHIFT, "cvm_left_shift": SHIFT, "repeat": {"axis": AXIS, "repeats": EXTENT},
    "tile": {"reps": several(1, 4096, 1)}, "concatenate": {"axis": AXIS}, "transpose": {"axes": AXES},
    "slice": {"begin": AXES, "end": AXES, "strides": AXES}, "slice_like": {"axes": AXES}, "squeeze": {"axes": AXES},
    "take": {"axis": AXIS}, "expand_dims": {"axis": AXIS, "num_newaxis": integer(0, 4096)},
    "get_valid_count": {"score_threshold": ELEMENT},
    "non_max_suppression": {"iou_threshold": EXTENT, "max_output_size": AXIS, "force_suppress": boolean, "top_k": AXIS},
    "requantize": {"rounding": lambda v: v in ROUNDINGS, "lo": ELEMENT, "hi": ELEMENT},
    "matmul": {"transpose_a": boolean, "transpose_b": boolean},
    "quotient": {"terms": integer(1, 6), "rounding": lambda v: v in ROUNDINGS, "lo": ELEMENT, "hi": ELEMENT},
    "normalize": {"axes": AXES, "statistic": lambda v: v in ("variance", "mean_square", "square_sum"),
                  "shift": integer(0, 62), "rounding": lambda v: v in ROUNDINGS[:2], "lo": ELEMENT, "hi": ELEMENT},
    "update_slice": {"axis": AXIS},
}
"""The attributes of the ops that have any, and the limits of each."""
ARITY = dict.fromkeys(
    ["broadcast_add", "broadcast_sub", "broadcast_mul", "broadcast_div", "broadcast_max", "broadcast_greater",
     "elemwise_add", "elemwise_sub", "slice_like", "take", "cvm_lut", "non_max_suppression",
     "matmul"], (2, 2)
) | {"conv2d": (2, 3), "dense": (2, 3), "where": (3, 3), "requantize": (4, 18), "concatenate": (1, 2**32),
     "quotient": (6, 20), "normalize": (6, 6), "update_slice": (3, 3)}
"""The least and the largest number of inputs of the ops that have several."""

SECOND = ("matmul", "quotient", "normalize", "update_slice")
"""The ops that are not in op-set 1."""

def op_record(data):
    """An op: its name, attributes, numbers of inputs, number of the first output, shapes of the outputs."""
    r = _Reader(data)
    r.tag(b"cvm1:op\0")
    name = r.text()
    kinds = {0: r.flag, 1: lambda: r.i(8), 2: r.text, 3: lambda: tuple(r.many(lambda: r.i(8), 8))}
    def attribute():
        key, kind = r.text(), r.u(1)
        require(kind in kinds, "op", f"there is no kind {kind} of attribute")
        return key, kinds[kind]()
    items = r.many(attribute, 6)
    inputs, first = r.many(lambda: r.u(4), 4), r.u(4)
    outputs = [v[1] for v in r.many(lambda: (r.text(), r.shape(), r.i(8), r.i(8)), 29)]
    r.end()
    a, allowed, (least, most) = dict(items), ATTRIBUTES.get(name, {}), ARITY.get(name, (1, 1))
    require([key for key, _ in items] == sorted(a), "op", "attributes are out of order")
    require(name in ONE_STEP or name in SEVERAL_STEPS, "op", f"there is no op {name[:80]!r}")
    require(a.keys() <= allowed.keys() and (a.keys() == allowed.keys() or name == "take")
            and all(allowed[key](v) for key, v in a.items()), "op", f"these are no attributes of a {name}")
    require(least <= len(inputs) <= most, "op", f"a {name} has not {len(inputs)} inputs")
    require(len(outputs) == 1 + (name == "get_valid_count"), "op", f"a {name} has not {len(outputs)} outputs")
    return name, a, inputs, first, outputs

# Operands

class _Operand:
    """A tensor of which some leaves are open; it records the leaves that are read."""

    def __init__(self, extents, size, leaves):
        self.shape, self.size, self.leaves, self.read = extents, size, leaves, set()
    def __getitem__(self, d):
        inside = len(d) == len(self.shape) and all(0 <= i < n for i, n in zip(d, self.shape, strict=True))
        require(inside, "op", f"there is no index {d}")
        leaf, position = divmod(number(d, self.shape) * self.size, 1024)
        require(leaf in self.leaves, "closed", f"leaf {leaf} is read and not open")
        self.read.add(leaf)
        return int.from_bytes(self.leaves[leaf][position : position + self.size], "little", signed=True)

class _Operands:
    """The operands by position, each opened when it is first asked for."""

    def __init__(self, count, opening):
        self.count, self.opening, self.opened = count, opening, {}
    def __getitem__(self, position):
        require(0 <= position < self.count, "op", f"there is no operand {position}")
        if position not in self.opened:
            self.opened[position] = self.opening(position)
        return self.opened[position]

def number(d, extents):
    """The number of an index, row-major."""
    return sum(i * prod(extents[k + 1 :]) for k, i in enumerate(d))

def index(number, extents):
    """The index of that number."""
    return tuple(number // prod(extents[k + 1 :]) % n for k, n in enumerate(extents))

def replaced(d, axis, i):
    return (*d[:axis], i, *d[axis + 1 :])

# Ops of one step: the derived shape, and the element; from attributes, operands and index

def same(a, x):
    return x[0].shape

def joint(a, x):
    m, n = ([1] * (8 - len(X.shape)) + list(X.shape) for X in x)
    return tuple(map(max, m, n))[-max(len(X.shape) for X in x) :]

def aligned(d, X):
    """The element of X that broadcasts to index d."""
    m = X.shape
    return X[tuple(i if i < m[j] else 0 for j, i in enumerate(d[len(d) - len(m) + j] for j in range(len(m))))]

def both(function):
    return joint, lambda a, x, d: function(aligned(d, x[0]), aligned(d, x[1]))

def alike(function):
    return same, lambda a, x, d: function(a, *[X[d] for X in x])

def clip(v, a):
    alpha = (1 << a["precision"] - 1) - 1
    return max(-alpha, min(v, alpha))

def real(axes, N):
    """The axes, with the rank added to negative ones."""
    return [i if i >= 0 else i + N for i in axes]

def order_of(a, x):
    N = len(x[0].shape)
    return real([a["axes"][i] for i in range(N)], N) if a["axes"] else list(reversed(range(N)))

def slices(a, x):
    """Along each axis: where a slice begins, its step, and its number of elements."""
    N = len(x[0].shape)
    begin, end, strides = ([*a[k], *[None] * N][:N] for k in ("begin", "end", "strides"))
    for n, b, e, s in zip(x[0].shape, begin, end, strides, strict=True):
        s = 1 if s is None else s
        b, e = 0 if b is None else b if b >= 0 else b + n, n if e is None else e if e >= 0 else e + n
        b, e = (max(-1, min(i, n - 1)) if s < 0 else max(0, min(i, n)) for i in (b, e))
        yield b, s, -((b - e) // s)

def sliced_axes(a, x):
    return real(a["axes"], len(x[0].shape)) or range(len(x[1].shape))

def taken(a, x):
    (n, m), axis = (X.shape for X in x), a.get("axis")
    if axis is None:
        return m
    axis = real([axis], len(n))[0]
    return (*n[:axis], *m, *n[axis + 1 :])

def take(a, x, d):
    X, indices = x
    if a.get("axis") is None:
        return X[index(max(0, min(indices[d], prod(X.shape) - 1)), X.shape)]
    axis, M = real([a["axis"]], len(X.shape))[0], len(indices.shape)
    i = max(0, min(indices[d[axis : axis + M]], X.shape[axis] - 1))
    return X[(*d[:axis], i, *d[axis + M :])]

def axis_of(a, x):
    return a["axis"] if a["axis"] >= 0 else a["axis"] + len(x[0].shape) + 1

def expanded(a, x):
    n, axis = x[0].shape, axis_of(a, x)
    return (*n[:axis], *(1,) * a["num_newaxis"], *n[axis:])

def kept_axes(a, x):
    n = x[0].shape
    gone = real(a["axes"], len(n)) or [i for i in range(len(n)) if n[i] == 1]
    return [i for i in range(len(n)) if i not in gone]

def squeeze(a, x, d):
    kept = kept_axes(a, x)
    return x[0][tuple(d[kept.index(i)] if i in kept else 0 for i in range(len(x[0].shape)))]

def repeated(a, x):
    n, axis = x[0].shape, real([a["axis"]], len(x[0].shape))[0]
    return (*n[:axis], n[axis] * a["repeats"], *n[axis + 1 :])

def repeat(a, x, d):
    axis = real([a["axis"]], len(x[0].shape))[0]
    return x[0][replaced(d, axis, d[axis] // a["repeats"])]

def updated(a, x, d):
    axis = real([a["axis"]], len(d))[0]
    extent = x[1].shape[axis]
    s = min(max(x[2][0,], 0), x[0].shape[axis] - extent)
    return x[1][replaced(d, axis, d[axis] - s)] if s <= d[axis] < s + extent else x[0][d]

def tiled(a, x):
    n, m = x[0].shape, a["reps"]
    K = max(len(n), len(m))
    return tuple(i * k for i, k in zip((1,) * (K - len(n)) + n, (1,) * (K - len(m)) + m, strict=True))

def upsampled(a, x):
    N, C, H, W = x[0].shape
    return N, C, H * a["scale"], W * a["scale"]

ONE_STEP = {
    "broadcast_add": both(lambda p, q: p + q), "broadcast_sub": both(lambda p, q: p - q),
    "broadcast_mul": both(lambda p, q: p * q), "broadcast_max": both(max),
    "broadcast_div": both(lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) if q else 0),
    "broadcast_greater": both(lambda p, q: int(p > q)),
    "elemwise_add": alike(lambda a, p, q: p + q), "elemwise_sub": alike(lambda a, p, q: p - q),
    "relu": alike(lambda a, v: max(0, v)), "abs": alike(lambda a, v: abs(v)), "negative": alike(lambda a, v: -v),
    "cvm_precision": alike(lambda a, v: max(1, abs(v).bit_length())),
    "clip": alike(lambda a, v: a["a_max"] if v >= a["a_max"] else max(a["a_min"], v)),
    "cvm_clip": alike(lambda a, v: clip(v, a)),
    "cvm_right_shift": alike(lambda a, v: clip(((v >> a["shift_bit"] - 1) + 1) >> 1, a)),
    "cvm_left_shift": alike(lambda a, v: clip(v << a["shift_bit"], a)),
    "upsampling": (upsampled, lambda a, x, d: x[0][(*d[:2], d[2] // a["scale"], d[3] // a["scale"])]),
    "tile": (tiled, lambda a, x, d: x[0][tuple(map(lambda i, n: i % n, d[len(d) - len(x[0].shape) :], x[0].shape))]),
    "repeat": (repeated, repeat), "update_slice": (same, updated),
    "flatten": (lambda a, x: (prod(x[0].shape),), lambda a, x, d: x[0][index(d[0], x[0].shape)]),
    "transpose": (lambda a, x: tuple(x[0].shape[i] for i in order_of(a, x)),
                  lambda a, x, d: x[0][tuple(d[order_of(a, x).index(i)] for i in range(len(d)))]),
    "slice": (lambda a, x: tuple(n for _, _, n in slices(a, x)),
              lambda a, x, d: x[0][tuple(b + s * i for (b, s, _), i in zip(slices(a, x), d, strict=True))]),
    "slice_like": (lambda a, x: tuple(x[1].shape[k] if k in sliced_axes(a, x) else n for k, n in enumerate(x[0].shape)),
                   lambda a, x, d: x[0][d]),
    "take": (taken, take), "cvm_lut": (taken, take),
    "expand_dims": (expanded, lambda a, x, d: x[0][d[: axis_of(a, x)] + d[axis_of(a, x) + a["num_newaxis"] :]]),
    "reshape": (lambda a, x: a["target_shape"], lambda a, x, d: x[0][inner(number(d, a["target_shape"]), x[0].shape)]),
    "squeeze": (lambda a, x: tuple(x[0].shape[i] for i in kept_axes(a, x)) or (1,), squeeze),
    "where": (lambda a, x: x[1].shape,
              lambda a, x, d: x[1 if x[0][d if x[0].shape == x[1].shape else d[:1]] else 2][d]),
}

def inner(number, extents):
    """The index of that number, which must exist."""
    require(number < prod(extents), "op", f"there is no element {number}")
    return index(number, extents)

# Ops of several steps: the number of steps, the partial to start with, and the step; section 9 of the page

def most_leaves(strides, box):
    """The most leaves that a box of elements touches, wherever it begins."""
    span = sum(s * (n - 1) for s, n in zip(strides, box, strict=True)) + 1
    return min(1 - (1 - span) // 256, box[0] * most_leaves(strides[1:], box[1:])) if box else 1

def chunks(space, operands, leaves=9):
    """An index space in boxes: how many boxes, and the indices in box j."""
    box = [1] * len(space)
    def fits(axis, n):
        wider = replaced(tuple(box), axis, n)
        touched = [most_leaves(strides, wider) for strides in operands]
        return prod(wider) <= 256 and max(touched) <= 8 and sum(touched) <= leaves
    for axis in reversed(range(len(space))):
        box[axis] = next((n for n in range(min(space[axis], 256), 1, -1) if fits(axis, n)), 1)
        if box[axis] < space[axis]:
            break
    grid = [-(-n // b) for n, b in zip(space, box, strict=True)]
    def indices(j):
        ranges = []
        for g, b, n in reversed(list(zip(grid, box, space, strict=True))):
            j, k = divmod(j, g)
            ranges.append(range(k * b, min((k + 1) * b, n)))
        return product(*reversed(ranges))
    return prod(grid), indices

def conv2d(a, x, d, outputs, target):
    (n, oc, p, q), (_, _, H, WD), (OC, IC, KH, KW) = d, x[0].shape, x[1].shape
    (PH, PW), (SH, SW), (DH, DW), OPG = a["padding"], a["stride"], a["dilation"], OC // a["groups"]
    count, indices = chunks((IC, KH, KW), [(H * WD, DH * WD, DW), (KH * KW, KW, 1)])
    def step(j, total):
        for ic, i, k in indices(j):
            at = n, oc // OPG * IC + ic, p * SH - PH + i * DH, q * SW - PW + k * DW
            value = x[0][at] if 0 <= at[2] < H and 0 <= at[3] < WD else 0
            total += value * x[1][oc, ic, i, k]
        return total + x[2][oc,] if j == count - 1 and x.count == 3 else total
    return count, 0, step

def dense(a, x, d, outputs, target):
    X, W, (m, n) = x[0], x[1], d
    _, K = X.shape
    count, indices = chunks((K,), [(1,), (1,)])
    def step(j, total):
        total += sum(X[m, k] * W[n, k] for (k,) in indices(j))
        return total + x[2][n,] if j == count - 1 and x.count == 3 else total
    return count, 0, step

def max_pool2d(a, x, d, outputs, target):
    (n, c, p, q), (_, _, H, WD), (PH, PW), (SH, SW) = d, x[0].shape, a["padding"], a["strides"]
    count, indices = chunks(a["pool_size"], [(WD, 1)])
    def step(j, before):
        window = [(p * SH - PH + i, q * SW - PW + k) for i, k in indices(j)]
        return max(before, *[x[0][n, c, y, z] if 0 <= y < H and 0 <= z < WD else -(2**31) for y, z in window])
    return count, -(2**31), step

def reduce(start, function):
    def fold(a, x, d, outputs, target):
        n = x[0].shape
        N = len(n)
        R = [j for j in range(N) if not a["axes"] or (j in real(a["axes"], N)) != a["exclude"]]
        kept = [i for i in range(N) if i not in R]
        fixed = dict(zip(kept, [d[i] for i in kept] if len(d) == N else d, strict=False))
        count, indices = chunks([n[i] for i in R], [[prod(n[i + 1 :]) for i in R]])
        def step(j, total):
            for z in indices(j):
                at = fixed | dict(zip(R, z, strict=True))
                total = function(total, x[0][tuple(at[i] for i in range(N))])
            return total
        return count, start, step
    return fold

def requantize(a, x, d, outputs, target):
    n = (x.count - 2) // 2
    def step(i, before):
        X, m = x[i], x[n + i]
        v = before + aligned(d, m) * aligned(d, X)
        if i < n - 1:
            return v
        c, s = x[2 * n], x[2 * n + 1]
        v, s = v + aligned(d, c), aligned(d, s)
        require(0 <= s <= 62, "op", "a shift is in [0, 62]")
        return max(a["lo"], min(divided(v, 1 << s, a["rounding"]), a["hi"]))
    return n, 0, step

def divided(v, by, rounding):
    floor, twice = v // by, 2 * (v % by)
    return floor + {"half_up": twice >= by, "toward_zero": v < 0 < twice,
                    "half_even": twice > by or (twice == by and floor % 2 == 1)}[rounding]

def quotient(a, x, d, outputs, target):
    n, count = a["terms"], (x.count - 2) // 2
    require(n < count, "op", f"{count} tensors are not {n} terms and a divisor")
    def product_of(i):
        X, m = x[i], x[count + i]
        return aligned(d, m) * aligned(d, X)
    def step(i, before):
        if i < n:
            return before + product_of(i) + (aligned(d, x[2 * count]) if i == n - 1 else 0)
        divisor = sum(map(product_of, range(n, count))) + aligned(d, x[2 * count + 1])
        require(divisor > 0, "op", "a divisor is positive")
        return max(a["lo"], min(divided(before, divisor, a["rounding"]), a["hi"]))
    return n + 1, 0, step

def normalize(a, x, d, outputs, target):
    X = x[0]
    require(X.shape == outputs[0], "shape", "a normalize of this operand has another shape")
    R = real(a["axes"], len(X.shape))
    space = [X.shape[i] for i in R]
    count, indices = chunks(space, [[prod(X.shape[i + 1 :]) for i in R]])
    def step(j, before):
        if j < count:
            for z in indices(j):
                at = dict(zip(R, z, strict=True))
                v = X[tuple(at.get(i, k) for i, k in enumerate(d))]
                before += (v * v << 64) + v
            return before
        total, n = (before + 2**63) % 2**64 - 2**63, prod(space)
        squares = before - total >> 64
        t, Q = {"variance": (n * X[d] - total, n * squares - total * total), "mean_square": (n * X[d], n * squares),
                "square_sum": (X[d], squares)}[a["statistic"]]
        m, c, k, r, e = [aligned(d, x[i]) for i in range(1, 6)]
        V, left = r * r * Q + (e << a["shift"]), 2 * m * t * r
        below, above = a["lo"], a["hi"] + 1
        while above - below > 1:
            q = (below + above) // 2
            T = (2 * q - 1) * k - 2 * c
            tie = a["rounding"] == "half_up" or q % 2 == 0
            reached = left * abs(left) > T * abs(T) * V or (tie and left * abs(left) == T * abs(T) * V)
            below, above = (q, above) if reached else (below, q)
        return below
    return count + 1, 0, step

def matmul(a, x, d, outputs, target):
    *b, m, n = d
    shared = [i // (e // f) for i, e, f in zip(b, x[0].shape[:-2], x[1].shape[:-2], strict=True)]
    count, indices = chunks((x[0].shape[-2 if a["transpose_a"] else -1],), [
        (x[0].shape[-1] if a["transpose_a"] else 1,), (1 if a["transpose_b"] else x[1].shape[-1],)])
    def step(j, total):
        for (k,) in indices(j):
            row, column = (k, m) if a["transpose_a"] else (m, k), (n, k) if a["transpose_b"] else (k, n)
            total += x[0][(*b, *row)] * x[1][(*shared, *column)]
        return total
    return count, 0, step

def concatenate(a, x, d, outputs, target):
    axis = a["axis"] % len(d)
    def step(j, before):
        if before < SEARCHING:
            return before
        rest = before - SEARCHING
        for k in range(8 * j, min(8 * j + 8, x.count)):
            if rest < x[k].shape[axis]:
                return x[k][replaced(d, axis, rest)]
            rest -= x[k].shape[axis]
        return SEARCHING + rest
    return -(-x.count // 8), SEARCHING + d[axis], step

def search(count, indices, start, chosen, element):
    """A search in ``count`` steps: the element at the first chosen index after ``start`` others, or -1."""
    def step(j, before):
        if before < SEARCHING:
            return before
        for k in indices(j):
            if chosen(k):
                if before == SEARCHING:
                    return element(k)
                before -= 1
        return -1 if j == count - 1 else before
    return count, SEARCHING + start, step

def parts(extent, size=1):
    most = max(1, 256 // size)
    return -(-extent // most), lambda j: range(j * most, min((j + 1) * most, extent))

def get_valid_count(a, x, d, outputs, target):
    b, X = d[0], x[0]
    count, rows = parts(*X.shape[1:])
    def valid(n):
        return X[b, n, 1] > a["score_threshold"]
    if target == 0:
        (b,) = d
        return count, 0, lambda j, before: before + sum(map(valid, rows(j)))
    b, skipped, k = d
    return search(count, rows, skipped, valid, lambda n: X[b, n, k])

def rank(a, x, d, shape):
    (b, i), X, valid = d, x[0], x[1]
    _, N, K = X.shape
    count, indices = chunks((N,), [(K,)], 7)
    def step(j, before):
        T = max(min(N, valid[b,]), 0)
        if i >= T:
            return -1
        score = X[b, i, 1]
        return before + sum((-X[b, k, 1], k) < (-score, i) for (k,) in indices(j) if k < T and k != i)
    return count, 0, step

def order(a, x, d, shape):
    ranks, (b, p) = x[2], d
    return search(*parts(ranks.shape[1]), 0, lambda i: ranks[b, i] == p, lambda i: i)

def kept(a, x, d, shape):
    (b, p), X, rows, members = d, x[0], x[3], x[4]
    def step(q, before):
        if before == 0 or rows[d] < 0:
            return 0
        if q == p:
            return int((a["top_k"] < 0 or p < a["top_k"]) and X[b, rows[d], 0] >= 0)
        if members[b, q] != 1:
            return 1
        r, s = ([X[b, rows[b, position], k] for k in range(6)] for position in (p, q))
        return int(not ((a["force_suppress"] or r[0] == s[0]) and overlap(r, s, a["iou_threshold"])))
    return p + 1, 1, step

def overlap(r, s, threshold):
    areas = (r[4] - r[2]) * (r[5] - r[3]) + (s[4] - s[2]) * (s[5] - s[3])
    both = max(0, min(r[4], s[4]) - max(r[2], s[2])) * max(0, min(r[5], s[5]) - max(r[3], s[3]))
    return areas > 0 and areas > both and 100 * both >= threshold * (areas - both)

def kept_row(a, x, d, shape):
    (b, n, k), X, rows, members = d, x[0], x[3], x[4]
    count, indices = parts(shape[1])
    if 0 <= a["max_output_size"] <= n:
        return count, SEARCHING + n, lambda j, before: before if before < SEARCHING else -1
    return search(count, indices, n, lambda p: members[b, p] == 1, lambda p: X[b, rows[b, p], k])

SEVERAL_STEPS = {
    "conv2d": conv2d, "dense": dense, "max_pool2d": max_pool2d, "sum": reduce(0, lambda p, q: p + q),
    "max": reduce(-(2**31), max), "requantize": requantize, "concatenate": concatenate,
    "matmul": matmul, "quotient": quotient, "normalize": normalize,
    "get_valid_count": get_valid_count,
    "non_max_suppression": lambda a, x, d, y, target: (rank, order, kept, kept_row)[target](a, x, d, y[0]),
}

def fold(name, a, x, d, outputs, target):
    if name not in ONE_STEP:
        return SEVERAL_STEPS[name](a, x, d, outputs, target)
    follows, element = ONE_STEP[name]
    def step(j, before):
        operands = [x[k] for k in range(x.count)]
        require(tuple(follows(a, operands)) == outputs[0], "shape", f"a {name} of these operands has another shape")
        return element(a, operands, d)
    return 1, 0, step

# The proof: section 9, byte by byte

class _Proof:
    """The content of a file; nothing of it is known to be true."""

    def __init__(self, data):
        require(len(data) <= LONGEST, "proof_bytes", "a proof has at most 2^20 bytes")
        r = _Reader(data)
        r.tag(b"cvm1:step-proof\0")
        r.tag(b"cvm1:step-claim\0")
        begin = r.position
        self.head, self.op, self.target, self.auxiliaries, self.element = r.take(32), r.u(4), r.u(4), r.roots(), r.u(8)
        self.location, self.step, self.partials = data[begin : r.position], r.u(4), r.take(32)
        self.op_set, self.limits, self.lists = r.u(4), r.text(), [(r.u(8), r.take(32)) for _ in range(5)]
        self.inputs, self.before, self.log = r.roots(), r.roots(), r.take(32)
        self.record, self.record_path = r.binary(), r.roots()
        self.first = [r.i(16)] if r.flag() else []  # the partial before the step
        self.after, self.path = r.i(16), r.roots()
        self.operands = r.many(lambda: self.operand(r), 55)
        r.end()
    def operand(self, r):
        """Position, type, extents, root of the data, source, leaves, path of the leaves."""
        tensor, source = (r.u(4), r.u(1), r.shape(), r.take(32)), self.source(r)
        return *tensor, source, r.many(lambda: (r.u(8), self.leaf(r)), 12), r.roots()
    def leaf(self, r):
        leaf = r.binary()
        require(1 <= len(leaf) <= 1024, "leaf", "a leaf has 1 to 1024 bytes")
        return leaf
    def source(self, r):
        kind = r.u(1)
        require(kind <= 2, "source", f"there is no kind {kind} of source")
        if kind == 2:
            return kind, r.u(4), r.binary(), r.roots(), r.roots(), r.roots()
        return (kind, r.text(), r.roots()) if kind else (kind,)

# The judgement

class _Run:
    """The run that a proof is about: the ops and operands that it shows, each compared with the head."""

    def __init__(self, p):
        self.p = p
        (self.ops, _), (self.constants, _), (self.given, _), _, (self.state, _) = p.lists
        require((len(p.inputs), len(p.before)) == (self.given, self.state) and p.op < self.ops, "counts",
                "the run has not the op, the inputs and the state of the program")
        self.name, self.attributes, self.numbers, _, self.outputs = self.op(p.op, p.record, p.record_path)
        self.hidden = 3 if self.name == "non_max_suppression" else 0
        extra = self.extra = min(self.hidden, p.target + 1)
        require(len(p.auxiliaries) == extra, "auxiliaries", f"{extra} roots of auxiliary tensors belong to the target")
        self.openings = {operand[0]: operand for operand in p.operands}
        require(sorted(self.openings) == [k for k, *_ in p.operands], "operands", "operands are out of order")

    def op(self, m, record, path):
        require(merkle({m: record}, self.ops, path) == self.p.lists[0][1], "record", f"op {m} is another one")
        return op_record(record)

    def known(self, v, source, root):
        """The root that the run has for value v, and the shape that the program declares for it, if that is shown."""
        p, (kind, *shown), begin = self.p, source, self.given + self.constants
        if v < self.given or begin <= v < begin + self.state:
            require(kind == 0, "source", "the run began with this operand")
            return (p.inputs[v] if v < self.given else p.before[v - begin]), None
        if v < begin:
            require(kind == 1, "source", "this operand is a constant")
            record = b"cvm1:constant\0" + text(shown[0]) + root
            return (root if merkle({v - self.given: record}, self.constants, shown[1]) == p.lists[1][1] else None), None
        require(kind == 2, "source", "this operand is what an op gave")
        m, record, record_path, roots, path = shown
        _, _, _, start, shapes = self.op(m, record, record_path)
        require(0 <= v - start < len(shapes) == len(roots), "source", "another op gave this operand")
        made = merkle({m: b"cvm1:step\0" + pack("<I", m) + listed(roots)}, p.op, path)
        require(made == p.log, "log", f"op {m} has not given these roots in the run")
        return roots[v - start], shapes[v - start]

    def opening(self, position):
        """An operand, opened down to its leaves."""
        require(position in self.openings, "closed", f"operand {position} is read and not open")
        _, dtype, extents, data_root, source, leaves, path = self.openings[position]
        require(dtype in (1, 2), "dtype", "a type of elements is 1 or 2")
        length = 4 * dtype * prod(extents)
        require(length < 2**64, "integer", "a tensor has less than 2^64 bytes")
        root = h(b"cvm1:tensor\0", pack("B", dtype), shape(extents), pack("<Q", length), data_root)
        if position >= len(self.numbers):
            require(source[0] == 0, "source", "an auxiliary tensor is in the claim")
            due, declared = self.p.auxiliaries[position - len(self.numbers)], self.outputs[0][:2]
        else:
            due, declared = self.known(self.numbers[position], source, root)
        require(root == due, "root", "an operand is not that of the run")
        require(declared in (None, extents), "shape", "an operand has not the shape that the program gives it")
        indices = [k for k, _ in leaves]
        fit = indices == sorted(set(indices)) and all(len(leaf) == min(1024, length - 1024 * k) for k, leaf in leaves)
        require(fit, "leaves", "leaves are out of order, or have not their length")
        whole = merkle(dict(leaves), -(-length // 1024), path) == data_root if leaves else not path
        require(whole, "leaves", "a leaf is another one")
        return _Operand(extents, 4 * dtype, dict(leaves))

def judge(data, expected=None):
    """Refuse a proof, or say what it is about."""
    p = _Proof(data)
    program = h(b"cvm1:program\0", pack("<I", p.op_set), text(p.limits), *(list_root(*each) for each in p.lists))
    head = h(b"cvm1:trace\0", program, listed(p.inputs), listed(p.before), list_root(p.op, p.log))
    require(head == p.head and expected in (None, head), "head", "program, inputs, state and log do not give the head")
    require(p.op_set in (1, 2), "op_set", f"there is no op-set {p.op_set} here")
    run = _Run(p)
    require(p.op_set == 2 or run.name not in SECOND, "op_set", f"op-set 1 has no {run.name}")
    x, outputs = _Operands(len(run.numbers) + run.extra, run.opening), run.outputs
    require(p.target - run.hidden < len(outputs), "target", f"a {run.name} has no target {p.target}")
    extents = outputs[0][:2] if p.target < run.hidden else outputs[p.target - run.hidden]
    require(p.element < prod(extents), "element", "there is no such element")
    d = index(p.element, extents)
    count, start, course = fold(run.name, run.attributes, x, d, outputs, p.target)
    require(p.step < count, "count", f"the element takes {count} steps")
    require(len(p.first) == (p.step > 0), "before", "the first step has no partial before it")
    gives = course(p.step, p.first[0] if p.first else start)
    require(gives == p.after, "after", f"the step gives {gives}, not {p.after}")
    shown = [b"cvm1:partial\0" + partial.to_bytes(16, "little", signed=True) for partial in (p.after, *p.first)]
    root = merkle({p.step - i: record for i, record in enumerate(shown)}, count, p.path)
    found = root and h(b"cvm1:partials\0", p.location, pack("<Q", count), root)
    require(found == p.partials, "partials", "the partials are not those that were committed to")
    require(sorted(x.opened) == list(run.openings), "operands", "an operand is open that is not read")
    require(all(t.read == set(t.leaves) for t in x.opened.values()), "leaves", "a leaf is open that is not read")
    return (f"program   {program.hex()}\nhead      {p.head.hex()}\nop        {p.op} {run.name}\ntarget    {p.target}\n"
            f"element   {p.element}: {list(d)} of {list(extents)}\nstep      {p.step} of {count}\npartial   {p.after}")

def judged(data, head=None):
    """Whether a proof is accepted, and what it is about or why it is refused; a Python error means an impossible op."""
    try:
        return True, judge(data, head)
    except Refused as refusal:
        kind, why = refusal.args
    except (ArithmeticError, LookupError, TypeError, ValueError, struct.error) as error:
        kind, why = "op", f"the op cannot be what the program says of it: {error}"
    return False, f"{why} [{kind}]"

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("proof", nargs="?")
    parser.add_argument("--head", type=bytes.fromhex, metavar="HEX")
    parser.add_argument("--vectors", metavar="DIR", help="the folder spec_vectors: judge its steps/*.step")
    options = parser.parse_args()
    if (options.proof is None) == (options.vectors is None):
        parser.error("expected a proof, or --vectors")
    if options.vectors:
        paths = sorted(Path(options.vectors, "steps").glob("*.step"))
        wrong = [path.stem for path in paths if judged(path.read_bytes())[0] == path.stem.startswith("refused_")]
        print(f"{len(paths)} proofs, wrong: {wrong}" if paths else f"no steps/*.step in {options.vectors}")
        return 1 if wrong or not paths else 0
    try:
        with open(options.proof, "rb") as file:
            data = file.read(LONGEST + 1)
    except OSError as error:
        print(f"UNREADABLE: {error.strerror}")
        return 3
    accepted, words = judged(data, options.head)
    print(f"{words}\nACCEPTED" if accepted else f"REFUSED: {words}")
    return 0 if accepted else 1

if __name__ == "__main__":
    sys.exit(main())
