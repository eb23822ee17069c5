"""Calibration from scratch: every tensor of the plan for NNEF gets a quantiser; those that the
graph has are ignored.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy.typing as npt

from cvm.calibration.chooser import NARROW, WIDE, Chooser
from cvm.calibration.contents import with_contents
from cvm.calibration.correction import corrected, fitting_samples
from cvm.calibration.driver import Calibration, Calibrator, bare
from cvm.calibration.planning import Plan, plan
from cvm.calibration.sensitivity import Group
from cvm.calibration.settings import Settings
from cvm.errors import Invalid, Unsupported
from cvm.graph import QuantizedGraph, names_in, verify

__all__ = ["Recalibrator", "calibrate"]


def calibrate(
    graph: QuantizedGraph,
    inputs: Mapping[str, npt.ArrayLike],
    settings: Settings = Settings(),  # noqa: B008  (frozen)
    *,
    cycles: bool = False,
    on_run: Callable[[int], None] | None = None,
) -> Calibration:
    """Choose quantisers for a graph from the numbers that it computes in float64 on ``inputs``.

    Inputs are as for `Reference.run`, or `run_cycles` with ``cycles``; the graph is evaluated run by run, and only
    histograms are kept. Quantisers that the graph carries are ignored (`Completer` keeps them), except that integers
    given to an external with a quantiser are its codes. ``on_run`` is called with the number of finished runs (of
    `run_count`). Raises `Invalid` as `Reference` does, and (``calibration.real``) where a tensor becomes NaN or
    infinite.
    """
    if settings.is_open:
        message = "these settings leave choices open, which need a comparison of outputs"
        raise Invalid("calibration.choice", f"{message}: close them first (cvm.calibration.chosen_settings)")
    return Recalibrator(graph, inputs, settings, cycles=cycles, on_run=on_run).calibration()


class Recalibrator(Chooser):
    """Chooses quantisers for every tensor of a plan (`cvm.calibration.plan`), with biases. Raises the errors of
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
    ) -> None:
        super().__init__(bare(graph), inputs, settings, cycles=cycles, on_run=on_run)

    def _planned(self) -> tuple[Plan, dict[str, int]]:
        """The plan, and the bits of tensors whose bits differ from the settings.

        With wider activations, no accumulator passes unrounded into a normalisation: it is rounded to as many bits.
        """
        first = plan(self.graph, self.settings.accumulates)
        wide = any(bits > NARROW for name, bits in self._widths.items() if not self._is_stored(name))
        if not wide or not self.settings.accumulates:
            return first, self._widths
        whole = plan(self.graph, accumulates=False)
        known = {name for group in first.groups for name in group.tensors}
        added = [name for group in whole.groups for name in group.tensors if name not in known]
        return whole, dict.fromkeys(added, WIDE) | self._widths

    def _quantised(self) -> Calibration:
        what, widths = self._planned()
        self._observe(what)
        return Calibrator(self.graph, what, self.settings, self._histograms, widths, (), self._filters).calibration()

    def _corrected(self, found: Calibration) -> Calibration:
        filters = {item.name for item in found.tensors if item.role == "filter"}
        samples = fitting_samples(self.graph, self._inputs, self._cycles)
        graph, changed = corrected(
            self.graph, found.graph, self._inputs, filters, samples, may_add=self._adds_biases, known=self._means
        )
        contents = {item.bias: graph.tensors[item.bias].data for item in changed}
        values = {name: data.values for name, data in contents.items() if data is not None}
        real = verify(with_contents(self.graph, values), "the calibration")
        what, widths = self._planned()  # a greater bias may need more bits
        again = Calibrator(real, what, self.settings, self._histograms, widths).calibration()
        return replace(again, rescaled=found.rescaled, corrected=changed)

    def groups(self) -> list[Group]:
        """The groups of tensors that share a quantiser and may get more bits than they have:
        activations, then filters.
        """
        return self._widenable(plan(self.graph, self.settings.accumulates), {})

    def remedy(self, error: Unsupported) -> bool:
        """Give `NARROW` bits to the wider tensors of a refused operation. Returns whether there were any.

        An operand without a quantiser is followed back to the tensors that it is computed from.
        """
        operation = self._operation(error)
        if operation is None:
            return False
        tensors = self.calibration().graph.tensors
        makers = {name: item for item in self.graph.operations for name in item.outputs}
        pending = [*operation.outputs, *(name for value in operation.inputs.values() for name in names_in(value))]
        near: dict[str, None] = {}
        while pending:
            name = pending.pop()
            if name in near:
                continue
            near[name] = None
            if tensors[name].quantizer is None and name in makers:
                pending += [item for value in makers[name].inputs.values() for item in names_in(value)]
        wide = [name for name in near if self._widths.get(name, NARROW) > NARROW]
        self._narrow(wide)
        return bool(wide)
