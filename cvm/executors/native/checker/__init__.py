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
from typing import TYPE_CHECKING, Any
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
from cvm.executors.native.checker.contractions import Contractions, DotProducts
from cvm.executors.native.checker.estimates import require_normalization, require_quotient
from cvm.executors.native.checker.groups import Added, Group, number_of
from cvm.executors.native.checker.residence import Residence
from cvm.executors.native.descriptions.computed import Normalization, Quotient
from cvm.executors.native.descriptions.expressions import Formula
from cvm.executors.native.descriptions.loops import Exchange, Nest
from cvm.executors.native.descriptions.sums import Contraction, Depthwise
from cvm.executors.native.descriptions.winograd import Winograd
from cvm.executors.native.plan.claims import Claim, Computes, Copies, Fills, Holds, Joins, Prepares, Views
from cvm.executors.native.plan.homes import Buffer, Home
from cvm.executors.native.plan.residence import state_format
from cvm.executors.native.plan.steps import Plan

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Unproven", "unproven"]


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
    copy of; ``copied`` lists these copies by their buffers. ``filled`` lists the homes of each buffer that are filled
    with one number; ``parts`` has these numbers. ``prepared`` maps a buffer to the claim that what a later contraction
    reads lies there.
    """

    def __init__(self, verified: VerifiedProgram, plan: Plan, machine: DotProducts) -> None:
        self.verified, self.plan = verified, plan
        program = verified.program
        self.constants = {constant.name: constant for constant in program.constants}
        self.producer = {value.name: node for node in program.nodes for value in node.outputs}
        self.calls = {node.outputs[0].name: call for node, call in zip(program.nodes, verified.calls, strict=True)}
        self.homes: dict[str, list[Home]] = {}
        self.copies: dict[Home, Home] = {}
        self.copied: dict[Buffer, list[Home]] = {}
        self.filled: dict[Buffer, list[Home]] = {}
        self.parts: dict[Home, int] = {}
        self.prepared: dict[Buffer, Prepares] = {}
        self.data = memoryview(plan.constants).toreadonly()
        # No cycles: they would keep the packed constants in memory.
        self.residence, self.contractions = Residence(proxy(self)), Contractions(proxy(self), machine)

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
            case Prepares():  # proven together with the contraction that reads it
                self.prepared[claim.target.buffer] = claim

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
                self._note_copy(claim.source, claim.target)

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
            copies = [copy for copy in self.copied.get(home.buffer, ()) if self.held(name, copy)]
            for known in (*self.homes.get(name, ()), *copies):
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
        self._note_copy(source, target)

    def _note_copy(self, source: Home, target: Home) -> None:
        self.copies[target] = source
        self.copied.setdefault(target.buffer, []).append(target)

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
            copied = any(lies(home) and self.held(part, home) for home in self.copied.get(target.buffer, ()))
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
        elif isinstance(kernel, Contraction | Depthwise | Winograd):
            self.contractions.prove(claim, kernel)
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

    def group(
        self, claim: Computes, formula: Formula, elements: Callable[[int], Array], first: int, added: Added | None
    ) -> Group:
        def home(number: int) -> Home | None:
            return claim.reads[number - first]

        return Group(
            formula, claim.root.outputs[0].shape, self.producer,
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
                return number_of(kernel.formula.steps[number - kernel.formula.reads])
            require(homes[number].buffer.kind == "constants", "a parameter is not a constant")
            return decoded(self.data, homes[number])

        self.group(claim, kernel.formula, elements, 0, None).stored(claim.root, target.format, None)

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
