"""Proof of convolutions and matrix products with constant weights: coefficients, addresses, and what sums start with.

The weights are read back from the packed constants. For every output pixel, the kernel must multiply the elements that
the node multiplies by the same numbers, modulo 2^32. The formula behind the sums is a `Group`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cvm.executors.native.checker.addresses import (
    Array,
    Unproven,
    broadcast,
    decoded,
    extent,
    loops_of,
    merged,
    offsets_of,
    require,
    stride,
)
from cvm.executors.native.checker.groups import Added, Group, number_of, require_joint
from cvm.executors.native.checker.packed import listed_of, per_channel, saturates, segments_of, weights_of
from cvm.executors.native.checker.summed import require_windows, summed
from cvm.executors.native.checker.transformed import require_squares, require_weights
from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.sums import Contraction, Depthwise
from cvm.executors.native.descriptions.winograd import Winograd
from cvm.executors.native.plan.claims import Computes, Prepares
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.steps import Plan
from cvm.program.model import Constant, Node

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Contractions", "DotProducts"]

Kernel = Contraction | Depthwise
Loops = list[tuple[int, int]]
"""Loops over the images, rows and columns of an output: extent, and distance in elements."""


class DotProducts(Protocol):
    """What the checker must know of a machine: how it multiplies bytes."""

    @property
    def saturates(self) -> bool:
        """Whether the dot product saturates sums of two products at 16 bits."""

    @property
    def signed_bytes(self) -> bool:
        """Whether kernels subtract 128 from the bytes of activations."""


class _Proof(Protocol):
    """The state of the whole proof (see `checker`)."""

    verified: VerifiedProgram
    plan: Plan
    constants: dict[str, Constant]
    producer: dict[str, Node]
    homes: dict[str, list[Home]]
    filled: dict[Buffer, list[Home]]
    parts: dict[Home, int]
    prepared: dict[Buffer, Prepares]
    data: memoryview

    @property
    def calls(self) -> Mapping[str, Any]:
        """The verified calls of the nodes, by their first results."""

    def held(self, name: str, home: Home) -> bool:
        """Whether a home holds a tensor."""

    def group(
        self, claim: Computes, formula: Formula, elements: Callable[[int], Array], first: int, added: Added | None
    ) -> Group:
        """The group of a claim. Operand ``first`` of the formula is the first one that the claim reads."""


class Contractions:
    """The part of a proof that is about sums of products with constant weights."""

    def __init__(self, proof: _Proof, machine: DotProducts) -> None:
        self._proof, self._machine = proof, machine

    def prove(self, claim: Computes, made: Kernel | Winograd) -> None:
        """Prove a contraction: its coefficients, its addresses, and the formula after the sums."""
        kernel = made.products if isinstance(made, Winograd) else made
        root, target, source = claim.root, claim.targets[0], claim.source
        assert source is not None
        node = self._contracted(root)
        require(self._proof.held(node.inputs[0], source), f"the kernel does not read {node.inputs[0]}")
        shape, weights = root.outputs[0].shape, self._proof.constants[node.inputs[1]].stored()
        groups = getattr(self._proof.calls[node.outputs[0].name].attributes, "groups", 1)
        channels = shape[1]
        calls = groups if isinstance(kernel, Contraction) else 1
        each = channels // calls
        offsets, steps = self._offsets(node, source, weights.shape, groups)
        if isinstance(made, Winograd):
            self._require_squares(claim, made, source, offsets, steps)
            loops, factor, summed = steps, 0, 0
        else:
            loops = _loops(made)
            factor, summed = self._windows(claim, made, source, offsets, steps)
        remaining = weights if factor == 0 else weights.astype(np.int64) - factor
        packed: dict[int, list[Array]] = {}
        begins = []
        for number in range(calls):
            arguments = list(self._proof.plan.calls[claim.call + number].arguments)
            part = slice(number * each, (number + 1) * each)
            if isinstance(made, Winograd):
                require_weights(self._bytes(arguments[1]), made, weights)
            else:
                self._coefficients(made, arguments, source, remaining[part], offsets[part] if calls > 1 else offsets)
            begin, values = self._operands(claim, kernel, number, each)
            begins.append(begin)
            for index, one in values.items():
                packed.setdefault(index, []).append(one)
        self._require_pixels(claim, kernel, loops, steps)
        added = self._added(node, self._stored_more(made, source), weights, np.concatenate(begins), summed)

        def elements(number: int) -> Array:
            if number > len(claim.reads):
                return number_of(kernel.formula.steps[number - kernel.formula.reads])
            home = claim.reads[number - 1]
            if home is None:
                return np.concatenate(packed[number - 1]).reshape(1, -1, *(1,) * (len(shape) - 2))
            require(home.buffer.kind == "constants", "a parameter is not a constant")
            return decoded(self._proof.data, home)

        require(kernel.output.format == target.format, "another format")
        if kernel.joint is not None:
            require_joint(kernel.joint, kernel.formula, claim.reads[kernel.joint.read - 1])
        self._proof.group(claim, kernel.formula, elements, 1, added).stored(root, target.format, kernel.output.clamp)

    def _operands(self, claim: Computes, kernel: Kernel, number: int, channels: int) -> tuple[Array, dict[int, Array]]:
        """What the sums of call ``number`` of a claim start with, and the values of the operands that are packed, one
        for each of its ``channels``. Proves that it reads the other operands and writes its results at their addresses.
        """
        arguments, target = self._proof.plan.calls[claim.call + number].arguments, claim.targets[0]
        begin: Array = np.zeros(channels, np.int64)
        if kernel.starts:
            begin = per_channel(self._bytes(arguments[2]), kernel.segments, INT32, channels)
        reads, packed = arguments[3 if kernel.starts else 2 : -1], {}
        for index, (home, read, argument) in enumerate(zip(claim.reads, kernel.reads, reads, strict=True)):
            if home is None:
                packed[index] = per_channel(self._bytes(argument), kernel.segments, read.format, channels)
            else:
                step = stride(home.view.axes[1])
                require(argument == home.at(number * channels * step), "a tensor is read at another address")
                require(read.format == home.format, "a tensor is read in another format")
        require(arguments[-1] == target.at(number * channels * stride(target.view.axes[1])), "another target")
        return begin, packed

    def _require_squares(self, claim: Computes, kernel: Winograd, source: Home, offsets: Array, steps: Loops) -> None:
        """Prove that a kernel reads the transformed elements of the windows, and loops over the node's results."""
        (buffer, _), *_ = self._proof.plan.calls[claim.call].arguments
        made = self._proof.prepared.get(buffer)
        require(made is not None, "the kernel reads other elements than transformed ones")
        assert made is not None
        require(bool((offsets == offsets[0]).all()), "a channel reads other elements")
        channels = kernel.squares.channels
        require(offsets.shape[1] == 9 * channels and len(steps) == 3, "another window than one of 3x3")
        require_squares(self._proof.plan, made, claim.call, kernel, source, offsets[0].reshape(channels, 3, 3), steps)

    def _windows(self, claim: Computes, kernel: Kernel, source: Home, offsets: Array, steps: Loops) -> tuple[int, int]:
        """Prove the sums of windows that the first step of a formula adds, if it does.

        Returns the number by which they multiply every element of the window, and the number of the value that includes
        them. Without sums of windows, these are 0 and 0.
        """
        home = summed(kernel.formula, claim.reads)
        made = None if home is None else self._proof.prepared.get(home.buffer)
        if home is None or made is None:
            return 0, 0
        axes = broadcast(home.view.axes, claim.root.outputs[0].shape)
        pixels = [(n, step, stride(axis)) for (n, step), axis in zip(steps, (axes[0], *axes[2:]), strict=True)]
        require_windows(self._proof.plan, made, claim.call, home, source, offsets[0], pixels)
        _, factor, _ = self._proof.plan.calls[made.call].arguments
        return int(np.frombuffer(self._bytes(factor), np.int32, 1)[0]), kernel.formula.reads

    def _contracted(self, root: Node) -> Node:
        """The contraction of a group: the one that can be reached from the root through operands that have no home."""
        left, seen = [root], set()
        while left:
            node = left.pop()
            if node.op in ("conv2d", "dense"):
                return node
            for name in node.inputs:
                if name in self._proof.producer and name not in self._proof.homes and name not in seen:
                    seen.add(name)
                    left.append(self._proof.producer[name])
        raise Unproven("the group has no contraction")

    def _offsets(self, node: Node, source: Home, shape: tuple[int, ...], groups: int) -> tuple[Array, Loops]:
        """Derive from the node which elements of ``source`` the output pixels read.

        Returns the address of the element that each weight multiplies for the first pixel, as an array (output channel,
        weight); and (extent, address stride) of the images, rows and columns of the output.
        """
        if node.op == "dense":
            row, run = source.view.axes
            offsets = offsets_of(source.view.offset, run)
            return np.broadcast_to(offsets, shape), [(node.outputs[0].shape[0], stride(row))]
        a = self._proof.calls[node.outputs[0].name].attributes
        OC, IC, KH, KW = shape
        n, c, *pitch = (stride(axis) for axis in source.view.axes)
        if source.border != (0, 0):
            pitch = list(source.pitch)
            for axis in (0, 1):
                one = source.view.axes[2 + axis]
                require(extent(one) == 1 or stride(one) == pitch[axis], "the border has other strides than the map")
        if tuple(a.padding) != (0, 0):
            self._require_border(source, a.padding, pitch)
        group, i, kh, kw = np.indices((groups, IC, KH, KW))
        offsets = (
            source.view.offset + (group * IC + i) * c
            + (kh * a.dilation[0] - a.padding[0]) * pitch[0] + (kw * a.dilation[1] - a.padding[1]) * pitch[1]
        )  # fmt: skip
        repeated = np.repeat(offsets.reshape(groups, -1), OC // groups, axis=0)
        N, _, OH, OW = node.outputs[0].shape
        return repeated, [(N, n), (OH, a.stride[0] * pitch[0]), (OW, a.stride[1] * pitch[1])]

    def _require_border(self, source: Home, padding: tuple[int, int], pitch: list[int]) -> None:
        """Prove that in every channel, every border element that a window may reach holds the code of 0."""
        H, W = (extent(axis) for axis in source.view.axes[2:])
        require(all(p <= b for p, b in zip(padding, source.border, strict=True)), "the border is too narrow")
        rows, columns = range(-padding[0], H + padding[0]), range(-padding[1], W + padding[1])
        outside = {
            source.view.offset + h * pitch[0] + w * pitch[1]
            for h, w in product(rows, columns) if not (0 <= h < H and 0 <= w < W)
        }  # fmt: skip
        images = tuple(map(merged, source.view.axes[:2]))
        for home in self._proof.filled.get(source.buffer, ()):
            same = tuple(map(merged, home.view.axes[:2])) == images and home.format == source.format
            if same and self._proof.parts[home] == 0:
                steps = [stride(axis) for axis in home.view.axes[2:]]
                extents = [extent(axis) for axis in home.view.axes[2:]]
                outside -= {
                    home.view.offset + h * steps[0] + w * steps[1]
                    for h, w in product(range(extents[0]), range(extents[1]))
                }
        require(not outside, "a part of the border is not filled")

    def _coefficients(
        self, kernel: Kernel, arguments: list[tuple[Buffer, int]], source: Home, weights: Array, offsets: Array
    ) -> None:
        """Prove that the kernel multiplies every element by the weight that the node has for it, and others by zero."""
        (buffer, offset), (_, _), *_ = arguments
        require(buffer is source.buffer and _kernel_format(kernel, source), "another input")
        first, rest = divmod(offset, source.format.bytes)
        require(rest == 0, "the address of the input lies between two elements")
        found = weights_of(self._digits(self._bytes(arguments[1]), kernel), kernel)
        if isinstance(kernel, Contraction):
            at = offsets_of(first, (*kernel.taps, (found.shape[2], 1)))
        else:
            columns = kernel.dilation * kernel.source.column * np.arange(kernel.window[1])
            at = (first + columns[:, None] + kernel.taps[0] * np.arange(found.shape[2])).reshape(-1)
        found = found.reshape(found.shape[0], -1)
        given = weights.reshape(weights.shape[0], -1)
        expected = offsets[0]
        if isinstance(kernel, Contraction):
            require(bool((offsets == expected).all()), "a channel reads other elements")
        else:  # each output channel reads one input channel, and channels lie side by side
            require(
                bool((offsets - offsets[:1] == np.arange(len(offsets))[:, None]).all()),
                "a channel reads other elements",
            )
        ours, theirs = np.flatnonzero(_any(found)), np.flatnonzero(_any(given))
        ours, theirs = ours[np.argsort(at[ours], kind="stable")], theirs[np.argsort(expected[theirs], kind="stable")]
        require(np.array_equal(at[ours], expected[theirs]), "the kernel multiplies other elements by its weights")
        require(bool((np.diff(at[ours]) > 0).all()), "the kernel multiplies one element by two weights")
        order = np.argsort(theirs)  # so that fewer columns change their places
        left, right = _columns(found, ours[order]), _columns(given, theirs[order])
        if found.dtype == np.uint32:  # modulo 2^32
            right = right.astype(np.uint32)
        require(np.array_equal(left, right), "other weights")

    def _digits(self, data: memoryview, kernel: Kernel) -> list[Array]:
        """The digits of all segments. Proves that no pair of products saturates."""
        clips = self._machine.saturates and kernel.per == 4
        if isinstance(kernel, Contraction) and kernel.listed:
            require(clips, "only the weights of products that saturate are listed")
            return listed_of(data, kernel)
        digits = segments_of(data, kernel)
        saturated = clips and any(saturates(part[..., ::2], part[..., 1::2]) for part in digits)
        require(not saturated, "pairs of products could saturate")
        return digits

    def _bytes(self, argument: tuple[Buffer, int]) -> memoryview:
        buffer, offset = argument
        require(buffer.kind == "constants" and 0 <= offset <= len(self._proof.data), "a parameter is not a constant")
        return memoryview(self._proof.data)[offset:]

    def _require_pixels(self, claim: Computes, kernel: Kernel, loops: Loops, steps: Loops) -> None:
        """Prove that the kernel's strides per image, row, column and channel are those of the homes of all tensors.

        ``loops`` are those of the kernel, with their distances in its input, ``steps`` those of the node.
        """
        target, shape = claim.targets[0], claim.root.outputs[0].shape
        homes = [(target, kernel.output.pixels)]
        homes += [(home, read.pixels) for home, read in zip(claim.reads, kernel.reads, strict=True)
                  if home is not None and read.pixels is not None]  # fmt: skip
        require(all(read.pixels is not None for home, read in zip(claim.reads, kernel.reads, strict=True) if home),
                "a tensor with a home is read per channel")  # fmt: skip
        axes = [axis for axis in range(len(shape)) if axis != 1]
        expected = [
            (n, (step, *(stride(broadcast(home.view.axes, shape)[axis]) for home, _ in homes)))
            for axis, (n, step) in zip(axes, steps, strict=True)
        ]
        given = [[p.image for _, p in homes], [p.row for _, p in homes], [p.column for _, p in homes]]
        found = [(n, (first, *others)) for (n, first), others in zip(loops, given, strict=True)]
        require(loops_of(found, 1) == loops_of(expected, 1), "the strides of pixels differ from those of the homes")
        for home, pixels in homes:
            step = stride(broadcast(home.view.axes, shape)[1])
            require(pixels.channel == step or shape[1] == 1, "the stride of channels differs from that of the home")

    def _stored_more(self, kernel: Kernel | Winograd, source: Home) -> int:
        """The number b if a kernel adds up products of x + b: the bias of the format, unless loading subtracts it,
        minus 128 on a machine with signed bytes.
        """
        per = kernel.per if isinstance(kernel, Contraction) else 4
        less = 128 if self._machine.signed_bytes and per == 4 and not isinstance(kernel, Winograd) else 0
        return (source.format.bias if per > 1 else 0) - less

    def _added(self, node: Node, b: int, weights: Array, begins: Array, number: int) -> Added:
        """For each channel, the number by which the kernel's sums, of products of x + b, differ from the node's result,
        and the interval of that result.
        """
        rows = weights.reshape(weights.shape[0], -1)
        lo, hi = self._proof.verified.ranges[node.inputs[0]].hull()
        lo, hi = min(lo, 0), max(hi, 0)
        total, below = _sums(rows).tolist(), _sums(np.minimum(rows, 0)).tolist()
        bias = [0] * len(total)
        if len(node.inputs) == 3:
            bias = list(map(int, self._proof.constants[node.inputs[2]].integers()))
        columns: list[list[int]] = [[], [], []]
        least, most = self._proof.verified.ranges[node.outputs[0].name].hull()
        for start, t, neg, add in zip(begins.tolist(), total, below, bias, strict=True):
            ends = max(add + (t - neg) * lo + neg * hi, least), min(add + (t - neg) * hi + neg * lo, most)
            more = (b * t + start - add + ends[0] + 2**31) % 2**32 - 2**31 - ends[0]
            require(
                more == 0 or (ends[0] + more >= -(2**31) and ends[1] + more < 2**31), "the sums do not fit in 32 bits"
            )
            for column, value in zip(columns, (more, *ends), strict=True):
                column.append(value)
        rank = len(node.outputs[0].shape)
        arrays = [np.array(column, object).reshape(1, -1, *(1,) * (rank - 2)) for column in columns]
        return Added(node.outputs[0].name, arrays[0], arrays[1], arrays[2], number)


def _loops(kernel: Kernel) -> Loops:
    """The loops of a kernel over its results."""
    column = kernel.source.column * (kernel.step if isinstance(kernel, Depthwise) else 1)
    return [
        (kernel.images, kernel.source.image), (kernel.rows, kernel.source.row), (kernel.columns, column),
    ]  # fmt: skip


def _kernel_format(kernel: Kernel, source: Home) -> bool:
    """Whether a kernel reads its input in the format that the input has."""
    format_ = source.format
    if isinstance(kernel, Depthwise):
        return (format_.bits, format_.signed) == (8, False)
    fits = {4: (8, False), 2: (16, True)}.get(kernel.per)
    return kernel.input == format_ and fits in (None, (format_.bits, format_.signed))


def _any(rows: Array) -> Array:
    """For each column, whether it has another number than 0."""
    return np.asarray(np.bitwise_or.reduce(rows, axis=0) != 0)


def _columns(rows: Array, numbers: Array) -> Array:
    """The columns with these numbers. All columns in their order are the array itself, not a copy."""
    same = np.array_equal(numbers, np.arange(rows.shape[1]))
    return rows if same else np.take(rows, numbers, axis=1)


def _sums(rows: Array) -> Array:
    """The sum of each row of at most 2^31 integers of at most 32 bits."""
    small = rows.shape[1] << 8 * rows.itemsize - 1 < 2**31
    return np.asarray(rows.sum(axis=1, dtype=np.int32 if small else np.int64))
