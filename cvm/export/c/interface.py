"""The header of an exported program: types, sizes and the functions that a caller uses."""

from __future__ import annotations

from cvm.export.c.layout import Layout
from cvm.export.c.storage import TYPES
from cvm.export.c.text import comment
from cvm.program.model import Shape
from cvm.quantization import LinearQuantizer

__all__ = ["header"]


def header(layout: Layout) -> list[str]:
    """The lines of the header."""
    upper = layout.name.upper()
    return [
        f"/* {layout.name}.h: the program {layout.program.digest} of cvm, with the same results as everywhere.",
        "   Generated; do not edit. */",
        "",
        f"#ifndef {upper}_H",
        f"#define {upper}_H",
        "",
        "#include <stdint.h>",
        "",
        "/* What a run returns: OK, or INPUT_RANGE plus the number of the first input with an element out of range. */",
        f"#define {upper}_OK 0",
        f"#define {upper}_INPUT_RANGE 1",
        "",
        *_arena(layout),
        *_ports(layout),
        *(_state(layout) if layout.program.state else []),
        *(_hook(layout) if layout.traced else []),
        "/* Run the program. Runs with different arenas, outputs and states may go on at the same time. If inputs are",
        "   refused, neither outputs nor state have changed. */",
        f"int32_t {layout.name}_run({layout.parameters()});",
        "",
        "#endif",
    ]


def _arena(layout: Layout) -> list[str]:
    size = max(layout.arena_bytes, 4)
    members = [f"    {kind.name} {kind.member}[{size // kind.size}];" for kind in TYPES if kind.size <= 4]
    return [
        "/* The working memory of a run, in bytes. Nothing in it is kept from run to run. */",
        f"#define {layout.name.upper()}_ARENA_BYTES {layout.arena_bytes}",
        "",
        "typedef union {",
        *members,
        f"}} {layout.name}_arena;",
        "",
    ]


def _ports(layout: Layout) -> list[str]:
    """The structs of pointers to inputs and outputs."""
    lines = ["/* Arrays in row-major order. */", "typedef struct {"]
    for item, word in zip(layout.program.inputs, layout.inputs, strict=True):
        value = item.value
        lines.append(f"    /* {_port(value.name, value.shape, value.lo, value.hi, item.quantizer)} */")
        lines.append(f"    const {layout.source.places[value.name].type.name} *{word};")
    if not layout.program.inputs:
        lines.append("    const int32_t *none;")
    lines += [f"}} {layout.name}_inputs;", "", "typedef struct {"]
    for output, word in zip(layout.program.outputs, layout.outputs, strict=True):
        lo, hi = layout.source.hull(output.value)
        shape = layout.source.shape(output.value)
        lines.append(f"    /* {_port(output.name, shape, lo, hi, output.quantizer)} */")
        lines.append(f"    {layout.output_type(output.value).name} *{word};")
    return [*lines, f"}} {layout.name}_outputs;", ""]


def _state(layout: Layout) -> list[str]:
    name = layout.name
    lines = ["/* What the program keeps from run to run. */", "typedef struct {"]
    for state, word in zip(layout.program.state, layout.states, strict=True):
        place = layout.source.places[state.value.name]
        lines.append(f"    {place.type.name} {word}[{place.size}];")
    reset = f"void {name}_reset({name}_state *state);"
    return [*lines, f"}} {name}_state;", "", "/* The state before the first run. */", reset, ""]


def _hook(layout: Layout) -> list[str]:
    return [
        "/* Called with every tensor: its number among the values of the program, its elements, the bytes of each,",
        "   whether they are signed, and how many there are. */",
        f"typedef void (*{layout.name}_hook)(void *context, int32_t value, const void *elements, int32_t bytes,",
        "    int32_t is_signed, int32_t count);",
        "",
    ]


def _port(name: str, shape: Shape, lo: int, hi: int, quantizer: object) -> str:
    words = f"{name} {list(shape)}, integers from {lo} to {hi}"
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis is None:
        words += f"; a code q stands for (q - {quantizer.offset[0]}) * {quantizer.scale[0]}"
    return comment(words)
