"""A verifier of programs that shares nothing with the project: Python's standard library, and three pages.

It was written from docs/verifier.md, docs/ops.md and section 7 of docs/commitments.md. `verdict` says of some bytes whether
they are a program that is accepted, with the gas of each node and the range of each value, or why they are refused.
"""

# One page, to be read in one go.
# fmt: off
# ruff: noqa: B905, E501, E701, E702
import re
import struct
from fractions import Fraction
from itertools import groupby
from math import gcd, prod
from types import SimpleNamespace

MAX32, MAX64, FIT, KEPT = 2**31 - 1, 2**63 - 1, 2**18, 2**21
ROUNDINGS = ("half_up", "half_even", "toward_zero")
LIMITS = {
    "default": {"program_bytes": 2**32, "entries": 25_000, "elements": 2**28, "constants": 2**32, "work": 2**40},
    "large": {"program_bytes": 2**36, "entries": 10**6, "elements": 2**31, "constants": 2**36, "work": 2**50},
}

class Refused(Exception): pass  # A program is refused; the argument is the code
def need(holds, code):  # Refuse with a code unless something holds
    if not holds: raise Refused(code)

# Reading (docs/verifier.md, section 1)
KINDS = {"integer": [(0, 0x7F), (0xCC, 0xD3), (0xE0, 0xFF)], "map": [(0x80, 0x8F), (0xDE, 0xDF)],
         "array": [(0x90, 0x9F), (0xDC, 0xDD)], "string": [(0xA0, 0xBF), (0xD9, 0xDB)],
         "boolean": [(0xC2, 0xC3)], "binary": [(0xC4, 0xC6)]}
KIND = {lead: kind for kind, spans in KINDS.items() for a, b in spans for lead in range(a, b + 1)}
SIZE = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4, 0xDC: 2, 0xDD: 4, 0xDE: 2, 0xDF: 4,
        **{0xCC + k: 1 << k % 4 for k in range(8)}}
MALFORMED = {f"program.{what}": "malformed" for what in
             ["canonical", "format", "key", "rational", "text", "trailing", "truncated", "type", "value", "version"]}
RATIONAL = re.compile("(-?(?:0|[1-9][0-9]*))/([1-9][0-9]*)", re.ASCII)

class Reader:  # Reads msgpack front to back, each item as it is expected
    def __init__(self, data, entries=None):
        self.data, self.at, self.short, self.entries, self.most = data, 0, True, 0, entries
    def kind(self):
        need(self.at < len(self.data), "program.truncated"); return KIND.get(self.data[self.at])
    def number(self, kind):  # The number or length at the head of an item of that kind
        need(self.kind() == kind, "program.type")
        lead, size = self.data[self.at], SIZE.get(self.data[self.at], 0); self.at += 1
        if not size:
            if kind == "integer": return lead - 256 * (lead >= 0xE0)
            return lead & (31 if kind == "string" else 15)
        number = int.from_bytes(self.take(size), "big", signed=0xD0 <= lead <= 0xD3)
        if kind == "integer":
            least = {0xCC: 2**7, 0xCD: 2**8, 0xCE: 2**16, 0xCF: 2**32}.get(lead)
            below = {0xD0: -(2**5), 0xD1: -(2**7), 0xD2: -(2**15), 0xD3: -(2**31)}.get(lead)
            self.short &= number >= least if below is None else number < below
        else:
            first = {"binary": 0, "string": 32}.get(kind, 16)
            self.short &= number >= {1: first, 2: 2**8 if kind in ("binary", "string") else 16, 4: 2**16}[size]
        return number
    def take(self, size):
        need(size <= len(self.data) - self.at, "program.truncated"); self.at += size; return self.data[self.at - size : self.at]
    def integer(self): return self.number("integer")
    def binary(self): return self.take(self.number("binary"))
    def boolean(self): need(self.kind() == "boolean", "program.type"); return self.take(1) == b"\xc3"
    def text(self):
        try: return self.take(self.number("string")).decode("utf-8")
        except UnicodeDecodeError: raise Refused("program.text") from None
    def word(self, *words): text = self.text(); need(text in words, "program.value"); return text
    def rational(self):
        found = RATIONAL.fullmatch(self.text())
        need(found and max(len(part.lstrip("-")) for part in found.groups()) <= 640, "program.rational")
        p, q = int(found[1]), int(found[2]); need(gcd(p, q) == 1 and found[1] != "-0", "program.rational")
        return Fraction(p, q)
    def count(self, kind):
        count = self.number(kind)
        need(count * (2 if kind == "map" else 1) <= len(self.data) - self.at, "program.truncated")
        need(count <= 10**6, "limit.items"); return count
    def array(self, item): return tuple([item() for _ in range(self.count("array"))])
    def entry(self, more=1): self.entries += more; need(self.entries <= self.most, "limit.entries")
    def entry_array(self, item): return self.array(lambda: self.entry() or item())
    def table(self, value):  # A map; ``value`` reads the value of a key
        found, last = {}, None
        for _ in range(self.count("map")):
            key = self.text(); need(last is None or key > last, "program.key"); last = key
            found[key] = value(key)
        return found
    def record(self, fields, optional=()):
        def value(key): need(key in fields, "program.key"); return fields[key]()
        found = self.table(value)
        need(all(key in found or key in optional for key in fields), "program.key"); return found

def program_of(data):  # The parts of the program that some bytes are
    r = Reader(data, LIMITS["default"]["entries"])
    need(len(data) <= LIMITS["default"]["program_bytes"], "limit.program_bytes")
    def integers(): return r.array(r.integer)
    def value(): return r.record({"hi": r.integer, "lo": r.integer, "name": r.text, "shape": integers})
    def quantizer():
        linear = {"axis": r.integer, "hi": r.integer, "lo": r.integer, "offset": lambda: r.entry_array(r.rational),
                  "rounding": lambda: r.word(*ROUNDINGS), "scale": lambda: r.entry_array(r.rational)}
        powers = {"bits": r.integer, "top": r.integer}
        q = r.record({**linear, **powers}, (*linear, *powers))
        need(set(q) == set(powers) if "bits" in q else set(q) | {"axis"} == set(linear), "program.key")
        if "bits" in q:
            need(1 <= q["bits"] <= 16, "quantization.bits")
            need(abs(q["top"]) <= 2**14, "quantization.top")
            return {**q, "lo": -(2 ** q["bits"]), "hi": 2 ** q["bits"]}
        need(len(q["scale"]) == len(q["offset"]) > 0, "quantization.lists")
        need(len(q["scale"]) == 1 or "axis" in q, "quantization.axis")
        need(all(scale > 0 for scale in q["scale"]), "quantization.scale")
        need(q["lo"] < q["hi"], "quantization.codes"); return q
    def node():
        kinds = {"integer": r.integer, "boolean": r.boolean, "string": r.text, "array": integers}
        def attribute(_): kind = r.kind(); need(kind in kinds, "program.type"); return kinds[kind]()
        found = r.record({"attributes": lambda: r.table(attribute), "inputs": integers, "op": r.text,
                          "outputs": lambda: r.array(value)})
        r.entry(len(found["inputs"]) // 16); return found
    def pair(): return need(r.count("array") == 2, "program.value"), r.integer(), r.integer()
    def each_of(fields, *optional): return lambda: r.entry_array(lambda: r.record(fields, optional))
    need(r.count("array") == 3 and r.text() == "cvm-program", "program.format")
    need(r.integer() == 1, "program.version")
    exactness = {"accumulator": pair, "bound": r.rational, "note": r.text, "tensor": r.text, "value": r.text}
    p = r.record({
        "constants": each_of({"data": r.binary, "kind": lambda: r.word("parameter", "tensor"), "name": r.text,
                              "shape": integers, "width": r.integer}),
        "inputs": each_of({"quantizer": quantizer, "value": value}, "quantizer"),
        "limits": r.text, "nodes": lambda: r.entry_array(node), "op_set": r.integer,
        "outputs": each_of({"name": r.text, "quantizer": quantizer, "value": r.integer}, "quantizer"),
        "provenance": lambda: r.record({"exactness": each_of(exactness, "accumulator"), "source": r.text,
                                        "source_digest": r.text, "tool": r.text}),
        "state": each_of({"initial": r.integer, "update": r.integer, "value": value}),
    })
    need(r.at == len(data), "program.trailing")
    declared = [item["value"] for item in p["inputs"]] + list(p["constants"]) + [item["value"] for item in p["state"]]
    p["names"] = [value["name"] for value in (*declared, *(value for node in p["nodes"] for value in node["outputs"]))]
    numbers = [number for node in p["nodes"] for number in node["inputs"]] + [item["value"] for item in p["outputs"]]
    numbers += [number for item in p["state"] for number in (item["initial"], item["update"])]
    need(all(0 <= number < len(p["names"]) for number in numbers), "program.undefined")
    need(len(set(p["names"])) == len(p["names"]), "program.duplicate"); need(r.short, "program.canonical")
    p["entries"] = r.entries; return p

# Ranges (section 5): (extents, bounds), the bounds in row-major order
def hull(bounds): return min(lo for lo, _ in bounds), max(hi for _, hi in bounds)
def over(r, axes, fold=hull):  # The range with its bounds along some axes folded to one
    extents, bounds = r
    for axis in axes:
        n, inner = extents[axis], prod(extents[axis + 1 :])
        if n > 1 or fold is not hull:
            starts = (o + i for o in range(0, len(bounds), n * inner) for i in range(inner))
            bounds = [fold(bounds[k : k + (n - 1) * inner + 1 : inner]) for k in starts]
        extents = (*extents[:axis], 1, *extents[axis + 1 :])
    return extents, bounds
def whole(r): return (1,) * len(r[0]), [hull(r[1])]
def per_channel(r):  # The range per channel
    axis = min(1, len(r[0]) - 1)
    return whole(r) if r[0][axis] > FIT else over(r, [k for k in range(len(r[0])) if k != axis])
def fit(ranges, count, most=FIT):  # Ranges made to fit a number of bounds; ``count`` counts them from extents
    if count(*[r[0] for r in ranges]) <= most: return ranges
    fewer = [per_channel(r) for r in ranges]
    return fewer if count(*[r[0] for r in fewer]) <= most else [whole(r) for r in ranges]
def broadcast(*shapes):  # The shape that some shapes broadcast to
    rank = max(map(len, shapes))
    return tuple(map(max, *((1,) * (rank - len(s)) + tuple(s) for s in shapes), (1,) * rank))
def spread(r, extents):  # The bounds of a range, repeated to larger extents
    have, bounds = r
    for axis in reversed(range(len(have))):
        if have[axis] < extents[axis]:
            block = prod(extents[axis + 1 :])
            parts = (bounds[k : k + block] * extents[axis] for k in range(0, len(bounds), block))
            bounds = [bound for part in parts for bound in part]
    return bounds
def aligned(ranges, rank):  # Operands that broadcast, aligned and made to fit
    ranges = [((1,) * (rank - len(extents)) + tuple(extents), bounds) for extents, bounds in ranges]
    most = max(FIT, sum(len(bounds) for _, bounds in ranges))
    return fit(ranges, lambda *extents: prod(broadcast(*extents)), most)
def each(ranges, rule, rank=None):  # The range of an op on single elements
    ranges = aligned(ranges, rank or max(len(extents) for extents, _ in ranges))
    extents, known = broadcast(*[r[0] for r in ranges]), {}; bounds = []
    for operands in zip(*[spread(r, extents) for r in ranges]):
        if operands not in known: known[operands] = rule(*operands)
        bounds.append(known[operands])
    return extents, bounds
def times(a, b): p = [x * y for x in a for y in b]; return min(p), max(p)  # The product of two intervals
def plus(bounds): return sum(lo for lo, _ in bounds), sum(hi for _, hi in bounds)
def along(r, axis, picked):
    extents, bounds = r; n, inner = extents[axis], prod(extents[axis + 1 :])
    if n == 1: return r
    starts = (o + k * inner for o in range(0, len(bounds), n * inner) for k in picked)
    moved = [bound for k in starts for bound in bounds[k : k + inner]]
    return (*extents[:axis], len(picked), *extents[axis + 1 :]), moved
def repeated(r, axis, count, positions):  # The rule of repeat and of an axis of tile
    n = r[0][axis]
    if n == 1 or count == 1: return r
    return over(r, [axis]) if len(r[1]) * count > FIT else along(r, axis, [positions(k, n) for k in range(n * count)])
def reshaped(r, shape, target):  # The rule of flatten and reshape
    extents, bounds = r; varied = [k for k, extent in enumerate(extents) if extent > 1]
    if len(bounds) > 1 and len(varied) == 1:
        (k,) = varied
        for j, m in enumerate(target):
            if m == shape[k] and prod(target[:j]) == prod(shape[:k]):
                return tuple(m if i == j else 1 for i in range(len(target))), bounds
    if len(bounds) > 1 and prod(shape) <= max(FIT, len(bounds)): return tuple(target), spread(r, shape)
    return (1,) * len(target), [hull(bounds)]
def selected(x, indices, axis, n):  # The rule of take, for an axis of extent n
    x, indices = fit([x, indices], lambda e, m: prod(e) // e[axis] * prod(m))
    (extents, bounds), (m, positions) = x, indices
    if extents[axis] == 1: return (*extents[:axis], *[1] * len(m), *extents[axis + 1 :]), bounds
    inner, found, known = prod(extents[axis + 1 :]), [], {}
    for o in range(0, len(bounds), n * inner):
        for lo, hi in positions:
            first, last = clip(lo, 0, n - 1), clip(hi, 0, n - 1)
            if (o, first, last) not in known:
                known[o, first, last] = [
                    hull(bounds[o + first * inner + i : o + last * inner + i + 1 : inner]) for i in range(inner)]
            found += known[o, first, last]
    return (*extents[:axis], *m, *extents[axis + 1 :]), found
def clip(x, lo, hi): return max(lo, min(x, hi))
def quotient(a, b): return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
def rounded(v, s, rounding):
    if rounding == "half_up": return (2 * v + 2**s) // 2 ** (s + 1)
    return quotient(v, 2**s) if rounding == "toward_zero" else round(Fraction(v, 2**s))

# Ops (docs/ops.md)
# An op: attributes, number of inputs, constraints, shapes, work, ranges. All but the first two are functions of a call c
# with the shapes c.s and ranges c.r of the inputs, the shape c.y of the first result, and attributes under their names.
INT, INT32, ANY = (-(2**31), MAX32), (-MAX32, MAX32), "required"
AXES, AXES_GIVEN = ("list", 0, 8, *INT, ()), ("list", 0, 8, *INT, ANY)
PAIR = ("list", 2, 2)
def axes_of(c): return [axis % len(c.s[0]) for axis in c.axes]
def axes_fit(c): return all(-len(c.s[0]) <= axis < len(c.s[0]) for axis in c.axes)
def axes_differ(c): return len(set(axes_of(c))) == len(c.axes)
def same_shape(c): return c.s[0]
def axis_fits(c): return -len(c.s[0]) <= c.axis < len(c.s[0])
def broadcasts(c):
    rank = max(map(len, c.s))
    return all(len({*column} - {1}) <= 1 for column in zip(*((1,) * (rank - len(s)) + tuple(s) for s in c.s)))
def unary(rule, attributes=None, *rules, work=0):  # An op on each element of X; ``rule`` takes the call and a bound
    return (attributes or {}, (1, 1), rules, same_shape, lambda c: work * prod(c.s[0]),
            lambda c: each(c.r, lambda x: rule(c, x)))
def binary(rule, work=0):  # A broadcast op
    return {}, (2, 2), [broadcasts], lambda c: broadcast(*c.s), lambda c: work * prod(c.y), lambda c: each(c.r, rule)
def pairs(rule): return {}, (2, 2), [lambda c: c.s[0] == c.s[1]], same_shape, lambda c: 0, lambda c: each(c.r, rule)
def reduced(c): return [k for k in range(len(c.s[0])) if not c.axes or (k in axes_of(c)) != c.exclude]
def reduce_left(c, extents):
    left = [(k, n) for k, n in enumerate(extents) if c.keepdims or k not in reduced(c)]
    return tuple(1 if k in reduced(c) else n for k, n in left) or (1,)
def reduce_range(c, fold):
    (r,) = fit(c.r, lambda e: prod(n for k, n in enumerate(e) if k not in reduced(c)))
    for axis in reduced(c): r = over(r, [axis], lambda b, n=c.s[0][axis] // r[0][axis]: fold(b, n))
    return reduce_left(c, r[0]), r[1]
def reduce_op(fold):
    return ({"axes": AXES, "keepdims": ("bool", False), "exclude": ("bool", False)}, (1, 1), [axes_fit, axes_differ],
            lambda c: reduce_left(c, c.s[0]), lambda c: prod(c.s[0]), lambda c: reduce_range(c, fold))
def magnitude(x): return max(x[0], -x[1], 0), max(-x[0], x[1])
def div(a, b):
    divisors = ([max(b[0], 1), b[1]] if b[1] >= 1 else []) + ([b[0], min(b[1], -1)] if b[0] <= -1 else [])
    found = [quotient(n, d) for n in a for d in divisors] + ([0] if b[0] <= 0 <= b[1] else [])
    return min(found), max(found)
def windows(c):  # Along H and along W: extent, taps, stride, padding, dilation, outputs
    return [(n, k, s, p, d, (n + 2 * p - d * (k - 1) - 1) // s + 1)
            for n, k, s, p, d in zip(c.s[0][2:], c.s[1][2:], c.stride, c.padding, c.dilation)]
def conv_range(c):
    OC, IC, KH, KW = c.s[1]; (_, x), OPG = per_channel(c.r[0]), OC // c.groups
    taps = [{tuple(j for j in range(k) if 0 <= q * s - p + j * d < n) for q in range(m)} for n, k, s, p, d, m in windows(c)]
    if prod(c.r[1][0][2:]) > FIT: x, taps = [hull([b, (0, 0)]) for b in x], [[range(KH)], [range(KW)]]
    w = spread(c.r[1], c.s[1])
    def tap(oc, ki, kj):
        inputs = [x[(oc // OPG * IC + ic) % len(x)] for ic in range(IC)]
        return plus([times(v, w[((oc * IC + ic) * KH + ki) * KW + kj]) for ic, v in enumerate(inputs)])
    found = []
    for oc in range(OC):
        t = {(ki, kj): tap(oc, ki, kj) for ki in range(KH) for kj in range(KW)}
        found.append(hull([plus([t[ki, kj] for ki in rows for kj in columns]) for rows in taps[0] for columns in taps[1]]))
    return plus_bias(c, ((1, OC, 1, 1), found))
def summed(c): return (-2 if c.transpose_a else -1, -1 if c.transpose_b else -2)
def matmul_range(c):
    rank, along = len(c.s[0]), [k % len(c.s[0]) for k in summed(c)]
    rows = [over(r, [k for k in range(rank) if k != axis]) for r, axis in zip(c.r, along)]
    x, w = (spread(r, [c.s[0][along[0]] if k == axis else 1 for k in range(rank)]) for r, axis in zip(rows, along))
    return (1,) * rank, [plus([times(a, b) for a, b in zip(x, w)])]
def plus_bias(c, r):  # The range plus that of the bias, which lies along axis 1
    if len(c.r) < 3: return r
    extents = [c.r[2][0][0] if k == 1 else 1 for k in range(len(r[0]))]; both = broadcast(r[0], extents)
    return both, [plus(pair) for pair in zip(spread(r, both), spread((extents, c.r[2][1]), both))]
def dense_range(c):
    (we, _), K = c.r[1], c.s[0][1]
    rows = c.r[0] if we[0] == 1 and len(c.r[0][1]) <= FIT else over(c.r[0], [0])
    x, w = spread(rows, (rows[0][0], K)), spread(c.r[1], (we[0], K))
    sums = [plus([times(a, b) for a, b in zip(x[m : m + K], w[n : n + K])])
            for n in range(0, len(w), K) for m in range(0, len(x), K)]
    return plus_bias(c, ((1, we[0]), sums if we[0] > 1 else [hull(sums)]))
def pools(c):  # Along H and along W: extent, window, padding, stride, outputs
    up = c.ceil_mode
    return [(n, k, p, s, (-((k - n - 2 * p) // s) if up else (n + 2 * p - k) // s) + 1)
            for n, k, p, s in zip(c.s[0][2:], c.pool_size, c.padding, c.strides)]
def bias_fits(c): return len(c.s) < 3 or c.s[2] == c.s[1][:1]
def rank4(k): return lambda c: len(c.s[k]) == 4
def plane(c): return over(c.r[0], [2, 3])
def tiling(c):
    K = max(len(c.s[0]), len(c.reps))
    return (1,) * (K - len(c.s[0])) + c.s[0], (1,) * (K - len(c.reps)) + c.reps
def tile_range(c):
    r = (1,) * (len(c.y) - len(c.s[0])) + c.r[0][0], c.r[0][1]
    for axis, count in enumerate(tiling(c)[1]): r = repeated(r, axis, count, lambda k, n: k % n)
    return r
def concatenate_shape(c): n, a = c.s[0], c.axis % len(c.s[0]); return (*n[:a], sum(s[a] for s in c.s), *n[a + 1 :])
def concatenate_range(c):
    a = c.axis % len(c.s[0])
    if a != min(1, len(c.s[0]) - 1):
        parts = fit(c.r, lambda *extents: prod(broadcast(*[(*e[:a], 1, *e[a + 1 :]) for e in extents])))
        parts = [over(r, [a]) for r in parts]; extents = broadcast(*[r[0] for r in parts])
        return extents, [hull(bounds) for bounds in zip(*[spread(r, extents) for r in parts])]
    if c.y[a] > FIT: return (1,) * len(c.y), [hull([hull(bounds) for _, bounds in c.r])]
    parts = [spread(((r[0][a],), r[1]), (s[a],)) for r, s in zip(map(per_channel, c.r), c.s)]
    return tuple(n if k == a else 1 for k, n in enumerate(c.y)), [bound for part in parts for bound in part]
def order(c): return axes_of(c) or list(reversed(range(len(c.s[0]))))
def transpose_range(c):
    extents, bounds = c.r[0]; steps = [prod(extents[k + 1 :]) for k in range(len(extents))]; places = [0]
    for k in order(c): places = [place + i * steps[k] for place in places for i in range(extents[k])]
    return tuple(extents[k] for k in order(c)), [bounds[place] for place in places]
def slices(c):
    found = []
    for k, n in enumerate(c.s[0]):
        s, b, e = [v[k] if k < len(v) else d for v, d in ((c.strides, 1), (c.begin, 0), (c.end, n))]
        b, e = [clip(v + n if v < 0 else v, 0 if s > 0 else -1, n if s > 0 else n - 1) for v in (b, e)]
        found.append((b, s, -((b - e) // s)))
    return found
def slice_range(c):
    r = c.r[0]
    for k, (b, s, count) in enumerate(slices(c)): r = along(r, k, [b + s * i for i in range(count)])
    return r
def sliced(c): return axes_of(c) or list(range(len(c.s[1])))
def like_range(c):
    r = c.r[0]
    for k, n in enumerate(c.y): r = along(r, k, range(n))
    return r
def take_shape(c):
    n, a = c.s[0], None if c.axis is None else c.axis % len(c.s[0])
    return c.s[1] if a is None else (*n[:a], *c.s[1], *n[a + 1 :])
def take_range(c):
    if getattr(c, "axis", None) is None:
        return selected(reshaped(c.r[0], c.s[0], (prod(c.s[0]),)), c.r[1], 0, prod(c.s[0]))
    return selected(c.r[0], c.r[1], c.axis % len(c.s[0]), c.s[0][c.axis])
def expanded(c, extents): a = c.axis % (len(extents) + 1); return (*extents[:a], *[1] * c.num_newaxis, *extents[a:])
def squeezed(c, extents):
    dropped = axes_of(c) or [k for k, n in enumerate(c.s[0]) if n == 1]
    return tuple(n for k, n in enumerate(extents) if k not in dropped) or (1,)
def where_range(c):
    (extents, bounds), a, b = c.r
    def either(k, a, b): return a if k[0] > 0 or k[1] < 0 else b if k == (0, 0) else hull([a, b])
    return each([(extents + (1,) * (len(a[0]) - len(extents)), bounds), a, b], either)
def count_range(c):
    (r,) = fit(c.r, lambda extents: extents[0]); (batches, rows, columns), bounds = r
    n, scores = c.s[0][1] // rows, [bounds[k * columns + (columns > 1)] for k in range(batches * rows)]
    more = [tuple(n * (end > c.score_threshold) for end in score) for score in scores]
    return (batches,), [plus(more[k : k + rows]) for k in range(0, len(more), rows)]
def or_fill(c): return (1, 1, 1), [hull([hull(c.r[0][1]), (-1, -1)])]
def spreads(shapes, target):
    return all(len(s) <= len(target) and all(m in (1, n) for m, n in zip(s[::-1], target[::-1])) for s in shapes)
def terms(operands): return (len(operands) - 2) // 2
def summands(operands):
    n = terms(operands)
    return [times(a, b) for a, b in zip(operands[:n], operands[n : 2 * n])] + [operands[-2]]
def sum_fits(c):
    def holds(*operands):
        parts, s = summands(operands), operands[-1]; half = 2 ** (s[1] - 1) if s[1] > 0 else 0
        most = sum(max(0, hi) for _, hi in parts) + half
        return most <= MAX64 and sum(min(0, lo) for lo, _ in parts) >= -MAX64
    return all(each(c.r, holds, len(c.s[0]))[1])
def requantize_rule(c):
    def rule(*operands):
        v, s = plus(summands(operands)), operands[-1]
        ends = [rounded(x, y, c.rounding) for x in v for y in s]
        return clip(min(ends), c.lo, c.hi), clip(max(ends), c.lo, c.hi)
    return each(c.r, rule, len(c.s[0]))
def tensors(op, count): return {"requantize": (count - 2) // 2, "quotient": (count - 2) // 2, "normalize": 1}.get(op, count)
def ratio(a, b, rounding):
    if rounding == "half_up": return (2 * a + b) // (2 * b)
    return quotient(a, b) if rounding == "toward_zero" else round(Fraction(a, b))
def sums(c, operands):  # N and D of a quotient
    n = terms(operands); products = [times(a, b) for a, b in zip(operands[:n], operands[n : 2 * n])]
    return plus([*products[: c.terms], operands[-2]]), plus([*products[c.terms :], operands[-1]])
def quotient_rule(c):
    def rule(*operands):
        N, D = sums(c, operands); ends = [ratio(a, b, c.rounding) for a in N for b in D]
        return clip(min(ends), c.lo, c.hi), clip(max(ends), c.lo, c.hi)
    return each(c.r, rule, len(c.s[0]))
def positive(c): return all(each(c.r, lambda *operands: sums(c, operands)[1][0] >= 1, len(c.s[0]))[1])
def largest(r): return max(magnitude(bound)[1] for bound in r[1])
def inside(r, lo, hi): return lo <= hull(r[1])[0] and hull(r[1])[1] <= hi
def within_alpha(c, x): return tuple(clip(v, 1 - 2 ** (c.precision - 1), 2 ** (c.precision - 1) - 1) for v in x)
def none(_): return 0
P, SHIFT = {"precision": ("int", 1, 32, ANY)}, {"shift_bit": ("int", 1, 32, ANY)}
EXTENT, FACTOR = (1, MAX32), (1, 4096)

OPS = {
    "sum": reduce_op(lambda bounds, n: tuple(n * total for total in plus(bounds))),
    "max": reduce_op(lambda bounds, n: (max(lo for lo, _ in bounds), max(hi for _, hi in bounds))),
    "broadcast_add": binary(lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "broadcast_sub": binary(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    "broadcast_mul": binary(times),
    "broadcast_div": binary(div, work=8),
    "broadcast_max": binary(lambda a, b: (max(a[0], b[0]), max(a[1], b[1]))),
    "broadcast_greater": binary(lambda a, b: (int(a[0] > b[1]), int(a[1] > b[0]))),
    "conv2d": (
        {"padding": (*PAIR, 0, 4096, (0, 0)), "stride": (*PAIR, *FACTOR, (1, 1)), "dilation": (*PAIR, *FACTOR, (1, 1)),
         "groups": ("int", *EXTENT, 1)}, (2, 3),
        [rank4(0), rank4(1), lambda c: c.s[0][1] == c.s[1][1] * c.groups, lambda c: c.s[1][0] % c.groups == 0, bias_fits,
         lambda c: all(d * (k - 1) + 1 <= n + 2 * p for n, k, _, p, d, _ in windows(c))],
        lambda c: (c.s[0][0], c.s[1][0], *[w[-1] for w in windows(c)]), lambda c: prod(c.y) * prod(c.s[1][1:]), conv_range),
    "dense": ({}, (2, 3), [lambda c: len(c.s[0]) == 2, lambda c: len(c.s[1]) == 2, lambda c: c.s[0][1] == c.s[1][1],
                           bias_fits], lambda c: (c.s[0][0], c.s[1][0]), lambda c: prod(c.y) * c.s[0][1], dense_range),
    "relu": unary(lambda c, x: (max(0, x[0]), max(0, x[1]))),
    "max_pool2d": (
        {"pool_size": (*PAIR, *EXTENT, ANY), "padding": ("pair", 2, 2, 0, 4096, (0, 0)),
         "strides": (*PAIR, *FACTOR, (1, 1)), "ceil_mode": ("bool", False)}, (1, 1),
        [rank4(0), lambda c: all(k <= n + 2 * p for n, k, p, _, _ in pools(c)),
         lambda c: all(k > p for _, k, p, _, _ in pools(c)),
         lambda c: all((m - 1) * s - p < n for n, _, p, s, m in pools(c))],
        lambda c: (*c.s[0][:2], *[w[-1] for w in pools(c)]), lambda c: prod(c.y) * prod(c.pool_size), plane),
    "upsampling": ({"scale": ("int", *FACTOR, ANY)}, (1, 1), [rank4(0)],
                   lambda c: (*c.s[0][:2], c.s[0][2] * c.scale, c.s[0][3] * c.scale), none, plane),
    "abs": unary(lambda c, x: magnitude(x)),
    "cvm_precision": unary(lambda c, x: tuple(max(1, m.bit_length()) for m in magnitude(x)), work=5),
    "elemwise_add": pairs(lambda a, b: (a[0] + b[0], a[1] + b[1])),
    "elemwise_sub": pairs(lambda a, b: (a[0] - b[1], a[1] - b[0])),
    "negative": unary(lambda c, x: (-x[1], -x[0])),
    "clip": unary(lambda c, x: tuple(clip(v, c.a_min, c.a_max) for v in x),
                  {"a_min": ("int", *INT32, ANY), "a_max": ("int", *INT32, ANY)}, lambda c: c.a_min <= c.a_max),
    "cvm_clip": unary(within_alpha, P),
    "cvm_right_shift": unary(lambda c, x: within_alpha(c, [rounded(v, c.shift_bit, "half_up") for v in x]), {**P, **SHIFT}),
    "cvm_left_shift": unary(lambda c, x: within_alpha(c, [v << c.shift_bit for v in x]), {**P, **SHIFT}),
    "repeat": ({"axis": ("int", *INT, 0), "repeats": ("int", *EXTENT, ANY)}, (1, 1), [axis_fits],
               lambda c: tuple(n * c.repeats if k == c.axis % len(c.s[0]) else n for k, n in enumerate(c.s[0])), none,
               lambda c: repeated(c.r[0], c.axis % len(c.s[0]), c.repeats, lambda k, n: k // c.repeats)),
    "tile": ({"reps": ("list", 1, 8, *FACTOR, ANY)}, (1, 1), [],
             lambda c: tuple(n * m for n, m in zip(*tiling(c))), none, tile_range),
    "flatten": ({}, (1, 1), [], lambda c: (prod(c.s[0]),), none, lambda c: reshaped(c.r[0], c.s[0], c.y)),
    "concatenate": ({"axis": ("int", *INT, ANY)}, (1, None),
                    [lambda c: len({len(s) for s in c.s}) == 1, axis_fits,
                     lambda c: len({s[:c.axis % len(s)] + s[c.axis % len(s) + 1 :] for s in c.s}) == 1],
                    concatenate_shape, none, concatenate_range),
    "transpose": ({"axes": AXES}, (1, 1), [lambda c: len(c.axes) in (0, len(c.s[0])), axes_fit, axes_differ],
                  lambda c: tuple(c.s[0][k] for k in order(c)), none, transpose_range),
    "slice": ({"begin": AXES, "end": AXES, "strides": AXES}, (1, 1),
              [lambda c: all(len(v) <= len(c.s[0]) for v in (c.begin, c.end, c.strides)), lambda c: 0 not in c.strides,
               lambda c: all(count > 0 for _, _, count in slices(c))],
              lambda c: tuple(count for _, _, count in slices(c)), none, slice_range),
    "slice_like": ({"axes": AXES}, (2, 2),
                   [lambda c: c.axes or len(c.s[0]) == len(c.s[1]), axes_fit, axes_differ,
                    lambda c: all(k < len(c.s[1]) for k in sliced(c)),
                    lambda c: all(c.s[1][k] <= c.s[0][k] for k in sliced(c))],
                   lambda c: tuple(c.s[1][k] if k in sliced(c) else n for k, n in enumerate(c.s[0])), none, like_range),
    "take": ({"axis": ("int", *INT, None)}, (2, 2),
             [lambda c: c.axis is None or axis_fits(c), lambda c: c.axis is None or len(c.s[0]) + len(c.s[1]) <= 9],
             take_shape, none, take_range),
    "cvm_lut": ({}, (2, 2), [], lambda c: c.s[1], none, take_range),
    "expand_dims": ({"axis": ("int", *INT, ANY), "num_newaxis": ("int", 0, 4096, 1)}, (1, 1),
                    [lambda c: -len(c.s[0]) - 1 <= c.axis <= len(c.s[0]), lambda c: len(c.s[0]) + c.num_newaxis <= 8],
                    lambda c: expanded(c, c.s[0]), none, lambda c: (expanded(c, c.r[0][0]), c.r[0][1])),
    "reshape": ({"target_shape": ("list", 1, 8, *EXTENT, ANY)}, (1, 1), [lambda c: prod(c.target_shape) == prod(c.s[0])],
                lambda c: c.target_shape, none, lambda c: reshaped(c.r[0], c.s[0], c.y)),
    "squeeze": ({"axes": AXES}, (1, 1), [axes_fit, axes_differ, lambda c: all(c.s[0][k] == 1 for k in axes_of(c))],
                lambda c: squeezed(c, c.s[0]), none, lambda c: (squeezed(c, c.r[0][0]), c.r[0][1])),
    "where": ({}, (3, 3), [lambda c: c.s[1] == c.s[2], lambda c: c.s[0] in (c.s[1], c.s[1][:1])], lambda c: c.s[1], none,
              where_range),
    "get_valid_count": ({"score_threshold": ("int", *INT32, ANY)}, (1, 1),
                        [lambda c: len(c.s[0]) == 3, lambda c: 2 <= c.s[0][2] <= 32],
                        lambda c: [c.s[0][:1], c.s[0]], none, lambda c: [count_range(c), or_fill(c)]),
    "non_max_suppression": (
        {"iou_threshold": ("int", *EXTENT, ANY), "max_output_size": ("int", *INT, -1), "force_suppress": ("bool", False),
         "top_k": ("int", *INT, -1)}, (2, 2),
        [lambda c: len(c.s[0]) == 3 and c.s[0][2] == 6, lambda c: c.s[1] == c.s[0][:1]],
        same_shape, lambda c: 32 * c.s[0][0] * c.s[0][1] ** 2, or_fill),
    "requantize": (
        {"rounding": ("word", *ROUNDINGS, ANY), "lo": ("int", *INT32, ANY), "hi": ("int", *INT32, ANY)}, (4, 18),
        [lambda c: len(c.s) % 2 == 0, lambda c: spreads(c.s[1 : terms(c.s)], c.s[0]),
         lambda c: spreads(c.s[terms(c.s) :], c.s[0]), lambda c: c.lo <= c.hi,
         lambda c: all(lo >= 0 and hi <= 62 for lo, hi in c.r[-1][1]),
         lambda c: all(magnitude(m)[1] < 2**62 for r in c.r[terms(c.s) : -2] for m in r[1]), sum_fits],
        same_shape, lambda c: 2 * terms(c.s) * prod(c.s[0]), requantize_rule),
    "matmul": ({"transpose_a": ("bool", False), "transpose_b": ("bool", False)}, (2, 2),
               [lambda c: 2 <= len(c.s[0]) == len(c.s[1]),
                lambda c: all(n % m == 0 for n, m in zip(c.s[0][:-2], c.s[1][:-2])),
                lambda c: c.s[0][summed(c)[0]] == c.s[1][summed(c)[1]]],
               lambda c: (*c.s[0][:-2], c.s[0][-1 if c.transpose_a else -2], c.s[1][-2 if c.transpose_b else -1]),
               lambda c: prod(c.y) * c.s[0][summed(c)[0]], matmul_range),
    "quotient": (
        {"terms": ("int", 1, 6, ANY), "rounding": ("word", *ROUNDINGS, ANY), "lo": ("int", *INT32, ANY), "hi": ("int", *INT32, ANY)},
        (6, 20),
        [lambda c: len(c.s) % 2 == 0, lambda c: 1 <= terms(c.s) - c.terms <= 3, lambda c: spreads(c.s[1 : terms(c.s)], c.s[0]),
         lambda c: spreads([*c.s[terms(c.s) : terms(c.s) + c.terms], c.s[-2]], c.s[0])
         and all(s == (1,) for s in [*c.s[terms(c.s) + c.terms : -2], c.s[-1]]),
         lambda c: c.lo <= c.hi, positive],
        same_shape, lambda c: (4 * terms(c.s) + 32) * prod(c.s[0]), quotient_rule),
    "normalize": (
        {"axes": AXES_GIVEN, "statistic": ("word", "variance", "mean_square", "square_sum", ANY), "shift": ("int", 0, 62, 0),
         "rounding": ("word", "half_up", "half_even", ANY), "lo": ("int", *INT32, ANY), "hi": ("int", *INT32, ANY)}, (6, 6),
        [axes_fit, axes_differ, lambda c: c.axes and c.s[4] == c.s[5] == (1,),
         lambda c: spreads(c.s[1:4], c.s[0]) and c.lo <= c.hi,
         lambda c: largest(c.r[1]) < 2**62 and hull(c.r[3][1])[0] >= 1,
         lambda c: inside(c.r[4], 1, 2**31 - 1) and inside(c.r[5], 1, 2**62 - 1),
         lambda c: (prod(c.s[0][k] for k in axes_of(c)) * largest(c.r[0])) ** 2 < 2**62,
         lambda c: (2 * max(abs(c.lo), abs(c.hi)) + 1) * largest(c.r[3]) + 2 * largest(c.r[2]) < 2**64],
        same_shape, lambda c: 256 * prod(c.s[0]), lambda c: ((1,) * len(c.s[0]), [(c.lo, c.hi)])),
    "update_slice": (
        {"axis": ("int", *INT, ANY)}, (3, 3),
        [axis_fits, lambda c: len(c.s[0]) == len(c.s[1]) and all(
            u == n or (k == c.axis % len(c.s[0]) and u < n) for k, (n, u) in enumerate(zip(c.s[0], c.s[1]))),
         lambda c: c.s[2] == (1,)],
        same_shape, none, lambda c: ((1,) * len(c.s[0]), [hull([hull(c.r[0][1]), hull(c.r[1][1])])])),
}
OP_SET = {"matmul": 2, "quotient": 2, "normalize": 2, "update_slice": 2}  # the op-set that the op came with, if not 1
ON_RANGES = {"requantize": 3, "quotient": 1, "normalize": 4}  # how many constraints are on ranges: the last ones

def attribute(name, spec, given, code):  # The value of one attribute, in the form that a program has
    need(name in given or spec[-1] != ANY, code); value, kind = given.get(name, spec[-1]), spec[0]
    if name not in given: return value
    if kind == "bool": need(type(value) is bool, code)
    elif kind == "word": need(type(value) is str and value in spec[1:-1], code)
    elif kind == "int": need(type(value) is int and spec[1] <= value <= spec[2], code)
    else:
        value = (value, value) if kind == "pair" and type(value) is int else value
        need(type(value) is tuple and spec[1] <= len(value) <= spec[2], code)
        need(all(spec[3] <= item <= spec[4] for item in value), code)
    return value

# Programs (sections 2 to 4)
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

class Verifier:  # Walks a program in its order; values stand under their numbers
    def __init__(self, p):
        least = max([OP_SET.get(node["op"], 1) for node in p["nodes"]], default=1)
        need(p["op_set"] == least, "program.op_set"); need(p["limits"] in LIMITS, "program.limits")
        self.p, self.limits, self.names = p, LIMITS[p["limits"]], set()
        self.shapes, self.ranges, self.kinds, self.gas, self.kept = [], [], [], [], 0
    def run(self):
        p = self.p; need(p["entries"] <= self.limits["entries"], "limit.entries"); self.constants_fit()
        for item in p["inputs"]:
            self.declare(item["value"])
            if "quantizer" in item:
                self.quantizer_fits(item["quantizer"], item["value"]["shape"])
                need(all(item["quantizer"][end] == item["value"][end] for end in ("lo", "hi")), "program.quantizer")
        for item in p["constants"]: self.constant(item)
        for item in p["state"]:
            self.declare(item["value"]); first = len(p["inputs"])
            need(first <= item["initial"] < first + len(p["constants"]), "program.undefined")
            self.state_fits(item, item["initial"])
        for node in p["nodes"]: self.node(node)
        for item in p["state"]: self.state_fits(item, item["update"])
        self.outputs(); constants = range(len(p["inputs"]), len(p["inputs"]) + len(p["constants"]))
        found = {name: runs(self.ranges[k]) for k, name in enumerate(p["names"]) if k not in constants}
        return {"verdict": "value", "gas": self.gas, "ranges": found}
    def constants_fit(self):
        total = 0
        for item in self.p["constants"]:
            count = self.shape(item["shape"]); total += count * (4 if item["kind"] == "tensor" else 8)
            need(total <= self.limits["constants"], "limit.constants")
            need(item["width"] in (1, 2, 4, 8), "program.constant.width")
            need(len(item["data"]) == count * item["width"], "program.constant.length")
    def name(self, name, new=True):
        need(name and not UNPRINTABLE.search(name), "program.name"); need(len(name.encode()) <= 1024, "limit.name")
        need(not new or name not in self.names, "program.duplicate")
    def shape(self, shape):
        need(len(shape) <= 8, "limit.rank"); need(all(extent <= MAX32 for extent in shape), "limit.extent")
        need(prod(shape) <= self.limits["elements"], "limit.elements")
        need(shape and min(shape) >= 1, "program.shape"); return prod(shape)
    def interval(self, value): need(-MAX32 <= value["lo"] <= value["hi"] <= MAX32, "program.bounds")
    def define(self, name, kind, shape, bounds):
        self.names.add(name); self.kinds.append(kind); self.shapes.append(tuple(shape)); self.ranges.append(bounds)
    def declare(self, value):
        self.name(value["name"]); self.shape(value["shape"]); self.interval(value)
        self.define(value["name"], "tensor", value["shape"], ((1,) * len(value["shape"]), [(value["lo"], value["hi"])]))
    def quantizer_fits(self, q, shape):
        if "axis" in q: need(0 <= q["axis"] < len(shape) and len(q["scale"]) == shape[q["axis"]], "program.quantizer")
    def constant(self, item):
        self.name(item["name"]); form = {1: "b", 2: "h", 4: "i", 8: "q"}[item["width"]]
        elements = [element for (element,) in struct.iter_unpack(f"<{form}", item["data"])]
        lo, hi, most = min(elements), max(elements), MAX32 if item["kind"] == "tensor" else MAX64
        need(-most <= lo and hi <= most, "program.constant.value")
        smallest = next(w for w in (1, 2, 4, 8) if -(2 ** (8 * w - 1)) <= lo and hi < 2 ** (8 * w - 1))
        need(item["width"] == smallest, "program.constant.width")
        self.define(item["name"], item["kind"], item["shape"], (tuple(item["shape"]), [(e, e) for e in elements]))
    def within(self, number, item, code):
        lo, hi = hull(self.ranges[number][1]); need(item["lo"] <= lo and hi <= item["hi"], code)
    def state_fits(self, item, number):
        need(self.kinds[number] == "tensor", "program.kind")
        need(self.shapes[number] == tuple(item["value"]["shape"]), "program.state")
        self.within(number, item["value"], "program.state")
    def outputs(self):
        need(self.p["outputs"], "program.outputs"); names = set()
        for item in self.p["outputs"]:
            self.name(item["name"], new=False); need(item["name"] not in names, "program.outputs")
            names.add(item["name"]); need(self.kinds[item["value"]] == "tensor", "program.kind")
            if "quantizer" in item:
                self.quantizer_fits(item["quantizer"], self.shapes[item["value"]])
                self.within(item["value"], item["quantizer"], "program.quantizer")
    def node(self, node):
        op, given, numbers = node["op"], node["attributes"], node["inputs"]; need(op in OPS, "ops.unknown")
        specs, (least, most), rules, shape_of, work, range_of = OPS[op]
        attributes = {k: attribute(k, s, given, f"ops.{op}.attribute.{k}") for k, s in specs.items()}
        for key in given: need(key in specs, f"ops.{op}.attribute.{key}")
        need(least <= len(numbers) and (most is None or len(numbers) <= most), f"ops.{op}.arity")
        given_tensors = tensors(op, len(numbers))
        for index, number in enumerate(numbers):
            need(number < len(self.shapes), "program.undefined")
            need(self.kinds[number] == ("tensor" if index < given_tensors else "parameter"), "program.kind")
        call = SimpleNamespace(s=[self.shapes[k] for k in numbers], r=[self.ranges[k] for k in numbers], **attributes)
        early = len(rules) - ON_RANGES.get(op, 0)
        for index, rule in enumerate(rules[:early]): need(rule(call), f"ops.{op}.C{index + 1}")
        shapes = shape_of(call); shapes = shapes if type(shapes) is list else [shapes]
        for shape in shapes: self.shape(shape)
        call.y = shapes[0]; gas = 1 + sum(map(prod, (*call.s, *shapes))) + work(call)
        need(sum(self.gas) + gas <= self.limits["work"], "limit.work")
        for index, rule in enumerate(rules[early:], early): need(rule(call), f"ops.{op}.C{index + 1}")
        ranges = range_of(call)
        self.results(node, attributes, shapes, ranges if type(ranges) is list else [ranges])
        self.gas.append(gas)
    def results(self, node, attributes, shapes, ranges):
        complete = {key: value for key, value in attributes.items() if value is not None}
        same = complete == node["attributes"] and all(type(node["attributes"][k]) is type(v) for k, v in complete.items())
        need(same, "program.attributes"); need(len(node["outputs"]) == len(shapes), "program.output_count")
        for value in node["outputs"]: self.name(value["name"])
        for _, bounds in ranges:
            lo, hi = hull(bounds); need(lo >= -MAX32 and hi <= MAX32, "program.range")
        for value, shape, bounds in zip(node["outputs"], shapes, ranges):
            bounds = per_channel(bounds)
            if len(bounds[1]) > 1 and self.kept + len(bounds[1]) > KEPT: bounds = whole(bounds)
            self.kept += len(bounds[1]) if len(bounds[1]) > 1 else 0
            self.define(value["name"], "tensor", shape, bounds)
        for value, shape, bounds in zip(node["outputs"], shapes, self.ranges[-len(shapes) :]):
            need(tuple(value["shape"]) == tuple(shape), "program.output_shape"); self.interval(value)
            lo, hi = hull(bounds[1]); need(value["lo"] <= lo and hi <= value["hi"], "program.interval")

def runs(r): return [[lo, hi, len(list(group))] for (lo, hi), group in groupby(r[1])]
def verdict(data):  # What this verifier says of some bytes
    try: return Verifier(program_of(data)).run()
    except Refused as refusal: (code,) = refusal.args
    return {"verdict": "limit" if code.startswith("limit.") else MALFORMED.get(code, "invalid"), "code": code}
