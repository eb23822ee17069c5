"""Completion of a graph that is quantised in part, or not at all: what it has stays, what lowering lacks is added."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy.typing as npt

from cvm.calibration.driver import CalibratedTensor, Calibration, Calibrator, observed_histograms
from cvm.calibration.placement import Placement
from cvm.calibration.roles import names_in
from cvm.calibration.sensitivity import Group
from cvm.calibration.settings import Settings
from cvm.errors import Unsupported
from cvm.graph import GraphOperation, QuantizedGraph, verify
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer
from cvm.quantization.calibration import Histogram
from cvm.reference import Reference

__all__ = ["WIDE", "WIDE_FILTER", "Completer"]

_INTEGERS = LinearQuantizer((Fraction(1),), (Fraction(0),), -INT32_MAX, INT32_MAX)
"""Of outputs that are integers: nothing is rounded."""
_NARROW = 8
WIDE = 16
"""Bits of the activations that get more."""
WIDE_FILTER = 12
"""Bits of the filters that get more: products with codes of 16 bits still add up."""


class Completer:
    """Quantisers for what a graph lacks, chosen for the numbers that it computes in float64 from ``inputs``.

    The tensors that have a quantiser are rounded in these numbers, as the graph says. A stage that refuses the result
    is met with `remedy`: one more tensor is rounded, or fewer bits are used. Raises as `calibrate`.
    """

    def __init__(
        self,
        graph: QuantizedGraph,
        inputs: Mapping[str, npt.ArrayLike],
        settings: Settings,
        *,
        cycles: bool = False,
        on_run: Callable[[int], None] | None = None,
    ) -> None:
        self.graph = graph
        self._inputs, self._settings, self._cycles = inputs, settings, cycles
        self._on_run = on_run
        self._histograms: dict[str, Histogram] = {}
        self._also: dict[str, None] = {}
        self._widths: dict[str, int] = {}
        self._narrowed: set[str] = set()

    def calibration(self) -> Calibration:
        """The graph with the quantisers that it lacked."""
        placement = Placement(self.graph, tuple(self._also))
        what = placement.plan()
        wanted = [name for group in what.groups for name in group.observed if name not in self._histograms]
        if wanted:
            reference = Reference(self.graph, pseudo_quantize=True)
            names = list(dict.fromkeys(wanted))
            self._histograms |= observed_histograms(reference, self._inputs, names, self._cycles, self._on_run)
        found = Calibrator(self.graph, what, self._settings, self._histograms, self._widths).calibration()
        return self._with_integers(found, placement)

    def _with_integers(self, found: Calibration, placement: Placement) -> Calibration:
        """Outputs that are integers get the quantiser of these."""
        names = [name for name in placement.needed if name in placement.integers]
        tensors = dict(found.graph.tensors)
        for name in names:
            tensors[name] = replace(tensors[name], quantizer=_INTEGERS)
        graph = verify(replace(found.graph, tensors=MappingProxyType(tensors)), "the calibration")
        entries = tuple(CalibratedTensor(name, "activation", _INTEGERS, -INT32_MAX, INT32_MAX, 0.0) for name in names)
        return Calibration(graph, found.tensors + entries)

    def groups(self) -> list[Group]:
        """The tensors that share a quantiser and may get more bits than they have: activations, then filters."""
        what, settings = Placement(self.graph, tuple(self._also)).plan(), self._settings
        activations = [group.tensors for group in what.groups if group.observed and settings.bits < WIDE]
        filters = [item.tensors for item in what.filters if settings.filter_bits < WIDE_FILTER]
        return [group for group in (*activations, *filters) if not self._narrowed.intersection(group)]

    def widen(self, groups: Sequence[Group]) -> None:
        """Give activations of these groups `WIDE` bits, filters `WIDE_FILTER`, and all others what the settings say."""
        bits = {name: WIDE_FILTER if self._is_stored(name) else WIDE for group in groups for name in group}
        self._widths = bits | dict.fromkeys(self._narrowed, _NARROW)

    def remedy(self, error: Unsupported) -> bool:
        """Change what is rounded where lowering refuses an operation; whether there was anything to change.

        First its operands and its result are rounded, each where it is not; then, where they have more than 8 bits,
        they get 8, and so do its filters where they got more.
        """
        operation = self._operation(error)
        if operation is None:
            return False
        placement = Placement(self.graph, tuple(self._also))
        every = [name for value in operation.inputs.values() for name in names_in(value)]
        stored = [name for name in every if self._is_stored(name)]
        operands = [name for name in every if not placement.uses.fixed(name)]
        lacking = [name for name in operands if name not in placement.needed and self._lacks(name)]
        if not lacking:
            lacking = [name for name in operation.outputs if name not in placement.needed and self._lacks(name)]
        if lacking:
            self._also.update(dict.fromkeys(lacking))
            return True
        near = [name for name in (*operands, *operation.outputs) if self._lacks(name)]
        wide = [name for name in near if self._widths.get(name, self._settings.bits) > _NARROW]
        wide += [name for name in stored if self._widths.get(name, _NARROW) > _NARROW]
        self._widths.update(dict.fromkeys(wide, _NARROW))
        self._narrowed.update(wide)
        return bool(wide)

    def _is_stored(self, name: str) -> bool:
        return self.graph.tensors[name].data is not None

    def _lacks(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        return tensor.dtype == "scalar" and tensor.quantizer is None

    def _operation(self, error: Unsupported) -> GraphOperation | None:
        """The operation that was refused: the one that computes the tensor of the error."""
        name = error.location.tensor
        return next((item for item in self.graph.operations if name in item.outputs), None)
