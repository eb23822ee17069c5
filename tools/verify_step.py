"""Judge one-step proofs with Python's standard library alone: nothing of cvm, nor any other file, is imported.

    python tools/verify_step.py PROOF [--head HEX]
    python tools/verify_step.py --vectors spec_vectors

A proof says: in the run whose state before an op is the head, step j of the fold of one element of what the op gives
follows from the partial before it. docs/commitments.md, section 9, gives every byte, and says what the partials are of
each op. Prints what the proof is about, and ACCEPTED (exit code 0) or REFUSED (1); 3 is for files that cannot be read.
--head refuses proofs of another state. The program, whose digest is printed, is taken to be a valid one: whoever trusts
the proof has verified the program, and has the head from a game (docs/disputes.md) or a trace.
"""

# One sitting: bytes and hashes; operands; the ops; the judgement.
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
"""Bytes of a proof that are looked at."""
SEARCHING = 2**32
"""Partials from here on are no elements: so much is left to skip."""

class Refused(Exception):
    """The proof shows nothing."""

def require(holds, why):
    if not holds:
        raise Refused(why)

# Bytes and hashes: docs/commitments.md, sections 1 to 5 and 8

class _Reader:
    """Bytes, front to back."""

    def __init__(self, data):
        self.data, self.place = data, 0
    def take(self, size):
        require(size <= len(self.data) - self.place, "the bytes end too early")
        self.place += size
        return self.data[self.place - size : self.place]
    def u(self, size, signed=False):
        return int.from_bytes(self.take(size), "little", signed=signed)
    def i(self, size):
        return self.u(size, signed=True)
    def flag(self):
        flag = self.u(1)
        require(flag < 2, "a flag is 0 or 1")
        return flag == 1
    def binary(self):
        return self.take(self.u(4))
    def text(self):
        return self.binary().decode("utf-8")
    def many(self, item, least):
        count = self.u(4)
        require(count * least <= len(self.data) - self.place, "the bytes end too early")
        return [item() for _ in range(count)]
    def roots(self):
        return self.many(lambda: self.take(32), 32)
    def shape(self):
        extents = tuple(self.u(8) for _ in range(self.u(1)))
        require(1 <= len(extents) <= 8 and min(extents) > 0, "a tensor has 1 to 8 extents, each 1 or more")
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
    """The root of the tree of ``count`` leaves in which these, by their numbers, stand with this proof."""
    last, path = count - 1, list(path)
    require(leaves and all(0 <= k <= last for k in leaves), "there is no such leaf")
    nodes = {k: h(b"\0", leaves[k]) for k in sorted(leaves)}
    while last:
        above = {}
        for k, node in nodes.items():
            if k ^ 1 > last:
                above[k // 2] = node
            elif k % 2 == 0 or k - 1 not in nodes:
                require(k ^ 1 in nodes or path, "a path is too short")
                other = nodes[k ^ 1] if k ^ 1 in nodes else path.pop(0)
                above[k // 2] = h(b"\1", other, node) if k % 2 else h(b"\1", node, other)
        nodes, last = above, last // 2
    require(not path, "a path is too long")
    return nodes[0]

def op_record(data):
    """An op: its name, attributes, numbers of inputs, number of the first output, shapes of the outputs."""
    r = _Reader(data)
    require(r.take(8) == b"cvm1:op\0", "no record of an op")
    name = r.text()
    kinds = (r.flag, lambda: r.i(8), r.text, lambda: tuple(r.many(lambda: r.i(8), 8)))
    attributes = dict(r.many(lambda: (r.text(), kinds[r.u(1)]()), 6))
    inputs, first = r.many(lambda: r.u(4), 4), r.u(4)
    outputs = [v[1] for v in r.many(lambda: (r.text(), r.shape(), r.i(8), r.i(8)), 29)]
    require(r.place == len(data), "bytes follow the record of an op")
    return name, attributes, inputs, first, outputs

# Operands

class _Operand:
    """A tensor of which some leaves are open; it notes which are read."""

    def __init__(self, extents, size, leaves):
        self.shape, self.size, self.leaves, self.read = extents, size, leaves, set()
    def __getitem__(self, d):
        require(all(0 <= i < n for i, n in zip(d, self.shape, strict=True)), f"there is no index {d}")
        leaf, place = divmod(number(d, self.shape) * self.size, 1024)
        require(leaf in self.leaves, "a leaf is read that is not open")
        self.read.add(leaf)
        return int.from_bytes(self.leaves[leaf][place : place + self.size], "little", signed=True)

class _Operands:
    """The open operands by position; it notes which are asked for."""

    def __init__(self, count, opened):
        self.count, self.opened, self.asked = count, opened, set()
    def __getitem__(self, position):
        require(position in self.opened, "an operand is read that is not open")
        self.asked.add(position)
        return self.opened[position]

def number(d, extents):
    """The number of an index, row-major."""
    return sum(i * prod(extents[k + 1 :]) for k, i in enumerate(d))

def index(number, extents):
    """The index of that number."""
    return tuple(number // prod(extents[k + 1 :]) % n for k, n in enumerate(extents))

def replaced(d, axis, i):
    return (*d[:axis], i, *d[axis + 1 :])

# Ops of one step: from attributes, operands and index to the element

def aligned(d, X):
    """The element of X that broadcasts to index d."""
    return X[tuple(i if i < n else 0 for i, n in zip(d[len(d) - len(X.shape) :], X.shape, strict=True))]

def both(function):
    return lambda a, x, d: function(aligned(d, x[0]), aligned(d, x[1]))

def cut(v, a):
    alpha = (1 << small(a["precision"]) - 1) - 1
    return max(-alpha, min(v, alpha))

def small(bits, most=32):
    require(0 <= bits <= most, f"a precision or shift is at most {most}")
    return bits

def transpose(a, x, d):
    N = len(x[0].shape)
    axes = [i % N for i in a["axes"]] or list(reversed(range(N)))
    return x[0][tuple(d[axes.index(i)] for i in range(N))]

def slices(a, x, d):
    def place(i, n, b=0, s=1):
        b = b + n if b < 0 else b
        return (max(-1, min(b, n - 1)) if s < 0 else max(0, min(b, n))) + s * i
    strides = [*a["strides"], *[1] * len(d)]
    begin = [*a["begin"], *[0] * len(d)]
    return x[0][tuple(map(place, d, x[0].shape, begin, strides))]

def take(a, x, d):
    X, indices = x
    if a.get("axis") is None:
        return X[index(max(0, min(indices[d], prod(X.shape) - 1)), X.shape)]
    axis, M = a["axis"] % len(X.shape), len(indices.shape)
    i = max(0, min(indices[d[axis : axis + M]], X.shape[axis] - 1))
    return X[(*d[:axis], i, *d[axis + M :])]

def expand_dims(a, x, d):
    axis = a["axis"] if a["axis"] >= 0 else a["axis"] + len(x[0].shape) + 1
    return x[0][d[:axis] + d[axis + a["num_newaxis"] :]]

def squeeze(a, x, d):
    n = x[0].shape
    gone = [i % len(n) for i in a["axes"]] or [i for i in range(len(n)) if n[i] == 1]
    kept = iter(d)
    return x[0][tuple(0 if i in gone else next(kept) for i in range(len(n)))]

ONE_STEP = {
    "broadcast_add": both(lambda p, q: p + q), "broadcast_sub": both(lambda p, q: p - q),
    "broadcast_mul": both(lambda p, q: p * q), "broadcast_max": both(max),
    "broadcast_div": both(lambda p, q: abs(p) // abs(q) * (1 if (p < 0) == (q < 0) else -1) if q else 0),
    "broadcast_greater": both(lambda p, q: int(p > q)),
    "elemwise_add": lambda a, x, d: x[0][d] + x[1][d], "elemwise_sub": lambda a, x, d: x[0][d] - x[1][d],
    "relu": lambda a, x, d: max(0, x[0][d]), "abs": lambda a, x, d: abs(x[0][d]),
    "negative": lambda a, x, d: -x[0][d],
    "cvm_precision": lambda a, x, d: max(1, abs(x[0][d]).bit_length()),
    "clip": lambda a, x, d: a["a_max"] if x[0][d] >= a["a_max"] else max(a["a_min"], x[0][d]),
    "cvm_clip": lambda a, x, d: cut(x[0][d], a),
    "cvm_right_shift": lambda a, x, d: cut(((x[0][d] >> small(a["shift_bit"]) - 1) + 1) >> 1, a),
    "cvm_left_shift": lambda a, x, d: cut(x[0][d] << small(a["shift_bit"]), a),
    "upsampling": lambda a, x, d: x[0][(*d[:2], d[2] // a["scale"], d[3] // a["scale"])],
    "tile": lambda a, x, d: x[0][tuple(i % n for i, n in zip(d[len(d) - len(x[0].shape) :], x[0].shape, strict=True))],
    "repeat": lambda a, x, d: x[0][replaced(d, a["axis"] % len(d), d[a["axis"]] // a["repeats"])],
    "flatten": lambda a, x, d: x[0][index(d[0], x[0].shape)], "transpose": transpose,
    "slice": slices, "slice_like": lambda a, x, d: x[0][d], "take": take, "cvm_lut": take,
    "expand_dims": expand_dims, "reshape": lambda a, x, d: x[0][index(number(d, a["target_shape"]), x[0].shape)],
    "squeeze": squeeze,
    "where": lambda a, x, d: x[1 if x[0][d if x[0].shape == x[1].shape else d[:1]] else 2][d],
}

# Ops of several steps: the number of steps, the partial to start with, and the step; section 9 of the page

def most_leaves(strides, box):
    """The most leaves that a box of elements touches, wherever it begins."""
    span = sum(s * (n - 1) for s, n in zip(strides, box, strict=True)) + 1
    return min(1 - (1 - span) // 256, box[0] * most_leaves(strides[1:], box[1:])) if box else 1

def chunks(space, operands, leaves=9):
    """An index space in boxes: how many, and the indices in box j."""
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
    (PH, PW), (SH, SW), (DH, DW), first = a["padding"], a["stride"], a["dilation"], oc // (OC // a["groups"]) * IC
    count, indices = chunks((IC, KH, KW), [(H * WD, DH * WD, DW), (KH * KW, KW, 1)])
    def step(j, total):
        for ic, i, k in indices(j):
            y, z = p * SH - PH + i * DH, q * SW - PW + k * DW
            weight = x[1][oc, ic, i, k]
            total += x[0][n, first + ic, y, z] * weight if 0 <= y < H and 0 <= z < WD else 0
        return total + x[2][oc,] if j == count - 1 and x.count == 3 else total
    return count, 0, step

def dense(a, x, d, outputs, target):
    count, indices = chunks((x[0].shape[1],), [(1,), (1,)])
    x[1]
    def step(j, total):
        total += sum(x[0][d[0], k] * x[1][d[1], k] for (k,) in indices(j))
        return total + x[2][d[1],] if j == count - 1 and x.count == 3 else total
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
        R = [j for j in range(N) if not a["axes"] or (j in [i % N for i in a["axes"]]) != a["exclude"]]
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
        v = before + aligned(d, x[n + i]) * aligned(d, x[i])
        if i < n - 1:
            return v
        v, s = v + aligned(d, x[2 * n]), small(aligned(d, x[2 * n + 1]), 62)
        floor, twice = v >> s, 2 * (v - (v >> s << s))
        up = {"half_up": twice >= 1 << s, "toward_zero": v < 0 < twice,
              "half_even": twice > 1 << s or (twice == 1 << s and floor % 2 == 1)}[a["rounding"]]
        return max(a["lo"], min(floor + up, a["hi"]))
    return n, 0, step

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

def search(count, places, start, chosen, element):
    """The element at the first chosen place after so many others; -1 if there is none."""
    def step(j, before):
        if before < SEARCHING:
            return before
        for k in places(j):
            if chosen(k):
                if before == SEARCHING:
                    return element(k)
                before -= 1
        return -1 if j == count - 1 else before
    return count, SEARCHING + start, step

def parts(extent, size):
    most = max(1, 256 // size)
    return -(-extent // most), lambda j: range(j * most, min((j + 1) * most, extent))

def get_valid_count(a, x, d, outputs, target):
    b, X = d[0], x[0]
    count, rows = parts(*X.shape[1:])
    def valid(n):
        return X[b, n, 1] > a["score_threshold"]
    if target == 0:
        return count, 0, lambda j, before: before + sum(map(valid, rows(j)))
    return search(count, rows, d[1], valid, lambda n: X[b, n, d[2]])

def rank(a, x, d, N):
    (b, i), X, valid = d, x[0], x[1]
    count, indices = chunks((N,), [(X.shape[2],)], 7)
    def step(j, before):
        T = max(min(N, valid[b,]), 0)
        if i >= T:
            return -1
        score = X[b, i, 1]
        return before + sum((-X[b, k, 1], k) < (-score, i) for (k,) in indices(j) if k < T and k != i)
    return count, 0, step

def order(a, x, d, N):
    return search(*parts(N, 1), 0, lambda i: x[2][d[0], i] == d[1], lambda i: i)

def kept(a, x, d, N):
    (b, p), X, rows, members = d, x[0], x[3], x[4]
    def step(q, before):
        if before == 0 or rows[d] < 0:
            return 0
        if q == p:
            return int((a["top_k"] < 0 or p < a["top_k"]) and X[b, rows[d], 0] >= 0)
        if members[b, q] != 1:
            return 1
        r, s = ([X[b, rows[b, place], k] for k in range(6)] for place in (p, q))
        return int(not ((a["force_suppress"] or r[0] == s[0]) and overlap(r, s, a["iou_threshold"])))
    return p + 1, 1, step

def overlap(r, s, threshold):
    areas = (r[4] - r[2]) * (r[5] - r[3]) + (s[4] - s[2]) * (s[5] - s[3])
    both = max(0, min(r[4], s[4]) - max(r[2], s[2])) * max(0, min(r[5], s[5]) - max(r[3], s[3]))
    return areas > 0 and areas > both and 100 * both >= threshold * (areas - both)

def kept_row(a, x, d, N):
    (b, n, k), X, rows, members = d, x[0], x[3], x[4]
    count, places = parts(N, 1)
    if 0 <= a["max_output_size"] <= n:
        return count, SEARCHING + n, lambda j, before: before if before < SEARCHING else -1
    return search(count, places, n, lambda p: members[b, p] == 1, lambda p: X[b, rows[b, p], k])

SEVERAL_STEPS = {
    "conv2d": conv2d, "dense": dense, "max_pool2d": max_pool2d, "sum": reduce(0, lambda p, q: p + q),
    "max": reduce(-(2**31), max), "requantize": requantize, "concatenate": concatenate,
    "get_valid_count": get_valid_count,
    "non_max_suppression": lambda a, x, d, y, target: (rank, order, kept, kept_row)[target](a, x, d, y[0][1]),
}

def fold(name, a, x, d, outputs, target):
    if name in ONE_STEP:
        return 1, 0, lambda j, before: ONE_STEP[name](a, [x[k] for k in range(x.count)], d)
    require(name in SEVERAL_STEPS, f"there is no op {name}")
    return SEVERAL_STEPS[name](a, x, d, outputs, target)

# The judgement

def judge(data, expected=None):
    """Refuse a proof, or say what it is about."""
    require(len(data) <= LONGEST, "a proof has at most 2^20 bytes")
    r = _Reader(data)
    require(r.take(32) == b"cvm1:step-proof\0cvm1:step-claim\0", "this is no proof")
    begin = r.place
    head, k, target, auxiliaries, element = r.take(32), r.u(4), r.u(4), r.roots(), r.u(8)
    place, step, partials = data[begin : r.place], r.u(4), r.take(32)
    op_set, limits, lists = r.u(4), r.text(), [(r.u(8), r.take(32)) for _ in range(5)]
    inputs, before, log = r.roots(), r.roots(), r.take(32)
    program = h(b"cvm1:program\0", pack("<I", op_set), text(limits), *(list_root(*each) for each in lists))
    found = h(b"cvm1:trace\0", program, listed(inputs), listed(before), list_root(k, log))
    require(found == head and expected in (None, head), "program, inputs, state and log do not give the head")
    (ops, _), (constants, _), (given, _), _, (state, _) = lists
    require(op_set == 1 and (len(inputs), len(before)) == (given, state) and k < ops, "this is not the program's run")

    def op(m, record, path):
        require(merkle({m: record}, ops, path) == lists[0][1], f"op {m} is another one")
        return op_record(record)

    name, a, numbers, _, outputs = op(k, r.binary(), r.roots())
    first = [r.i(16)] if r.flag() else []  # the partial before the step
    after, path = r.i(16), r.roots()
    extra = 3 if name == "non_max_suppression" else 0
    require(target < extra + len(outputs) and len(auxiliaries) == min(extra, target + 1), "there is no such target")
    extents = outputs[0][:2] if target < extra else outputs[target - extra]

    def root_of(position, root):
        """The root that the run gives an operand, and the shape that the program gives it, where that is shown."""
        kind = r.u(1)
        if position >= len(numbers):
            require(kind == 0, "an auxiliary tensor is in the claim")
            return auxiliaries[position - len(numbers)], outputs[0][:2]
        v = numbers[position]
        if v < given or given + constants <= v < given + constants + state:
            require(kind == 0, "the run began with this operand")
            return (inputs[v] if v < given else before[v - given - constants]), None
        if v < given + constants:
            require(kind == 1, "this operand is a constant")
            record = b"cvm1:constant\0" + text(r.text()) + root
            return (root if merkle({v - given: record}, constants, r.roots()) == lists[1][1] else None), None
        require(kind == 2, "this operand is what an op gave")
        m = r.u(4)
        _, _, _, start, shapes = op(m, r.binary(), r.roots())
        roots, way = r.roots(), r.roots()
        require(0 <= v - start < len(shapes) == len(roots), "another op gave this operand")
        made = merkle({m: b"cvm1:step\0" + pack("<I", m) + listed(roots)}, k, way)
        return (roots[v - start] if made == log else None), shapes[v - start]

    def operand():
        """An operand, by its position: opened down to its leaves."""
        position, dtype, own, data_root = r.u(4), r.u(1), r.shape(), r.take(32)
        require(dtype in (1, 2), "a type of elements is 1 or 2")
        length = 4 * dtype * prod(own)
        root = h(b"cvm1:tensor\0", pack("B", dtype), shape(own), pack("<Q", length), data_root)
        known, declared = root_of(position, root)
        require(root == known and declared in (None, own), "an operand is not that of the run")
        leaves, way = r.many(lambda: (r.u(8), r.binary()), 12), r.roots()
        require([n for n, _ in leaves] == sorted({n for n, _ in leaves}), "leaves are out of order")
        require(all(len(leaf) == min(1024, length - 1024 * n) for n, leaf in leaves), "a leaf has not its length")
        whole = merkle(dict(leaves), -(-length // 1024), way) == data_root if leaves else not way
        require(whole, "a leaf is another one")
        return position, _Operand(own, 4 * dtype, dict(leaves))

    opened = r.many(operand, 55)
    require(r.place == len(data), "bytes follow the proof")
    require([n for n, _ in opened] == sorted({n for n, _ in opened}), "operands are out of order")
    require(element < prod(extents), "there is no such element")
    x, d = _Operands(len(numbers), dict(opened)), index(element, extents)
    count, start, course = fold(name, a, x, d, outputs, target)
    require(step < count and len(first) == (step > 0), f"the element takes {count} steps")
    gives = course(step, first[0] if first else start)
    require(gives == after, f"the step gives {gives}, not {after}")
    shown = [b"cvm1:partial\0" + partial.to_bytes(16, "little", signed=True) for partial in (after, *first)]
    shown = {step - i: record for i, record in enumerate(shown)}
    root = h(b"cvm1:partials\0", place, pack("<Q", count), merkle(shown, count, path))
    require(root == partials, "the partials are not those that were committed to")
    require(x.asked == set(x.opened), "an operand is open that is not read")
    require(all(t.read == set(t.leaves) for t in x.opened.values()), "a leaf is open that is not read")
    return (f"program   {program.hex()}\nhead      {head.hex()}\nop        {k} {name}\ntarget    {target}\n"
            f"element   {element}: {list(d)} of {list(extents)}\nstep      {step} of {count}\npartial   {after}")

def judged(data, head=None):
    """Whether a proof is accepted, and what it is about or why not; what Python itself objects to is no proof."""
    try:
        return True, judge(data, head)
    except (Refused, ValueError, LookupError, TypeError, ArithmeticError, AttributeError, StopIteration,
            struct.error) as error:
        return False, str(error)

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("proof", nargs="?")
    parser.add_argument("--head", type=bytes.fromhex, metavar="HEX")
    parser.add_argument("--vectors", metavar="DIR", help="of steps/*.step, refused_* are to be refused")
    options = parser.parse_args()
    if (options.proof is None) == (options.vectors is None):
        parser.error("expected a proof, or --vectors")
    if options.vectors:
        paths = sorted(Path(options.vectors, "steps").glob("*.step"))
        wrong = [path.stem for path in paths if judged(path.read_bytes())[0] == path.stem.startswith("refused_")]
        print(f"{len(paths)} proofs, wrong: {wrong}")
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
