"""Planning: from a verified program to kernels, calls and memory.

The planner walks through the roots of the groups in order. Every tensor gets a home - buffer, view, format - when it is
first needed; ops that only move elements give their result another view of the same home. A value that a kernel cannot
read in its home is copied once into a home that the kernel can read.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from weakref import proxy

import numpy as np
import numpy.typing as npt

from cvm.executors.native.descriptions.expressions import Formula, FormulaStep
from cvm.executors.native.descriptions.formats import INT32, INT64, SHORT, Format
from cvm.executors.native.descriptions.loops import Exchange, Loop, Nest
from cvm.executors.native.emit.exchange import exchange
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.emit.nest import loops_in_order
from cvm.executors.native.emit.transposition import exchanged
from cvm.executors.native.plan import arena, gains
from cvm.executors.native.plan.claims import Claim, Copies, Fills, Holds, Views
from cvm.executors.native.plan.groups import Groups, contracts, group
from cvm.executors.native.plan.homes import Buffer, Constants, Home
from cvm.executors.native.plan.layout import borders, orders, words
from cvm.executors.native.plan.protocol import MadeClaim, OpPlan
from cvm.executors.native.plan.residence import Residence, state_format
from cvm.executors.native.plan.saturation import often_exceeded
from cvm.executors.native.plan.steps import CHUNKS, KernelCall, Plan
from cvm.executors.native.plan.view import View, refined
from cvm.ops.declaration import Call
from cvm.program.model import Node
from cvm.program.verifier import VerifiedProgram

__all__ = ["Planner"]

Array = npt.NDArray[Any]


class Planner:
    """The state of planning one program.

    ``returned`` names the values that the caller gets; ``plans`` says how each op is planned. ``plain`` maps names of
    values to reasons: the optimised kernel of such a value could not be proven, so it is planned in the form that is
    easy to prove. It gets a kernel of its own, products are computed one element at a time, and `requantize` works in
    64-bit lanes. With ``resident``, the arrays of the state hold it from run to run (see `residence`). ``seen`` is
    called with each new kernel. ``threads`` is the number of threads that a run may have: some kernels are faster for
    few threads alone.
    """

    def __init__(
        self,
        verified: VerifiedProgram,
        machine: Machine,
        returned: frozenset[str],
        plans: Mapping[str, OpPlan],
        plain: Mapping[str, str] | None = None,
        resident: bool = False,
        seen: Callable[[object], None] = lambda kernel: None,
        threads: int = 1,
    ) -> None:
        self.verified, self.machine, self._plans, self._threads = verified, machine, plans, threads
        self._seen = seen
        self.program = verified.program
        self.constants = Constants(5 * sum(len(one.data) for one in self.program.constants) // 4)
        self.homes: dict[str, Home] = {}
        self.arrays: dict[str, Home] = {}
        """The arrays of inputs and state."""
        self._borders = borders(verified)
        self._orders = orders(self.program)
        self.calls: list[KernelCall] = []
        self.claims: list[Claim] = []
        self.plain: Mapping[str, str] = plain or {}
        self.functions: dict[str, object] = {}
        self._arrays_by_name = {constant.name: constant for constant in self.program.constants}
        self._names: dict[object, str] = {}
        self._copies: dict[object, Home] = {}
        self._buffers: list[Buffer] = []
        self._ready: dict[str, int] = {}
        self._exceeded: dict[str, bool] = {}
        self._uses = Counter(name for node in self.program.nodes for name in node.inputs)
        fed = [*(one.value for one in self.program.inputs), *(one.value for one in self.program.state)]
        self._fed = tuple(value.name for value in fed)
        self._returned = tuple(sorted(returned))
        self._op_calls = dict(zip((node.outputs[0].name for node in self.program.nodes), verified.calls, strict=True))
        # A proxy, so that there is no cycle, which would keep the planner and the constants in memory.
        self.residence = Residence(proxy(self)) if resident else None
        kept = returned | set(self._fed) | self.plain.keys()
        if resident:
            kept |= {item.update for item in self.program.state}
        self.groups: Groups = group(self.program, kept, self.contracts)
        self._parts = self._destinations()
        self._words = words(self.program, self.contracts, self.by_words)
        for index, value in enumerate(fed):
            buffer = Buffer("array", index=index)
            format_ = state_format(value) if resident and index >= len(self.program.inputs) else INT32
            self.arrays[value.name] = Home(buffer, View.ordered(value.shape, range(len(value.shape))), format_)
            self.hold(value.name, self.arrays[value.name])

    # The walk -------------------------------------------------------------------------------------------------------

    def plan(self) -> Plan:
        """Plan all calls, then the offsets of all buffers."""
        for name in self._fed:
            self._copy_to_caller(name)
        for constant in self._arrays_by_name:
            self._copy_to_caller(constant)
        for node in self.program.nodes:
            if node.outputs[0].name in self.groups.joined:
                continue
            self._plans[node.op].plan(self, node)
            for value in node.outputs:
                self._copy_to_caller(value.name)
        if self.residence is not None:
            self.residence.update()
        offsets, size = arena.allocate(buffer for buffer in self._buffers if buffer.last >= 0)
        return Plan(
            self.functions,
            tuple(self.calls),
            offsets,
            size,
            self.constants.bytes(),
            (*self._fed, *self._returned),
            len(self._fed),
            self.roots(),
            self._ready,
            tuple(self.claims),
            () if self.residence is None else tuple(item.value.name for item in self.program.state),
        )

    def roots(self) -> dict[str, str]:
        """For every joined value, the result of its group's root."""
        roots: dict[str, str] = {}
        for node in reversed(self.program.nodes):
            result = node.outputs[0].name
            for name in node.inputs:
                if name in self.groups.joined:
                    roots[name] = roots.get(result, result)
        return roots

    def _copy_to_caller(self, name: str) -> None:
        """Copy a value that the caller wants into the caller's array."""
        if name in self._returned:
            home = self.home(name)
            index = len(self._fed) + self._returned.index(name)
            shape = home.view.shape
            target = Home(Buffer("array", index=index), View.ordered(shape, range(len(shape))), INT32)
            self.copy(home, target, f"{name} to the caller")
            self._ready[name] = len(self.calls)

    # Homes ----------------------------------------------------------------------------------------------------------

    def hold(self, name: str, home: Home) -> None:
        """Record that the home holds the value before the run begins."""
        self.homes[name] = home
        self.claim(Holds(name, home))

    def call_of(self, node: Node) -> Call:
        """The verified call of a node."""
        return self._op_calls[node.outputs[0].name]

    def hull(self, name: str) -> tuple[int, int]:
        """The proven interval of a value."""
        return self.verified.ranges[name].hull()

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a value."""
        return self.verified.shapes[name]

    def constant(self, name: str) -> Array | None:
        """The elements of a constant; None for any other value."""
        known = self._arrays_by_name.get(name)
        return None if known is None else known.array()

    def weights(self, name: str) -> npt.NDArray[np.signedinteger[Any]]:
        """The elements of a constant, in the integer type in which the program stores them."""
        return self._arrays_by_name[name].stored()

    def uses(self, name: str) -> int:
        """The number of node inputs that read a value."""
        return self._uses[name]

    def contracts(self, node: Node) -> bool:
        """Whether a node is planned as a contraction."""
        return node.outputs[0].name not in self.plain and contracts(node, self.call_of(node), self._arrays_by_name)

    def by_words(self, node: Node) -> bool:
        """Whether a node is a contraction that multiplies 16-bit integers where bytes would do.

        A depthwise convolution multiplies each element a few times only, so bytes are better for it.
        """
        if not (self.machine.words and self.contracts(node)):
            return False
        if node.op == "conv2d" and (self.call_of(node).attributes.groups > 1 or self.in_squares(node)):
            return False
        return not self.machine.saturates or self._often_exceeded(node.inputs[1])

    def _often_exceeded(self, name: str) -> bool:
        if name not in self._exceeded:
            self._exceeded[name] = often_exceeded(self.weights(name))
        return self._exceeded[name]

    def in_squares(self, node: Node) -> bool:
        """Whether a node is a convolution that is faster in squares of results (`plan.gains`)."""
        return node.outputs[0].name in self._in_squares

    @cached_property
    def _in_squares(self) -> frozenset[str]:
        nodes = self.program.nodes if self.machine.squares else ()
        found = ((node.outputs[0].name, self._gain(node)) for node in nodes)
        return gains.chosen({name: gain for name, gain in found if gain is not None})

    def _gain(self, node: Node) -> gains.Gain | None:
        """What a node gains in squares; None for all but convolutions that are exact and faster so."""
        if not (node.op == "conv2d" and self.contracts(node)):
            return None
        a, weights = self.call_of(node).attributes, self.shape(node.inputs[1])
        usual = (a.groups, tuple(a.stride), tuple(a.dilation), weights[2:]) == (1, (1, 1), (1, 1), (3, 3))
        if not usual or Format.of(*self.hull(node.inputs[0])).bits != 8:
            return None
        fits = gains.fits(self.weights(node.inputs[1]))
        return gains.gain(node.outputs[0].shape, weights, self.machine, self._threads) if fits else None

    def home(self, name: str) -> Home:
        """The home of a value. A constant gets its home at the first call."""
        if name not in self.homes:
            values = self.constant(name)
            assert values is not None, name
            lo, hi = int(values.min()), int(values.max())
            format_ = Format.of(lo, hi) if -(2**31) < lo <= hi < 2**31 else INT64
            self.hold(name, self.constants.home(values, format_))
        return self.homes[name]

    def result(self, name: str) -> Home:
        """The home of a value that is about to be computed: a part of a concatenation's home, or new memory."""
        if name not in self.homes:
            part = self._parts.get(name)
            if part is None:
                border = self.border(name)
                format_ = Format.of(*self.hull(name))
                if format_.bits == 8 and name in self._words:
                    format_ = SHORT
                self.homes[name] = self.fresh(self.shape(name), format_, self._orders.get(name), border)
            else:
                whole, axis, start = part
                view = self.result(whole).view.sliced(axis, start, 1, self.shape(name)[axis])
                assert view is not None
                self.homes[name] = replace(self.homes[whole], view=view, border=(0, 0))
        return self.homes[name]

    def in_place(self, node: Node) -> Home | None:
        """Where an updated slice is written if its tensor is a state that nothing else reads any more; else None."""
        return None if self.residence is None else self.residence.in_place(node)

    def border(self, name: str) -> tuple[int, int]:
        """How many rows and columns of zeros the convolutions that read a map need around it."""
        return self._borders.get(name, (0, 0))

    def read_from(self, name: str, home: Home) -> None:
        """Let all later nodes read a value from this home, which holds a copy of it."""
        self.homes[name] = home

    def view(self, node: Node, source: Home, target: Home) -> None:
        """Record that ``target``, a view of the buffer of ``source``, is the result of a node that moves elements."""
        self.homes[node.outputs[0].name] = target
        self.claim(Views(node, source, target))

    def fresh(
        self,
        shape: Sequence[int],
        format_: Format,
        order: Sequence[int] | None = None,
        border: tuple[int, int] = (0, 0),
    ) -> Home:
        """Allocate memory for a tensor, and fill its border (rows, columns) with zeros."""
        order = tuple(order or range(len(shape)))
        outer = list(shape)
        if border != (0, 0):
            outer[2] += 2 * border[0]
            outer[3] += 2 * border[1]
        whole = View.ordered(outer, order)
        # A dot product reads whole vectors, so it may read a few elements behind the last one.
        buffer = Buffer("arena", (math.prod(outer) + 64) * format_.bytes)
        self._buffers.append(buffer)
        home = Home(buffer, whole, format_)
        if border == (0, 0):
            return home
        view, strides = whole, [whole.stride(axis) or 0 for axis in range(4)]
        for axis, edge in ((2, border[0]), (3, border[1])):
            inner = view.sliced(axis, edge, 1, shape[axis])
            assert inner is not None
            view = inner
        self._fill_border(home, outer, border)
        return Home(buffer, view, format_, border, (strides[2], strides[3]))

    def scratch(self, size: int) -> Buffer:
        """Allocate ``size`` bytes that only the next calls use."""
        buffer = Buffer("arena", size)
        self._buffers.append(buffer)
        return buffer

    def laid_out(self, name: str, format_: Format, order: Sequence[int], border: tuple[int, int]) -> Home:
        """A copy of a value in another format and order of axes. Equal requests share one copy."""
        key = (name, format_, tuple(order), border)
        if key not in self._copies:
            target = self.fresh(self.shape(name), format_, order, border)
            self.copy(self.home(name), target, f"{name}, laid out")
            self._copies[key] = target
        return self._copies[key]

    def _fill_border(self, home: Home, outer: Sequence[int], border: tuple[int, int]) -> None:
        rows, columns = border
        strips = [(2, 0, rows), (2, outer[2] - rows, rows), (3, 0, columns), (3, outer[3] - columns, columns)]
        for axis, start, count in strips:
            if not count:
                continue
            view = home.view.sliced(axis, start, 1, count)
            assert view is not None
            if axis == 3:
                inner = view.sliced(2, rows, 1, outer[2] - 2 * rows)
                assert inner is not None
                view = inner
            self.fill(Home(home.buffer, view, home.format), 0, "border")

    def destination(self, name: str) -> tuple[str, int, int] | None:
        """(concatenation, axis, start) if the value is computed as a part of a concatenation's result, else None."""
        return self._parts.get(name)

    def _destinations(self) -> dict[str, tuple[str, int, int]]:
        """(concatenation, axis, start) of every value that can be computed as a part of a concatenation's result."""
        parts: dict[str, tuple[str, int, int]] = {}
        for node in self.program.nodes:
            if node.op != "concatenate":
                continue
            axis = int(node.attributes["axis"]) % len(node.outputs[0].shape)  # type: ignore[arg-type]
            start = 0
            for name in node.inputs:
                producer = self.groups.producer.get(name)
                placeable = producer is not None and self._plans[producer.op].placeable
                if placeable and name not in self._borders and name not in parts and node.inputs.count(name) == 1:
                    parts[name] = (node.outputs[0].name, axis, start)
                start += self.shape(name)[axis]
        return parts

    # Kernels --------------------------------------------------------------------------------------------------------

    @property
    def next_call(self) -> int:
        """The number of the call that is added next."""
        return len(self.calls)

    def claim(self, claim: Claim) -> None:
        """Record a claim about calls or homes, which the checker proves."""
        self.claims.append(claim)

    def kernel(self, kernel: object, prefix: str) -> str:
        """The name of the function that computes a kernel. Equal kernels share one function."""
        if kernel not in self._names:
            self._names[kernel] = f"{prefix}_{len(self._names)}"
            self.functions[self._names[kernel]] = kernel
            self._seen(kernel)
        return self._names[kernel]

    def call(
        self,
        function: str,
        arguments: Sequence[tuple[Buffer, int]],
        units: int,
        what: str,
        note: str,
        cost: float,
        per_thread: int = CHUNKS,
    ) -> None:
        """Add a call. ``cost`` is its estimated time in nanoseconds (see `KernelCall`)."""
        for buffer, _ in arguments:
            buffer.used(self.next_call)
        if what in self.plain:
            note += f"; plain, since otherwise {self.plain[what]}"
        self.calls.append(KernelCall(function, tuple(arguments), units, what, note, cost, per_thread))

    def nest(
        self, reads: Sequence[Home], target: Home, formula: Formula, what: str, note: str, made: MadeClaim
    ) -> None:
        """Add a call that computes a formula at every index of ``target``.

        ``reads`` have the shape of ``target``, with stride 0 along axes that are broadcast.
        """
        homes = [*reads, target]
        loops: list[Loop] = []
        for axis in range(len(target.view.axes)):
            found = refined([_spread(home.view, target.view, axis) for home in homes])
            if found is None:
                self.nest(self._readable(reads, target), target, formula, what, note, made)
                return
            loops += [Loop(extent, strides) for extent, strides in found]
        if not loops:
            loops = [Loop(1, (0,) * len(homes))]
        if not formula.steps:
            exchanged = exchange([loop for loop in loops if loop.extent > 1], homes[0].format, target.format)
            if exchanged is not None:
                self.claim(made(exchanged, reads, self.next_call))
                self._exchange(exchanged, homes, what)
                return
        nest = Nest(loops_in_order(loops), tuple(home.format for home in homes), formula)
        if not nest.copies:
            # A gather reads more elements than the loops visit; a copy would have only those that they visit.
            bases = {step.arguments[0] for step in formula.steps if step.op in ("gather", "pick", "permute", "shuffle")}
            lined = [
                home if number in bases else self._lined_up(nest, number, home, target)
                for number, home in enumerate(reads)
            ]
            if lined != list(reads):
                self.nest(lined, target, formula, what, note, made)
                return
        name = self.kernel(nest, "nest")
        self.claim(made(nest, reads, self.next_call))
        self.call(name, [home.at() for home in homes], nest.units, what, note, 0.2 * math.prod(target.view.shape))

    def _lined_up(self, nest: Nest, number: int, home: Home, target: Home) -> Home:
        """The home that a nest reads, or a copy in the order of the target, if it reads all elements in another order.

        Such a copy is made block by block; the nest would load the elements one by one.
        """
        strides = [target.view.stride(axis) for axis in range(len(target.view.axes))]
        every = all(loop.strides[number] for loop in nest.loops if loop.extent > 1)
        computed = home.buffer.kind != "constants" and home.format.bits <= 32
        if not computed or exchanged(nest, number) is None or not every or None in strides:
            return home
        order = sorted(range(len(strides)), key=lambda axis: -abs(strides[axis] or 0))
        fresh = self.fresh(target.view.shape, home.format, order)
        self.copy(home, fresh, "reordered")
        return fresh

    def _exchange(self, kernel: Exchange, homes: Sequence[Home], what: str) -> None:
        name = self.kernel(kernel, "exchange")
        cost = 0.2 * math.prod(homes[-1].view.shape)
        self.call(name, [home.at() for home in homes], kernel.units, what, "copy, axes exchanged", cost)

    def copy(self, source: Home, target: Home, what: str) -> None:
        """Add a call that copies the elements of one home to another."""
        self.nest(
            [source],
            target,
            Formula(1),
            what,
            "copy",
            lambda kernel, reads, call: Copies(reads[0], target, kernel, call),
        )

    def fill(self, target: Home, value: int, what: str) -> None:
        """Add a call that gives every element of a home one value."""
        formula, note = Formula(0, (FormulaStep("immediate", (), (value,)),)), f"filled with {value}"
        self.nest([], target, formula, what, note, lambda kernel, _, call: Fills(target, value, kernel, call))

    def _readable(self, reads: Sequence[Home], target: Home) -> list[Home]:
        """The reads, where a home whose axes have other factors than the target's is replaced by a row-major copy."""
        alike = [target]
        for home in reads:
            views = [one.view for one in (*alike, home)]
            axes = range(len(target.view.axes))
            fits = all(refined([_spread(view, target.view, axis) for view in views]) is not None for axis in axes)
            alike.append(home if fits else self.rearranged(home))
        return alike[1:]

    def rearranged(self, home: Home) -> Home:
        """A row-major copy of a home with any view, made by a table of the offsets of its elements."""
        shape = home.view.shape
        offsets = home.view.positions()
        first = int(offsets.min())  # less than the view's offset where strides are negative
        extent = int(offsets.max()) - first + 1
        table = self.constants.home((offsets - first).reshape(shape), Format.of(0, extent - 1))
        fresh = self.fresh(shape, home.format)
        base = replace(home, view=View(first, tuple(((n, 0),) if n > 1 else () for n in shape)))
        step = FormulaStep("gather", (0, 1), (extent, 1, home.format))
        self.nest(
            [base, table], fresh, Formula(2, (step,)), "rearranged", "copy by a table",
            lambda kernel, _, call: Copies(home, fresh, kernel, call, table),
        )  # fmt: skip
        return fresh


def _spread(view: View, target: View, axis: int) -> tuple[tuple[int, int], ...]:
    """The factors of an axis of ``view``; an axis of extent 1 gets the factors of the target's axis with stride 0."""
    factors = view.axes[axis]
    return factors or tuple((n, 0) for n, _ in target.axes[axis])
