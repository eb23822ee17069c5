"""Kernels that differ in numbers alone are compiled once, and compute with their own numbers."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cvm.executors.native.emit import merging
from cvm.executors.native.emit.ir import Code, Module, V, typed
from cvm.executors.native.emit.merging import shared
from cvm.executors.native.runtime.jit import compiled, loaded
from cvm.executors.native.runtime.select import available

MACHINE = available()[-1]


def kernel(
    module: Module,
    name: str,
    factor: int = 3,
    lanes: int = 5,
    end: int = 4,
    offset: int = 8,
    begin: int = 64,
    also: int = 0,
) -> None:
    """Write ``name(output)``: element i of the output, i < end, is 4 times lanes, at i * factor vectors + offset.

    The output begins at ``begin``. So many bytes behind each element (``also``) are twice the lanes, if not 0.
    """
    pointer = V("ptr", "%output")
    code = Code(module, name, [pointer])
    output = code.at(pointer, begin)

    def body(index: V, values: list[V]) -> list[V]:
        at = code.at(code.at(output, code.mul(index, 16 * factor)), offset)
        code.store(code.binary("mul", typed("<4 x i32>", 4), typed("<4 x i32>", lanes)), at)
        if also:
            code.store(code.binary("mul", typed("<4 x i32>", 2), typed("<4 x i32>", lanes)), code.at(at, also))
        return []

    code.loop(V("i64", "0"), end, 1, body)
    code.finish()


def written(functions: dict[str, str], name: str) -> np.ndarray:
    """The memory that a function leaves, as int32."""
    code = loaded(compiled("\n".join(functions.values()), MACHINE), MACHINE)
    memory = np.zeros(512, np.int32)
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(name))(memory.ctypes.data)
    return memory


@pytest.fixture(autouse=True)
def any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share short functions too."""
    monkeypatch.setattr(merging, "LEAST", 0)


@pytest.mark.parametrize("other", [{"factor": 2}, {"lanes": -7}, {"end": 2}, {"begin": 32},
                                   {"factor": 5, "lanes": 9, "end": 3, "begin": 128}, {}])  # fmt: skip
def test_functions_that_differ_in_numbers_share_one_and_write_what_each_wrote(other: dict[str, int]) -> None:
    module = Module()
    kernel(module, "first")
    kernel(module, "second", **other)
    found = shared(module.functions)
    assert set(found) == {"first", "second", "first.shared"}
    assert "store" in found["first.shared"]
    for name in ("first", "second"):
        assert np.array_equal(written(found, name), written(module.functions, name))
        assert written(found, name).any()
        assert "store" not in found[name]


def test_functions_that_differ_in_an_address_within_an_innermost_loop_are_not_shared() -> None:
    module = Module()
    kernel(module, "first")
    kernel(module, "second", offset=12)
    assert shared(module.functions) == module.functions


@pytest.mark.parametrize(("within", "apart"), [(1, False), (2, True)])
def test_a_few_addresses_within_an_innermost_loop_are_arguments_if_the_machine_has_registers(
    within: int, apart: bool
) -> None:
    """The stores of a loop at two offsets; in the second function, they are further apart if ``apart``."""
    module = Module()
    kernel(module, "first", also=16)
    kernel(module, "second", also=20 if apart else 16, offset=12)
    kernel(module, "third", also=24, offset=16)
    found = shared(module.functions, within)
    head = found["first.shared"].split("\n")[0]
    assert head.count("%n") == within
    assert ("store" in found["second"], "store" in found["third"]) == (False, within == 1)
    for name in ("first", "second", "third"):
        assert np.array_equal(written(found, name), written(module.functions, name))


def test_equal_numbers_of_different_places_are_told_apart_where_another_function_has_others() -> None:
    module = Module()
    kernel(module, "first", factor=4, end=4)
    kernel(module, "second", factor=2, end=3)
    kernel(module, "third", factor=3, end=2)
    found = shared(module.functions)
    head = found["first.shared"].split("\n")[0]
    assert head.endswith("(ptr %output, i64 %n0, i64 %n1) nounwind noinline {")
    for name in ("first", "second", "third"):
        assert np.array_equal(written(found, name), written(module.functions, name))


def test_a_function_with_too_many_varying_numbers_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MOST", 1)
    module = Module()
    kernel(module, "first")
    kernel(module, "second", factor=2, end=3)
    assert shared(module.functions) == module.functions


def test_short_functions_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Module()
    kernel(module, "first")
    kernel(module, "second", factor=2)
    monkeypatch.setattr(merging, "LEAST", 10_000)
    assert shared(module.functions) == module.functions
