"""The classes of kernels, each with a small program that tries it.

A module each has the programs that sum products, those of other ops, and those of op-set 2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime.classes import EPILOGUES
from cvm.executors.native.runtime.trial_programs import computed, elements, sums
from cvm.executors.native.runtime.trial_programs.building import SPANS
from cvm.program.program import Program
from cvm.program.verifier import VerifiedProgram, verify
from cvm.records import dataclass

__all__ = ["CLASSES", "Class", "programs"]


@dataclass(frozen=True, slots=True)
class Class:
    """A class of kernels: its name, the kinds of kernels that its program tries, and the function that makes it.

    A machine whose products of bytes saturate tries the kinds ``saturating``, if they are given. A machine that does
    not compute in squares tries no kind of them.
    """

    name: str
    kinds: frozenset[str]
    made: Callable[[], Program]
    saturating: frozenset[str] | None = None

    def tries(self, machine: Machine) -> frozenset[str]:
        """The kinds of kernels that the program tries on a machine."""
        found = self.kinds if self.saturating is None or not machine.saturates else self.saturating
        return found if machine.squares is not None else frozenset(one for one in found if "squares" not in one)

    def program(self) -> VerifiedProgram:
        """The program of the class."""
        return verify(self.made())


def _classes() -> Iterator[Class]:
    for epilogue in EPILOGUES:
        for one in sums.of_sums():
            name = one.name if epilogue == EPILOGUES[0] else f"{one.name}, {epilogue}"
            kinds, saturating = (
                frozenset(f"{kind}, {epilogue}" for kind in products) for products in (one.kinds, one.saturating)
            )
            yield Class(name, kinds, partial(one.made, epilogue), saturating)
    large = (1, 100, 11, 14), (100, 1, 11, 9)
    made = partial(sums.convolution_of, EPILOGUES[0], large, (0, 255), 128, groups=100)
    loops = frozenset({"depthwise loops"})
    yield Class("depthwise convolution of large windows", loops, made, loops | {"depthwise digits, codes"})
    yield Class("depthwise convolution of few channels", frozenset({"depthwise pixels"}), sums.few_channels)
    for what, last in (("residual sum", (1_500_000_001, 1_234_567_891, 99_999, 31)),
                       ("residual sum of small numbers", (5, -3, 1, 2))):  # fmt: skip
        yield Class(what, frozenset({"residual"}), partial(sums.residual, last))
    for rounding in ("half_up", "half_even", "toward_zero"):
        kind = frozenset({f"requantize {rounding}"})
        yield Class(f"requantize, {rounding}", kind, partial(sums.requantization, rounding))
        yield Class(f"requantize at the ends of its results, {rounding}", kind, partial(sums.ends_of_results, rounding))
    yield Class("requantize of bytes", frozenset({"bytes in words"}), elements.bytes_in_words)
    yield Class("ops by element", frozenset({"elements"}), elements.elementwise)
    yield Class("ops by element in narrow lanes", frozenset({"narrow"}), elements.narrow)
    yield Class("ops that move elements", frozenset({"copies"}), elements.moved)
    yield Class("transposes by blocks", frozenset({"blocks"}), elements.transposed)
    yield Class("windows", frozenset({"pools"}), elements.pools)
    for op, what in (("sum", "sums"), ("max", "maxima")):
        for bits, spans in ((8, SPANS[:2]), (16, SPANS[2:4]), (32, SPANS[4:])):
            yield Class(f"{what} of {bits} bits", frozenset({f"{op} {bits}"}), partial(elements.reductions, op, spans))
    yield Class("detections", frozenset({"detections"}), elements.detections)
    yield Class("products of computed matrices", frozenset({"computed", "matrices"}), computed.matrices)
    yield Class("ops of op-set 2", frozenset({"computed"}), computed.of_op_set_2)


CLASSES = tuple(_classes())
"""All classes of kernels, those of most networks first."""


def programs() -> Iterator[tuple[str, VerifiedProgram]]:
    """Small programs, each with the name of the class of kernels that it tries."""
    return ((one.name, one.program()) for one in CLASSES)
