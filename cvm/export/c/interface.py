"""The header of an exported program: types, sizes and the functions that a caller uses."""

from __future__ import annotations

from cvm.export.c.layout import Layout
from cvm.export.c.storage import narrowest
from cvm.export.c.text import comment
from cvm.program.model import Shape
from cvm.quantization import LinearQuantizer

__all__ = ["header"]


def header(layout: Layout) -> list[str]:
    """The lines of the header."""
    name, upper = layout.name, layout.name.upper()
    lines = [
        f"/* {name}.h: the program {layout.program.digest} of cvm, with the same results as everywhere.",
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
        "/* The working memory of a run, in bytes. Nothing in it is kept from run to run. */",
        f"#define {upper}_ARENA_BYTES {layout.arena_bytes}",
        "",
        "typedef union {",
    ]
    size = max(layout.arena_bytes, 4)
    for member, kind, width in (
        ("s8", "int8_t", 1),
        ("u8", "uint8_t", 1),
        ("s16", "int16_t", 2),
        ("u16", "uint16_t", 2),
        ("s32", "int32_t", 4),
    ):
        lines.append(f"    {kind} {member}[{size // width}];")
    lines += [f"}} {name}_arena;", "", "/* Arrays in row-major order. */", "typedef struct {"]
    for item, word in zip(layout.program.inputs, layout.inputs, strict=True):
        place = layout.source.places[item.value.name]
        lines.append(
            f"    /* {_port(item.value.name, item.value.shape, item.value.lo, item.value.hi, item.quantizer)} */"
        )
        lines.append(f"    const {place.type.name} *{word};")
    if not layout.program.inputs:
        lines.append("    const int32_t *none;")
    lines += [f"}} {name}_inputs;", "", "typedef struct {"]
    for output, word in zip(layout.program.outputs, layout.outputs, strict=True):
        lo, hi = layout.source.hull(output.value)
        shape = layout.source.shape(output.value)
        lines.append(f"    /* {_port(output.name, shape, lo, hi, output.quantizer)} */")
        lines.append(f"    {narrowest(lo, hi).name} *{word};")
    lines += [f"}} {name}_outputs;", ""]
    if layout.program.state:
        lines += ["/* What the program keeps from run to run. */", "typedef struct {"]
        for state, word in zip(layout.program.state, layout.states, strict=True):
            place = layout.source.places[state.value.name]
            lines.append(f"    {place.type.name} {word}[{place.size}];")
        lines += [
            f"}} {name}_state;",
            "",
            "/* The state before the first run. */",
            f"void {name}_reset({name}_state *state);",
            "",
        ]
    if layout.traced:
        lines += [
            "/* Called with every tensor: its number among the values of the program, its elements, the bytes of each,",
            "   whether they are signed, and how many there are. */",
            f"typedef void (*{name}_hook)(void *context, int32_t value, const void *elements, int32_t bytes,",
            "    int32_t is_signed, int32_t count);",
            "",
        ]
    lines += [
        "/* Run the program. Runs with different arenas, outputs and states may go on at the same time. If inputs are",
        "   refused, neither outputs nor state have changed. */",
        f"int32_t {name}_run({layout.parameters()});",
        "",
        "#endif",
    ]
    return lines


def _port(name: str, shape: Shape, lo: int, hi: int, quantizer: object) -> str:
    words = f"{name} {list(shape)}, integers from {lo} to {hi}"
    if isinstance(quantizer, LinearQuantizer) and quantizer.axis is None:
        words += f"; a code q stands for (q - {quantizer.offset[0]}) * {quantizer.scale[0]}"
    return comment(words)
