"""Reductions (NNEF 1.0.1 section 4.4) give exactly the codes, places and truth values of the document."""

from __future__ import annotations

from functools import partial
from random import Random

from tests.lowering.documents import Document
from tests.lowering.properties import Cases, check, drawn, exhaustively
from tests.lowering.test_shape import operand, shaped


def axes_of(random: Random, shape: tuple[int, ...]) -> list[int]:
    return random.sample(range(len(shape)), random.randint(1, len(shape)))


def reduction(name: str, random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = operand(document, shape, 0.3 if name in ("max_reduce", "min_reduce") else 1.0)
    if random.random() < 0.3 and len(shape) > 1:
        # Parts with ranges of their own: reduced over other axes they need no common one.
        x = document.apply(
            f"concat([{document.external(shape)}, {document.external(shape)}], axis = 1)", quantised=False
        )
    extra = ", normalize = true" if name == "sum_reduce" and random.random() < 0.3 else ""
    call = f"{name}({x}, axes = {axes_of(random, shape)}{extra})"
    check(document, document.apply(call, quantised=not name.startswith("arg")))


def logical(name: str, random: Random) -> None:
    document = Document(random)
    shape = shaped(random, 1, 3)
    x = document.external(shape)
    if random.random() < 0.3:
        truth = document.integers(shape, 0, 1, "logical")
    else:
        truth = document.apply(f"gt({x}, {random.uniform(-0.5, 0.8)!r})", quantised=False)
    check(document, document.apply(f"{name}({truth}, axes = {axes_of(random, shape)})", quantised=False))


REDUCTIONS = ("sum_reduce", "mean_reduce", "max_reduce", "min_reduce", "argmax_reduce", "argmin_reduce")
CASES: Cases = {name: partial(reduction, name) for name in REDUCTIONS}
CASES |= {name: partial(logical, name) for name in ("any_reduce", "all_reduce")}

test_a_few_documents = drawn(CASES)
test_many_documents = exhaustively(CASES)
