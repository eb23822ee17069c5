"""The scripted defects: class, module, original snippet, replacement."""

from __future__ import annotations

from tools.planted.defect import Defect

__all__ = ["KINDS", "scripted"]

KINDS = ("wrap", "bias", "shift", "channels", "border", "clip", "lanes", "stale")

_TABLE: tuple[tuple[str, str, str, str], ...] = (
    (
        "wrap",
        "requantize",
        'code.binary("mul", _lower(code, pairs), m0)',
        'code.binary("mul", pairs, m0)',
    ),
    (
        "wrap",
        "requantize",
        'code.binary("ashr", pairs, 32)',
        'code.binary("lshr", pairs, 32)',
    ),
    (
        "wrap",
        "requantize",
        "if bound < 2**31 and s.hull[1] < 32 and not plain",
        "if bound < 2**33 and s.hull[1] < 32 and not plain",
    ),
    (
        "wrap",
        "formula",
        'code.cast("sext", values[0], 64), shift)',
        'code.cast("zext", values[0], 64), shift)',
    ),
    (
        "wrap",
        "vision",
        "< 2**63 else 128",
        "< 2**126 else 128",
    ),
    (
        "wrap",
        "formats",
        "if hi - lo <= 255:",
        "if hi - lo <= 256:",
    ),
    (
        "wrap",
        "residual",
        "(offset - biases[read] * n + 2**31) % 2**32 - 2**31",
        "(offset - biases[read] * n + 2**15) % 2**16 - 2**15",
    ),
    (
        "wrap",
        "reductions",
        'return 0 if kind == "sum" else -(2**31)',
        'return 0 if kind == "sum" else -(2**15)',
    ),
    (
        "bias",
        "requantize",
        "return (exact(1) << shift) >> 1",
        "return ((exact(1) << shift) >> 1) - 1",
    ),
    (
        "bias",
        "requantize",
        "moved = offset + (exact(bias) << shift)",
        "moved = offset + (exact(bias - 1) << shift)",
    ),
    (
        "bias",
        "fused",
        "middle = least + (highest - least >> 1)",
        "middle = highest + 1",
    ),
    (
        "bias",
        "contractions",
        "bias - total * stored, below",
        "bias - total * stored + 1, below",
    ),
    (
        "bias",
        "elements",
        'code.binary("sub", wide, format_.bias) if',
        'code.binary("sub", wide, format_.bias - 1) if',
    ),
    (
        "bias",
        "exchange",
        'code.binary("add", values, kernel.target.bias)',
        'code.binary("add", values, kernel.target.bias + 1)',
    ),
    (
        "bias",
        "epilogue",
        'code.binary("add", value, format_.bias)',
        'code.binary("add", value, format_.bias - 1)',
    ),
    (
        "bias",
        "residual",
        'code.binary("add", total, joint.offset)',
        'code.binary("add", total, joint.offset + 1)',
    ),
    (
        "shift",
        "requantize",
        'return _terms(Requantization("high", count, rounding, lo, hi, short=True), *raised)',
        'return _terms(Requantization("high", count, rounding, lo, hi), raised[0], raised[1], raised[2] + 1)',
    ),
    (
        "shift",
        "requantize",
        'less = code.binary("sub", s, some)',
        "less = s",
    ),
    (
        "shift",
        "fused",
        'even = code.binary("shl", lanes_, 52 - bits)',
        'even = code.binary("shl", lanes_, 51 - bits)',
    ),
    (
        "shift",
        "formula",
        't = code.binary("ashr", values[0], shift - 1)',
        't = code.binary("ashr", values[0], shift)',
    ),
    (
        "shift",
        "packing",
        "shift = 8 if number else 0",
        "shift = 7 if number else 0",
    ),
    (
        "shift",
        "residual",
        "multiplier >> DIGIT, multiplier",
        "multiplier >> DIGIT + 1, multiplier",
    ),
    (
        "shift",
        "contraction",
        "if number == last_shift:",
        "if number == 1:",
    ),
    (
        "channels",
        "packing",
        "return interleaved(block.lane, block.vectors) if block.interleaved else np.arange(segment.channels)",
        "return np.arange(segment.channels)",
    ),
    (
        "channels",
        "packing",
        "split.transpose(0, 1, 4, 5, 6, 2, 3, 7)",
        "split[:, :, ::-1].transpose(0, 1, 4, 5, 6, 2, 3, 7)",
    ),
    (
        "channels",
        "contractions",
        "packed_weights([digit[part] for digit, _ in digits], made.kernel)",
        "packed_weights([digit[:channels] for digit, _ in digits], made.kernel)",
    ),
    (
        "channels",
        "contractions",
        "given = [home.at(first // channels * geometry.group), weights,",
        "given = [home.at(0), weights,",
    ),
    (
        "channels",
        "contractions",
        "ordered = weights[:, order].reshape",
        "ordered = weights[:, order[::-1]].reshape",
    ),
    (
        "channels",
        "depthwise",
        "source = code.at(source, channel)",
        "source = code.at(source, self.segment.start)",
    ),
    (
        "channels",
        "movement",
        "return view.transposed(normal(axes, len(view.axes)))",
        "return view.transposed(sorted(range(len(axes)), key=normal(axes, len(view.axes)).__getitem__))",
    ),
    (
        "channels",
        "windows",
        "Loop(OPG, (0, w[0], b, y[1])),",
        "Loop(OPG, (0, w[0], 0, y[1])),",
    ),
    (
        "channels",
        "view",
        "((count, stride * step),) if count > 1 else (), start * stride)",
        "((count, stride * step),) if count > 1 else (), start * abs(stride))",
    ),
    (
        "channels",
        "tiles",
        "row, pixel = walk.starts[tile]",
        "row, pixel = walk.starts[-1 - tile]",
    ),
    (
        "border",
        "planner",
        'self.fill(Home(home.buffer, view, home.format), 0, "border")',
        'self.fill(Home(home.buffer, view, home.format), 1, "border")',
    ),
    (
        "border",
        "planner",
        "(2, outer[2] - rows, rows)",
        "(2, outer[2] - rows, rows - 1)",
    ),
    (
        "border",
        "depthwise",
        "moved = -a.padding[0] * strides[2] - a.padding[1] * strides[3]",
        "moved = -a.padding[1] * strides[2] - a.padding[0] * strides[3]",
    ),
    (
        "border",
        "windows",
        'typed("i64", window.padding + d - 1)',
        'typed("i64", window.padding + d)',
    ),
    (
        "border",
        "windows",
        "if last >= window.extent:",
        "if last > window.extent:",
    ),
    (
        "border",
        "homes",
        "return (n, c, h, w) if self.border == (0, 0) else (n, c, *self.pitch)",
        "return (n, c, h, w)",
    ),
    (
        "border",
        "cover",
        "_cover(y + tall, x, down - tall, across, most, splits - 1)",
        "_cover(y + tall, x, down - tall, wide, most, splits - 1)",
    ),
    (
        "border",
        "calls",
        "single = code.loop(whole, count, 1,",
        "single = code.loop(min(whole + 1, count), count, 1,",
    ),
    (
        "border",
        "tiles",
        "first = code.larger(code.minus(x, before), 0)",
        "first = code.minus(x, before)",
    ),
    (
        "clip",
        "formulas",
        "return value if lo <= least and largest <= hi else",
        "return value if lo <= least or largest <= hi else",
    ),
    (
        "clip",
        "formulas",
        "(max(chosen.rule.lo + format_.bias, 0), min",
        "(0, min",
    ),
    (
        "clip",
        "requantize",
        'code.intrinsic("smin", code.intrinsic("smax", value, rule.lo), rule.hi) if',
        'code.intrinsic("smin", value, rule.hi) if',
    ),
    (
        "clip",
        "epilogue",
        'clipped = self.code.intrinsic("smin", self.code.intrinsic("smax", value, lo), hi)',
        'clipped = self.code.intrinsic("smin", value, hi)',
    ),
    (
        "clip",
        "epilogue",
        'return code.intrinsic("umin", packed, hi) if hi < 255 else packed',
        "return packed",
    ),
    (
        "clip",
        "formula",
        'return code.intrinsic("smin", code.intrinsic("smax", values[0], lo), hi)',
        'return code.intrinsic("smin", values[0], hi)',
    ),
    (
        "clip",
        "residual",
        'words = code.intrinsic("smin", code.intrinsic("smax", words, joint.clip[0]), joint.clip[1])',
        'words = code.intrinsic("smin", words, joint.clip[1])',
    ),
    (
        "clip",
        "vision",
        'return code.intrinsic("smax", code.binary("sub", high, low), 0)',
        'return code.binary("sub", high, low)',
    ),
    (
        "lanes",
        "requantize",
        "for index in (lane + half, count + lane + half)]",
        "for index in (count + lane + half, lane + half)]",
    ),
    (
        "lanes",
        "packing",
        "[*range(0, lane, 2), *range(1, lane, 2)]",
        "[*range(lane)]",
    ),
    (
        "lanes",
        "nest",
        "even = self.code.shuffle(value, value, range(0, self.count, 2))",
        "even = self.code.shuffle(value, value, range(self.count // 2))",
    ),
    (
        "lanes",
        "packs",
        "return code.call(vector(16, 2 * lane), _PACKS[lane][0], a, b)",
        "return code.call(vector(16, 2 * lane), _PACKS[lane][0], b, a)",
    ),
    (
        "lanes",
        "packs",
        "indices += [first, first + count]",
        "indices += [first + count, first]",
    ),
    (
        "lanes",
        "sums",
        "reshape(lane // 4, vectors, 4).transpose(1, 0, 2)",
        "reshape(vectors, lane // 4, 4)",
    ),
    (
        "lanes",
        "exchange",
        "code.store(part, code.at(write, lane * apart + done))",
        "code.store(part, code.at(write, lane * apart + (count - done - piece)))",
    ),
    (
        "lanes",
        "reductions",
        "parts = [*taken, Loop(whole, (width, 0))]",
        "parts = [*taken, Loop(whole, (1, 0))]",
    ),
    (
        "stale",
        "homes",
        "sha256(data).digest())",
        "sha256(data[:8]).digest())",
    ),
    (
        "stale",
        "homes",
        "self.first, self.last = min(self.first, step), max(self.last, step)",
        "self.first, self.last = min(self.first, step), step if self.last < 0 else self.last",
    ),
    (
        "stale",
        "loops",
        "    formula: Formula\n\n    @property\n    def units",
        '    formula: Formula = __import__("dataclasses").field(compare=False)\n\n    @property\n    def units',
    ),
    (
        "stale",
        "planner",
        "key = (name, format_, tuple(order), border)",
        "key = (name, format_)",
    ),
    (
        "stale",
        "windows",
        "    channels: Loop\n    rows: Window",
        '    channels: Loop = __import__("dataclasses").field(compare=False)\n    rows: Window',
    ),
    (
        "stale",
        "sums",
        "    shifts: tuple[int, ...]\n    input: Format",
        '    shifts: tuple[int, ...] = __import__("dataclasses").field(compare=False)\n    input: Format',
    ),
    (
        "stale",
        "arena",
        "if other.first > buffer.last or buffer.first > other.last:",
        "if other.first >= buffer.last or buffer.first >= other.last:",
    ),
    (
        "stale",
        "calls",
        "code.at(claims, number * CLAIM_BYTES)",
        "code.at(claims, 0)",
    ),
    (
        "stale",
        "sharing",
        "%taken = select i1 %same, i64 %low, i64 0",
        "%taken = select i1 %same, i64 %low, i64 %low",
    ),
    (
        "stale",
        "epilogue",
        "key = (number, q, part)",
        "key = (number, 0, part)",
    ),
    (
        "stale",
        "formulas",
        "if read.home is not None and known.home == read.home:",
        "if read.home is not None and known.home is not None and known.home.buffer is read.home.buffer:",
    ),
    (
        "stale",
        "reductions",
        "    target: Format\n\n    @property\n    def units",
        '    target: Format = __import__("dataclasses").field(compare=False)\n\n    @property\n    def units',
    ),
)


def scripted() -> list[Defect]:
    """All scripted defects. Raises `ValueError` if a snippet does not occur exactly once in the sources."""
    return [Defect.scripted(*row) for row in _TABLE]
