"""The header of an exported object: types, sizes, and the functions that a caller uses."""

from __future__ import annotations

import math

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.arena import ALIGNMENT
from cvm.export.c.layout import identifiers
from cvm.export.object.targets import attributes, supported
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Ports", "header"]

_Port = tuple[str, int, str]
"""The name of an array in C, how many elements it has, and what is said of it."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The arrays of a program, in C."""

    name: str
    digest: str
    inputs: tuple[_Port, ...]
    outputs: tuple[_Port, ...]
    state: tuple[_Port, ...]

    @staticmethod
    def of(verified: VerifiedProgram, name: str) -> Ports:
        """The arrays of a program that is exported under ``name``."""
        program = verified.program

        def ports(items: list[tuple[str, str]]) -> tuple[_Port, ...]:
            words = identifiers([shown for shown, _ in items])
            found = []
            for word, (_, value) in zip(words, items, strict=True):
                shape, hull = verified.shapes[value], verified.ranges[value]
                lo, hi = int(hull.lo.min()), int(hull.hi.max())
                found.append((word, math.prod(shape), f"shape {list(shape)}, integers from {lo} to {hi}"))
            return tuple(found)

        return Ports(
            name,
            program.digest,
            ports([(item.value.name, item.value.name) for item in program.inputs]),
            ports([(item.name, item.value) for item in program.outputs]),
            ports([(item.value.name, item.value.name) for item in program.state]),
        )


def header(ports: Ports, triple: str, machine: Machine, memory: int) -> str:
    """The text of the header."""
    name, upper = ports.name, ports.name.upper()
    includes, question = supported(triple, machine)
    lines = [
        f"/* {name}.h: the program {ports.digest} of cvm, with the same results as everywhere,",
        f"   for {triple}, machine {machine.name}. Generated; do not edit. */",
        "",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stddef.h>",
        "#include <stdint.h>",
        *includes,
        "",
        "#ifdef __cplusplus",
        'extern "C" {',
        "#endif",
        "",
        *_statuses(upper),
        f"/* The working memory of a run, in bytes; it begins at a multiple of {ALIGNMENT}. Nothing is kept in it. */",
        f"#define {upper}_MEMORY_BYTES {memory}",
        "",
        *_struct(f"{name}_inputs", "const int32_t *{}", ports.inputs),
        *_struct(f"{name}_outputs", "int32_t *{}", ports.outputs),
        *(_state(ports) if ports.state else []),
        (
            f"int32_t {name}_run_unchecked(void *memory, const {name}_inputs *in, "
            f"{f'{name}_state' if ports.state else 'void'} *state, const {name}_outputs *out);"
        ),
        "",
        *_checked(ports, attributes(triple, machine), question),
        "#ifdef __cplusplus",
        "}",
        "#endif",
        "",
        "#endif",
        "",
    ]
    return "\n".join(lines)


def _struct(name: str, member: str, ports: tuple[_Port, ...]) -> list[str]:
    lines = ["typedef struct {"]
    for word, count, said in ports:
        lines += [f"    /* {said}: {count} elements, row-major */", f"    {member.format(word)};"]
    if not ports:
        lines.append("    const int32_t *none;")
    return [*lines, f"}} {name};", ""]


def _state(ports: Ports) -> list[str]:
    members = [f"    int32_t {word}[{count}];" for word, count, _ in ports.state]
    reset = f"void {ports.name}_reset({ports.name}_state *state);"
    return [
        "/* What the program keeps from run to run. */", "typedef struct {", *members, f"}} {ports.name}_state;", "",
        "/* The state before the first run. */", reset, "",
    ]  # fmt: skip


def _statuses(upper: str) -> list[str]:
    """What a run returns."""
    return [
        "/* What a run returns: OK; INPUT_RANGE plus the number of the first input, then state, with an element out of",
        "   range; or why nothing was run: the processor lacks what the code needs, or the memory is not aligned. */",
        f"#define {upper}_OK 0",
        f"#define {upper}_INPUT_RANGE 1",
        f"#define {upper}_UNSUPPORTED (-1)",
        f"#define {upper}_UNALIGNED (-2)",
        "",
    ]


def _checked(ports: Ports, before: list[str], question: list[str]) -> list[str]:
    """The functions that ask for the features of the processor, and run the program. ``before`` is what stands before
    the first of them.
    """
    name, upper = ports.name, ports.name.upper()
    state = f"{name}_state *state, " if ports.state else ""
    return [
        "/* Whether this processor has the features that the code uses. */",
        *before,
        f"static inline int {name}_supported(void)",
        "{",
        *question,
        "}",
        "",
        "/* Run the program. Runs with different memory, outputs and states may go on at the same time. If inputs are",
        "   refused, neither outputs nor state have changed. */",
        f"static inline int32_t {name}_run(void *memory, const {name}_inputs *in, {state}const {name}_outputs *out)",
        "{",
        f"    if (!{name}_supported()) {{",
        f"        return {upper}_UNSUPPORTED;",
        "    }",
        f"    if ((uintptr_t)memory % {ALIGNMENT} != 0) {{",
        f"        return {upper}_UNALIGNED;",
        "    }",
        f"    return {name}_run_unchecked(memory, in, {'state' if ports.state else '0'}, out);",
        "}",
        "",
    ]
