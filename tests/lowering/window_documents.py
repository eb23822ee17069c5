"""Random documents of one sliding-window operation each: every border, any geometry, any place of zero."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

from tests.lowering.documents import Document

__all__ = ["OPERATIONS", "Drawn"]

BORDERS = ["constant", "replicate", "reflect", "reflect-even"]

Drawn = tuple[Document, str]
Draw = Callable[[Random], Drawn]

OPERATIONS: dict[str, Draw] = {}
"""A document with its output (or outputs) for each operation."""


def draws(operation: str) -> Callable[[Draw], Draw]:
    def enter(function: Draw) -> Draw:
        OPERATIONS[operation] = function
        return function

    return enter


@dataclass(frozen=True)
class Geometry:
    """A window over some axes; ``padding`` None is automatic."""

    extents: Sequence[int]
    size: Sequence[int]
    stride: Sequence[int]
    dilation: Sequence[int]
    padding: Sequence[tuple[int, int]] | None
    border: str

    def outputs(self) -> list[int]:
        return [len(starts) for starts in self.starts(self.extents)]

    def starts(self, extents: Sequence[int]) -> list[range]:
        """Where the windows of a basic operation start along each axis."""
        found = []
        for i, extent in enumerate(extents):
            covered = (self.size[i] - 1) * self.dilation[i] + 1
            if self.padding is None:
                count = -(-extent // self.stride[i])
                total = (count - 1) * self.stride[i] + covered - extent
                before = total // 2
            else:
                before, after = self.padding[i]
                count = (before + extent + after - covered) // self.stride[i] + 1
            found.append(range(-before, -before + max(count, 0) * self.stride[i], self.stride[i]))
        return found

    def taps(self, axis: int) -> list[list[int]]:
        """The positions that each window of a basic operation reads along an axis."""
        return [
            [start + j * self.dilation[axis] for j in range(self.size[axis])]
            for start in self.starts(self.extents)[axis]
        ]

    def valid(self) -> bool:
        """Whether there are windows, reflections stay inside, and ignored borders leave an item to every window."""
        for axis, extent in enumerate(self.extents):
            windows = self.taps(axis)
            if not windows:
                return False
            reach = {"reflect": extent - 1, "reflect-even": extent}.get(self.border)
            least, largest = windows[0][0], windows[-1][-1]
            if reach is not None and (-least > reach or largest - extent + 1 > reach):
                return False
            if self.border == "ignore" and not all(any(0 <= z < extent for z in taps) for taps in windows):
                return False
        return True

    def text(self) -> str:
        parts = [f"border = '{self.border}'", f"stride = {list(self.stride)}", f"dilation = {list(self.dilation)}"]
        parts.append(f"padding = {[] if self.padding is None else list(self.padding)}")
        return ", ".join(parts)


def geometry(random: Random, extents: Sequence[int], borders: Sequence[str] = BORDERS, wide: int = 3) -> Geometry:
    """A window that fits the extents; paddings on both sides differ and may be negative."""
    while True:
        size = [random.randint(1, min(wide, n + 1)) for n in extents]
        found = Geometry(
            extents,
            size,
            [random.randint(1, 3) for _ in extents],
            [random.choice([1, 1, 2]) for _ in extents],
            None if random.random() < 0.3 else [(random.randint(-1, k), random.randint(-1, k)) for k in size],
            random.choice(borders),
        )
        if found.valid():
            return found


def pooled(random: Random, shape: Sequence[int], borders: Sequence[str]) -> Geometry:
    """A window over all axes: often trivial in batch and channels, sometimes not."""
    if random.random() < 0.3:
        return geometry(random, shape, borders, 2)
    inner = geometry(random, shape[2:], borders)
    padding = inner.padding
    if padding is None and random.random() < 0.5:
        padding = [(0, 0)] * len(inner.size)
        inner = Geometry(inner.extents, inner.size, inner.stride, inner.dilation, padding, inner.border)
        if not inner.valid():
            return pooled(random, shape, borders)
    whole = None if padding is None else [(0, 0), (0, 0), *padding]
    return Geometry(shape, [1, 1, *inner.size], [1, 1, *inner.stride], [1, 1, *inner.dilation], whole, inner.border)


def shape_of(random: Random, spatial: int | None = None, least: int = 1) -> tuple[int, ...]:
    spatial = random.choice([1, 2, 2, 2, 3]) if spatial is None else spatial
    most = {1: 9, 2: 6}.get(spatial, 4)
    return (random.randint(1, 2), random.randint(1, 3), *(random.randint(max(least, 2), most) for _ in range(spatial)))


def bias_of(document: Document, channels: int, rank: int) -> str:
    random = document.random
    shape = (1, channels, *(1,) * (rank - 2)) if random.random() < 0.5 else (1, channels)
    return random.choice(["0.0", "0.375", document.variable(shape, quantised=random.random() < 0.5)])


# 4.3.1


@draws("conv")
def conv(random: Random) -> Drawn:
    document = Document(random)
    groups = random.choice([1, 1, 2, 3])
    inputs, outputs = groups * random.randint(1, 2), groups * random.randint(1, 2)
    shape = shape_of(random)
    window = geometry(random, shape[2:])
    x = document.external((shape[0], inputs, *shape[2:]))
    w = document.variable((outputs, inputs // groups, *window.size))
    bias = bias_of(document, outputs, len(shape))
    declared = 0 if groups == inputs and random.random() < 0.7 else groups
    return document, document.apply(f"conv({x}, {w}, {bias}, {window.text()}, groups = {declared})")


def upscaled(window: Geometry, random: Random) -> list[int] | None:
    """Extents of the up-scaled space of a reverse operation, whose input has the window's extents; None: too small."""
    extents = []
    for i, extent in enumerate(window.extents):
        if window.padding is None:
            extents.append(extent * window.stride[i] - random.randint(0, window.stride[i] - 1))
            continue
        covered = (window.size[i] - 1) * window.dilation[i] + 1
        extents.append((extent - 1) * window.stride[i] + covered - sum(window.padding[i]))
        extents[-1] += random.randint(0, window.stride[i] - 1)
    return extents if min(extents, default=1) > 0 else None


def reaches(window: Geometry, extents: Sequence[int]) -> bool:
    """Whether a reverse operation reads within one reflection of its input."""
    for i, extent in enumerate(window.extents):
        before = -window.starts(extents)[i].start
        ends = (before - (window.size[i] - 1) * window.dilation[i], extents[i] - 1 + before)
        least, largest = -(-ends[0] // window.stride[i]), ends[1] // window.stride[i]
        reach = {"reflect": extent - 1, "reflect-even": extent}.get(window.border, 99)
        if -least > reach or largest - extent + 1 > reach:
            return False
    return True


def reversed_geometry(
    random: Random, extents: Sequence[int], borders: Sequence[str] = BORDERS
) -> tuple[Geometry, list[int] | None]:
    """The window of a reverse operation and output_shape, if it is to be given."""
    while True:
        size = [random.randint(1, 4) for _ in extents]
        window = Geometry(
            extents,
            size,
            [random.randint(1, 3) for _ in extents],
            [random.choice([1, 1, 2]) for _ in extents],
            None if random.random() < 0.3 else [(random.randint(-1, k - 1), random.randint(-1, k - 1)) for k in size],
            random.choice(borders),
        )
        shape = upscaled(window, random)
        if shape is None or not reaches(window, shape):
            continue
        if random.random() < 0.5:
            return window, shape
        whole = [n * s for n, s in zip(extents, window.stride, strict=True)]
        if window.padding is not None:
            whole = [
                (n - 1) * s + (k - 1) * d + 1 - sum(p)
                for n, s, k, d, p in zip(
                    extents, window.stride, window.size, window.dilation, window.padding, strict=True
                )
            ]
        if min(whole) > 0 and reaches(window, whole):
            return window, None


def reference(shape: Sequence[int], wanted: Sequence[int] | None) -> str:
    return "" if wanted is None else f", output_shape = {[*shape, *wanted]}"


@draws("deconv")
def deconv(random: Random) -> Drawn:
    document = Document(random)
    groups = random.choice([1, 1, 2, 3])
    inputs, outputs = groups * random.randint(1, 2), groups * random.randint(1, 2)
    shape = shape_of(random)
    window, wanted = reversed_geometry(random, shape[2:])
    x = document.external((shape[0], inputs, *shape[2:]))
    w = document.variable((inputs, outputs // groups, *window.size))
    bias = bias_of(document, outputs, len(shape))
    tail = reference((shape[0], outputs), wanted)
    return document, document.apply(f"deconv({x}, {w}, {bias}, {window.text()}, groups = {groups}{tail})", -3.0, 3.0)


@draws("separable_conv")
def separable_conv(random: Random) -> Drawn:
    document = Document(random)
    groups = random.choice([1, 1, 2])
    inputs, multiplier = groups * random.randint(1, 2), random.randint(1, 2)
    outputs = groups * random.randint(1, 2)
    shape = shape_of(random)
    window = geometry(random, shape[2:])
    x = document.external((shape[0], inputs, *shape[2:]))
    plane = symmetric(document, (inputs * multiplier, 1, *window.size))
    point = symmetric(document, (outputs, inputs * multiplier // groups, *(1,) * len(window.size)))
    bias = bias_of(document, outputs, len(shape))
    return document, document.apply(
        f"separable_conv({x}, {plane}, {point}, {bias}, {window.text()}, groups = {groups})"
    )


@draws("separable_deconv")
def separable_deconv(random: Random) -> Drawn:
    document = Document(random)
    groups = random.choice([1, 1, 2])
    inputs, middle = groups * random.randint(1, 2), groups * random.randint(1, 2)
    shape = shape_of(random)
    window, wanted = reversed_geometry(random, shape[2:])
    x = document.external((shape[0], inputs, *shape[2:]))
    point = symmetric(document, (inputs, middle // groups, *(1,) * len(window.size)))
    plane = symmetric(document, (middle, 1, *window.size))
    bias = bias_of(document, middle, len(shape))
    tail = reference((shape[0], middle), wanted)
    call = f"separable_deconv({x}, {plane}, {point}, {bias}, {window.text()}, groups = {groups}{tail})"
    return document, document.apply(call, -3.0, 3.0)


def symmetric(document: Document, shape: tuple[int, ...]) -> str:
    """A variable whose quantiser has a code for zero: with two filters in a row others need a third accumulator."""
    name = document.variable(shape)
    low = document.random.choice([0.0, -0.7])
    document.quantisers[name] = f"linear_quantize(min = {low!r}, max = 0.8, bits = 4)"
    return name


# 4.3.2 and 4.9.3


@draws("box")
def box(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, ["ignore", *BORDERS])
    normalize = random.choice(["true", "false"])
    x = document.external(shape)
    call = f"box({x}, size = {list(window.size)}, {window.text()}, normalize = {normalize})"
    return document, document.apply(call, -4.0, 4.0)


@draws("debox")
def debox(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random, random.choice([0, 1, 2]))
    normalize = random.choice(["true", "false"])
    borders = BORDERS if normalize == "true" else ["ignore", *BORDERS]
    window, wanted = reversed_geometry(random, shape, borders)
    x = document.external(shape)
    call = f"debox({x}, size = {list(window.size)}, {window.text()}, normalize = {normalize}{reference((), wanted)})"
    return document, document.apply(call, -4.0, 4.0)


@draws("avg_pool")
def avg_pool(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, ["ignore", *BORDERS])
    x = document.external(shape)
    return document, document.apply(f"avg_pool({x}, size = {list(window.size)}, {window.text()})")


@draws("rms_pool")
def rms_pool(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random, 2)
    window = pooled(random, shape, ["ignore", *BORDERS])
    x = document.external(shape)
    return document, document.apply(f"rms_pool({x}, size = {list(window.size)}, {window.text()})", -0.1, 1.0)


@draws("max_pool")
def max_pool(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, ["ignore", *BORDERS])
    x = source(document, shape)
    return document, document.apply(f"max_pool({x}, size = {list(window.size)}, {window.text()})")


def source(document: Document, shape: tuple[int, ...]) -> str:
    """An input, or an unquantised function of one: negated, cut off, or one that needs a table."""
    x = document.external(shape)
    call = document.random.choice(["", "", "neg({x})", "relu({x})", "sigmoid({x})", "mul({x}, 0.75)"])
    return document.apply(call.format(x=x), quantised=False) if call else x


# 4.3.3


@draws("argmax_pool")
def argmax_pool(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, ["ignore", *BORDERS])
    x = source(document, shape)
    call = f"argmax_pool({x}, size = {list(window.size)}, {window.text()})"
    return document, document.apply(call, quantised=False)


@draws("max_pool_with_index")
def max_pool_with_index(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, ["ignore", *BORDERS])
    x = source(document, shape)
    document.lines.append(f"best, index = max_pool_with_index({x}, size = {list(window.size)}, {window.text()});")
    document.quantise("best")
    return document, "best, index"


@draws("sample")
def sample(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random)
    window = pooled(random, shape, BORDERS)
    x, y = document.external(shape), document.external(shape)
    arguments = f"size = {list(window.size)}, {window.text()}"
    index = document.apply(f"argmax_pool({x}, {arguments})", quantised=False)
    return document, document.apply(f"sample({y}, {index}, {arguments})")


@draws("desample")
def desample(random: Random) -> Drawn:
    document = Document(random)
    shape = shape_of(random, random.choice([1, 2]))
    window = pooled(random, shape, ["constant"])
    x = document.external(shape)
    arguments = f"size = {list(window.size)}, {window.text()}"
    index = document.apply(f"argmax_pool({x}, {arguments})", quantised=False)
    y = document.external(tuple(window.outputs()))
    return document, document.apply(f"desample({y}, {index}, {arguments}, output_shape = {list(shape)})")


# 4.3.4


def _scaled(random: Random, down: bool) -> tuple[tuple[int, ...], list[int]]:
    shape = shape_of(random)
    factor = [random.randint(1, 3) for _ in shape[2:]]
    if down:
        shape = (*shape[:2], *(min(n, 3) * f for n, f in zip(shape[2:], factor, strict=True)))
    return shape, factor


def _enter(name: str, down: bool) -> None:
    @draws(name)
    def resample(random: Random) -> Drawn:
        document = Document(random)
        shape, factor = _scaled(random, down)
        return document, document.apply(f"{name}({document.external(shape)}, factor = {factor})")


_enter("nearest_downsample", True)
_enter("area_downsample", True)
_enter("nearest_upsample", False)


@draws("multilinear_upsample")
def multilinear_upsample(random: Random) -> Drawn:
    document = Document(random)
    spatial = random.choice([1, 2, 2, 3])
    shape = (
        random.randint(1, 2),
        random.randint(1, 2),
        *(random.randint(1, 4 if spatial < 3 else 3) for _ in range(spatial)),
    )
    factor = [random.randint(1, 4 if spatial < 3 else 2) for _ in range(spatial)]
    method = random.choice(["symmetric", "asymmetric", "aligned"])
    borders = ["constant", "replicate", "reflect-even"] + (["reflect"] if min(shape[2:]) > 1 else [])
    call = f"multilinear_upsample({{x}}, factor = {factor}, method = '{method}', border = '{random.choice(borders)}')"
    return document, document.apply(call.format(x=document.external(shape)), -1.0, 1.0)
