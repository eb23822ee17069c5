"""The checker proves every plan of ours, and none in which a number, an address or a step is wrong."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cvm.executors.native.checker import Unproven, unproven
from cvm.executors.native.checker.groups import _require_same, require_joint
from cvm.executors.native.descriptions.expressions import Formula, Requantization, Residual
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.descriptions.sums import Contraction
from cvm.executors.native.emit import digits, epilogue, fused, requantize, residual
from cvm.executors.native.emit.machine import MACHINES, WASM, Machine
from cvm.executors.native.exact import exact
from cvm.executors.native.kernels import contractions, depthwise, formulas, operands, packing, registry
from cvm.executors.native.plan import planner
from cvm.executors.native.plan.claims import Computes
from cvm.executors.native.plan.homes import Home
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.executor import NativeExecutor
from cvm.executors.native.runtime.proven import proven
from cvm.executors.native.runtime.select import available
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Output, ProgramBuilder, verify
from cvm.program.verifier import VerifiedProgram
from tests.selection import mostly_long
from tools.planted.networks import AIMS, network


def planned(verified: VerifiedProgram, machine: Machine, everything: bool = False) -> Plan:
    wanted = {output.value for output in verified.program.outputs} | {kept.update for kept in verified.program.state}
    if everything:
        wanted |= {value.name for node in verified.program.nodes for value in node.outputs}
    return registry.plan(verified, machine, frozenset(wanted))


@pytest.mark.sweep
@pytest.mark.parametrize("aim", AIMS)
@pytest.mark.parametrize("machine", [*MACHINES, WASM], ids=lambda machine: machine.name)
def test_every_plan_is_proven(aim: str, machine: Machine) -> None:
    """For all machines, those of other processors included: planning needs none of their instructions."""
    for seed in range(5):
        verified = verify(network(aim, seed))
        for everything in (False, True):
            assert unproven(verified, planned(verified, machine, everything), machine) == {}


def chain(shifts: int = 1) -> VerifiedProgram:
    """A convolution with a border, a depthwise one, a residual sum, tables, slices and parts of a concatenation.

    The channels of a requantize with one operand have so many different ``shifts``.
    """
    random = np.random.default_rng(7)
    builder = ProgramBuilder()
    x = builder.input("x", (2, 24, 6, 5), -128, 127)

    def codes(sums: str, *more: str) -> str:
        channels = builder.shape(sums)[1]
        bits = builder.range(sums).magnitude().bit_length()
        ms = [random.integers(2**29, 2**31, (1, channels, 1, 1)), *(np.full(1, 2**28) for _ in more)]
        several = np.arange(channels).reshape(1, -1, 1, 1) % shifts
        shift = 23 + bits + (np.zeros(1, np.int64) if more or shifts == 1 else several)
        parameters = [*ms, random.integers(-(2**35), 2**35, (1, channels, 1, 1)), shift]
        attributes = {"rounding": "half_up", "lo": -128, "hi": 127}
        return builder.add("requantize", [sums, *more, *map(builder.parameter, parameters)], attributes)[0]

    def conv(
        x: str, out: int, kernel: int, groups: int = 1, weights: int = 127, offset: int = 0, row: int | None = None
    ) -> str:
        shape = (out, builder.shape(x)[1] // groups, kernel, kernel)
        values = random.integers(-weights, weights, shape) + offset
        if row is not None:
            values = np.where(np.arange(kernel)[:, None] == row, values, values.clip(-128, 127))
        inputs = [x, builder.constant(values), builder.constant(random.integers(-900, 900, out))]  # fmt: skip
        padding = (kernel // 2, kernel // 2)
        return builder.add("conv2d", inputs, {"padding": padding, "groups": groups})[0]

    a = codes(conv(x, 24, 3))
    b = codes(conv(a, 24, 3, 24))
    offset = codes(conv(codes(conv(b, 24, 3, offset=-60)), 24, 3, 24, offset=90))
    c = codes(conv(codes(conv(offset, 24, 3, 24, 200, row=2)), 24, 1), a)
    numbers = [builder.parameter(np.full(1, n)) for n in (1_500_000_001, 1_234_567_891, 99_999, 31)]
    attributes = {"rounding": "half_up", "lo": -128, "hi": 127}
    (d,) = builder.add("requantize", [codes(conv(c, 24, 1)), b, *numbers], attributes)
    (positive,) = builder.add("relu", [d])
    (clipped,) = builder.add("clip", [positive], {"a_min": 3, "a_max": 90})
    (shifted,) = builder.add("cvm_right_shift", [clipped], {"precision": 8, "shift_bit": 2})
    table = builder.constant(random.integers(-500, 500, 64))
    (looked,) = builder.add("cvm_lut", [table, shifted])
    (joined,) = builder.add("concatenate", [looked, c], {"axis": 1})
    (sliced,) = builder.add("slice", [joined], {"begin": (0, 3), "end": (2, 40), "strides": (1, 2)})
    (transposed,) = builder.add("transpose", [sliced], {"axes": (0, 2, 3, 1)})
    (flat,) = builder.add("reshape", [transposed], {"target_shape": (2, 6 * 5 * 19)})
    wide = builder.constant(random.integers(-40_000, 40_000, (33, 6 * 5 * 19)))
    (small,) = builder.add("clip", [flat], {"a_min": -4, "a_max": 3})
    (y,) = builder.add("dense", [small, wide])
    return verify(builder.build([Output("y", y), Output("transposed", transposed), Output("d", d)]))


Change = Callable[[Any], Any]


def changed(function: Any, change: Change) -> Any:
    """A function whose result is changed."""
    return lambda *arguments, **named: change(function(*arguments, **named))


def _shifted(found: Any) -> Any:
    return found and replace(found, offset=found.offset + 1)


PLANNED_FILL = planner.Planner.fill
PLANNED_NEST = planner.Planner.nest


def _rows_above(home: Home) -> bool:
    """Whether a strip is the first one of a border, whose rows are whole and begin the buffer."""
    return home.view.offset == 0


WINDOWS = contractions._windows


def _later(home: Home) -> Home:
    return replace(home, view=replace(home.view, offset=home.view.offset + 1))


def _next_row(geometry: contractions.Geometry) -> contractions.Geometry:
    source = geometry.source
    return replace(geometry, source=replace(source, row=source.row + source.column))


def _overwritten(planner: Any, node: Any, home: Home, geometry: contractions.Geometry, factor: int) -> Home:
    """Sums of windows that a second call writes over."""
    found = WINDOWS(planner, node, home, geometry, factor)
    planner.calls.append(planner.calls[-1])
    return found


def _digits(change: Change) -> Any:
    return changed(digits.digit_parameters, lambda found: found and change(found))


DEFECTS: dict[str, tuple[object, str, Any]] = {
    "a sum's bounds are half of what they are": (
        contractions,
        "_sums",
        changed(
            contractions._sums, lambda s: replace(s, least=exact(s.least.int64() // 2), most=exact(s.most.int64() // 2))
        ),
    ),
    "sums begin one too high": (
        contractions,
        "_sums",
        changed(contractions._sums, lambda s: replace(s, start=s.start + 1)),
    ),
    "the bias of a format is forgotten": (
        formulas,
        "biased",
        lambda chosen, magnitudes, bias: requantize.biased(chosen, magnitudes, 0),
    ),
    "the bias of a format is one off": (
        formulas,
        "biased",
        lambda chosen, magnitudes, bias: requantize.biased(chosen, magnitudes, bias + 1),
    ),
    "rounding down": (requantize, "half", lambda shift: exact(0)),
    "the fused offset is one half up": (
        formulas,
        "fused_parameters",
        changed(fused.fused_parameters, lambda found: found and (found[0], found[1] + 2**31, found[2])),
    ),
    "the fused multiplier of one channel": (
        formulas,
        "fused_parameters",
        changed(
            fused.fused_parameters,
            lambda found: found and (found[0] + (np.arange(found[0].size) == 5) * 2**40, *found[1:]),
        ),
    ),
    "the offset in two digits is one code up": (
        formulas,
        "digit_parameters",
        _digits(lambda found: replace(found, offset=found.offset + (1 << found.bits + found.shift))),
    ),
    "the multiplier in two digits of one channel": (
        formulas,
        "digit_parameters",
        _digits(
            lambda found: replace(found, multiplier=found.multiplier + 5000 * (np.arange(found.multiplier.size) == 5))
        ),
    ),
    "lower digits of too many bits": (
        formulas,
        "digit_parameters",
        _digits(lambda found: replace(found, bits=found.bits + 6, shift=found.shift - 6)),
    ),
    "upper digits of too many bits": (
        formulas,
        "digit_parameters",
        _digits(lambda found: replace(found, bits=found.bits - 6, shift=found.shift + 6)),
    ),
    "the scaled factor of one channel": (
        requantize,
        "_scaled",
        changed(
            requantize._scaled,
            lambda found: found and replace(found, multipliers=(found.multipliers[0] * 2, *found.multipliers[1:])),
        ),
    ),
    "the scaled offset is one code up": (
        requantize,
        "_scaled",
        changed(
            requantize._scaled,
            lambda found: found and replace(found, offset=found.offset + (1 << 32 + int(found.shift.max()))),
        ),
    ),
    "channels are packed in another order": (
        operands,
        "packed_channels",
        lambda values, segments, format_: packing.packed_channels(values[::-1], segments, format_),
    ),
    "weights of the neighbouring channel": (
        contractions,
        "packed_weights",
        lambda digits, kernel: packing.packed_weights([np.roll(digit, 1, axis=0) for digit in digits], kernel),
    ),
    "one weight is one off": (
        contractions,
        "packed_weights",
        lambda digits, kernel: packing.packed_weights(
            [digits[0] ^ (np.arange(digits[0].size).reshape(digits[0].shape) == 77), *digits[1:]], kernel
        ),
    ),
    "digits in another order": (
        contractions,
        "passes",
        changed(packing.passes, lambda found: [(digit, 9 if shift else 0) for digit, shift in found]),
    ),
    "columns of a depthwise window swapped": (
        depthwise,
        "packed_taps",
        lambda parts, segments: packing.packed_taps([part[:, :, ::-1] for part in parts], segments),
    ),
    "the lower digits of a sum of words are lost": (residual, "_digits", lambda multiplier: (multiplier >> 14, 0)),
    "words of a sum are not moved by their bias": (
        epilogue,
        "residual",
        lambda formula, biases: residual.residual(formula, dict.fromkeys(biases, 0)),
    ),
    "all weights are one less": (
        contractions,
        "packed_weights",
        lambda digits, kernel: packing.packed_weights([digit - (kernel.run > 48) for digit in digits], kernel),
    ),
    "another number times the sums of windows": (
        contractions,
        "_windows",
        lambda planner, node, home, geometry, factor: WINDOWS(planner, node, home, geometry, factor + 1),
    ),
    "windows that begin one element later": (
        contractions,
        "_windows",
        lambda planner, node, home, geometry, factor: WINDOWS(planner, node, _later(home), geometry, factor),
    ),
    "windows of the next row": (
        contractions,
        "_windows",
        lambda planner, node, home, geometry, factor: WINDOWS(planner, node, home, _next_row(geometry), factor),
    ),
    "windows with a shorter run": (
        contractions,
        "_windows",
        lambda planner, node, home, geometry, factor: WINDOWS(
            planner, node, home, replace(geometry, run=geometry.run - 1), factor
        ),
    ),
    "sums of windows in another place": (
        contractions,
        "_windows",
        lambda *arguments: _later(WINDOWS(*arguments)),
    ),
    "the sums of windows are forgotten": (
        contractions,
        "_windows",
        lambda *arguments: (WINDOWS(*arguments), None)[1],
    ),
    "the sums of windows of another call": (contractions, "_windows", lambda *arguments: _overwritten(*arguments)),
    "a depthwise window has one part": (
        depthwise,
        "parts",
        changed(packing.parts, lambda found: found[:1]),
    ),
    "another row of a depthwise window is multiplied once more": (
        depthwise,
        "_repeated",
        changed(depthwise._repeated, lambda found: (found[0], tuple((row + 1) % 3 for row in found[1]))),
    ),
    "a border of ones": (
        planner.Planner,
        "_fill_border",
        lambda self, home, outer, border: planner.Planner.fill(self, replace(home), 1, "border"),
    ),
    "a border without rows above": (
        planner.Planner,
        "fill",
        lambda self, home, value, label: None if _rows_above(home) else PLANNED_FILL(self, home, value, label),
    ),
    "no border": (planner.Planner, "_fill_border", lambda self, home, outer, border: None),
    "a clip is lost": (formulas, "_clipped", lambda builder, value, node, lo, hi: value),
    "a clip is one off": (
        formulas,
        "_clipped",
        lambda builder, value, node, lo, hi: builder.step("clip", (value,), (lo, hi - 1)),
    ),
    "the store clips one code off": (formulas, "_folded", None),
    "formats of 7 bits": (planner.Format, "of", staticmethod(lambda lo, hi: Format(8, False, 64))),
    "a view begins one later": (planner.View, "sliced", None),
}


IN_ONE_SHIFT = {name for name in DEFECTS if "digits of" in name or "two digits" in name or "scaled" in name}
FUSED = {name for name in DEFECTS if "fused" in name or "bounds" in name}


def plant(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, attribute, wrong = DEFECTS[name]
    if "scaled" in name:
        monkeypatch.setattr(formulas, "digit_parameters", lambda *_: None)
    if name == "the store clips one code off":
        folded = formulas._folded

        def wrong(builder: Any, node: Any, chosen: Any, magnitudes: Any) -> Any:  # type: ignore[misc]
            found = folded(builder, node, chosen, magnitudes)
            builder.clamp = builder.clamp and (builder.clamp[0], builder.clamp[1] - 1)
            return found

    if name == "a view begins one later":
        sliced = planner.View.sliced

        def wrong(self: Any, axis: int, start: int, step: int, count: int) -> Any:  # type: ignore[misc]
            return sliced(self, axis, start + (step == 2), step, count)

    monkeypatch.setattr(module, attribute, wrong)


@pytest.mark.parametrize("name", DEFECTS)
@pytest.mark.parametrize("machine", [*available(), WASM], ids=lambda machine: machine.name)
def test_a_defect_of_the_planner_is_never_proven(name: str, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in FUSED and not machine.fuses:
        pytest.skip("only sums that are requantized in multiply-adds of 52 bits rest on it")
    if name in IN_ONE_SHIFT and not machine.one_shift:
        pytest.skip("only machines on which one number shifts all lanes have the arithmetic")
    if "words" in name and not machine.packs:
        pytest.skip("only machines that pack lanes add codes in words")
    _skip_what_words_lack(name, machine)
    verified = chain(3 if "scaled" in name else 1)
    plant(name, monkeypatch)
    try:
        wrong = planned(verified, machine)
    except (AssertionError, OverflowError):
        return  # refused even earlier
    assert unproven(verified, wrong, machine) != {}


def _skip_what_words_lack(name: str, machine: Machine) -> None:
    """Skip defects of products of bytes where a machine multiplies 16 bits."""
    if ("once more" in name or "one part" in name) and (machine.saturates or machine.one_shift):
        pytest.skip(
            "where pairs of rows are multiplied in 16 bits, weights have one part, and no row is multiplied again"
        )
    if ("windows" in name or name == "digits in another order") and machine.words:
        pytest.skip("16-bit products take weights of more than a byte as they are")
    if name == "words of a sum are not moved by their bias" and machine.words:
        pytest.skip("the codes that are added to others have 16 bits already, and no bias")


@pytest.mark.sweep
@pytest.mark.parametrize("name", mostly_long(DEFECTS, list(DEFECTS)[::5]))
def test_no_wrong_byte_leaves_whatever_the_planner_does(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not proven is planned again in plain kernels, or is left to NumPy."""
    machine = available()[0]
    if name in IN_ONE_SHIFT and not machine.one_shift:
        pytest.skip("only machines on which one number shifts all lanes have the arithmetic")
    _skip_what_words_lack(name, machine)
    monkeypatch.setenv("CVM_CACHE", "")
    verified = chain()
    feed = {"x": np.random.default_rng(1).integers(-128, 128, (2, 24, 6, 5)).astype(np.int32)}
    expected = NumpyExecutor(verified).run(feed, {}, "all").values
    plant(name, monkeypatch)
    native = NativeExecutor(verified, 1, machine)
    for capture in (frozenset(), "all"):
        found = native.run(feed, {}, capture).values  # type: ignore[arg-type]
        for tensor, values in found.items():
            np.testing.assert_array_equal(values, expected[tensor], err_msg=tensor)
    said = " ".join(native.explain())
    assert "plain, since otherwise" in said or native.refusals or name in FUSED


def test_explain_says_what_is_computed_plainly_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    plant("sums begin one too high", monkeypatch)
    lines = NativeExecutor(chain(), 1, available()[-1]).explain()
    assert any("plain, since otherwise" in line for line in lines)


def test_what_plain_kernels_do_not_prove_either_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    plant("formats of 7 bits", monkeypatch)
    with pytest.raises((Distrusted, OverflowError)):
        proven(chain(), available()[-1], frozenset({"dense"}), lambda made: lambda: made)


@pytest.mark.parametrize("threads", [True, False])
def test_what_is_done_meanwhile_counts_only_for_the_plan_that_is_proven(
    threads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not threads:
        monkeypatch.setattr(ThreadPoolExecutor, "submit", _no_threads)
    plant("sums begin one too high", monkeypatch)
    plans: list[Plan] = []

    def prepare(made: Plan) -> None:
        plans.append(made)
        if len(plans) == 1 and threads:
            raise RuntimeError("of a plan that is not proven")

    machine = available()[-1]
    made, code = proven(chain(), machine, frozenset({"dense"}), lambda plan: lambda: plan, meanwhile=prepare)
    assert code is made is plans[-1]
    assert len(plans) == (2 if threads else 1)

    def fail(made: Plan) -> None:
        raise RuntimeError("of the plan that is proven")

    with pytest.raises(RuntimeError, match="that is proven"):
        proven(chain(), machine, frozenset({"dense"}), lambda plan: lambda: plan, meanwhile=fail)


def _no_threads(*_: object) -> None:
    raise RuntimeError("can't start new thread")


# What the checker asks of the sum of a residual connection in words of 16 bits


@pytest.fixture(scope="module")
def joint() -> tuple[Residual, Formula, Home]:
    """The words of the chain's first residual sum, the formula that they stand for, and the bytes that they read."""
    verified = chain()
    machine = next(machine for machine in MACHINES if machine.name == "vnni512")
    for claim in planned(verified, machine).claims:
        kernel = claim.kernel if isinstance(claim, Computes) else None
        if isinstance(kernel, Contraction) and kernel.joint is not None:
            home = claim.reads[kernel.joint.read - 1]
            assert home is not None
            return kernel.joint, kernel.formula, home
    raise AssertionError("the chain has no such sum")


def test_the_words_of_a_residual_sum_are_proven(joint: tuple[Residual, Formula, Home]) -> None:
    require_joint(*joint)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"offset": 1}, "another offset"),
        ({"offset": 2}, "another offset"),
        ({"offset": 2**31}, "another offset"),
        ({"shift": 1}, "other multipliers"),
        ({"high": 1}, "other multipliers"),
        ({"low": 1}, "other multipliers"),
    ],
)
def test_another_number_in_the_words_is_not_proven(
    joint: tuple[Residual, Formula, Home], changes: dict[str, int], reason: str
) -> None:
    words, formula, home = joint
    ((name, more),) = changes.items()
    found = getattr(words, name)
    other = (found[0], found[1] + more) if isinstance(found, tuple) else found + more
    with pytest.raises(Unproven, match=reason):
        require_joint(replace(words, **{name: other}), formula, home)


@pytest.mark.parametrize("format_", [Format(8, True), Format(16, False, 128), Format(8, False)])
def test_words_of_other_bytes_are_not_proven(joint: tuple[Residual, Formula, Home], format_: Format) -> None:
    words, formula, home = joint
    with pytest.raises(Unproven, match=r"not stored in bytes|another offset"):
        require_joint(words, formula, replace(home, format=format_))


def test_words_of_nothing_are_not_proven(joint: tuple[Residual, Formula, Home]) -> None:
    words, formula, _ = joint
    with pytest.raises(Unproven, match="not stored in bytes"):
        require_joint(words, formula, None)


# Sums in 64 bits


@pytest.mark.parametrize("c", [-(2**62), 2**62, -(2**62) - 12_345])
def test_sums_of_64_bits_are_proven_at_both_ends(c: int) -> None:
    """The multiplier is 2^20, so that the node and the machine code say the same; the sums are near 2^62 and -2^62."""
    rule = Requantization("high", 1, "half_up", -128, 127)
    node, code = (2**20, c, 40), (2**20, c + 2**39, 8)
    _require_same(rule, node, code, (-1000, 1000, 0), 0, 0, (-128, 127))


@pytest.mark.parametrize("c", [2**63 - 2**29, -(2**63) + 2**29])
def test_sums_that_leave_64_bits_are_not_proven(c: int) -> None:
    rule = Requantization("high", 1, "half_up", -128, 127)
    with pytest.raises(Unproven, match="a sum does not fit in its lane"):
        _require_same(rule, (2**20, c, 40), (2**20, c, 8), (-1000, 1000, 0), 0, 0, (-128, 127))


def _gathered() -> VerifiedProgram:
    """A slice along an axis that a transpose has made the innermost one."""
    builder = ProgramBuilder()
    x = builder.input("x", (1, 32, 10, 4), -32768, 32767)
    (transposed,) = builder.add("transpose", [x], {"axes": (3, 2, 0, 1)})
    (y,) = builder.add("take", [transposed, builder.constant(np.array([18]))], {"axis": 3})
    return verify(builder.build([Output("y", y)]))


@pytest.mark.parametrize("machine", [*MACHINES, WASM], ids=lambda machine: machine.name)
def test_a_gather_reads_no_copy_of_its_first_slice(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The loops of a gather visit one slice of the tensor that it reads from; a copy would hold this slice alone."""
    verified = _gathered()
    assert unproven(verified, planned(verified, machine), machine) == {}

    def nest(self: Any, reads: Any, *others: Any) -> None:
        copies = [self._copied(home) if home.buffer.kind == "array" else home for home in reads]
        PLANNED_NEST(self, copies, *others)

    def copied(self: Any, home: Home) -> Home:
        fresh = self.fresh(home.view.shape, home.format)
        monkeypatch.setattr(planner.Planner, "nest", PLANNED_NEST)
        self.copy(home, fresh, "reordered")
        return fresh

    monkeypatch.setattr(planner.Planner, "_copied", copied, raising=False)
    monkeypatch.setattr(planner.Planner, "nest", nest)
    found = unproven(verified, planned(verified, machine), machine)
    assert found == {"take": "the kernel does not read transpose"}


def test_a_gather_from_an_exchanged_axis_is_computed_by_machine_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CVM_CACHE", "")
    verified = _gathered()
    feed = {"x": np.random.default_rng(1).integers(-32768, 32768, (1, 32, 10, 4)).astype(np.int32)}
    native = NativeExecutor(verified, 1, available()[0])
    expected = NumpyExecutor(verified).run(feed, {}, "all").values
    np.testing.assert_array_equal(native.run(feed, {}, "all").values["take"], expected["take"])
    assert "machine code is not used" not in native.explain()[0]
