"""Kernels whose code differs in a few numbers alone share one function, so that this code is compiled once.

Equal layers have kernels of one form; they differ in the stride between rows, in a number of iterations, or in the
multipliers of an epilogue. The shared function takes such numbers as arguments, and each kernel's function calls it
with its own. Within an innermost loop, offsets of addresses are parts of instructions, and take registers as
arguments. So only a few become arguments there, on machines that say so. If other lines differ, nothing is shared.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property

from cvm.records import dataclass

__all__ = ["shared"]

MOST = 16
"""The largest number of arguments that are added to a function: each takes a register or a place on the stack."""
LEAST = 4_000
"""The least number of characters of a function that is worth sharing."""

_HEADER = re.compile(r"define void @(\w+)\(([^)]*)\) nounwind \{$")
_OFFSET = re.compile(r" = getelementptr i8, ptr \S+, i64 (-?\d+)$")
"""The distance of an address from another one, in bytes."""
_NUMBER = re.compile(
    r"splat \((i\d+) (-?\d+)\)|"
    r" = (?:(?:mul|udiv|add|icmp slt) i64|call i64 @llvm\.smin\.i64\(i64) \S+(?: i64)? (-?\d+)\)?$|" + _OFFSET.pattern
)
"""A number that may become an argument: equal lanes of a vector, a number that an index is multiplied or divided by or
that is added to it, the end of a loop, an offset.
"""
_LABEL = re.compile(r"(\w+):$")
_JUMP = re.compile(r"label %(\w+)")
_VECTOR = re.compile(r"<\d+ x i\d+>")

Place = tuple[int, int]
"""The number of a line, and that of a number in it."""


@dataclass(frozen=True, slots=True)
class _Number:
    """A number in a line: its type, the type of the value that it stands for, its text, and where its text begins
    and ends. The value is a vector if all lanes of a vector are this number.
    """

    kind: str
    whole: str
    text: str
    span: tuple[int, int]


@dataclass(frozen=True)
class _Function:
    """The text of a kernel's function."""

    name: str
    parameters: str
    lines: list[str]

    @cached_property
    def loops(self) -> dict[int, str]:
        """The lines with an offset within an innermost loop, a block that repeats itself, each with this block."""
        found: dict[int, str] = {}
        block, offsets = "", list[int]()
        for at, line in enumerate(self.lines):
            begins = _LABEL.match(line)
            if begins is not None:
                block, offsets = begins[1], []
            elif _OFFSET.search(line):
                offsets.append(at)
            elif line.startswith("  br ") and block in _JUMP.findall(line):
                found.update(dict.fromkeys(offsets, block))
        return found

    def differences(self, other: _Function) -> dict[Place, str] | None:
        """The numbers of ``other`` that differ from this function's; None if the functions differ in more than that."""
        if self.parameters != other.parameters:
            return None
        found: dict[Place, str] = {}
        for at, (mine, theirs) in enumerate(zip(self.lines[1:], other.lines[1:], strict=True), 1):
            if mine != theirs:
                numbers, others = _numbers(mine), _numbers(theirs)
                if _without(mine, numbers) != _without(theirs, others):
                    return None
                for index, (a, b) in enumerate(zip(numbers, others, strict=True)):
                    if a.text != b.text:
                        found[at, index] = b.text
        return found


@dataclass(slots=True)
class _Family:
    """Functions that differ in numbers alone: the first one, and the differences of the others by their names."""

    first: _Function
    others: dict[str, dict[Place, str]] = field(default_factory=dict)

    def takes(self, function: _Function, within: int) -> bool:
        """Add a function if it differs in few numbers alone, of which ``within`` at most are in one innermost loop."""
        differences = self.first.differences(function)
        if differences is None:
            return False
        self.others[function.name] = differences
        arguments = list(self.arguments().values())
        loops = Counter(block for places in arguments for block in {self.first.loops.get(line) for line, _ in places})
        del loops[None]
        if len(arguments) > MOST or any(count > within for count in loops.values()):
            del self.others[function.name]
            return False
        return True

    def arguments(self) -> dict[tuple[_Number, tuple[str, ...]], list[Place]]:
        """The places of the numbers that vary. Places with equal numbers in every function share an argument.

        The key is a number of the first function, without its span, and the numbers of the others.
        """
        found: dict[tuple[_Number, tuple[str, ...]], list[Place]] = {}
        for place in sorted({place for differences in self.others.values() for place in differences}):
            line, index = place
            number = _numbers(self.first.lines[line])[index]
            theirs = tuple(differences.get(place, number.text) for differences in self.others.values())
            found.setdefault((_Number(number.kind, number.whole, number.text, (0, 0)), theirs), []).append(place)
        return found


def shared(functions: Mapping[str, str], within: int = 0) -> dict[str, str]:
    """The functions of a module by name, where those that differ in numbers alone call one function.

    At most ``within`` of these numbers are offsets of addresses within the same innermost loop.
    """
    result = dict(functions)
    for family in _families(functions.values(), within):
        if not family.others:
            continue
        arguments, first = family.arguments(), family.first
        name, given = f"{first.name}.shared", [first.parameters] if first.parameters else []
        added = [f"{number.kind} %n{index}" for index, (number, _) in enumerate(arguments)]
        header = f"define internal void @{name}({', '.join([*given, *added])}) nounwind noinline {{"
        result[name] = "\n".join([header, *_body(family, arguments)])
        for index, one in enumerate((first.name, *family.others)):
            own = [f"{number.kind} {(number.text, *theirs)[index]}" for number, theirs in arguments]
            result[one] = (
                f"define void @{one}({first.parameters}) nounwind {{\nentry:\n"
                f"  call void @{name}({', '.join([*given, *own])})\n  ret void\n}}"
            )
    return result


def _families(texts: Iterable[str], within: int) -> list[_Family]:
    """The functions of a module that are long enough, in families (see `shared`)."""
    alike: dict[int, list[_Family]] = {}
    for text in texts:
        lines = text.split("\n") if len(text) >= LEAST else [""]
        header = _HEADER.match(lines[0])
        if header is None:
            continue
        function = _Function(header[1], header[2], lines)
        families = alike.setdefault(len(lines), [])
        if not any(family.takes(function, within) for family in families):
            families.append(_Family(function))
    return [family for families in alike.values() for family in families]


def _numbers(line: str) -> list[_Number]:
    """The numbers of a line that may become arguments."""
    found = []
    for match in _NUMBER.finditer(line):
        if match[1]:
            vectors = _VECTOR.findall(line, 0, match.start())
            if vectors and vectors[-1].endswith(f" {match[1]}>"):
                found.append(_Number(match[1], vectors[-1], match[2], match.span()))
        else:
            group = 3 if match[3] else 4
            found.append(_Number("i64", "i64", match[group], match.span(group)))
    return found


def _without(line: str, numbers: Sequence[_Number]) -> tuple[str, ...]:
    """The pieces of a line between its numbers, and the types of these."""
    ends = [0, *(end for number in numbers for end in number.span), len(line)]
    pieces = [line[first:last] for first, last in zip(ends[::2], ends[1::2], strict=True)]
    return (*pieces, *(number.whole for number in numbers))


def _body(family: _Family, arguments: Mapping[tuple[_Number, tuple[str, ...]], list[Place]]) -> list[str]:
    """The lines of the shared function: first vectors of its further arguments, then the text that uses them."""
    lines, begin = list(family.first.lines), [family.first.lines[1]]
    uses: dict[Place, str] = {}
    for index, ((number, _), places) in enumerate(arguments.items()):
        value, kind, whole = f"%n{index}", number.kind, number.whole
        if whole != kind:
            count = whole[1:].split(" ", 1)[0]
            begin.append(f"  {value}.one = insertelement {whole} poison, {kind} {value}, i64 0")
            mask = f"<{count} x i32> zeroinitializer"
            value, first = f"{value}.all", f"{value}.one"
            begin.append(f"  {value} = shufflevector {whole} {first}, {whole} poison, {mask}")
        uses.update(dict.fromkeys(places, value))
    for line in {line for line, _ in uses}:
        text = lines[line]
        for index, number in reversed(list(enumerate(_numbers(text)))):
            if (line, index) in uses:
                text = text[: number.span[0]] + uses[line, index] + text[number.span[1] :]
        lines[line] = text
    return [*begin, *lines[2:]]
