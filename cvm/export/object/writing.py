"""A program as an object file and a header, for a target triple and a machine by name."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

from cvm.errors import Invalid, Unsupported
from cvm.executors.base import returned
from cvm.executors.native.plan.arena import ALIGNMENT
from cvm.executors.native.plan.memory import SLACK
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.foreign import assembles, compiled_for
from cvm.executors.native.runtime.networks import network_text, read_bounds, stage_name
from cvm.executors.native.runtime.proven import proven
from cvm.export.object.header import Ports, header
from cvm.export.object.targets import machine_of
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Exported", "exported"]


@dataclass(frozen=True, slots=True)
class Exported:
    """The files, and what a run needs."""

    files: Mapping[str, bytes]
    memory_bytes: int
    constant_bytes: int


@dataclass(frozen=True, slots=True)
class _Memory:
    """Offsets in the memory of a run: the table of arrays, next states that are no outputs, and the arena."""

    kept: Mapping[str, int]
    arena: int
    end: int

    @staticmethod
    def of(verified: VerifiedProgram, plan: Plan) -> _Memory:
        outputs = {item.value for item in verified.program.outputs}
        at = _aligned(8 * len(plan.arrays))
        kept: dict[str, int] = {}
        for name in plan.arrays[plan.written :]:
            if name not in outputs:
                kept[name] = at
                at += _aligned(4 * math.prod(verified.shapes[name]) + SLACK)
        return _Memory(kept, at, at + _aligned(plan.arena + SLACK))


def _aligned(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT


def exported(verified: VerifiedProgram, triple: str, machine: str = "generic", name: str = "model") -> Exported:
    """A program as position-independent code for a target, and the header that declares it.

    Raises `Invalid` (``export.name``, ``export.machine``, ``export.target``) for a name that is no identifier of C, a
    machine that the target does not have, or a target that LLVM does not know, and `Unsupported` (``export.object``) if
    no plan is proven.
    """
    if re.fullmatch("[a-z][a-z0-9_]{0,30}", name) is None:
        message = f"expected a name of small letters, digits and _ that begins with a letter, found {name!r}"
        raise Invalid("export.name", message)
    chosen, program = machine_of(triple, machine), verified.program
    wanted = returned(program, frozenset()) | {item.update for item in program.state}

    def compiled(plan: Plan) -> tuple[bytes, _Memory]:
        memory = _Memory.of(verified, plan)
        text = network_text(plan, chosen, 1, read_bounds(program), [(0, len(plan.calls))])
        # Functions of two objects may have the same names; those of one program are called by it alone.
        text = re.sub(r"^define (void|i64) @", r"define internal \1 @", text, flags=re.MULTILINE)
        parts = (text, *_data(verified, plan), _run(verified, plan, memory, name), _reset(verified, name))
        return compiled_for(triple, chosen, "\n".join(parts), "pic"), memory

    try:
        if not assembles(triple):
            chosen = replace(chosen, in_order=None)
        plan, (code, memory) = proven(verified, chosen, wanted, lambda made: partial(compiled, made))
    except Distrusted as error:
        raise Unsupported("export.object", f"no code can be made of this program: {error}") from error
    except RuntimeError as error:
        raise Invalid("export.target", f"LLVM makes no code for {triple!r}: {str(error).splitlines()[0]}") from None
    ports = Ports.of(verified, name)
    file = f"{name}.obj" if "windows" in triple else f"{name}.o"
    files = {file: code, f"{name}.h": header(ports, triple, chosen, memory.end).encode()}
    return Exported(files, memory.end, len(plan.constants))


def _data(verified: VerifiedProgram, plan: Plan) -> Iterator[str]:
    """The constants and the initial states."""
    yield _constant("constants", bytes(plan.constants) + bytes(SLACK))
    constants = {constant.name: constant for constant in verified.program.constants}
    initial = b"".join(constants[item.initial].array().astype("<i4").tobytes() for item in verified.program.state)
    if initial:
        yield _constant("initial", initial)


def _constant(name: str, data: bytes) -> str:
    content = "".join(f"\\{byte:02X}" for byte in data)
    return f'@{name} = internal constant [{len(data)} x i8] c"{content}", align {ALIGNMENT}'


def _run(verified: VerifiedProgram, plan: Plan, memory: _Memory, name: str) -> str:
    """The function ``NAME_run_unchecked(memory, inputs, state, outputs)``: 0, or 1 + the number of a refused array."""
    program = verified.program
    lines = [
        f"define i32 @{name}_run_unchecked(ptr %memory, ptr %inputs, ptr %state, ptr %outputs) nounwind {{",
        "entry:",
    ]

    def moved(result: str, base: str, offset: int) -> str:
        lines.append(f"  {result} = getelementptr i8, ptr {base}, i64 {offset}")
        return result

    def pointer(result: str, base: str, index: int) -> str:
        lines.append(f"  {result}.at = getelementptr ptr, ptr {base}, i64 {index}")
        lines.append(f"  {result} = load ptr, ptr {result}.at")
        return result

    sizes = {item.value.name: 4 * math.prod(item.value.shape) for item in program.state}
    starts = dict(zip(sizes, _starts(list(sizes.values())), strict=True))
    arrays: dict[str, str] = {}
    read = [item.value.name for item in program.inputs]
    given = [pointer(f"%input{index}", "%inputs", index) for index in range(len(read))]
    states = {key: moved(f"%state{index}", "%state", starts[key]) for index, key in enumerate(sizes)}
    outputs = [pointer(f"%output{index}", "%outputs", index) for index in range(len(program.outputs))]
    for item, place in zip(program.outputs, outputs, strict=True):
        arrays.setdefault(item.value, place)
    for index, key in enumerate(memory.kept):
        arrays[key] = moved(f"%kept{index}", "%memory", memory.kept[key])
    every = [*given, *states.values(), *(arrays[key] for key in plan.arrays[plan.written :])]
    lines += _call(every, memory)
    copies = [(states[item.value.name], arrays[item.update], sizes[item.value.name]) for item in program.state]
    for item, place in zip(program.outputs, outputs, strict=True):
        if arrays[item.value] != place:
            copies.append((place, arrays[item.value], 4 * math.prod(verified.shapes[item.value])))
    lines += [
        f"  call void @llvm.memmove.p0.p0.i64(ptr {to}, ptr {source}, i64 {size}, i1 0)" for to, source, size in copies
    ]
    return "\n".join([*lines, "  ret i32 0", "}", "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"])


def _call(arrays: list[str], memory: _Memory) -> list[str]:
    """The call of the network on its arrays, and the return if it refuses one."""
    lines = [f"  %arena = getelementptr i8, ptr %memory, i64 {memory.arena}"]
    for index, place in enumerate(arrays):
        lines.append(f"  %slot{index} = getelementptr i8, ptr %memory, i64 {8 * index}")
        lines.append(f"  store ptr {place}, ptr %slot{index}")
    return [
        *lines,
        "  %bad = call i64 @check(ptr %memory)",
        "  %refused = icmp sge i64 %bad, 0",
        "  br i1 %refused, label %refuse, label %compute",
        "refuse:",
        "  %short = trunc i64 %bad to i32",
        "  %number = add i32 %short, 1",
        "  ret i32 %number",
        "compute:",
        f"  call void @{stage_name(0)}(ptr %arena, ptr @constants, ptr %memory, ptr null, i64 1)",
    ]


def _reset(verified: VerifiedProgram, name: str) -> str:
    size = sum(4 * math.prod(item.value.shape) for item in verified.program.state)
    if not size:
        return ""
    return (
        f"define void @{name}_reset(ptr %state) nounwind {{\n"
        f"  call void @llvm.memmove.p0.p0.i64(ptr %state, ptr @initial, i64 {size}, i1 0)\n  ret void\n}}"
    )


def _starts(sizes: list[int]) -> list[int]:
    """The offset of each member of a struct of arrays."""
    return [sum(sizes[:index]) for index in range(len(sizes))]
