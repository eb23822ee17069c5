"""What binds a kernel: the share of its time that its instructions and its bytes would take by themselves.

Dot products, the multiplications that make codes of sums, and permutations of bytes are counted from the kernel's
description. Two vector instructions of each kind finish in a cycle on the processors that this was written for; the
length of a cycle follows from the measured peak of dot products. Bytes are those of all tensors and constants of a
call, at the rate at which a thread reads from memory; they count only if a second-level cache does not hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from cvm.executors.native.descriptions.expressions import Formula, Requantization
from cvm.executors.native.descriptions.sums import Contraction, Depthwise
from cvm.executors.native.descriptions.winograd import Winograd
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.tiles import Tiled
from cvm.executors.native.plan.steps import KernelCall

__all__ = ["Shares", "shares"]

CACHE = 2**20
"""The bytes of a second-level cache."""
MULTIPLIES = {"narrow": 1, "high": 2, "fused": 2, "wide": 6}
"""Multiplications that one vector of sums takes in each arithmetic of requantize."""
CALL = 300
"""Nanoseconds below which a call says little about its kernel."""
NEARLY = 0.8
"""The share of dot products that names them alone."""
MOST = 0.5
"""The least share that names what binds a kernel."""


@dataclass(frozen=True, slots=True)
class Shares:
    """Shares of the time of a call: of its dot products, its codes, its permutations, and its bytes from memory.

    ``padding`` is the share of the multiply-adds of all dot products that no weight needs.
    """

    dots: float
    codes: float
    permutes: float
    memory: float
    padding: float
    nanoseconds: float

    @property
    def bound(self) -> str:
        """What binds the call, in words."""
        if self.nanoseconds < CALL:
            return "the call"
        alone = {"products": self.dots, "permutations": self.permutes, "memory": self.memory}
        name = max(alone, key=lambda key: alone[key])
        if self.dots < NEARLY and self.dots + self.codes > max(self.memory, MOST) and 5 * self.codes > self.dots:
            name = "codes of sums" if self.codes > self.dots else "products and codes of sums"
        elif alone[name] < MOST:
            name = "several, none of them alone"
        return f"{name}, {100 * self.padding:.0f} % of the products padding" if self.padding > 0.15 else name


def shares(kernel: object, call: KernelCall, macs: int, nanoseconds: float, machine: Machine, peak: float,
           read: float) -> Shares:  # fmt: skip
    """The shares of one call. ``peak`` is in multiply-adds per second, ``read`` in bytes per second."""
    each = 4 * machine.width  # multiply-adds of one dot product
    instruction = 1e9 * each / peak / max(nanoseconds, 1.0)
    dots, codes, permutes = _counts(kernel.kernel if isinstance(kernel, Tiled) else kernel)
    if isinstance(kernel, Tiled):
        instruction = 0.0
    size = sum({buffer: buffer.size for buffer, _ in call.arguments if buffer.kind == "arena"}.values())
    size += _constants(kernel)
    memory = 1e9 * size / read / max(nanoseconds, 1.0) if size > CACHE else 0.0
    padding = 1 - macs / (dots * each) if dots and macs else 0.0
    return Shares(dots * instruction, codes * instruction, permutes * instruction, memory, padding, nanoseconds)


def _constants(kernel: object) -> int:
    """The bytes of the weights of a contraction, which lie among all constants."""
    if isinstance(kernel, Winograd):
        kernel = kernel.products
    if not isinstance(kernel, Contraction):
        return 0
    return 4 * kernel.step_words * sum(one.count * one.channels for one in kernel.segments)


def _counts(kernel: object) -> tuple[int, int, int]:
    """The dot products, multiplications for codes, and permutations of a kernel, in vector instructions."""
    if isinstance(kernel, Contraction):
        pixels = kernel.images * kernel.rows * kernel.columns
        vectors = pixels * sum(one.count * one.block.vectors for one in kernel.segments)
        return vectors * kernel.step_words, vectors * sum(_multiplies(kernel.formula)), 0
    if isinstance(kernel, Winograd):
        squares, products = kernel.squares, kernel.products
        dots, _, _ = _counts(products)
        vectors = sum(one.count * one.block.vectors for one in products.segments)
        results = squares.images * squares.rows * squares.columns * vectors
        return dots, results * sum(_multiplies(products.formula)), 0
    if isinstance(kernel, Depthwise):
        return _depthwise(kernel)
    return 0, 0, 0


def _depthwise(kernel: Depthwise) -> tuple[int, int, int]:
    dots = codes = permutes = 0
    for one in kernel.segments:
        size = kernel.strip(one.tile)
        tiles, step = size // one.tile, kernel.step * one.tile
        strips = kernel.images * kernel.rows * -(-kernel.columns // size) * one.count
        columns = {tile * step + tap * kernel.dilation for tile in range(tiles) for tap in range(kernel.window[1])}
        dots += strips * tiles * 4 * kernel.window[1] * kernel.parts * kernel.groups
        codes += strips * tiles * 4 * sum(_multiplies(kernel.formula))
        permutes += strips * len(columns) * 8 * kernel.groups
    return dots, codes, permutes


def _multiplies(formula: Formula) -> Iterator[int]:
    for step in formula.steps:
        for part in step.static:
            if isinstance(part, Requantization):
                yield part.terms * MULTIPLIES[part.arithmetic]
