"""Completion of a graph that has some quantisers or none: those it has stay, those that lowering needs are added."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType

import numpy.typing as npt

from cvm.calibration.chooser import NARROW, Chooser
from cvm.calibration.correction import corrected, fitting_samples
from cvm.calibration.driver import CalibratedTensor, Calibration, Calibrator
from cvm.calibration.placement import Placement
from cvm.calibration.planning import Plan, plan
from cvm.calibration.sensitivity import Group
from cvm.calibration.settings import Settings
from cvm.errors import Unsupported
from cvm.graph import QuantizedGraph, names_in, verify
from cvm.limits import INT32_MAX
from cvm.quantization import LinearQuantizer

__all__ = ["Completer"]

_INTEGERS = LinearQuantizer((Fraction(1),), (Fraction(0),), -INT32_MAX, INT32_MAX)
"""The quantiser of outputs that are integers; it rounds nothing."""
_ROOM = 4
"""An output with this many more bits gets a range four times that of the data, so that less is clipped."""


class Completer(Chooser):
    """Chooses the quantisers that a graph lacks, from the numbers that it computes in float64 on ``inputs``.

    In these numbers, tensors that have a quantiser are rounded, as the graph says. `Placement` finds the tensors that
    need one; or, with ``only``, they are those tensors of the plan for NNEF (`cvm.calibration.plan`) that have these
    names. Where lowering refuses the result, `remedy` rounds one more tensor or reduces bits. Raises the errors of
    `calibrate`.
    """

    def __init__(
        self,
        graph: QuantizedGraph,
        inputs: Mapping[str, npt.ArrayLike],
        settings: Settings,
        *,
        cycles: bool = False,
        on_run: Callable[[int], None] | None = None,
        only: Collection[str] | None = None,
    ) -> None:
        self._only = only
        super().__init__(graph, inputs, settings, cycles=cycles, on_run=on_run)

    def _begin(self) -> None:
        super()._begin()
        self._also: dict[str, None] = {}

    def _corrected(self, found: Calibration) -> Calibration:
        filters = {item.name for item in found.tensors if item.role == "filter"}
        samples = fitting_samples(self.graph, self._inputs, self._cycles)
        graph, changed = corrected(self.graph, found.graph, self._inputs, filters, samples, known=self._means)
        return replace(found, graph=graph, corrected=changed)

    def _quantised(self) -> Calibration:
        if self._only is not None:
            what = plan(self.graph, self.settings.accumulates).within(self._only)
            self._observe(what)
            return Calibrator(self.graph, what, self.settings, self._histograms, filters=self._filters).calibration()
        placement = Placement(self.graph, tuple(self._also))
        what = placement.plan()
        self._observe(what)
        outputs = self._output_widths(placement, what)
        widths = outputs | self._widths
        roomy = [name for name in outputs if widths[name] >= self.settings.bits + _ROOM]
        calibrator = Calibrator(self.graph, what, self.settings, self._histograms, widths, roomy, self._filters)
        found = calibrator.calibration()
        return self._with_integers(found, placement)

    def _output_widths(self, placement: Placement, what: Plan) -> dict[str, int]:
        """The bits of outputs that no operation reads, where the settings give them separate bits."""
        bits = self.settings.output_bits
        if bits is None:
            return {}
        return {name: bits for group in what.groups if placement.ends(group) for name in group.tensors}

    def _with_integers(self, found: Calibration, placement: Placement) -> Calibration:
        """The calibration with the quantiser of machine integers for outputs that are integers."""
        names = [name for name in placement.needed if name in placement.integers]
        tensors = dict(found.graph.tensors)
        for name in names:
            tensors[name] = replace(tensors[name], quantizer=_INTEGERS)
        graph = verify(replace(found.graph, tensors=MappingProxyType(tensors)), "the calibration")
        entries = tuple(CalibratedTensor(name, "activation", _INTEGERS, -INT32_MAX, INT32_MAX, 0.0) for name in names)
        return Calibration(graph, found.tensors + entries)

    def groups(self) -> list[Group]:
        """The groups of tensors that share a quantiser and may get more bits than they have:
        activations, then filters.
        """
        placement = Placement(self.graph, tuple(self._also))
        what = placement.plan()
        return self._widenable(what, self._output_widths(placement, what))

    def remedy(self, error: Unsupported) -> bool:
        """Change what is rounded where lowering refuses an operation. Returns whether there was anything to change.

        An output that has more bits than others gets 8. Otherwise those of the operation's operands and results that
        have no quantiser get one. If all have one, those with more than 8 bits get 8, and so do its widened filters.
        """
        self._found = None
        operation = self._operation(error)
        if operation is None:
            return False
        placement = Placement(self.graph, tuple(self._also))
        bits = self._output_widths(placement, placement.plan()) | self._widths
        ends = [name for name in operation.outputs if bits.get(name, 0) > max(NARROW, self.settings.bits)]
        if ends and not self._narrowed.intersection(ends):
            self._narrow([name for name in bits if name in self.graph.outputs or name in ends])
            return True
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
        wide = [name for name in near if self._widths.get(name, self.settings.bits) > NARROW]
        wide += [name for name in stored if self._widths.get(name, NARROW) > NARROW]
        self._narrow(wide)
        return bool(wide)

    def _lacks(self, name: str) -> bool:
        tensor = self.graph.tensors[name]
        return tensor.dtype == "scalar" and tensor.quantizer is None
