"""Verify a receipt with Python's standard library alone: nothing of cvm is imported.

    python verify_receipt.py RECEIPT --program FILE.cvm -i [NAME=]FILE[:MEMBER].. [--outputs FILE.npz]
        [--trace-file FILE]..
    python verify_receipt.py --vectors spec_vectors

Everything is recomputed from bytes as docs/commitments.md says: the receipt's id, the program's digest and gas, the
signatures, the roots of inputs and outputs, and every tensor, with the ops in plain Python of this file. The last
line is the answer, in the words of `cvm receipt verify`; the exit codes are its exit codes 0, 1, 3,
4 and 5. It does not prove that a program is valid.

Whatever the files hold, it takes at most 256 MiB and about 10 seconds: anything larger than the bounds below is refused
before it is read, inflated or computed, with the answer TOO_LARGE and exit code 4, or with CANNOT_RECOMPUTE.
"""

# One sitting.
# fmt: off
import argparse
import os
import re
import stat
import struct
import sys
import zipfile
import zlib
from array import array
from ast import literal_eval
from fractions import Fraction
from hashlib import sha256, sha512
from io import BytesIO
from itertools import product, zip_longest
from math import floor, prod
from pathlib import Path
from struct import pack, unpack

LARGE = 10**6
"""The most gas of all runs, plus a little for each tensor of each run; above it plain Python is too slow."""
ELEMENTS = 120_000
"""The most elements of all tensors that an op reads and writes, and of all arrays of a file."""
FILE, ITEMS = 2**23, 400_000
"""The most bytes of a file, and the most items in it."""
MEMBERS, INFLATED = 4096, 2**24
"""The most members of an archive, and the most bytes of all of them."""
SIGNATURES = 32

class Ends(Exception):
    """An answer: its word, the level, and the reason."""

class TooLarge(Exception):
    """A file is beyond a bound."""

def bounded(found, most, what):
    if found > most:
        raise TooLarge(f"{what}: {found}, more than {most}")

# Files

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

def contents(path):
    """The bytes of a regular file that is not too large; it never waits for anything else."""
    with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{path} is not a regular file")
        bounded(status.st_size, FILE, f"bytes of {path}")
        return file.read(FILE)

class Counted(bytes):
    """Bytes that count their items: reading the type byte of an item counts one."""

    left = ITEMS

    def __getitem__(self, index):
        if isinstance(index, int):
            self.left -= 1
            bounded(-self.left, 0, f"items of a file beyond {ITEMS}")
        return bytes.__getitem__(self, index)

# Canonical msgpack

def length(n, short, long):
    """The first bytes of an item of n parts: one byte up to its limit, else the shortest of the longer forms."""
    if short is not None and n < short[1]:
        return bytes([short[0] + n])
    code, size = next((code, size) for code, size in long if n < 1 << 8 * size)
    return bytes([code]) + n.to_bytes(size, "big")

def write(x):
    """The one canonical form of an item."""
    if isinstance(x, bool):
        return b"\xc3" if x else b"\xc2"
    if isinstance(x, int):
        if -32 <= x < 128:
            return pack("b", x)
        codes = zip((0xCC, 0xCD, 0xCE, 0xCF) if x > 0 else (0xD0, 0xD1, 0xD2, 0xD3), (1, 2, 4, 8), strict=True)
        code, size = next(c for c in codes if (x if x > 0 else 2 * ~x + 1) < 1 << 8 * c[1])
        return bytes([code]) + x.to_bytes(size, "big", signed=x < 0)
    if isinstance(x, bytes):
        return length(len(x), None, ((0xC4, 1), (0xC5, 2), (0xC6, 4))) + x
    if isinstance(x, str):
        return length(len(x.encode()), (0xA0, 32), ((0xD9, 1), (0xDA, 2), (0xDB, 4))) + x.encode()
    if isinstance(x, list):
        return length(len(x), (0x90, 16), ((0xDC, 2), (0xDD, 4))) + b"".join(map(write, x))
    parts = b"".join(write(k) + write(x[k]) for k in sorted(x))
    return length(len(x), (0x80, 16), ((0xDE, 2), (0xDF, 4))) + parts

def decoded(data, name):
    """The content of a file of that name, if these are its canonical bytes."""
    (found, version, body), _ = read(Counted(data))
    if (found, version) != (name, 1) or isinstance(version, bool) or write([found, version, body]) != data:
        raise ValueError(f"not the canonical bytes of a {name} file, version 1")
    return body

# Preimages: docs/commitments.md, sections 1 to 5

def h(*parts):
    return sha256(b"".join(parts)).digest()

def text(s):
    return pack("<I", len(s.encode())) + s.encode()

def shape(extents):
    return pack(f"<B{len(extents)}Q", len(extents), *extents)

def listed(items):
    return pack("<I", len(items)) + b"".join(items)

def merkle(leaves):
    level = [h(b"\0", leaf) for leaf in leaves]
    while len(level) > 1:
        pairs = [h(b"\1", *level[i : i + 2]) for i in range(0, len(level) - 1, 2)]
        level = pairs + level[2 * len(pairs) :]
    return level[0] if level else h()

def list_root(items):
    return h(b"cvm1:list\0", pack("<Q", len(items)), merkle(items))

def root(extents, items, kind="i"):
    """A tensor's root, from its elements."""
    data = memoryview(little(array(kind, items))).cast("B")
    leaves = (data[i : i + 1024] for i in range(0, len(data), 1024))
    return h(b"cvm1:tensor\0", pack("B", 1 + (kind == "q")), shape(extents), pack("<Q", len(data)), merkle(leaves))

def value(v):
    return text(v["name"]) + shape(v["shape"]) + pack("<qq", v["lo"], v["hi"])

def quantizer(item):
    z = item.get("quantizer")
    if z is None:
        return b"\0"
    if "top" in z:
        return b"\3" + pack("<qB", z["top"], z["bits"])
    axis = bytes([2, z["axis"]]) if "axis" in z else b"\1"
    rounding = ("half_up", "half_even", "toward_zero").index(z["rounding"])
    pairs = [text(s) + text(o) for s, o in zip(z["scale"], z["offset"], strict=True)]
    return axis + pack("<Bqq", rounding, z["lo"], z["hi"]) + listed(pairs)

def attribute(v):
    if isinstance(v, bool | int):
        return bytes([0, v]) if isinstance(v, bool) else b"\1" + pack("<q", v)
    return b"\2" + text(v) if isinstance(v, str) else b"\3" + listed([pack("<q", i) for i in v])

def little(items):
    """Integers in the byte order of files, or back."""
    if sys.byteorder == "big":
        items.byteswap()
    return items

def elements(constant):
    items = little(array({1: "b", 2: "h", 4: "i", 8: "q"}[constant["width"]], constant["data"]))
    if len(items) != prod(constant["shape"]):
        raise ValueError(f"{len(items)} elements of the constant {constant['name']!r}, not {constant['shape']}")
    return items

def digest(p):
    """The digest of a program."""
    first, nodes = len(p["inputs"]) + len(p["constants"]) + len(p["state"]), []
    for n in p["nodes"]:
        attributes = [text(k) + attribute(n["attributes"][k]) for k in sorted(n["attributes"])]
        inputs = listed([pack("<I", i) for i in n["inputs"]])
        outputs = listed([value(v) for v in n["outputs"]])
        nodes.append(b"cvm1:op\0" + text(n["op"]) + listed(attributes) + inputs + pack("<I", first) + outputs)
        first += len(n["outputs"])
    constants = [b"cvm1:constant\0" + text(c["name"]) + root(c["shape"], elements(c), kind(c)) for c in p["constants"]]
    inputs = [b"cvm1:input\0" + value(i["value"]) + quantizer(i) for i in p["inputs"]]
    outputs = [b"cvm1:output\0" + text(o["name"]) + pack("<I", o["value"]) + quantizer(o) for o in p["outputs"]]
    state = [b"cvm1:state\0" + value(s["value"]) + pack("<II", s["initial"], s["update"]) for s in p["state"]]
    lists = map(list_root, (nodes, constants, inputs, outputs, state))
    return h(b"cvm1:program\0", pack("<I", p["op_set"]), text(p["limits"]), *lists)

def kind(constant):
    return "i" if constant["kind"] == "tensor" else "q"

def shapes(p):
    """The shape of each value, by its number."""
    values = [i["value"] for i in p["inputs"]] + p["constants"] + [s["value"] for s in p["state"]]
    return [v["shape"] for v in values + [v for n in p["nodes"] for v in n["outputs"]]]

WORK = {
    "conv2d": lambda n, x, y: prod(y) * prod(x[1][1:]), "dense": lambda n, x, y: prod(y) * x[1][1],
    "max_pool2d": lambda n, x, y: prod(y) * prod(n["attributes"]["pool_size"]),
    "sum": lambda n, x, y: prod(x[0]), "max": lambda n, x, y: prod(x[0]),
    "non_max_suppression": lambda n, x, y: 32 * x[0][0] * x[0][1] ** 2,
    "broadcast_div": lambda n, x, y: 8 * prod(y), "cvm_precision": lambda n, x, y: 5 * prod(x[0]),
    "requantize": lambda n, x, y: (len(x) - 2) // 2 * 2 * prod(x[0]),
    "matmul": lambda n, x, y: prod(y) * x[0][-2 if n["attributes"]["transpose_a"] else -1],
    "quotient": lambda n, x, y: (2 * len(x) + 28) * prod(x[0]), "normalize": lambda n, x, y: 256 * prod(x[0]),
}
"""Work by op, from the node, the shapes of its inputs and that of its first output; other ops have none."""

def gas(p):
    """The gas of one run: for each op 1, the elements that it reads and writes, and its work."""
    size, total = shapes(p), 0
    for n in p["nodes"]:
        x, y = [size[i] for i in n["inputs"]], [v["shape"] for v in n["outputs"]]
        work = WORK.get(n["op"], lambda n, x, y: 0)(n, x, y[0])
        if work < 0:
            raise ValueError(f"an op {n['op']} of less than no work")
        total += 1 + sum(map(prod, x + y)) + work
    return total

def read_program(data):
    """The program in a file, if its numbers can be computed with in bounded time."""
    p = decoded(data, "cvm-program")
    everywhere = shapes(p)
    if not all(len(size) <= 8 and all(isinstance(e, int) and 0 < e < 2**31 for e in size) for size in everywhere):
        raise ValueError("there is a tensor of impossible shape")
    for n in p["nodes"]:
        listing = [v if isinstance(v, list) else [v] for v in n["attributes"].values()]
        if not all(len(v) <= 8 and all(isinstance(i, str) or -(2**31) <= i < 2**31 for i in v) for v in listing):
            raise ValueError(f"an op {n['op']} has impossible attributes")
        small = {"precision": 32, "shift_bit": 32, "num_newaxis": 32, "shift": 62}
        if not all(0 <= n["attributes"].get(k, 0) <= most for k, most in small.items()):
            raise ValueError(f"an op {n['op']} has impossible attributes")
    for end in p["inputs"] + p["outputs"]:
        z = end.get("quantizer", {})
        if not (0 <= z.get("bits", 8) <= 16 and -(2**10) <= z.get("top", 0) <= 2**10 and all(
                re.fullmatch("-?[0-9]{1,120}(/[0-9]{1,120})?", x) for k in ("scale", "offset") for x in z.get(k, []))):
            raise ValueError(f"a quantizer has impossible numbers: {str(z)[:200]}")
    return p

# Claims: section 8

def record(run):
    parts = b"".join(listed(run[k]) for k in ("inputs", "before", "outputs", "after"))
    return b"cvm1:run\0" + parts + (b"\1" + run["trace"] if "trace" in run else b"\0")

def receipt_id(c):
    runs = list_root([record(run) for run in c["runs"]])
    return h(b"cvm1:receipt\0", c["program"], pack("<I", c["op_set"]), text(c["limits"]), pack("<Q", c["gas"]), runs)

def trace(program, inputs, before, steps):
    log = list_root([b"cvm1:step\0" + pack("<I", k) + listed(roots) for k, roots in enumerate(steps)])
    return h(b"cvm1:trace\0", program, listed(inputs), listed(before), log)

def receipt(data):
    """The receipt in a file, if it has the right structure."""
    r = decoded(data, "cvm-receipt")
    c = r["claim"]
    lists = [run[k] for run in c["runs"] for k in ("inputs", "before", "outputs", "after")]
    roots = [x for part in lists for x in part]
    roots += [c["program"], *(run["trace"] for run in c["runs"] if "trace" in run)]
    bounded(len(r["signatures"]), SIGNATURES, "signatures of a receipt")
    keys = {frozenset(run) - {"trace"} for run in c["runs"]}
    host, signed = r["host"], [item["key"] for item in r["signatures"]]
    if not (set(r) == {"claim", "host", "signatures"} and set(c) == {"gas", "limits", "op_set", "program", "runs"}
            and keys == {frozenset(("inputs", "before", "outputs", "after"))} and 0 <= c["gas"] < 2**63
            and (type(c["gas"]), type(c["op_set"])) == (int, int)
            and all(isinstance(x, list) for x in (c["runs"], r["signatures"], *lists))
            and all(isinstance(x, bytes) and len(x) == 32 for x in roots) and signed == sorted(set(signed))
            and all(set(s) == {"key", "signature"} and (len(s["key"]), len(s["signature"])) == (32, 64)
                    for s in r["signatures"])
            and set(host) == {"executor", "machine", "time", "version"}
            and all(isinstance(x, str) for x in (c["limits"], *host.values()))):
        raise ValueError("the structure is not that of a receipt")
    return r

def log(data):
    """The trace in a file, if it has the right structure."""
    t = decoded(data, "cvm-trace")
    roots = [t["program"], *(x for part in (t["before"], t["inputs"], *t["steps"]) for x in part)]
    lists = [t["before"], t["inputs"], t["steps"], *t["steps"]]
    if set(t) != {"before", "inputs", "program", "steps"} or not all(isinstance(x, list) for x in lists) or not all(
            isinstance(x, bytes) and len(x) == 32 for x in roots):
        raise ValueError("the structure is not that of a trace")
    return t

# Signatures: Ed25519, RFC 8032, section 5.1. A point is (x, y) on -x^2 + y^2 = 1 + D x^2 y^2, modulo P.

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P

def point(data):
    """The point of 32 bytes: y, and the lowest bit of x above it. None if there is no such point."""
    y, odd = int.from_bytes(data, "little") % 2**255, data[31] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * pow(2, (P - 1) // 4, P) % P
    if y >= P or x * x % P != square or (x == 0 and odd):
        return None
    return (x if x % 2 == odd else P - x, y)

def plus(a, b):
    """The sum of two points."""
    (p, q), (r, s) = a, b
    e = D * p * r * q * s % P
    both = pow(1 - e * e, -1, P)
    return (p * s + q * r) * (1 - e) * both % P, (q * s + p * r) * (1 + e) * both % P

def times(n, a):
    """The sum of n times the same point."""
    total = (0, 1)
    for bit in f"{n:b}":
        total = plus(total, total)
        total = plus(total, a) if bit == "1" else total
    return total

BASE = point((4 * pow(5, -1, P) % P).to_bytes(32, "little")) or (0, 1)

def genuine(key, message, signature):
    """Whether S B = R + k A, for the key A, the signature (R, S), and k the hash of R, A and the message.

    If a key is one of the eight points with 8 A = 0, anybody can make its signatures, so they prove nothing.
    """
    a, s = point(key), int.from_bytes(signature[32:], "little")
    if a is None or times(8, a) == (0, 1) or s >= L:
        return False
    k = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
    x, y = plus(times(s, BASE), times(k, (P - a[0], a[1])))
    return (y | x % 2 << 255).to_bytes(32, "little") == signature[:32]

# Arrays

def npy(data):
    """The elements of a .npy file, row-major: integers, or floats as exact rationals."""
    size = 2 if data[6] == 1 else 4
    start = 8 + size + int.from_bytes(data[8 : 8 + size], "little")
    head = literal_eval(data[8 + size : start].decode("latin-1"))
    kinds = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q",
             "f2": "e", "f4": "f", "f8": "d"}
    if data[:6] != b"\x93NUMPY" or head["fortran_order"]:
        raise ValueError("not a .npy file in row-major order")
    order = ">" if head["descr"][0] == ">" else "<"
    if len(head["shape"]) > 10:
        raise ValueError("an array of more than ten dimensions")
    count = prod(head["shape"])
    bounded(count, ELEMENTS, "elements of an array")
    items = unpack(f"{order}{count}{kinds[head['descr'][1:]]}", data[start:])
    return [Fraction(x) if isinstance(x, float) else x for x in items]

def listed_members(data):
    """How many members the directory of an archive has; this is checked before `zipfile` makes objects of them."""
    sign, disk, first, here, count, size, start, comment = unpack("<4s4H2LH", data[-22:])
    end = len(data) - 22
    if data[end - 20 : end - 16] == b"PK\6\7":
        end -= 76
        sign, rest, _, _, disk, first, here, count, size, start = unpack("<4sQ2H2L4Q", data[end : end + 56])
        if (sign, rest) != (b"PK\6\6", 44) or unpack("<4sLQL", data[end + 56 : end + 76])[1:] != (0, end, 1):
            raise ValueError("an archive whose zip64 record is not at its end")
    elif sign != b"PK\5\6":
        raise ValueError("an archive without an end")
    if comment or disk or first or here != count or start + size != end:
        raise ValueError("an archive with something between its parts")
    bounded(count, MEMBERS, "members of an archive")
    at, found = start, 0
    while at < end and found <= count:
        at, found = at + 46 + sum(unpack("<3H", data[at + 28 : at + 34])), found + 1
    if (at, found) != (end, count):
        raise ValueError("an archive whose directory has not the members that it claims")

def arrays(path, member=None):
    """The arrays of a file, by name; the one of a .npy file has no name."""
    data = contents(path)
    if not data.startswith(b"PK"):
        return {"": npy(data)}
    listed_members(data)
    with zipfile.ZipFile(BytesIO(data)) as archive:
        members = archive.infolist()
        bounded(sum(m.file_size for m in members), INFLATED, f"bytes of all members of {path}")
        asked = [m for m in members if member is None or m.filename == member + ".npy"]
        found = {}
        for m in asked:
            with archive.open(m) as stream:  # never inflates more than the member's declared size
                found[m.filename.removesuffix(".npy")] = npy(stream.read(m.file_size))
            bounded(sum(map(len, found.values())), ELEMENTS, f"elements of the arrays of {path}")
        return found

def given(specs, names):
    """The arrays of all -i options, by the name of the input."""
    found = {}
    for spec in specs:
        name, _, file = spec.rpartition("=")
        file, _, member = (file, "", None) if Path(file).exists() else file.rpartition(":")
        for key, items in arrays(file, member).items():
            found[name or (key if key in names else names[0])] = items
    return found

def codes(items, end, runs):
    """The codes of each run, from codes or real numbers: quantised once, exactly."""
    n, size, z = len(items) // runs, end["shape"], end.get("quantizer")
    if n * runs != len(items) or n != prod(size):
        raise Ends("CANNOT_RECOMPUTE", "roots", f"an array has {len(items)} elements, not {runs} times {prod(size)}")
    inner = prod(size[z["axis"] + 1 :]) if z and "axis" in z else n
    if z and "scale" in z:
        z = {**z, **{k: [Fraction(x) for x in z[k]] for k in ("scale", "offset")}}
    return [[code(x, z, i // inner) for i, x in enumerate(items[k * n : (k + 1) * n])] for k in range(runs)]

def code(x, z, channel):
    if isinstance(x, int):
        return x
    if "top" in z and x == 0:
        return 0
    if "top" in z:  # sign(x) * 2^q, where q is the logarithm rounded half up: |x| * sqrt(2) is at least 2^q
        low = z["top"] - (1 << z["bits"]) + 1
        n, d = abs(x.numerator), x.denominator
        # the lengths of numerator and denominator give a first q with |x| below 2^(q - 1)
        q = min(z["top"], max(low, n.bit_length() - d.bit_length() + 2))
        while q > low and 2 * n * n << max(0, -2 * q) < d * d << max(0, 2 * q):
            q -= 1
        return ((x > 0) - (x < 0)) * (q - low + 1)
    channel %= len(z["scale"])
    q = (x - z["offset"][channel]) / z["scale"][channel]
    rounded = {"half_up": floor(q + Fraction(1, 2)), "half_even": round(q), "toward_zero": int(q)}[z["rounding"]]
    return max(z["lo"], min(rounded, z["hi"]))

# The ops: those of tools/consume_vectors.py, word for word, and the ones that it leaves out

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

def upsampling(x, scale):
    n, c, *size = x.shape
    return Tensor([n, c, *(scale * e for e in size)], lambda d: x[*d[:2], d[2] // scale, d[3] // scale])

def rows(x, lists):
    """A tensor of the shape of x: of each batch these rows, then rows of -1."""
    return Tensor(x.shape, lambda d: lists[d[0]][d[1]][d[2]] if d[1] < len(lists[d[0]]) else -1)

def get_valid_count(x, score_threshold):
    batches, n, k = x.shape
    every = [[[x[b, i, j] for j in range(k)] for i in range(n)] for b in range(batches)]
    found = [[r for r in batch if r[1] > score_threshold] for batch in every]
    return tensor([batches], map(len, found)), rows(x, found)

def close(r, s, percent):
    """Whether the intersection of two boxes is at least so many percent of their union, and there is a union."""
    areas = sum((b[4] - b[2]) * (b[5] - b[3]) for b in (r, s))
    width, height = (max(0, min(r[c + 2], s[c + 2]) - max(r[c], s[c])) for c in (2, 3))
    union = areas - width * height
    return areas > 0 and union > 0 and 100 * width * height >= percent * union

def non_max_suppression(x, valid_count, iou_threshold, max_output_size, force_suppress, top_k):
    batches, n, k = x.shape
    kept = []
    for b in range(batches):
        valid = [[x[b, i, j] for j in range(k)] for i in range(max(0, min(n, valid_count[b,])))]
        chosen = []
        for r in sorted(valid, key=lambda r: -r[1])[: n if top_k < 0 else top_k]:
            rivals = [s for s in chosen if force_suppress or s[0] == r[0]]
            if r[0] >= 0 and not any(close(r, s, iou_threshold) for s in rivals):
                chosen.append(r)
        kept.append(chosen[: n if max_output_size < 0 else max_output_size])
    return rows(x, kept)

ALL = {**OPS, "upsampling": upsampling, "get_valid_count": get_valid_count, "non_max_suppression": non_max_suppression}

# Verification

def require(holds, answer, level, why):
    if not holds:
        raise Ends(answer, level, why)

def execute(p, inputs, state):
    """All values of a run, by number: pairs of a shape and elements."""
    known = [(i["value"]["shape"], x) for i, x in zip(p["inputs"], inputs, strict=True)]
    known += [(c["shape"], elements(c)) for c in p["constants"]]
    known += [(s["value"]["shape"], x) for s, x in zip(p["state"], state, strict=True)]
    for n in p["nodes"]:
        require(n["op"] in ALL, "CANNOT_RECOMPUTE", "outputs", f"there is no {n['op']} in plain Python here")
        made = computed(n, [known[i] for i in n["inputs"]], [v["shape"] for v in n["outputs"]])
        known += [(y.shape, array("i", y.at.values())) for y in made]
    return known

def computed(n, inputs, declared):
    """The outputs of an op, which must have the declared shapes: the gas is that of these."""
    count = sum(prod(size) for size, _ in inputs) + sum(map(prod, declared))
    require(count <= ELEMENTS, "CANNOT_RECOMPUTE", "outputs", f"an op of {count} elements: too large for plain Python")
    require_sane(n, inputs, declared)
    x = [tensor(*one) for one in inputs]
    # Each element of these ops takes long, and they make no tensor besides their result.
    long = n["op"] in ("conv2d", "dense", "matmul", "max_pool2d")
    before, Tensor.most = Tensor.most, prod(declared[0]) if long else count
    try:
        y = ALL[n["op"]](*x, **n["attributes"])
    finally:
        Tensor.most = before
    made = list(y) if isinstance(y, tuple) else [y]
    if [one.shape for one in made] != declared:
        raise ValueError(f"an op {n['op']} does not give tensors of the shapes that are declared")
    return made

def require_sane(n, inputs, declared):
    """Refuse numbers with which an op would make a tensor far larger than its result."""
    a = n["attributes"]
    repeats = [a["repeats"]] if n["op"] == "repeat" else a["reps"] if n["op"] == "tile" else []
    if repeats and (min(repeats) < 1 or prod(inputs[0][0]) * prod(repeats) != prod(declared[0])):
        raise ValueError(f"an op {n['op']} that does not give as many elements as are declared")
    if n["op"] == "requantize" and not all(0 <= s < 64 for s in inputs[-1][1]):
        raise ValueError("a requantize with an impossible shift")

def grouped(p, roots):
    """The roots of the outputs of each op."""
    stream = iter(roots)
    return [[next(stream) for _ in n["outputs"]] for n in p["nodes"]]

def compare(k, p, steps, log):
    """Compare a given trace with the steps of run k."""
    for number, (n, made) in enumerate(zip(p["nodes"], steps, strict=True)):
        why = f"run {k}: op {number}, the {n['op']} that gives {n['outputs'][0]['name']!r}, is the first that differs"
        require(log["steps"][number : number + 1] == [made], "DIVERGED", "trace", why)
    count = len(log["steps"])
    require(count == len(steps), "DIVERGED", "trace", f"run {k}: the given trace has {count} ops")

def verify(claim, p, inputs, signatures=(), logs=()):
    """Recompute a whole claim. ``inputs`` are the codes of each run, input by input; ``logs`` are given traces."""
    program, runs = digest(p), claim["runs"]
    least = 2 if any(n["op"] in ("matmul", "quotient", "normalize", "update_slice") for n in p["nodes"]) else 1
    require(claim["op_set"] == p["op_set"] == least, "CANNOT_RECOMPUTE", "structure", "of another op-set")
    require(claim["program"] == program, "CANNOT_RECOMPUTE", "structure", f"of another program than {program.hex()}")
    counts = [len(p[k]) for k in ("inputs", "state", "outputs", "state")]
    require((claim["limits"], claim["gas"]) == (p["limits"], gas(p)) and all(
        [len(run[k]) for k in ("inputs", "before", "outputs", "after")] == counts for run in runs),
        "DIVERGED", "structure", "limits profile, gas or numbers of tensors are not the program's")
    for s in signatures:
        signed = genuine(s["key"], b"cvm1:signature\0" + receipt_id(claim), s["signature"])
        require(signed, "DIVERGED", "structure", f"the signature by {s['key'].hex()} is not one of this claim")
        print(f"signed by {s['key'].hex()}")
    began = [(run["inputs"], run["before"]) for run in runs]
    for t in logs:
        mine = t["program"] == program and (t["inputs"], t["before"]) in began
        require(mine, "CANNOT_RECOMPUTE", "roots", "a given trace is of no run of the receipt")
    require(inputs is not None, "CANNOT_RECOMPUTE", "roots", "no inputs are given")
    for k, run in enumerate(runs):
        found = [root(i["value"]["shape"], x[k]) for i, x in zip(p["inputs"], inputs, strict=True)]
        require(found == run["inputs"], "CANNOT_RECOMPUTE", "roots", f"run {k} had other inputs")
    each = claim["gas"] + 10 * len(shapes(p)) + sum(prod(s["value"]["shape"]) for s in p["state"])
    large = f"too large for plain Python (gas {each * len(runs)}, at most {LARGE}): `cvm receipt verify` runs it"
    require(each * len(runs) <= LARGE, "CANNOT_RECOMPUTE", "outputs", large)
    constants, begin = p["constants"], [s["value"]["shape"] for s in p["state"]]
    initial = [elements(constants[s["initial"] - len(p["inputs"])]) for s in p["state"]]
    start, after = sum(counts[:2]) + len(constants), initial
    for k, run in enumerate(runs):
        fresh = [root(size, x) for size, x in zip(begin, initial, strict=True)] == run["before"]
        state = initial if fresh else after
        before = [root(size, x) for size, x in zip(begin, state, strict=True)]
        require(before == run["before"], "CANNOT_RECOMPUTE", "roots", f"run {k} began with a state that is not known")
        values = execute(p, [x[k] for x in inputs], state)
        after = [values[s["update"]][1] for s in p["state"]]
        outputs = [root(*values[o["value"]]) for o in p["outputs"]]
        left = [root(size, x) for size, x in zip(begin, after, strict=True)]
        require((outputs, left) == (run["outputs"], run["after"]), "DIVERGED", "outputs", f"run {k} gives others")
        steps = grouped(p, [root(*v) for v in values[start:]])
        for t in logs:
            if (t["inputs"], t["before"]) == began[k]:
                compare(k, p, steps, t)
        made = trace(program, run["inputs"], before, steps)
        require(run.get("trace", made) == made, "DIVERGED", "trace", f"run {k} has another trace")
    level = "trace" if logs or any("trace" in run for run in runs) else "outputs"
    raise Ends("REPRODUCED", level, f"{len(runs)} runs")

def given_outputs(claim, p, found):
    """Compare the given outputs with those that the claim names."""
    size = shapes(p)
    for index, o in enumerate(p["outputs"]):
        if o["name"] in found:
            tensors = codes(found[o["name"]], {**o, "shape": size[o["value"]]}, len(claim["runs"]))
            same = all(root(size[o["value"]], x) == run["outputs"][index]
                       for x, run in zip(tensors, claim["runs"], strict=True))
            require(same, "DIVERGED", "roots", f"the given {o['name']} is not the one that the receipt names")

def single(options):
    r = receipt(contents(options.receipt))
    claim, inputs = r["claim"], None
    print(f"receipt   {receipt_id(claim).hex()}")
    print(f"the host said, and nobody vouches for it: {', '.join(filter(None, r['host'].values())) or 'nothing'}")
    logs = [log(contents(path)) for path in options.trace_file]
    require(options.program, "CANNOT_RECOMPUTE", "structure", "no program is given")
    p = read_program(contents(options.program))
    names = [i["value"]["name"] for i in p["inputs"]]
    found = given(options.input, names)
    if set(found) == set(names):
        ends = [{**i, "shape": i["value"]["shape"]} for i in p["inputs"]]
        inputs = [codes(found[n], end, len(claim["runs"])) for n, end in zip(names, ends, strict=True)]
    if options.outputs and claim["program"] == digest(p):
        given_outputs(claim, p, arrays(options.outputs))
    verify(claim, p, inputs, r["signatures"], logs)

def vectors(folder):
    """Recompute every receipt of the test vectors from the tensors of its program's vector."""
    wrong, count = [], 0
    for path in sorted(Path(folder, "receipts").glob("*.receipt")):
        (_, _, _, [case]), _ = read(Counted(contents(Path(folder, "programs", path.stem + ".msgpack"))))
        claim, p = receipt(contents(path))["claim"], read_program(case["program"])
        program, again = digest(p), []
        for run in case["runs"]:
            known = {k: root(s, unpack(f"<{prod(s)}i", d)) for k, (_, s, d) in (run["inputs"] | run["values"]).items()}
            names = [c["name"] for c in p["constants"]]
            known |= {c["name"]: root(c["shape"], elements(c)) for c in p["constants"] if c["kind"] == "tensor"}
            values = [i["value"]["name"] for i in p["inputs"]] + names + [s["value"]["name"] for s in p["state"]]
            values += [v["name"] for n in p["nodes"] for v in n["outputs"]]
            inputs = [known[i["value"]["name"]] for i in p["inputs"]]
            before = [known[s["value"]["name"]] for s in p["state"]]
            steps = grouped(p, [known[v["name"]] for n in p["nodes"] for v in n["outputs"]])
            again.append({"inputs": inputs, "before": before,
                          "outputs": [known[values[o["value"]]] for o in p["outputs"]],
                          "after": [known[values[s["update"]]] for s in p["state"]],
                          "trace": trace(program, inputs, before, steps)})
        same = {"program": program, "op_set": p["op_set"], "limits": p["limits"], "gas": gas(p), "runs": again}
        count += 1
        if claim != same or program.hex() != case["digest"]:
            wrong.append(path.stem)
    print(f"{count} receipts, wrong: {wrong}" if count else f"no receipts/*.receipt in {folder}")
    return 1 if wrong or not count else 0

def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("receipt", nargs="?")
    parser.add_argument("--program")
    parser.add_argument("-i", "--input", action="append", default=[], metavar="[NAME=]FILE[:MEMBER]")
    parser.add_argument("--outputs", metavar="FILE.npz")
    parser.add_argument("--trace-file", action="append", default=[], metavar="FILE")
    parser.add_argument("--vectors", metavar="DIR", help="the folder spec_vectors: recompute its receipts")
    options = parser.parse_args(arguments)
    if (options.receipt is None) == (options.vectors is None):
        parser.error("expected a receipt, or --vectors")
    try:
        return vectors(options.vectors) if options.vectors else single(options)
    except Ends as end:
        answer, level, why = end.args
        print(f"{answer} at level {level}: {why}")
        return {"REPRODUCED": 0, "DIVERGED": 1, "CANNOT_RECOMPUTE": 5}[answer]
    except TooLarge as error:
        print(f"TOO_LARGE: {error}")
        return 4
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, struct.error, RecursionError,
            MemoryError, SyntaxError, OSError, RuntimeError, EOFError, zlib.error, zipfile.BadZipFile) as error:
        print(f"MALFORMED: {type(error).__name__}: {error}")
        return 3

if __name__ == "__main__":
    sys.exit(main())
