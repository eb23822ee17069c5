"""How sums are formed in C, and how the element of a sum or maximum goes on through the chain of ops that reads it.

A sum is formed in int32_t if all its partial sums are proven to fit. Otherwise it is formed in uint32_t, in which C
defines sums modulo 2^32; the whole sum is proven to fit, so it is what the sum is modulo 2^32.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from cvm.export.c.elements import Body, Source
from cvm.export.c.indices import Nest, flat
from cvm.export.c.storage import Place
from cvm.program.model import Node, Shape
from cvm.records import dataclass

__all__ = ["Ending", "Sum", "bias", "bytes_kind", "nest_of", "product_bound", "stored"]


@dataclass(frozen=True, slots=True)
class Ending:
    """The chain of ops from a sum or maximum to ``root``, whose result is stored."""

    source: Source
    root: Node

    def __call__(self, nest: Nest, element: str) -> list[str]:
        """The statements that store an element, given the loops and the expression of the sum or maximum."""
        lines = stored(self.source, self.root, nest, element)
        # A chain need not depend on its sum: a multiplier may be 0. Clang warns of a variable that is only set.
        unread = [name for name in re.findall(r"\b(?:sum|most)\b", element) if not _reads(lines, name)]
        return [*(f"(void){name};" for name in unread), *lines]

    def goes_on(self, extent: int) -> bool:
        """Whether the last two axes can be one loop: every index goes on evenly from row to row.

        ``extent`` is that of the last axis.
        """
        index = self.source.index(self.root)
        trial = Body(self.source, None, "0")
        trial.root(self.root, index)
        accesses = [*trial.accesses, flat(index, self.source.shape(self.root.outputs[0].name))]
        return all(access.factors[-2] == extent * access.factors[-1] for access in accesses)


def stored(source: Source, root: Node, nest: Nest, element: str = "") -> list[str]:
    """The statements that compute one element of ``root`` and store it.

    ``element`` is the expression of the sum or maximum that the chain begins with, if it begins with one.
    """
    name = root.outputs[0].name
    shape, place = source.shape(name), source.place(name)
    body = Body(source, nest, element)
    index = source.index(root)
    words = body.root(root, index)
    target = place.element(body.position(flat(index, shape)))
    cast = words if place.type.size == 4 else f"({place.type.name})({words})"
    return _needed([*body.lines, f"{target} = {cast};"])


def _needed(lines: Sequence[str]) -> list[str]:
    """The statements without variables that no later one reads: a factor may be 0."""
    kept: list[str] = []
    for line in reversed(lines):
        variable = re.fullmatch(r"const int(?:32|64)_t (\w+) = .*", line)
        if variable is None or _reads(kept, variable[1]):
            kept.insert(0, line)
    return kept


def _reads(lines: Sequence[str], variable: str) -> bool:
    """Whether a statement names a variable."""
    return any(re.search(rf"\b{variable}\b", line) for line in lines)


def nest_of(names: Sequence[str], shape: Shape) -> Nest:
    """Loops over the axes of a shape with these counters; those of axes of extent 1 are 0 and appear in no index."""
    axes = [axis for axis, extent in enumerate(shape) if extent > 1]
    return Nest(tuple(names[axis] for axis in axes), tuple(shape[axis] for axis in axes), tuple((a,) for a in axes))


@dataclass(frozen=True, slots=True)
class Sum:
    """How a sum is formed: in the type of its parts, which are signed if no partial sum can leave 32 bits."""

    signed: bool

    @staticmethod
    def of(bound: int) -> Sum:
        """The way for sums whose parts have absolute values that add up to at most ``bound``."""
        return Sum(bound < 2**31)

    @property
    def type(self) -> str:
        """The type of the sum and of its parts in C."""
        return "int32_t" if self.signed else "uint32_t"

    def part(self, words: str) -> str:
        """A part of the sum, or a factor of one."""
        return words if self.signed else f"(uint32_t)({words})"

    def whole(self, source: Source, words: str) -> str:
        """The sum as a signed integer."""
        return words if self.signed else f"wrapped({words})"


def bytes_kind(source: Source, x: Place, w: Place, kind: Sum) -> str:
    """The end of the name of the function that adds products of these operands, or nothing if there is none."""
    fits = kind.signed and w.type.name == "int8_t" and x.type.size == 1 and x.only is None and w.only is None
    return x.type.member if source.dots and fits else ""


def product_bound(source: Source, node: Node, count: int) -> int:
    """A bound on the absolute values of the products of one element, and of its bias, added up."""
    around = source.plan.borders.get(node.outputs[0].name)
    if around is not None and around.bias is not None:
        return 0  # no partial sum can leave 32 bits, or there would be no such bias
    bound = count * source.magnitude(node.inputs[0]) * source.magnitude(node.inputs[1])
    return bound + (source.magnitude(node.inputs[2]) if len(node.inputs) > 2 else 0)


def bias(source: Source, node: Node, channel: str, kind: Sum) -> str:
    """What the sum of an output channel begins with, as a part of the sum."""
    around = source.plan.borders.get(node.outputs[0].name)
    if around is not None and around.bias is not None:
        return source.places[f"{node.outputs[0].name}\nbias"].load(channel)
    if len(node.inputs) < 3:
        return "0"
    return kind.part(source.place(node.inputs[2]).load(channel))
