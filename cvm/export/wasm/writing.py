"""A program as one module of WebAssembly without imports, which describes itself."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from cvm.errors import LimitExceeded, Unsupported
from cvm.executors.base import returned
from cvm.executors.native.emit.machine import WASM
from cvm.executors.native.plan.arena import ALIGNMENT
from cvm.executors.native.plan.memory import SLACK
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.networks import read_bounds
from cvm.executors.native.runtime.proven import proven
from cvm.export.wasm.generated import RUN, generated
from cvm.export.wasm.linked import Unlinkable, linked
from cvm.program import Program
from cvm.program.verifier import VerifiedProgram
from cvm.quantization import LinearQuantizer
from cvm.records import dataclass

__all__ = ["SECTION", "VERSION", "Module", "module"]

SECTION = "cvm"
"""The custom section in which a module describes itself."""
VERSION = 1
STACK = 2**18
"""The bytes of the stack. It lies first in memory, so that running out of it leaves the memory, which is a trap."""
MOST = 2**32 - 2**16
"""The most bytes of memory of a module."""
_GAP = 64
"""Zeros in a row that are not written as data: memory is zero at first."""


@dataclass(frozen=True, slots=True)
class Module:
    """A module and what it needs."""

    code: bytes
    memory_bytes: int
    arena_bytes: int
    constant_bytes: int
    description: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class _Memory:
    """Addresses: of the code's own data, the packed constants, the table of arrays, each array, and the arena."""

    data: int
    constants: int
    table: int
    arrays: tuple[int, ...]
    arena: int
    end: int

    @staticmethod
    def of(plan: Plan, sizes: Sequence[int], data: int) -> _Memory:
        """The memory of a plan whose code has so many bytes of data, and whose arrays have so many elements."""
        at = STACK + _aligned(data)
        constants, at = at, at + _aligned(len(plan.constants) + SLACK)
        table, at = at, at + _aligned(8 * len(sizes))
        arrays = []
        for size in sizes:
            arrays.append(at)
            at += _aligned(4 * size + SLACK)
        return _Memory(STACK, constants, table, tuple(arrays), at, at + _aligned(plan.arena + SLACK))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def module(verified: VerifiedProgram, traced: bool = False) -> Module:
    """A program as a module of WebAssembly that gives its outputs, and its next state, exactly.

    The planner of the native executor chooses the kernels, and its checker proves what it chose. ``traced``: the module
    gives every tensor. Raises `Unsupported` (``export.wasm``) if no plan is proven, and `LimitExceeded` if the program
    needs more memory than a module can have.
    """
    program = verified.program
    wanted = returned(program, "all" if traced else frozenset()) | {item.update for item in program.state}
    bounds = read_bounds(program)

    def compiled(plan: Plan) -> tuple[bytes, _Memory]:
        sizes = [math.prod(verified.shapes[name]) for name in plan.arrays]
        # How many bytes of data the code has is known when it is made, and they lie before all that it addresses.
        room = 0
        while True:
            memory = _Memory.of(plan, sizes, room)
            if memory.end > MOST:
                message = f"the program needs {memory.end} bytes of memory, a module has at most {MOST}"
                raise LimitExceeded("limit.wasm_memory", message)
            code = generated(plan, bounds, (memory.arena, memory.constants, memory.table))
            needed = max((at + len(content) for at, content in linked(code, 0).data.items()), default=0)
            if needed <= room:
                return code, memory
            room = needed

    try:
        plan, (code, memory) = proven(verified, WASM, wanted, lambda made: partial(compiled, made))
        parts = linked(code, memory.data)
    except (Distrusted, Unlinkable) as error:
        raise Unsupported("export.wasm", f"no module can be made of this program: {error}") from error
    description = _description(verified, plan, memory, traced)
    stated = json.dumps(description, ensure_ascii=True, separators=(",", ":"), sort_keys=True).encode()
    data = {**parts.data, **dict(_contents(program, plan, memory))}
    whole = type(parts)(parts.sections, parts.functions, data).module(memory.end, STACK, (RUN,), {SECTION: stated})
    return Module(whole, memory.end, plan.arena, len(plan.constants), description)


def _contents(program: Program, plan: Plan, memory: _Memory) -> Iterator[tuple[int, bytes]]:
    """What memory holds at first: packed constants, the initial state, and the addresses of all arrays."""
    yield from _runs(memory.constants, bytes(plan.constants))
    constants = {constant.name: constant for constant in program.constants}
    for name, address in zip(plan.arrays[: plan.written], memory.arrays, strict=False):
        initial = next((item.initial for item in program.state if item.value.name == name), None)
        if initial is not None:
            yield from _runs(address, constants[initial].array().astype("<i4").tobytes())
    yield memory.table, b"".join(struct.pack("<Q", address) for address in memory.arrays)


def _runs(address: int, content: bytes) -> Iterator[tuple[int, bytes]]:
    """The parts of a content that are not zero, by address."""
    filled = (bool(content[first : first + _GAP].strip(b"\0")) for first in range(0, len(content), _GAP))
    at = 0
    for some, group in groupby(filled):
        end = at + _GAP * len(list(group))
        if some:
            yield address + at, content[at:end]
        at = end


def _description(verified: VerifiedProgram, plan: Plan, memory: _Memory, traced: bool) -> dict[str, Any]:
    """What a module says of itself: what the program is, and where its tensors lie."""
    program = verified.program
    given = dict(zip(plan.arrays[: plan.written], memory.arrays, strict=False))
    left = dict(zip(plan.arrays[plan.written :], memory.arrays[plan.written :], strict=True))
    intervals = {name: (int(bounds.lo.min()), int(bounds.hi.max())) for name, bounds in verified.ranges.items()}

    def tensor(name: str, at: int, lo: int, hi: int) -> dict[str, Any]:
        return {"name": name, "shape": list(verified.shapes[name]), "lo": lo, "hi": hi, "at": at}

    found: dict[str, Any] = {
        "version": VERSION,
        "digest": program.digest,
        "op_set": program.op_set,
        "inputs": [
            {**tensor(item.value.name, given[item.value.name], item.value.lo, item.value.hi), **_meant(item.quantizer)}
            for item in program.inputs
        ],
        "outputs": [
            {
                **tensor(item.value, left[item.value], *intervals[item.value]),
                "name": item.name,
                "value": item.value,
                **_meant(item.quantizer),
            }
            for item in program.outputs
        ],
        "state": [
            {**tensor(item.value.name, given[item.value.name], item.value.lo, item.value.hi), "next": left[item.update]}
            for item in program.state
        ],
    }
    if traced:
        found["nodes"] = [
            {"op": node.op, "outputs": [tensor(v.name, left[v.name], *intervals[v.name]) for v in node.outputs]}
            for node in program.nodes
        ]
    return found


def _meant(quantizer: object) -> dict[str, Any]:
    """What a code q of a linear quantiser stands for, offset + scale * q: both as exact fractions in words."""
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis is None:
        return {"scale": str(quantizer.scale[0]), "offset": str(quantizer.offset[0])}
    return {}
