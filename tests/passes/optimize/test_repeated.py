"""Equal proofs are made once within a block: the same results, in bounded memory, and never at the end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cvm
from cvm import ops, repeated
from cvm.errors import Invalid
from cvm.frontends import nnef
from cvm.lowering import lower
from cvm.ops import Call
from cvm.ops.declaration import Op
from cvm.ops.ranges import Exact, Range
from cvm.passes.optimize import optimize
from cvm.program import verify
from cvm.repeated import Remembered, proven, remembering

MODEL = Path(cvm.__file__).parent / "demo" / "lenet_digits"
ADD = ops.get("elemwise_add")


def call(*bounds: Range) -> Call:
    return Call(((4,),) * len(bounds), ADD.parse({}), bounds)


@pytest.fixture
def count(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the ops that have proven something."""
    made: list[str] = []
    prove = Op.prove

    def counted(op: Op, *arguments: object) -> tuple[Range, ...]:
        made.append(op.name)
        return prove(op, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Op, "prove", counted)
    return made


def test_an_equal_application_is_proven_once_and_any_other_anew(count: list[str]) -> None:
    narrow, same, wide = Range.uniform(1, 0, 5), Range.uniform(1, 0, 5), Range.uniform(1, 0, 6)
    with remembering() as memory:
        first, second = (proven(ADD, call(bounds, narrow), None) for bounds in (narrow, same))
        assert first is second
        assert proven(ADD, call(narrow, wide), None)[0].hull() == (0, 11)
        assert proven(ADD, call(Exact(np.array([0, 5, 0, 5])), narrow), None)[0].hull() == (0, 10)
    assert (memory.asked, memory.found) == (4, 1)
    assert len(count) == 3


def test_nothing_is_remembered_without_a_block(count: list[str]) -> None:
    narrow = Range.uniform(1, 0, 5)
    for _ in range(2):
        proven(ADD, call(narrow, narrow), None)
    assert len(count) == 2


def test_a_refusal_is_not_remembered() -> None:
    dense = ops.get("requantize")
    whole = Range.uniform(1, -(2**31) + 1, 2**31 - 1)
    huge = Range.uniform(1, 2**62, 2**62)
    zero = Range.uniform(1, 0, 0)
    refused = Call(((1,),) * 4, dense.parse({"lo": 0, "hi": 1, "rounding": "half_up"}), (whole, huge, zero, zero))
    with remembering() as memory:
        for _ in range(2):
            with pytest.raises(Invalid):
                proven(dense, refused, None)
    assert (memory.asked, memory.found) == (2, 0)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated, "MOST", 3 * (repeated.OVERHEAD + 1))
    memory = Remembered()
    for key in range(5):
        memory.keep(key, (), 1)
        assert memory.get(0) is not None  # asked for again and again, it stays
    assert [memory.get(key) is not None for key in range(5)] == [True, False, False, True, True]
    memory.keep("many", (), repeated.ITEMS + 1)
    assert memory.get("many") is None
    assert len(memory._proofs) == 3


def test_verification_asks_for_nothing_that_is_remembered() -> None:
    program = cvm.compile(MODEL)
    with remembering() as memory:
        verify(program)
        assert memory.asked == 0
        optimize(program)
        assert memory.asked == 0
        lower(nnef.load(MODEL))
        assert memory.asked > 0


def test_what_is_compiled_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    found = cvm.compile(MODEL).digest
    monkeypatch.setattr(repeated, "ITEMS", -1)
    assert cvm.compile(MODEL).digest == found
