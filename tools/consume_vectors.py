"""A consumer of the test vectors that uses nothing of the project: plain Python, no third-party package.

With a folder (default: spec_vectors) it runs the cases that it implements, and prints how many passed and were skipped.
With --serve it is an external program of the protocol (spec_vectors/README.md).
It has no verifier, and skips what it does not have: the vision ops, upsampling, whole programs, cases without a value.
If a file breaks it, or needs more than MEMORY bytes or SECONDS, that file has failed, and it goes on with the next one.
"""

# One page, to be read in one go.
# fmt: off
import signal
import sys
from contextlib import suppress
from itertools import product, zip_longest
from math import prod
from pathlib import Path
from struct import pack, unpack

MEMORY, SECONDS = 2**28, 5
LONG = {0xC4: ("binary", 1), 0xC5: ("binary", 2), 0xC6: ("binary", 4), 0xD9: ("text", 1), 0xDA: ("text", 2),
        0xDB: ("text", 4), 0xDC: ("array", 2), 0xDD: ("array", 4), 0xDE: ("map", 2), 0xDF: ("map", 4)}

def read(b, i=0):
    """The msgpack item at index i, and the index after it."""
    t, i = b[i], i + 1
    if t < 0x80 or t >= 0xE0:
        return t - 256 * (t >= 0xE0), i
    if t in (0xC2, 0xC3):
        return t == 0xC3, i
    if 0xCC <= t <= 0xD3:
        return int.from_bytes(b[i : i + (1 << t % 4)], "big", signed=t >= 0xD0), i + (1 << t % 4)
    kind, size = LONG.get(t) or ("map" if t < 0x90 else "array" if t < 0xA0 else "text", 0)
    n, i = int.from_bytes(b[i : i + size], "big") if size else t & (31 if t >= 0xA0 else 15), i + size
    if kind in ("text", "binary"):
        return b[i : i + n].decode() if kind == "text" else b[i : i + n], i + n
    items = []
    for _ in range(2 * n if kind == "map" else n):
        item, i = read(b, i)
        items.append(item)
    return dict(zip(items[::2], items[1::2], strict=True)) if kind == "map" else items, i

def write(x):
    """An item as msgpack, always in its longest form."""
    if isinstance(x, int):
        return b"\xd3" + pack(">q", x)
    if isinstance(x, str | bytes):
        data = x.encode() if isinstance(x, str) else x
        return (b"\xdb" if isinstance(x, str) else b"\xc6") + pack(">I", len(data)) + data
    items = x if isinstance(x, list) else [part for pair in x.items() for part in pair]
    return (b"\xdd" if isinstance(x, list) else b"\xdf") + pack(">I", len(x)) + b"".join(map(write, items))

class Tensor:
    """A shape, and the elements by index, made by a rule."""

    most = 10**9
    """Elements of a tensor at most; the verifier of receipts, which has this text too, sets it for each op."""

    def __init__(self, shape, rule):
        self.shape = list(shape)
        if prod(self.shape) > self.most:
            raise ValueError(f"a tensor of shape {self.shape} has more than {self.most} elements")
        self.at = {d: rule(d) for d in product(*map(range, self.shape))}

    def __getitem__(self, d):
        return self.at[tuple(d)]

def tensor(shape, items):
    stream = iter(items)
    return Tensor(shape, lambda d: next(stream))

def shaped(x, shape):
    return tensor(shape, x.at.values())

def each(f):
    """An op on elements, with shapes aligned at the right."""
    def op(*xs, **a):
        n = max(len(x.shape) for x in xs)
        shape = [max(e) for e in zip_longest(*(x.shape[::-1] for x in xs), fillvalue=1)][::-1]
        own = [lambda d, x=x: x[[i % e for i, e in zip(d[n - len(x.shape) :], x.shape, strict=True)]] for x in xs]
        return Tensor(shape, lambda d: f(*(element(d) for element in own), **a))

    return op

def clip(v, precision):
    return max(1 - 2 ** (precision - 1), min(v, 2 ** (precision - 1) - 1))

def real(x, axes):
    return [k % len(x.shape) for k in axes]

def other(x, gone):
    return [n for k, n in enumerate(x.shape) if k not in gone] or [1]

def pick(x, *indices):
    return Tensor(map(len, indices), lambda d: x[[at[i] for at, i in zip(indices, d, strict=True)]])

def reduce(f, x, axes, keepdims, exclude):
    gone = {k for k in range(len(x.shape)) if not axes or (k in real(x, axes)) != exclude}
    groups = {}
    for d, v in x.at.items():
        groups.setdefault(tuple(0 if k in gone else i for k, i in enumerate(d)), []).append(v)
    shape = [1 if k in gone else n for k, n in enumerate(x.shape)] if keepdims else other(x, gone)
    return tensor(shape, map(f, groups.values()))

def conv2d(x, w, b=None, *, padding, stride, dilation, groups):
    (n, _, *size), (oc, ic, *k) = x.shape, w.shape
    out = [(size[a] + 2 * padding[a] - dilation[a] * (k[a] - 1) - 1) // stride[a] + 1 for a in (0, 1)]
    def rule(d):
        total = b[d[1],] if b else 0
        for c, *tap in product(range(ic), range(k[0]), range(k[1])):
            index = (d[2 + a] * stride[a] - padding[a] + tap[a] * dilation[a] for a in (0, 1))
            total += x.at.get((d[0], d[1] // (oc // groups) * ic + c, *index), 0) * w[d[1], c, *tap]
        return total

    return Tensor([n, oc, *out], rule)

def max_pool2d(x, pool_size, padding, strides, ceil_mode):
    rest = [x.shape[2 + a] + 2 * padding[a] - pool_size[a] + ceil_mode * (strides[a] - 1) for a in (0, 1)]
    def rule(d):
        spans = (range(f := d[2 + a] * strides[a] - padding[a], f + pool_size[a]) for a in (0, 1))
        return max(x.at[index] for index in product(d[:1], d[1:2], *spans) if index in x.at)

    return Tensor([*x.shape[:2], *(rest[a] // strides[a] + 1 for a in (0, 1))], rule)

def matmul(x, y, transpose_a, transpose_b):
    sides = ((x.shape, transpose_a), (y.shape, transpose_b))
    (*p, m, k), (*q, _, n) = ([*s[:-2], s[-1], s[-2]] if t else s for s, t in sides)
    def rule(d):
        *b, i, j = d
        c = [e * f // g for e, f, g in zip(b, q, p, strict=True)]
        return sum(x[*b, *([s, i] if transpose_a else [i, s])] * y[*c, *([j, s] if transpose_b else [s, j])]
                   for s in range(k))

    return Tensor([*p, m, n], rule)

def rounded(n, d, rounding):
    found = {"half_up": (2 * n + d) // (2 * d), "toward_zero": abs(n) // d * (1 if n > 0 else -1),
             "half_even": n // d + (2 * (n % d) + n // d % 2 > d)}
    return found[rounding]

def requantize(*v, rounding, lo, hi):
    n = len(v) // 2 - 1
    return max(lo, min(rounded(sum(v[i] * v[n + i] for i in range(n)) + v[-2], 1 << v[-1], rounding), hi))

def quotient(*v, terms, rounding, lo, hi):
    n = len(v) // 2 - 1
    x = [v[i] * v[n + i] for i in range(n)]
    return max(lo, min(rounded(sum(x[:terms]) + v[-2], sum(x[terms:]) + v[-1], rounding), hi))

def normalize(x, m, c, k, r, e, *, axes, statistic, shift=0, rounding, lo, hi):
    gone, rows, t, v = real(x, axes), {}, {}, {}
    for d, i in x.at.items():
        rows.setdefault(tuple(0 if j in gone else place for j, place in enumerate(d)), []).append((d, i))
    for row in rows.values():
        n, s, q = len(row), sum(i for _, i in row), sum(i * i for _, i in row)
        scale, less, square = {"variance": (n, s, n * q - s * s), "mean_square": (n, 0, n * q),
                               "square_sum": (1, 0, q)}[statistic]
        for d, i in row:
            t[d], v[d] = scale * i - less, r[0,] ** 2 * square + (e[0,] << shift)
    def code(t, v, m, c, k):
        left, below, above = 2 * m * t * r[0,], lo, hi + 1
        while above - below > 1:
            q = (below + above) // 2
            right = (2 * q - 1) * k - 2 * c
            more = left * abs(left) - right * abs(right) * v
            if more > 0 or (more == 0 and (rounding == "half_up" or q % 2 == 0)):
                below = q
            else:
                above = q
        return below

    return each(code)(Tensor(x.shape, t.get), Tensor(x.shape, v.get), m, c, k)

def update_slice(x, u, i, axis):
    k, s = axis % len(x.shape), max(0, min(i[0,], x.shape[axis] - u.shape[axis]))
    return Tensor(x.shape, lambda d: u.at.get((*d[:k], d[k] - s, *d[k + 1 :]), x[d]))

def slices(x, begin, end, strides):
    for n, b, e, s in zip_longest(x.shape, begin, end, strides):
        low, high = (0, n) if (s or 1) > 0 else (-1, n - 1)
        ends = (0 if b is None else b, n if e is None else e)
        yield range(*(max(low, min(v + n * (v < 0), high)) for v in ends), s or 1)

def concatenate(*xs, axis):
    k, parts = axis % len(xs[0].shape), [(x, i) for x in xs for i in range(x.shape[axis])]
    shape = [*xs[0].shape[:k], len(parts), *xs[0].shape[k + 1 :]]
    return Tensor(shape, lambda d: parts[d[k]][0][*d[:k], parts[d[k]][1], *d[k + 1 :]])

def take(x, i, axis=None):
    x, axis = (shaped(x, [len(x.at)]), 0) if axis is None else (x, axis)
    k, m, last = axis % len(x.shape), len(i.shape), x.shape[axis] - 1
    at = Tensor(i.shape, lambda d: max(0, min(i[d], last)))
    return Tensor([*x.shape[:k], *i.shape, *x.shape[k + 1 :]], lambda d: x[*d[:k], at[d[k : k + m]], *d[k + m :]])

def transpose(x, axes):
    to = real(x, axes) or [*range(len(x.shape))][::-1]
    return Tensor([x.shape[k] for k in to], lambda d: x[[d[to.index(k)] for k in range(len(d))]])

OPS = {
    "sum": lambda x, **a: reduce(sum, x, **a), "max": lambda x, **a: reduce(max, x, **a), "broadcast_max": each(max),
    "broadcast_add": each(lambda a, b: a + b), "elemwise_add": each(lambda a, b: a + b), "abs": each(abs),
    "broadcast_sub": each(lambda a, b: a - b), "elemwise_sub": each(lambda a, b: a - b), "negative": each(lambda x: -x),
    "broadcast_mul": each(lambda a, b: a * b), "relu": each(lambda x: max(x, 0)), "cvm_clip": each(clip),
    "broadcast_div": each(lambda a, b: abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1) if b else 0),
    "broadcast_greater": each(lambda a, b: int(a > b)), "cvm_precision": each(lambda x: max(1, x.bit_length())),
    "clip": each(lambda x, a_min, a_max: max(a_min, min(x, a_max))), "requantize": each(requantize),
    "cvm_right_shift": each(lambda x, precision, shift_bit: clip((x + (1 << shift_bit - 1)) >> shift_bit, precision)),
    "cvm_left_shift": each(lambda x, precision, shift_bit: clip(x << shift_bit, precision)),
    "conv2d": conv2d, "max_pool2d": max_pool2d, "take": take, "cvm_lut": take, "concatenate": concatenate,
    "matmul": matmul, "quotient": each(quotient), "normalize": normalize, "update_slice": update_slice,
    "tile": lambda x, reps: pick(shaped(x, (n := [1] * (len(reps) - len(x.shape)) + x.shape)), *(
        [*range(e)] * t for e, t in zip(n, [1] * (len(n) - len(reps)) + reps, strict=True))),
    "transpose": transpose, "slice": lambda x, **a: pick(x, *slices(x, **a)),
    "dense": lambda x, w, b=None: Tensor([x.shape[0], w.shape[0]], lambda d: (b[d[1:]] if b else 0) + sum(
        x[d[0], k] * w[d[1], k] for k in range(x.shape[1]))),
    "repeat": lambda x, axis, repeats: pick(x, *(
        [i // repeats for i in range(n * repeats)] if [k] == real(x, [axis]) else range(n)
        for k, n in enumerate(x.shape))),
    "slice_like": lambda x, like, axes: pick(x, *(
        range(like.shape[k] if k in (real(x, axes) or range(len(like.shape))) else n) for k, n in enumerate(x.shape))),
    "expand_dims": lambda x, axis, num_newaxis: shaped(
        x, [*x.shape[: axis % (k := len(x.shape) + 1)], *[1] * num_newaxis, *x.shape[axis % k :]]),
    "flatten": lambda x: shaped(x, [len(x.at)]), "reshape": lambda x, target_shape: shaped(x, target_shape),
    "squeeze": lambda x, axes: shaped(x, other(x, real(x, axes) or [k for k, n in enumerate(x.shape) if n == 1])),
    "where": lambda c, a, b: Tensor(a.shape, lambda d: (a if c[d[: len(c.shape)]] else b)[d]),
}

def answer(op, case):
    inputs = [tensor(n, unpack(f"<{prod(n)}{'iq'[t == 'int64']}", data)) for t, n, data in case["inputs"]]
    y = OPS[op](*inputs, **case["attributes"])
    return [["int32", y.shape, pack(f"<{len(y.at)}i", *y.at.values())]]

def seconds(limit):
    """Allow ``limit`` seconds from now on, if the system has signals; 0 ends the limit."""
    if hasattr(signal, "setitimer"):
        signal.setitimer(signal.ITIMER_REAL, limit)

def late(*_):
    raise TimeoutError(f"it takes more than {SECONDS} s")

def serve(source, sink):
    while header := source.read(4):
        q, _ = read(source.read(unpack("<I", header)[0]))
        try:
            seconds(SECONDS)
            said = {"verdict": "value", "outputs": answer(q["op"], q)}
        except Exception:
            said = {"verdict": "unsupported"}
        seconds(0)
        frame = write({"id": q["id"], **said})
        sink.write(pack("<I", len(frame)) + frame)
        sink.flush()

def consume(path):
    (_, _, header, cases), _ = read(path.read_bytes())
    values = [case for case in cases if case["verdict"] == "value" and header.get("op") in OPS]
    failed = [case["id"] for case in values if answer(header["op"], case) != case["outputs"]]
    print(f"{path.stem}: {len(values) - len(failed)} passed, {len(cases) - len(values)} skipped, failed: {failed}")
    return bool(failed)

def main(folder):
    wrong = []
    for path in sorted(Path(folder).rglob("*.msgpack")):
        try:
            seconds(SECONDS)
            wrong += [path] * consume(path)
        except Exception as error:
            wrong.append(path)
            print(f"{path.stem}: no vectors: {type(error).__name__}: {error}"[:200])
    seconds(0)
    return bool(wrong)

if __name__ == "__main__":
    with suppress(ImportError, AttributeError):  # Windows has neither
        from resource import RLIMIT_AS, setrlimit
        setrlimit(RLIMIT_AS, (MEMORY, MEMORY))
        signal.signal(signal.SIGALRM, late)
    arguments = sys.argv[1:] or [str(Path(__file__).parents[1] / "spec_vectors")]
    try:
        sys.exit(serve(sys.stdin.buffer, sys.stdout.buffer) if arguments == ["--serve"] else main(*arguments))
    except Exception as error:
        sys.exit(f"it cannot be read: {type(error).__name__}: {error}"[:200])
