"""A machine that computes wrongly is found by its trial, named, and not used."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import cvm.executors
from cvm.errors import Invalid, Unsupported
from cvm.executors.base import returned
from cvm.executors.native import NativeExecutor
from cvm.executors.native.descriptions.matrices import RowProducts
from cvm.executors.native.descriptions.sums import WindowSums
from cvm.executors.native.emit import epilogue, requantize, tiles
from cvm.executors.native.emit.ir import Code, V, lanes, typed, vector
from cvm.executors.native.emit.machine import MACHINES, Dot, Machine
from cvm.executors.native.emit.tiles import Tiled
from cvm.executors.native.kernels.registry import EMITTERS, plan
from cvm.executors.native.runtime import cache, select, trial, trial_programs
from cvm.executors.native.runtime.classes import kinds_of
from cvm.executors.native.runtime.executor import explained
from cvm.executors.native.runtime.rehearsal import QUICK
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder, VerifiedProgram, verify
from tests.executors.native.comparison import NAMES
from tools.planted.networks import network

GENERIC = MACHINES[-1]


@pytest.fixture(autouse=True)
def _verdicts_are_forgotten() -> Iterator[None]:
    select._verdict.cache_clear()
    select._FAILED.clear()
    yield
    select._verdict.cache_clear()
    select._FAILED.clear()


def _saturating(code: Code, total: V, a: V, w: V) -> V:
    """Pairs of products are clipped to 16 bits, as AVX2 does."""
    products = [GENERIC.dot4(code, typed(total.type, 0), code.binary("and", a, 0xFF << 8 * k), w) for k in range(4)]
    for pair in (products[:2], products[2:]):
        both = code.binary("add", pair[0], pair[1])
        clipped = code.intrinsic("smin", code.intrinsic("smax", both, -(2**15)), 2**15 - 1)
        total = code.binary("add", total, clipped)
    return total


def _last_byte_dropped(code: Code, total: V, a: V, w: V) -> V:
    return GENERIC.dot4(code, total, code.binary("and", a, 0xFFFFFF), w)


def _signed_bytes(code: Code, total: V, a: V, w: V) -> V:
    """Activations are taken as signed."""
    for k in range(4):
        x = code.binary("ashr", code.binary("shl", a, 24 - 8 * k), 24)
        weight = code.binary("ashr", code.binary("shl", w, 24 - 8 * k), 24)
        total = code.binary("add", total, code.binary("mul", x, weight))
    return total


def _unsigned_weights(code: Code, total: V, a: V, w: V) -> V:
    for k in range(4):
        x, weight = (code.binary("and", code.binary("lshr", v, 8 * k), 255) for v in (a, w))
        total = code.binary("add", total, code.binary("mul", x, weight))
    return total


def _unsigned_halves(code: Code, total: V, a: V, w: V) -> V:
    for k in range(2):
        x = code.binary("and", code.binary("lshr", a, 16 * k), 65535)
        weight = code.binary("ashr", code.binary("shl", w, 16 - 16 * k), 16)
        total = code.binary("add", total, code.binary("mul", x, weight))
    return total


def _refused(code: Code, total: V, a: V, w: V) -> V:
    """Code that is no code."""
    return code.binary("add", total, V("i7", "%nobody"))


DOTS: list[tuple[str, Dot, str]] = [
    ("dot4", _saturating, "8-bit convolution"),
    ("dot4", _last_byte_dropped, "8-bit convolution"),
    ("dot4", _signed_bytes, "8-bit convolution"),
    ("dot4", _unsigned_weights, "8-bit convolution"),
    ("dot2", _unsigned_halves, "16-bit convolution"),
    ("dot4", _refused, "8-bit convolution"),
]


@pytest.mark.parametrize(("field", "dot", "what"), DOTS, ids=[dot.__name__ for _, dot, _ in DOTS])
def test_a_wrong_product_fails_by_its_class_and_the_next_machine_is_taken(
    field: str, dot: Dot, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = replace(GENERIC, name=f"wrong{dot.__name__}", **{field: dot})
    monkeypatch.setattr(select, "available", lambda: (wrong, GENERIC))
    few = [one for one in trial.CLASSES if one.name in ("8-bit convolution", "16-bit convolution")]
    monkeypatch.setattr(trial, "CLASSES", few)  # all of them take a minute
    found = select.choice()
    assert found.machine is GENERIC
    assert f"{wrong.name} FAILED its trial ({what}" in found.reason
    assert found.reason.endswith("generic passed its trial")
    assert cvm.executors.examined() == ("native", found.reason)
    name, reason = cvm.executors.default()
    assert name == "native"
    assert reason.startswith(f"{wrong.name} FAILED its trial ({what}")


def test_if_no_machine_passes_numpy_is_the_default_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = replace(GENERIC, name="wrong", dot4=_last_byte_dropped)
    monkeypatch.setattr(select, "available", lambda: (wrong,))
    assert select.choice().machine is None
    name, reason = cvm.executors.default()
    assert name == "numpy"
    assert reason == "wrong FAILED its trial (8-bit convolution)"
    with pytest.raises(Unsupported, match="8-bit convolution") as caught:
        NativeExecutor(verify(network("reductions", 0)))
    assert caught.value.code == "executors.native"


def test_a_network_tries_the_classes_of_its_kernels_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []
    right = replace(GENERIC, name="right for sums")

    def agrees(machine: Machine, verified: VerifiedProgram) -> bool:
        tried.append(machine.name)
        assert {node.op for node in verified.program.nodes} <= {"sum", "max", "max_pool2d", "clip", *MOVES}
        return True

    monkeypatch.setattr(trial, "_agrees", agrees)
    monkeypatch.setattr(select, "available", lambda: (right,))
    builder = ProgramBuilder()
    (total,) = builder.add("sum", [builder.input("x", (2, 3), -9, 9)], {"axes": (1,), "keepdims": False})
    executor = NativeExecutor(verify(builder.build([Output("y", total)])))
    assert executor.refusals == []
    assert set(tried) == {"right for sums"}
    count = len(tried)
    NativeExecutor(executor._verified)
    assert len(tried) == count


MOVES = ("transpose", "tile", "concatenate", "slice", "reshape")


def test_a_machine_that_fails_when_a_network_needs_it_gives_way_to_the_next_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    wrong = replace(GENERIC, name="wrong when needed", dot4=_last_byte_dropped)
    monkeypatch.setattr(select, "available", lambda: (wrong, GENERIC))
    monkeypatch.setenv("CVM_CACHE", "")
    builder = ProgramBuilder()
    x = builder.input("x", (1, 3, 5, 5), 0, 255)
    weights = builder.constant(np.arange(-40, 41).reshape(3, 3, 3, 3))
    (sums,) = builder.add("conv2d", [x, weights])
    verified = verify(builder.build([Output("y", sums)]))
    assert cvm.executors.default()[1].startswith("wrong when needed")
    executor = NativeExecutor(verified)
    assert executor.machine is GENERIC
    assert executor.refusals == ["wrong when needed FAILED its trial (8-bit convolution, sums)"]
    feed = {"x": np.arange(75, dtype=np.int32).reshape(1, 3, 5, 5)}
    found, expected = (one.run(feed, {}).values for one in (executor, NumpyExecutor(verified)))
    assert {name: array.tolist() for name, array in found.items()} == {
        name: array.tolist() for name, array in expected.items()
    }
    assert cvm.executors.default()[1].startswith(executor.refusals[0])


@pytest.mark.parametrize("machine", select.available(), ids=lambda machine: machine.name)
def test_the_program_of_a_class_has_kernels_of_its_kinds(machine: Machine) -> None:
    impossible = {"depthwise pixels", "bytes in words"} if not machine.packs else set()
    missing = set().union(*(one.tries(machine) for one in trial.CLASSES)) - impossible
    for one in trial.CLASSES:
        verified = one.program()
        found = kinds_of(plan(verified, machine, returned(verified.program, frozenset())))
        assert one.tries(machine) - impossible <= found, one.name
        missing -= found
    assert missing == set()


def test_every_kind_of_kernel_is_in_the_program_of_a_class() -> None:
    types, machine = set(), select.available()[0]
    for _, verified in trial_programs.programs():
        made = plan(verified, machine, returned(verified.program, frozenset()))
        types |= set(map(type, made.functions.values()))
    never = ({Tiled} if not machine.tiles else set()) | ({RowProducts, WindowSums} if machine.saturates else set())
    assert types == set(EMITTERS) - never


def test_a_kernel_of_a_kind_that_no_class_tries_needs_the_whole_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[object] = []
    monkeypatch.setattr(trial, "_agrees", lambda machine, verified: tried.append(verified) is None)
    right = replace(GENERIC, name="right for new kernels")
    assert trial.failure(right, frozenset({"copies"})) is None
    assert len(tried) == 1
    assert trial.failure(right, frozenset({"copies", "a kind that no class tries"})) is None
    assert len(tried) == 1 + count_of_programs(len(trial.CLASSES) - 1)


def count_of_programs(classes: int) -> int:
    """How many programs try so many classes."""
    return -(-classes // trial.TOGETHER)


def _swapped_vectors(self: epilogue.Epilogue, values: list[V]) -> V:
    """The four vectors in another order: codes of the wrong channels."""
    return _PACKED(self, values[::-1])


_PACKED = epilogue.Epilogue._packed


def _halves_swapped(code: Code, even: V, odd: V, half: int) -> V:
    count = 2 * lanes(even.type)
    order = [index for lane in range(0, count, 2) for index in (count + lane + half, lane + half)]
    return code.shuffle(code.bitcast(even, vector(32, count)), code.bitcast(odd, vector(32, count)), order)


BROKEN: list[tuple[object, str, Any, str | tuple[str, ...]]] = [
    (epilogue.Epilogue, "_packed", _swapped_vectors, ("8-bit convolution", "convolution of many channels")),
    (requantize, "_merged", _halves_swapped, ("8-bit convolution", "convolution of many channels")),
    (requantize, "_upper_halves", lambda code, even, odd: _halves_swapped(code, even, odd, 1), "8-bit convolution"),
    (tiles.Walk, "starts", property(lambda walk: [(0, 0)] * walk.tiles), "8-bit convolution"),
]


@pytest.mark.parametrize(("module", "name", "wrong", "what"), BROKEN, ids=[name for _, name, _, _ in BROKEN])
def test_a_wrong_pack_fails_by_its_class(
    module: object, name: str, wrong: Any, what: str | tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = {"_merged": "dot4", "_upper_halves": "fuses", "starts": "tiles"}.get(name, "packs")
    machines = [machine for machine in select.available() if getattr(machine, needed)]
    if not machines:
        pytest.skip(f"no machine here has {needed}")
    machine = machines[0]
    monkeypatch.setattr(module, name, wrong)
    monkeypatch.setenv("CVM_CACHE", "")
    complaint = trial.failure(replace(machine, name="wrong"))
    assert complaint is not None
    assert complaint.startswith(what)


def test_a_verdict_is_kept_and_only_a_good_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[str] = []

    def agrees(machine: Machine, verified: object) -> bool:
        tried.append(machine.name)
        return machine.name != "wrong"

    monkeypatch.setattr(trial, "_agrees", agrees)
    count = count_of_programs(len(trial.CLASSES))
    right, wrong = replace(GENERIC, name="right"), replace(GENERIC, name="wrong")
    assert [trial.failure(right) for _ in range(2)] == [None, None]
    assert tried == ["right"] * count
    assert [trial.failure(wrong) for _ in range(2)] == ["8-bit convolution"] * 2
    assert tried[:count] == ["right"] * count
    assert tried.count("right") == count
    assert tried.count("wrong") >= 4  # each time a program of several classes, and the first of these alone
    monkeypatch.setattr(cache, "_sources", lambda: b"another version")
    trial.failure(right)
    assert tried[-count:] == ["right"] * count


@pytest.mark.parametrize("name", [None, "matrix product of one row"])
def test_a_class_is_named_even_if_others_are_tried_with_it(name: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A class that fails alone is named. If all pass alone and fail together, none of them is taken for good."""
    monkeypatch.setenv("CVM_CACHE", "")
    alone = {one.made().digest: one.name for one in trial.CLASSES}
    monkeypatch.setattr(
        trial, "_agrees", lambda machine, verified: alone.get(verified.program.digest, name) not in (None, name)
    )
    passed: list[str] = []
    monkeypatch.setattr(cache, "write", lambda what, *parts, **more: passed.append(what))
    found = trial.failure(replace(GENERIC, name="wrong together"), frozenset({"bytes, codes", "row, codes"}))
    assert found == (name or "8-bit convolution, with others")
    assert passed == []


@pytest.mark.parametrize("machine", select.available(), ids=lambda machine: machine.name)
def test_classes_that_are_tried_together_are_rehearsed_on_all_data(machine: Machine) -> None:
    costs = []
    for _, verified in trial_programs.programs():
        made = plan(verified, machine, returned(verified.program, frozenset()))
        costs.append(sum(call.cost for call in made.calls))
    assert sum(sorted(costs)[-trial.TOGETHER :]) <= QUICK


def test_the_environment_names_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trial, "_agrees", lambda machine, verified: True)
    for name in NAMES:
        monkeypatch.setenv("CVM_MACHINE", name)
        found = select.choice()
        assert found.machine is not None
        assert found.machine.name == name
    monkeypatch.setenv("CVM_MACHINE", "abacus")
    with pytest.raises(Invalid, match="abacus") as caught:
        select.choice()
    assert caught.value.code == "executors.machine"
    assert all(name in str(caught.value) for name in NAMES)


def test_a_processor_is_the_machines_whose_features_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(features: dict[str, bool]) -> list[str]:
        text = ",".join(f"{'+' if there else '-'}{feature}" for feature, there in features.items())
        monkeypatch.setattr(select, "host", lambda: cache.Host("a processor", text, ()))
        told = frozenset(feature for feature, there in features.items() if there and "aarch64" in features)
        monkeypatch.setattr(select, "told_by_linux", lambda: told)
        return [machine.name for machine in select.available.__wrapped__()]

    assert names({}) == ["generic"]
    assert names({"avx2": True}) == ["avx2", "generic"]
    assert names({"avx2": False}) == ["generic"]
    everything = dict.fromkeys(("avx2", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512vnni"), True)
    assert names(everything) == ["vnni512", "vnni256", "avx2", "generic"]
    assert names({**everything, "avx512vnni": False}) == ["avx2", "generic"]
    assert names({**everything, "avx512ifma": True}) == ["vnni512", "vnni256", "avx2", "generic"]
    everything |= {"avx512ifma": True, "avx512vbmi": True}
    assert names(everything) == ["ifma512", "vnni512", "vnni256", "avx2", "generic"]
    assert names({"dotprod": True, "i8mm": True}) == ["generic"]
    assert names({"aarch64": True, "dotprod": False, "i8mm": False}) == ["generic"]
    assert names({"aarch64": True, "dotprod": True}) == ["neon_dot", "generic"]
    assert names({"aarch64": True, "dotprod": True, "i8mm": True}) == ["neon_i8mm", "neon_dot", "generic"]


@pytest.mark.parametrize("words", [{16: 0, 26: 0}, {16: 1 << 20, 26: 0}, {16: 1 << 20, 26: 1 << 13}])
def test_linux_is_asked_for_the_features_of_aarch64(words: dict[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(word: int) -> int:
        return words[word]

    monkeypatch.setattr(select.sys, "platform", "linux")
    monkeypatch.setattr(select.ctypes, "CDLL", lambda name: SimpleNamespace(getauxval=ask))
    monkeypatch.setattr(select.platform, "machine", lambda: "aarch64")
    expected = {"aarch64"} | ({"dotprod"} if words[16] else set()) | ({"i8mm"} if words[26] else set())
    assert select.told_by_linux() == expected
    monkeypatch.setattr(select.platform, "machine", lambda: "x86_64")
    assert select.told_by_linux() == frozenset()


def test_the_trial_reaches_every_kind_of_kernel() -> None:
    kernels = set()
    for _, verified in trial_programs.programs():
        for line in explained(verified, plan(verified, GENERIC, returned(verified.program, frozenset()))):
            kernels |= {kind for kind in KINDS if kind in line}
    assert kernels == set(KINDS)


KINDS = ("8-bit dot products", "16-bit dot products", "32-bit multiply-adds", "depthwise", "requantize", "copy",
         "maxima of windows", "sum, modulo", "max, modulo", "rows one after the other", "sorted by counting",
         "another view")  # fmt: skip


def test_a_missing_or_broken_llvmlite_leaves_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    import builtins
    import sys

    real = builtins.__import__
    for error in (ImportError("no module named llvmlite"), OSError("could not load shared object file")):

        def importing(name: str, *arguments: object, error: Exception = error) -> object:
            if name == "cvm.executors.native.runtime.select":
                raise error
            return real(name, *arguments)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.delitem(sys.modules, "cvm.executors.native.runtime.select")
            patch.setattr(builtins, "__import__", importing)
            name, reason = cvm.executors.default()
        assert name == "numpy"
        assert str(error) in reason
