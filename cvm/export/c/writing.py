"""A program as two files of C99: ``NAME.h`` and ``NAME.c``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping

from cvm.errors import Invalid
from cvm.export.c.elements import Body
from cvm.export.c.folds import fold
from cvm.export.c.helpers import with_needed
from cvm.export.c.indices import counters, flat, joined
from cvm.export.c.interface import header
from cvm.export.c.layout import Layout
from cvm.export.c.movement import WRITERS, copy
from cvm.export.c.storage import Place, integer
from cvm.export.c.sums import stored
from cvm.export.c.text import Text, comment
from cvm.program.model import Constant, Node
from cvm.program.verifier import VerifiedProgram
from cvm.records import dataclass

__all__ = ["Exported", "arena_bytes", "exported"]

_LINE = 100
"""The most characters of a line of numbers."""
_SEPARATE = """
/* Each function that writes to memory stays a function of its own, and gcc concludes nothing from it: gcc 12 takes
   some of them for functions that write nothing, and leaves out their calls. clang would put functions that are called
   once into their caller, and may need several times as long for the one function that holds all steps. */
#ifndef CVM_NOINLINE
#if defined(__clang__)
#define CVM_NOINLINE __attribute__((noinline))
#elif defined(__GNUC__) && __GNUC__ >= 8
#define CVM_NOINLINE __attribute__((noipa))
#else
#define CVM_NOINLINE
#endif
#endif"""


@dataclass(frozen=True, slots=True)
class Exported:
    """The files of an exported program, and what they need."""

    files: Mapping[str, bytes]
    arena_bytes: int
    """The working memory of a run."""
    state_bytes: int
    constant_bytes: int


def exported(verified: VerifiedProgram, name: str = "model", traced: bool = False, dots: bool = False) -> Exported:
    """A program as C99 that gives its outputs, and its next state, exactly.

    ``name`` begins the names of the files and of everything that they declare. ``traced``: the function also shows
    every tensor to a hook, and therefore stores every tensor. ``dots``: sums of products of bytes use the machine's
    instructions for them, where macros of the compiler or of the build say so, with the same results. Raises `Invalid`
    (``export.name``) for a name that is no identifier of C.
    """
    if re.fullmatch("[a-z][a-z0-9_]{0,30}", name) is None:
        message = f"expected a name of small letters, digits and _ that begins with a letter, found {name!r}"
        raise Invalid("export.name", message)
    return _Writer(Layout(verified, name, traced, dots)).files()


def arena_bytes(verified: VerifiedProgram) -> int:
    """The working memory of a run of the exported program, in bytes, without writing its text."""
    return Layout(verified, "model", False).arena_bytes


class _Writer:
    """The text of the source file."""

    def __init__(self, layout: Layout) -> None:
        self.layout, self.name, self.traced = layout, layout.name, layout.traced
        self.program, self.source = layout.program, layout.source
        self.inputs, self.outputs, self.states = layout.inputs, layout.outputs, layout.states
        self.numbers = {name: number for number, name in enumerate(self.program.value_names())}

    def files(self) -> Exported:
        code = "\n".join([*self._functions(), *self._run(), ""])
        arrays = [item for item in self.layout.constants if self._is_read(item, code)]
        constants = [line for item in arrays for line in self._constant(item)]
        source = "\n".join([*self._opening(), *constants, _SEPARATE, with_needed(code), code])
        interface = "\n".join([*header(self.layout), ""])
        state = sum(
            self.source.place(item.value.name).size * self.source.place(item.value.name).type.size
            for item in self.program.state
        )
        stored = [self.source.places[item.name] for item in arrays]
        constant_bytes = sum(place.size * place.type.size for place in stored)
        files = {f"{self.name}.h": interface.encode("ascii"), f"{self.name}.c": source.encode("ascii")}
        return Exported(files, self.layout.arena_bytes, state, constant_bytes)

    def _is_read(self, constant: Constant, code: str) -> bool:
        return re.search(rf"(?<!->)\b{self.source.places[constant.name].array}\[", code) is not None

    def _constant(self, constant: Constant) -> list[str]:
        """The definition of a constant's array."""
        place = self.source.places[constant.name]
        title = comment(constant.name.replace("\n", " "))
        lines = ["", f"/* {title} {list(constant.shape)} */"]
        lines.append(f"static const {place.type.name} {place.array}[{place.size}] = {{")
        row = "   "
        for item in constant.integers():
            word = integer(item, place.type.size == 8)
            if len(row) + len(word) + 2 > _LINE:
                lines.append(row)
                row = "   "
            row += f" {word},"
        return [*lines, row, "};"]

    def _opening(self) -> list[str]:
        return [
            f"/* {self.name}.c: the program {self.program.digest} of cvm. Generated; do not edit.",
            "",
            "   Integers only. Nothing here is undefined or left to the compiler, as long as int has 16 or 32 bits. */",
            "",
            f'#include "{self.name}.h"',
        ]

    def _functions(self) -> list[str]:
        lines: list[str] = []
        for number in self.layout.steps:
            node = self.program.nodes[number]
            text = Text()
            chain = [*self._chain(node), node]
            text.line("")
            text.line(f"/* {comment(' -> '.join(_title(item) for item in chain))} */")
            with text.block(f"static CVM_NOINLINE void step_{number}({self._arguments()})"):
                self._body(text, node)
            lines += text.lines
        return lines

    def _arguments(self) -> str:
        parts = [f"{self.name}_arena *a", f"const {self.name}_inputs *in"]
        if self.program.state:
            parts.append(f"const {self.name}_state *state")
        return ", ".join(parts)

    def _chain(self, node: Node) -> Iterator[Node]:
        for name in node.inputs:
            if name in self.layout.plan.inlined:
                other = self.source.node(name)
                yield from self._chain(other)
                yield other

    def _body(self, text: Text, node: Node) -> None:
        before = len(text.lines)
        name = node.outputs[0].name
        if node.op in WRITERS and not (node.op == "take" and "axis" not in node.attributes):
            WRITERS[node.op](self.source, text, node)
        elif name in self.layout.plan.heads:
            fold(self.source, text, self.program.nodes[self.layout.plan.heads[name]], node)
        else:
            self._pointwise(text, node)
        written = "\n".join(text.lines[before:])
        unused = [
            word for word, mark in (("a", "a->"), ("in", "in->"), ("state", "state->"))
            if mark not in written and (word != "state" or self.program.state)
        ]  # fmt: skip
        for word in unused:
            text.line(f"(void){word};")

    def _pointwise(self, text: Text, node: Node) -> None:
        shape = self.source.shape(node.outputs[0].name)
        trial = Body(self.source, None)
        trial.root(node, counters(shape))
        nest = joined(shape, [*trial.accesses, flat(counters(shape), shape)])
        with text.loops(nest.names, nest.extents):
            text.all(stored(self.source, node, nest))

    def _run(self) -> list[str]:
        text = Text()
        name = self.name
        if self.program.state:
            text.line("")
            with text.block(f"CVM_NOINLINE void {name}_reset({name}_state *state)"):
                for state, word in zip(self.program.state, self.states, strict=True):
                    target = self.source.places[state.value.name]
                    initial = self.source.places[state.initial]
                    copy(text, Place(f"state->{word}", 0, target.shape, target.type), initial, target.size)
        text.line("")
        with text.block(f"CVM_NOINLINE int32_t {name}_run({self.layout.parameters()})"):
            first = len(text.lines)
            self._checks(text)
            names = "a, in, state" if self.program.state else "a, in"
            if self.traced:
                self._show_given(text)
            for number in self.layout.steps:
                text.line(f"step_{number}({names});")
                if self.traced:
                    for value in self.program.nodes[number].outputs:
                        self._show(text, value.name)
            self._finish(text)
            given = ["a", "in", *(["state"] if self.program.state else [])]
            given += ["hook", "context"] if self.traced else []
            written = "\n".join(text.lines[first:])
            text.all([f"(void){word};" for word in given if re.search(rf"\b{word}\b", written) is None])
            text.line(f"return {name.upper()}_OK;")
        return text.lines

    def _checks(self, text: Text) -> None:
        """Refuse elements of inputs that are outside the interval that the program promises to take."""
        for number, (item, _) in enumerate(zip(self.program.inputs, self.inputs, strict=True)):
            value, place = item.value, self.source.places[item.value.name]
            tests = [f"x < {integer(value.lo)}"] if value.lo > place.type.lo else []
            tests += [f"x > {integer(value.hi)}"] if value.hi < place.type.hi else []
            if tests:
                with text.loop("i", place.size):
                    text.line(f"const int32_t x = {place.element('i')};")
                    with text.block(f"if ({' || '.join(tests)})"):
                        text.line(f"return {self.name.upper()}_INPUT_RANGE + {number};")

    def _show_given(self, text: Text) -> None:
        for item in self.program.inputs:
            self._show(text, item.value.name)
        for state in self.program.state:
            self._show(text, state.value.name)

    def _show(self, text: Text, name: str) -> None:
        place = self.source.place(name)
        number = self.numbers[name]
        if place.only is not None:
            with text.block(""):
                text.line(f"const int32_t only = {integer(place.only)};")
                text.line(f"hook(context, {number}, &only, 4, 1, 1);")
            return
        signed = 1 if place.type.lo < 0 else 0
        address = f"&{place.element('0')}"
        text.line(f"hook(context, {number}, {address}, {place.type.size}, {signed}, {place.size});")

    def _finish(self, text: Text) -> None:
        """Copy the outputs, then the next state."""
        for item, word in zip(self.program.outputs, self.outputs, strict=True):
            place = self.source.place(item.value)
            kind = self.layout.output_type(item.value)
            copy(text, Place(f"out->{word}", 0, place.shape, kind), place, place.size)
        for number in self.layout.copied:
            state = self.program.state[number]
            copy(
                text,
                self.source.places[f"{state.value.name}\nnext"],
                self.source.place(state.update),
                math.prod(state.value.shape),
            )
        for number, (state, word) in enumerate(zip(self.program.state, self.states, strict=True)):
            if self.layout.plan.stored(state.update) == state.value.name:
                continue
            target = self.source.places[state.value.name]
            taken = (
                self.source.places[f"{state.value.name}\nnext"]
                if number in self.layout.copied
                else self.source.place(state.update)
            )
            copy(text, Place(f"state->{word}", 0, target.shape, target.type), taken, target.size)


def _title(node: Node) -> str:
    return f"{node.op} {node.outputs[0].name}"
