"""The checker: proves that a plan computes the program, from what the plan claims and what its constants hold.

It shares no arithmetic with the planner. A home is a map from indices to addresses; the checker proves that views,
copies and loops visit exactly these addresses. A contraction is a list of coefficients modulo 2^32, which it reads back
from the packed weights. A requantization of the program and that of the kernel are two rounded linear forms, which it
proves equal on the whole proven interval. NumPy moves, compares and counts bounded numbers here; a number that might
not fit in 64 bits is a Python integer.

For kernels without constants of their own - maxima and sums over windows and axes, products of computed tensors,
detections - the checker proves which homes they read and write. The `rehearsal` of the network compares what they
compute.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import product
from typing import TYPE_CHECKING, Any, Protocol
from weakref import proxy

import numpy as np

from cvm.executors.native.checker.addresses import (
    Array,
    Factors,
    Unproven,
    broadcast,
    decoded,
    extent,
    loops_of,
    merged,
    moved,
    offsets_of,
    require,
    stride,
    visited,
)
from cvm.executors.native.checker.estimates import require_normalization, require_quotient
from cvm.executors.native.checker.groups import Added, Group, require_joint
from cvm.executors.native.checker.packed import per_channel, saturates, segments_of, weights_of, with_excess
from cvm.executors.native.checker.residence import Residence
from cvm.executors.native.checker.summed import require_windows, summed
from cvm.executors.native.descriptions.computed import Normalization, Quotient
from cvm.executors.native.descriptions.formats import INT32
from cvm.executors.native.descriptions.loops import Exchange, Nest
from cvm.executors.native.descriptions.sums import Contraction, Depthwise
from cvm.executors.native.plan.claims import AddsWindows, Claim, Computes, Copies, Fills, Holds, Joins, Views
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.residence import state_format
from cvm.executors.native.plan.steps import Plan
from cvm.program.model import Node

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Unproven", "unproven"]

Kernel = Contraction | Depthwise


class DotProducts(Protocol):
    """What the checker must know of a machine: how it multiplies bytes."""

    @property
    def saturates(self) -> bool:
        """Whether the dot product saturates sums of two products at 16 bits."""

    @property
    def signed_bytes(self) -> bool:
        """Whether kernels subtract 128 from the bytes of activations."""


def unproven(verified: VerifiedProgram, plan: Plan, machine: DotProducts) -> dict[str, str]:
    """Try to prove all claims of a plan. Returns the reason for every value whose claim is not proven, by name.

    The empty name stands for the plan as a whole.
    """
    checker, found = _Checker(verified, plan, machine), {}
    for claim in plan.claims:
        try:
            checker.check(claim)
        except Unproven as reason:
            found[_subject(claim)] = str(reason)
            checker.suppose(claim)
    try:
        checker.check_whole()
    except Unproven as reason:
        found[""] = str(reason)
    return found


def _subject(claim: Claim) -> str:
    match claim:
        case Computes():
            return claim.root.outputs[0].name
        case Views() | Joins():
            return claim.node.outputs[0].name
        case Holds():
            return claim.name
        case _:
            return ""


class _Checker:
    """The state of a proof.

    ``homes`` lists the homes that are proven to hold each tensor, and ``copies`` maps a home to the home that it is a
    copy of. ``filled`` lists the homes of each buffer that are filled with one number; ``parts`` has these numbers.
    ``windows`` maps a buffer to the claim that sums of windows lie there.
    """

    def __init__(self, verified: VerifiedProgram, plan: Plan, machine: DotProducts) -> None:
        self.verified, self.plan, self.machine = verified, plan, machine
        program = verified.program
        self.constants = {constant.name: constant for constant in program.constants}
        self.producer = {value.name: node for node in program.nodes for value in node.outputs}
        self.calls = {node.outputs[0].name: call for node, call in zip(program.nodes, verified.calls, strict=True)}
        self.homes: dict[str, list[Home]] = {}
        self.copies: dict[Home, Home] = {}
        self.filled: dict[Buffer, list[Home]] = {}
        self.parts: dict[Home, int] = {}
        self.windows: dict[Buffer, AddsWindows] = {}
        self.data = memoryview(plan.constants).toreadonly()
        self.residence = Residence(proxy(self))  # no cycle: it would keep the packed constants in memory

    def check(self, claim: Claim) -> None:
        """Prove one claim. Raises `Unproven`."""
        self.residence.before(claim)
        match claim:
            case Holds():
                self._holds(claim)
            case Views():
                self._views(claim)
            case Copies():
                self._copies(claim)
            case Fills():
                self._fills(claim)
            case Joins():
                self._joins(claim)
            case Computes():
                self._computes(claim)
            case AddsWindows():  # proven together with the contraction that reads them
                self.windows[claim.target.buffer] = claim

    def suppose(self, claim: Claim) -> None:
        """Treat a claim that failed as proven, so that later claims do not fail because of it.

        The plan is refused anyway.
        """
        match claim:
            case Computes():
                for value, home in zip(claim.root.outputs, claim.targets, strict=True):
                    self.homes.setdefault(value.name, []).append(home)
            case Views() | Joins():
                self.homes.setdefault(claim.node.outputs[0].name, []).append(claim.target)
            case Holds():
                self.homes.setdefault(claim.name, []).append(claim.home)
            case Copies():
                self.copies[claim.target] = claim.source

    # Homes ----------------------------------------------------------------------------------------------------------

    def held(self, name: str, home: Home) -> bool:
        """Whether a home holds a tensor, or is a copy of a home that does."""
        known = self.homes.get(name, ())
        while home not in known and home in self.copies:
            home = self.copies[home]
        return home in known

    def reads(
        self, name: str, home: Home, spread: Callable[[Home], tuple[int, tuple[Factors, ...]]], beyond: bool = False
    ) -> bool:
        """Whether ``home`` is a view of a home of the tensor, or a copy of such a view.

        ``spread`` gives the offset and the axes of the view of a home. A kernel that reads ``beyond`` the view must
        read no copy of the view, since that has no more elements.
        """
        while True:
            for known in (*self.homes.get(name, ()), *(copy for copy in self.copies if self.held(name, copy))):
                if (known.buffer, known.format) == (home.buffer, home.format):
                    offset, axes = spread(known)
                    if (offset, axes) == (home.view.offset, tuple(map(merged, home.view.axes))):
                        return True
            if beyond or home not in self.copies:
                return False
            home = self.copies[home]

    def _holds(self, claim: Holds) -> None:
        home, name = claim.home, claim.name
        require(tuple(map(extent, home.view.axes)) == self.verified.shapes[name], "another shape")
        if home.buffer.kind == "constants":
            values = self._constant(name)
            require(values is not None and np.array_equal(self._spread(home), values), "other elements")
        else:
            program = self.verified.program
            fed = [*(one.value.name for one in program.inputs), *(one.value.name for one in program.state)]
            self.require_array(home, fed.index(name), name if name in self.plan.kept else None)
            self.residence.holds(name, home)
        self.homes.setdefault(name, []).append(home)

    def _spread(self, home: Home) -> Array:
        return np.broadcast_to(decoded(self.data, home), tuple(map(extent, home.view.axes)))

    def _constant(self, name: str) -> Array | None:
        return self.constants[name].array() if name in self.constants else None

    def require_array(self, home: Home, index: int, kept: str | None = None) -> None:
        """Prove that the home is the ``index``-th array of the caller, in row-major order and of int32.

        ``kept`` names a state that stays in its array, in a format that holds its interval.
        """
        require((home.buffer.kind, home.buffer.index) == ("array", index), "another array")
        if kept is not None:
            value = next(one.value for one in self.verified.program.state if one.value.name == kept)
            least, most = home.format.hull
            require(home.format == state_format(value), "a state is stored in another format")
            require(least <= value.lo <= value.hi <= most, "the format does not hold the state")
        else:
            require(
                (home.format.bits, home.format.signed, home.format.bias) == (32, True, 0),
                "an array of the caller is not int32",
            )
        step = 1
        for axis in reversed(home.view.axes):
            require(merged(axis) == merged(((extent(axis), step),)), "an array of the caller is not row-major")
            step *= extent(axis)
        require(home.view.offset == 0, "an array of the caller does not start at its first element")

    def _views(self, claim: Views) -> None:
        node, source, target = claim.node, claim.source, claim.target
        require(self.held(node.inputs[0], source), f"the view is not one of {node.inputs[0]}")
        require(
            (source.buffer, source.format) == (target.buffer, target.format), "the view is of another buffer or format"
        )
        result = node.outputs[0]
        axes = tuple(map(merged, target.view.axes))
        require(tuple(map(extent, axes)) == result.shape, "another shape")
        if node.op in ("reshape", "flatten", "squeeze", "expand_dims"):
            every = [merged([factor for axis in one.view.axes for factor in axis]) for one in (source, target)]
            require(every[0] == every[1] and source.view.offset == target.view.offset, "elements in another order")
        else:
            like = self.verified.shapes[node.inputs[-1]]
            offset, expected = moved(node, self.calls[result.name].attributes, source.view.axes, like)
            require(axes == tuple(expected), "elements in another order")
            require(target.view.offset == source.view.offset + offset, "the view starts at another offset")
        self.homes.setdefault(result.name, []).append(target)

    def _copies(self, claim: Copies) -> None:
        source, target, kernel = claim.source, claim.target, claim.kernel
        shape = tuple(map(extent, target.view.axes))
        require(tuple(map(extent, source.view.axes)) == shape, "another shape")
        self._require_at(claim.call, [source, target] if claim.table is None else None, target)
        if claim.table is not None:
            self._require_table(claim, claim.table)
        elif isinstance(kernel, Exchange):
            loops = [(one.extent, one.strides) for one in (*kernel.outer, kernel.along, kernel.across)]
            require((kernel.source, kernel.target) == (source.format, target.format), "other formats")
            require(loops_of(loops, 1) == self._visited([source, target], shape), "the copy visits other elements")
        else:
            assert isinstance(kernel, Nest)
            require(not kernel.formula.steps, "the copy has a formula")
            self._require_nest(kernel, [source, target], shape)
        self.residence.copies(claim)
        self.copies[target] = source

    def _require_table(self, claim: Copies, table: Home) -> None:
        """Prove a copy that reads at the offsets of a table: every entry must be the offset of its element."""
        source, target, kernel = claim.source, claim.target, claim.kernel
        assert isinstance(kernel, Nest)
        offsets = offsets_of(source.view.offset, [factor for axis in source.view.axes for factor in axis])
        (step,) = kernel.formula.steps
        count, *static = step.static
        require((step.op, step.arguments, static) == ("gather", (0, 1), [1, source.format]), "another step")
        (buffer, offset), *others = self.plan.calls[claim.call].arguments
        first, rest = divmod(offset, source.format.bytes)
        require(buffer is source.buffer and rest == 0 and others == [table.at(), target.at()], "other arguments")
        entries = self._spread(table).reshape(-1)
        require(np.array_equal(first + entries, offsets), "an entry of the table is not the offset of its element")
        require(entries.min() >= 0 and entries.max() < count, "an entry of the table lies outside the buffer")
        shape = tuple(map(extent, target.view.axes))
        still = tuple(((n, 0),) for n in shape)
        loops = [(one.extent, one.strides) for one in kernel.loops]
        expected = visited([still, broadcast(table.view.axes, shape), target.view.axes], 2)
        require(loops_of(loops, 2) == expected, "the copy visits other elements")
        require(kernel.formats == (source.format, table.format, target.format), "other formats")

    def _fills(self, claim: Fills) -> None:
        target, kernel = claim.target, claim.kernel
        assert isinstance(kernel, Nest)
        self._require_nest(kernel, [target], tuple(map(extent, target.view.axes)))
        self._require_at(claim.call, [target], target)
        (step,) = kernel.formula.steps
        require((step.op, step.static) == ("immediate", (claim.value,)), "another value")
        least, most = target.format.hull
        require(least <= claim.value <= most, "the format does not hold the value")
        self.filled.setdefault(target.buffer, []).append(target)
        self.parts[target] = claim.value

    def _joins(self, claim: Joins) -> None:
        """Prove that every part lies at its offset in the concatenation.

        It may have been computed there, copied there, or, if all its elements are equal, filled in there.
        """
        node, target = claim.node, claim.target
        name = node.outputs[0].name
        shape = self.verified.shapes[name]
        axis = self.calls[name].attributes.axis % len(shape)
        require(tuple(map(extent, target.view.axes)) == shape, "another shape")
        step, start = stride(target.view.axes[axis]), 0
        for part in node.inputs:
            count = self.verified.shapes[part][axis]
            axes = tuple(
                merged(((count, step),)) if number == axis else merged(factors)
                for number, factors in enumerate(target.view.axes)
            )

            def lies(home: Home, at: int = target.view.offset + start * step, axes: Any = axes) -> bool:
                same = (home.buffer, home.format, home.view.offset) == (target.buffer, target.format, at)
                return same and tuple(map(merged, home.view.axes)) == axes

            values = self._constant(part)
            computed = any(lies(home) for home in self.homes.get(part, ()))
            copied = any(lies(home) and self.held(part, home) for home in self.copies)
            filled = values is not None and any(
                lies(home) and bool((values == value).all()) for home, value in self.parts.items()
            )
            require(computed or copied or filled, f"{part} does not lie in its part of the concatenation")
            start += count
        self._require_format(name, target)
        self.homes.setdefault(name, []).append(target)

    # Kernels --------------------------------------------------------------------------------------------------------

    def _computes(self, claim: Computes) -> None:
        for value, home in zip(claim.root.outputs, claim.targets, strict=True):
            require(tuple(map(extent, home.view.axes)) == value.shape, "another shape")
            self._require_format(value.name, home)
        kernel = claim.kernel
        if isinstance(kernel, Nest):
            self._nest(claim, kernel)
        elif isinstance(kernel, Contraction | Depthwise):
            self._contraction(claim, kernel)
        elif isinstance(kernel, Normalization | Quotient):
            self._divided(claim, kernel)
        else:
            for name, read in zip(claim.root.inputs, claim.reads, strict=False):
                require(read is not None and self.held(name, read), f"the kernel does not read {name}")
            self.residence.computes(claim)
        for value, home in zip(claim.root.outputs, claim.targets, strict=True):
            self.homes.setdefault(value.name, []).append(home)

    def _require_format(self, name: str, home: Home) -> None:
        lo, hi = self.verified.ranges[name].hull()
        least, most = home.format.hull
        require(least <= lo <= hi <= most, "the format does not hold the result")

    def _require_at(self, call: int, homes: list[Home] | None, target: Home) -> None:
        arguments = self.plan.calls[call].arguments
        require(arguments[-1] == target.at(), "another target")
        require(homes is None or arguments == tuple(home.at() for home in homes), "other arguments")

    def _visited(self, homes: list[Home], shape: tuple[int, ...]) -> list[tuple[int, tuple[int, ...]]]:
        return visited([broadcast(home.view.axes, shape) for home in homes], len(homes) - 1)

    def _require_nest(self, kernel: Nest, homes: list[Home], shape: tuple[int, ...]) -> None:
        require(kernel.formats == tuple(home.format for home in homes), "other formats")
        loops = [(one.extent, one.strides) for one in kernel.loops]
        require(
            loops_of(loops, len(homes) - 1) == self._visited(homes, shape),
            "the loops of the kernel visit other elements",
        )

    def _group(self, claim: Computes, elements: Callable[[int], Array], first: int, added: Added | None) -> Group:
        kernel: Any = claim.kernel

        def home(number: int) -> Home | None:
            return claim.reads[number - first]

        return Group(
            kernel.formula, claim.root.outputs[0].shape, self.producer,
            lambda node: self.calls[node.outputs[0].name].attributes,
            lambda name: self.verified.ranges[name].hull(), self._constant, self.reads, home, elements,
            lambda name: name in self.homes, lambda name: self.verified.shapes[name], self.data, added,
        )  # fmt: skip

    def _nest(self, claim: Computes, kernel: Nest) -> None:
        homes = [home for home in claim.reads if home is not None]
        require(len(homes) == len(claim.reads), "the kernel reads an operand without a home")
        target = claim.targets[0]
        self._require_nest(kernel, [*homes, target], claim.root.outputs[0].shape)
        self._require_at(claim.call, [*homes, target], target)

        def elements(number: int) -> Array:
            if number >= kernel.formula.reads:
                return _number(kernel.formula.steps[number - kernel.formula.reads])
            require(homes[number].buffer.kind == "constants", "a parameter is not a constant")
            return decoded(self.data, homes[number])

        self._group(claim, elements, 0, None).stored(claim.root, target.format, None)

    def _divided(self, claim: Computes, kernel: Normalization | Quotient) -> None:
        """Prove what a kernel of rounded quotients reads and writes, and how wrong its estimates may be."""
        root, target = claim.root, claim.targets[0]
        reads = [home for home in claim.reads if home is not None]
        names = list(root.inputs)
        require(len(reads) == len(claim.reads) >= len(names), "the kernel reads an operand without a home")
        for name, read in zip(names, reads, strict=False):
            require(self.held(name, read), f"the kernel does not read {name}")
        homes, shape = [*reads, target], root.outputs[0].shape
        self._require_at(claim.call, homes, target)
        require(kernel.formats == tuple(home.format for home in homes), "other formats")
        runs = kernel.loops if isinstance(kernel, Quotient) else (*kernel.kept, *kernel.taken)
        loops = [(one.extent, one.strides) for one in runs]
        visits = loops_of(loops, len(homes) - 1) == self._visited(homes, shape)
        require(visits, "the loops of the kernel visit other elements")
        attributes = self.calls[root.outputs[0].name].attributes
        if isinstance(kernel, Quotient):
            require(len(reads) == len(names), "the kernel reads further operands")
            require_quotient(kernel, attributes, [self.verified.ranges[name].hull() for name in names])
            return
        factors = [decoded(self.data, home) for home in reads[len(names) :]]
        require_normalization(kernel, attributes, shape, [self._constant(name) for name in names[1:4]], factors)

    def _contraction(self, claim: Computes, kernel: Kernel) -> None:
        """Prove a contraction: its coefficients, its addresses, and the formula after the sums."""
        root, target, source = claim.root, claim.targets[0], claim.source
        assert source is not None
        node = self._contracted(root)
        require(self.held(node.inputs[0], source), f"the kernel does not read {node.inputs[0]}")
        shape, weights = root.outputs[0].shape, self.constants[node.inputs[1]].stored()
        groups = getattr(self.calls[node.outputs[0].name].attributes, "groups", 1)
        channels = shape[1]
        each = channels // groups if isinstance(kernel, Contraction) else channels
        offsets, steps = self._offsets(node, source, weights.shape, groups)
        factor, summed = self._windows(claim, kernel, source, offsets, steps)
        remaining = weights if factor == 0 else weights.astype(np.int64) - factor
        packed: dict[int, list[Array]] = {}
        begins = []
        calls = groups if isinstance(kernel, Contraction) else 1
        for number in range(calls):
            arguments = list(self.plan.calls[claim.call + number].arguments)
            part = slice(number * each, (number + 1) * each)
            self._coefficients(kernel, arguments, source, remaining[part], offsets[part] if calls > 1 else offsets)
            begins.append(self._start(kernel, arguments[2], each) if kernel.starts else np.zeros(each, np.int64))
            reads = arguments[3 if kernel.starts else 2 : -1]
            for read_index, (home, read, argument) in enumerate(zip(claim.reads, kernel.reads, reads, strict=True)):
                if home is None:
                    values = per_channel(self._bytes(argument), kernel.segments, read.format, each)
                    packed.setdefault(read_index, []).append(values)
                else:
                    step = stride(home.view.axes[1])
                    require(argument == home.at(number * each * step), "a tensor is read at another address")
                    require(read.format == home.format, "a tensor is read in another format")
            require(arguments[-1] == target.at(number * each * stride(target.view.axes[1])), "another target")
        self._require_pixels(claim, kernel, steps, node)
        added = self._added(node, kernel, source, weights, np.concatenate(begins), summed)

        def elements(number: int) -> Array:
            if number > len(claim.reads):
                return _number(kernel.formula.steps[number - kernel.formula.reads])
            home = claim.reads[number - 1]
            if home is None:
                return np.concatenate(packed[number - 1]).reshape(1, -1, *(1,) * (len(shape) - 2))
            require(home.buffer.kind == "constants", "a parameter is not a constant")
            return decoded(self.data, home)

        require(kernel.output.format == target.format, "another format")
        if kernel.joint is not None:
            require_joint(kernel.joint, kernel.formula, claim.reads[kernel.joint.read - 1])
        self._group(claim, elements, 1, added).stored(root, target.format, kernel.output.clamp)

    def _windows(
        self, claim: Computes, kernel: Kernel, source: Home, offsets: Array, steps: list[tuple[int, int]]
    ) -> tuple[int, int]:
        """Prove the sums of windows that the first step of a formula adds, if it does.

        Returns the number by which they multiply every element of the window, and the number of the value that includes
        them. Without sums of windows, these are 0 and 0.
        """
        home = summed(kernel.formula, claim.reads)
        made = None if home is None else self.windows.get(home.buffer)
        if home is None or made is None:
            return 0, 0
        axes = broadcast(home.view.axes, claim.root.outputs[0].shape)
        pixels = [(n, step, stride(axis)) for (n, step), axis in zip(steps, (axes[0], *axes[2:]), strict=True)]
        require_windows(self.plan, made, claim.call, home, source, offsets[0], pixels)
        _, factor, _ = self.plan.calls[made.call].arguments
        return int(np.frombuffer(self._bytes(factor), np.int32, 1)[0]), kernel.formula.reads

    def _contracted(self, root: Node) -> Node:
        """The contraction of a group: the one that can be reached from the root through operands that have no home."""
        left, seen = [root], set()
        while left:
            node = left.pop()
            if node.op in ("conv2d", "dense"):
                return node
            for name in node.inputs:
                if name in self.producer and name not in self.homes and name not in seen:
                    seen.add(name)
                    left.append(self.producer[name])
        raise Unproven("the group has no contraction")

    def _offsets(
        self, node: Node, source: Home, shape: tuple[int, ...], groups: int
    ) -> tuple[Array, list[tuple[int, int]]]:
        """Derive from the node which elements of ``source`` the output pixels read.

        Returns the address of the element that each weight multiplies for the first pixel, as an array (output channel,
        weight); and (extent, address stride) of the images, rows and columns of the output.
        """
        if node.op == "dense":
            row, run = source.view.axes
            offsets = offsets_of(source.view.offset, run)
            return np.broadcast_to(offsets, shape), [(node.outputs[0].shape[0], stride(row))]
        a = self.calls[node.outputs[0].name].attributes
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
        for home in self.filled.get(source.buffer, ()):
            same = tuple(map(merged, home.view.axes[:2])) == images and home.format == source.format
            if same and self.parts[home] == 0:
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
        require(buffer is source.buffer and kernel_format(kernel, source), "another input")
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
        """The digits of all segments, with their excess. Proves that no pair of products saturates."""
        digits = segments_of(data, kernel)
        clips = self.machine.saturates and kernel.per == 4
        require(not (clips and saturates(digits)), "pairs of products could saturate")
        if isinstance(kernel, Contraction) and kernel.excess:
            require(clips, "only products that saturate leave an excess")
            digits, listed = with_excess(data, kernel, digits)
            require(not saturates(listed), "pairs of products of the excess could saturate")
        return digits

    def _start(self, kernel: Kernel, argument: tuple[Buffer, int], channels: int) -> Array:
        return per_channel(self._bytes(argument), kernel.segments, INT32, channels)

    def _bytes(self, argument: tuple[Buffer, int]) -> memoryview:
        buffer, offset = argument
        require(buffer.kind == "constants" and 0 <= offset <= len(self.data), "a parameter is not a constant")
        return memoryview(self.data)[offset:]

    def _require_pixels(self, claim: Computes, kernel: Kernel, steps: list[tuple[int, int]], node: Node) -> None:
        """Prove that the kernel's strides per image, row, column and channel are those of the homes of all tensors."""
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
        column = kernel.source.column * (kernel.step if isinstance(kernel, Depthwise) else 1)
        given = [(kernel.source.image, [p.image for _, p in homes]), (kernel.source.row, [p.row for _, p in homes]),
                 (column, [p.column for _, p in homes])]  # fmt: skip
        extents = (kernel.images, kernel.rows, kernel.columns)
        found = [(n, (first, *others)) for n, (first, others) in zip(extents, given, strict=True)]
        require(loops_of(found, 1) == loops_of(expected, 1), "the strides of pixels differ from those of the homes")
        for home, pixels in homes:
            step = stride(broadcast(home.view.axes, shape)[1])
            require(pixels.channel == step or shape[1] == 1, "the stride of channels differs from that of the home")

    def _added(self, node: Node, kernel: Kernel, source: Home, weights: Array, begins: Array, number: int) -> Added:
        """For each channel, the number by which the kernel's sums differ from the node's result, and the interval of
        that result.

        The kernel adds up products of x + b. Here b is the bias of the format, unless loading subtracts it, minus 128
        on a machine with signed bytes.
        """
        rows = weights.reshape(weights.shape[0], -1)
        per = kernel.per if isinstance(kernel, Contraction) else 4
        b = (source.format.bias if per > 1 else 0) - (128 if self.machine.signed_bytes and per == 4 else 0)
        lo, hi = self.verified.ranges[node.inputs[0]].hull()
        lo, hi = min(lo, 0), max(hi, 0)
        total, below = _sums(rows).tolist(), _sums(np.minimum(rows, 0)).tolist()
        bias = [0] * len(total)
        if len(node.inputs) == 3:
            bias = list(map(int, self.constants[node.inputs[2]].integers()))
        columns: list[list[int]] = [[], [], []]
        least, most = self.verified.ranges[node.outputs[0].name].hull()
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

    # The plan as a whole --------------------------------------------------------------------------------------------

    def check_whole(self) -> None:
        """Prove that buffers that are used at the same time do not overlap, and that each array of the caller is filled
        with its value.
        """
        spans: dict[Buffer, tuple[int, int]] = {}
        for number, call in enumerate(self.plan.calls):
            for buffer, offset in call.arguments:
                require(buffer.kind != "arena" or offset < buffer.size, "an argument lies outside its buffer")
                if buffer.kind == "arena":
                    first, _ = spans.get(buffer, (number, number))
                    spans[buffer] = (first, number)
        _require_apart(spans, self.plan)
        self.residence.whole()
        for index, name in enumerate(self.plan.arrays[self.plan.written :], self.plan.written):
            given = [
                home for home in self.copies
                if (home.buffer.kind, home.buffer.index) == ("array", index) and self.held(name, home)
            ]  # fmt: skip
            require(len(given) == 1, f"{name} is not copied to the caller's array")
            self.require_array(given[0], index)


def kernel_format(kernel: Kernel, source: Home) -> bool:
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


def _number(step: Any) -> Array:
    """The number of an ``immediate`` step, as an array."""
    require(step.op == "immediate", "a parameter is not a constant number")
    return np.array(step.static[0], object)


def _require_apart(spans: dict[Buffer, tuple[int, int]], plan: Plan) -> None:
    """Prove that buffers of the arena that are used at the same time do not overlap."""
    events: Iterable[tuple[int, int, Buffer]] = sorted(
        ((first, last, buffer) for buffer, (first, last) in spans.items()), key=lambda one: one[:2]
    )
    living: list[tuple[int, int, int]] = []
    for first, last, buffer in events:
        start = plan.offsets[buffer]
        end = start + buffer.size
        require(start >= 0 and end <= plan.arena, "a buffer lies outside the arena")
        living = [one for one in living if one[0] >= first]
        require(all(end <= low or high <= start for _, low, high in living), "buffers overlap")
        living.append((last, start, end))
