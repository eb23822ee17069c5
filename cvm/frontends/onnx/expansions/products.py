"""Einsum as matrix products. Source: ONNX, Einsum, and the notation of NumPy's `einsum`."""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.frontends.onnx.expansions.registry import expansion
from cvm.frontends.onnx.writing import Writer

__all__: list[str] = []


class _Term:
    """A tensor with a letter for each axis; the axes of an ellipsis have negative numbers, as strings, for letters."""

    def __init__(self, name: str, letters: Sequence[str], sizes: dict[str, int]) -> None:
        self.name, self.letters, self.sizes = name, list(letters), sizes

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.sizes[letter] for letter in self.letters)


def _letters(w: Writer, text: str, rank: int) -> list[str]:
    """The letters of the axes of an operand, with an ellipsis replaced by one letter per axis that it covers."""
    head, dots, tail = text.partition("...")
    if not all(c.isascii() and c.isalpha() for c in head + tail):
        raise w.call.invalid("attribute", f"the term {text!r} of the equation holds something else than letters")
    hidden = rank - len(head) - len(tail)
    if hidden < 0 or (hidden and not dots):
        raise w.call.invalid("shape", f"the term {text!r} of the equation does not fit {rank} axes")
    return [*head, *(str(-i) for i in range(hidden, 0, -1)), *tail]


@expansion("Einsum")
def einsum(w: Writer) -> None:
    """Einsum: multiply the terms one after another; sum over a letter as soon as no later term and no result has it."""
    equation = w.call.text("equation", "").replace(" ", "")
    left, arrow, right = equation.partition("->")
    texts, operands = left.split(","), w.call.every()
    if len(texts) != len(operands):
        raise w.call.invalid("attribute", f"the equation {equation!r} has {len(texts)} terms, not {len(operands)}")
    every = [_letters(w, text, operand.rank) for text, operand in zip(texts, operands, strict=True)]
    hidden = sorted({letter for letters in every for letter in letters if letter.startswith("-")}, key=int)
    if arrow:
        head, dots, tail = right.partition("...")
        result = [*head, *(hidden if dots else ()), *tail]
    else:
        flat = [letter for letters in every for letter in letters]
        result = [*hidden, *sorted({c for c in flat if not c.startswith("-") and flat.count(c) == 1})]
    known = {letter for letters in every for letter in letters}
    if len(set(result)) != len(result) or not set(result) <= known:
        raise w.call.invalid("attribute", f"the result of the equation {equation!r} names axes that no term has")
    terms = [_single(w, op.name, letters, op.shape) for op, letters in zip(operands, every, strict=True)]
    first = terms.pop(0)
    if not terms:
        first = _summed(w, first, set(result))
    while terms:
        second = terms.pop(0)
        wanted = {*result, *(letter for term in terms for letter in term.letters)}
        first = _product(w, first, second, wanted)
    order = tuple(first.letters.index(letter) for letter in result)
    w.result("Transpose", [first.name], perm=order) if order else w.result("Identity", [first.name])


def _single(w: Writer, name: str, letters: list[str], shape: Sequence[int]) -> _Term:
    """An operand as a term; where a letter occurs twice, its diagonal is taken."""
    sizes: dict[str, int] = {}
    for letter, extent in zip(letters, shape, strict=True):
        if sizes.setdefault(letter, extent) != extent and letter in sizes:
            raise w.call.invalid("shape", f"the axes {letter!r} of one term have the extents {sizes[letter]}, {extent}")
    while len(set(letters)) != len(letters):
        letter = next(c for c in letters if letters.count(c) > 1)
        one = letters.index(letter)
        other = letters.index(letter, one + 1)
        order = (*(i for i in range(len(letters)) if i not in (one, other)), one, other)
        lead, extent = [sizes[letters[i]] for i in order[:-2]], sizes[letter]
        flat = w.reshape(w.add("Transpose", [name], perm=order), (*lead, extent * extent))
        at = w.integers([i * (extent + 1) for i in range(extent)])
        name = w.add("Gather", [flat, at], axis=len(lead))
        letters = [*(letters[i] for i in order[:-2]), letter]
    return _Term(name, letters, sizes)


def _summed(w: Writer, term: _Term, wanted: set[str]) -> _Term:
    """The sum of a term over the axes whose letters are not in ``wanted``."""
    axes = [i for i, letter in enumerate(term.letters) if letter not in wanted]
    if not axes:
        return term
    name = w.add("ReduceSum", [term.name, w.integers(axes)], keepdims=0)
    return _Term(name, [letter for letter in term.letters if letter in wanted], term.sizes)


def _product(w: Writer, first: _Term, second: _Term, wanted: set[str]) -> _Term:
    """The product of two terms: a letter of both is a batch axis or is summed, a letter of one is a row or a column."""
    first = _summed(w, first, wanted | set(second.letters))
    second = _summed(w, second, wanted | set(first.letters))
    sizes = dict(first.sizes)
    for letter, extent in second.sizes.items():
        if 1 not in (extent, sizes.get(letter, 1)) and sizes[letter] != extent:
            message = f"the axis {letter!r} of the equation has the extents {sizes[letter]} and {extent}"
            raise w.call.invalid("shape", message)
        sizes[letter] = max(extent, sizes.get(letter, 1))
    shared = [letter for letter in first.letters if letter in second.letters]
    batch = [letter for letter in shared if letter in wanted]
    summed = [letter for letter in shared if letter not in wanted]
    rows = [letter for letter in first.letters if letter not in shared]
    columns = [letter for letter in second.letters if letter not in shared]
    left = _matrix(w, first, sizes, batch, rows, summed)
    right = _matrix(w, second, sizes, batch, summed, columns)
    name = w.add("MatMul", [left, right])
    letters = [*batch, *rows, *columns]
    return _Term(w.reshape(name, [sizes[letter] for letter in letters]), letters, sizes)


def _matrix(
    w: Writer, term: _Term, sizes: dict[str, int], batch: list[str], rows: list[str], columns: list[str]
) -> str:
    """A term as a stack of matrices [batch.., rows, columns], with a summed axis of extent 1 repeated to its full
    extent.
    """
    name = term.name
    wider = [letter for letter in columns + rows if term.sizes[letter] != sizes[letter]]
    if wider:
        name = w.add("Expand", [name, w.integers([sizes[c] if c in wider else term.sizes[c] for c in term.letters])])
    letters = [*batch, *rows, *columns]
    order = tuple(term.letters.index(letter) for letter in letters)
    if order != tuple(range(len(order))):
        name = w.add("Transpose", [name], perm=order)
    shape = [
        *(term.sizes[letter] for letter in batch),
        *(math.prod(sizes[c] for c in part) for part in (rows, columns)),
    ]
    extents = [term.sizes[letter] if letter in batch else sizes[letter] for letter in letters]
    return name if shape == extents else w.reshape(name, shape)
