"""The base class of all choosers of quantisers: it observes numbers, assigns bit widths, and keeps the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy.typing as npt

from cvm.calibration.contents import Floats
from cvm.calibration.correction import fitting_samples, means_wanted
from cvm.calibration.driver import Calibration, FilterCache
from cvm.calibration.equalization import Rescaled, equalized, magnitudes_wanted
from cvm.calibration.observing import Measurements, Run, measure
from cvm.calibration.planning import Plan
from cvm.calibration.sensitivity import Group
from cvm.calibration.settings import Settings
from cvm.errors import Unsupported
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.quantization.calibration import Histogram

__all__ = ["NARROW", "WIDE", "WIDE_FILTER", "Chooser"]

NARROW = 8
"""The bits of tensors of an operation that lowering refused with more bits."""
WIDE = 16
"""The bits of widened activations."""
WIDE_FILTER = 12
"""The bits of widened filters: sums of their products with codes of 16 bits still fit."""


class Chooser(ABC):
    """Chooses quantisers for a graph from the numbers that it computes in float64 on ``inputs``.

    ``source`` is the graph that the program is compared with; ``graph`` is the graph that gets quantisers: the same
    function, with rescaled channels where the settings say so. A quantiser that the graph already has stays, and the
    graph is rounded by it. Raises the errors of `Reference.run`.
    """

    _adds_biases = True
    """Whether bias correction adds constants to results that have no bias."""

    def __init__(
        self,
        graph: QuantizedGraph,
        inputs: Mapping[str, npt.ArrayLike],
        settings: Settings,
        *,
        cycles: bool = False,
        on_run: Callable[[int], None] | None = None,
    ) -> None:
        self.source = graph
        self.settings = settings
        self._inputs, self._cycles, self._on_run = inputs, cycles, on_run
        self._filters: FilterCache = {}
        self._may = settings
        # Choosers that are alike share these, and so what any of them measured of the same graph.
        self._outputs: list[Run] = []
        self._histograms: dict[str, Histogram] = {}
        self._magnitudes: dict[str, Floats] = {}
        self._means: dict[str, Floats] = {}
        self.graph = graph
        self._begin()
        self._equalize()

    def _begin(self) -> None:
        """Forget which tensors were widened and narrowed."""
        self._found: Calibration | None = None
        self._named = self.settings.named(self.source.tensors)
        self._widths: dict[str, int] = dict(self._named)
        self._narrowed: set[str] = set()

    def _equalize(self) -> None:
        """Rescale channels if the settings say so, and forget what was measured of another graph."""
        self._rescaled: tuple[Rescaled, ...] = ()
        before, self.graph = self.graph, self.source
        if self.settings.equalize == "on":
            channels, known = self.settings.per_channel, self._magnitudes
            self.graph, self._rescaled = equalized(
                self.source, self._inputs, per_channel=channels, cycles=self._cycles, known=known
            )  # fmt: skip
        if self.graph is not before:
            self._histograms, self._means = {}, {}

    def alike(self, settings: Settings) -> Chooser:
        """A chooser for other settings, the same graph and the same data, which reuses the measurements made so far."""
        found = copy(self)
        found.settings = settings
        found._begin()
        if settings.equalize != self.settings.equalize:
            found._equalize()
        return found

    def calibration(self) -> Calibration:
        """The graph with quantisers, and with the changes of its channels that the settings ask for."""
        if self._found is None:
            found = replace(self._quantised(), rescaled=self._rescaled)
            self._found = self._corrected(found) if self.settings.correct_bias == "on" else found
        return self._found

    @abstractmethod
    def _quantised(self) -> Calibration:
        """The graph with quantisers, before any bias correction."""

    @abstractmethod
    def _corrected(self, found: Calibration) -> Calibration:
        """The calibration with corrected biases."""

    @abstractmethod
    def groups(self) -> list[Group]:
        """The groups of tensors that share a quantiser and may get more bits than they have:
        activations, then filters.
        """

    @abstractmethod
    def remedy(self, error: Unsupported) -> bool:
        """Change what is rounded where lowering refuses an operation. Returns whether there was anything to change."""

    def widen(self, groups: Sequence[Group]) -> None:
        """Give the activations of these groups `WIDE` bits, their filters `WIDE_FILTER`, and all other tensors the bits
        of the settings.
        """
        self._found = None
        bits = {name: WIDE_FILTER if self._is_stored(name) else WIDE for group in groups for name in group}
        self._widths = self._named | bits | dict.fromkeys(self._narrowed, NARROW)

    def _narrow(self, names: Sequence[str]) -> None:
        self._found = None
        self._widths.update(dict.fromkeys(names, NARROW))
        self._narrowed.update(names)

    def _widenable(self, what: Plan, bits: Mapping[str, int]) -> list[Group]:
        """The groups of a plan that may get more bits; ``bits`` holds the widths that differ from the settings."""
        settings = self.settings
        observed = [group for group in what.groups if group.observed]
        activations = [group.tensors for group in observed if bits.get(group.tensors[0], settings.bits) < WIDE]
        is_linear = settings.form != "logarithmic"
        filters = [item.tensors for item in what.filters if is_linear and settings.filter_bits < WIDE_FILTER]
        return [group for group in (*activations, *filters) if not self._narrowed.intersection(group)]

    def _observe(self, what: Plan) -> None:
        """Run the graph, and take histograms of the plan's tensors that have none yet.

        The first run of a graph also measures what the choices that were open at first may need, and its outputs.
        """
        names = [name for group in what.groups for name in group.observed if name not in self._histograms]
        if not names:
            return
        further = Measurements() if self._histograms else self._further(what)
        wanted = replace(further, histograms=tuple(dict.fromkeys(names)))
        seen = measure(self.graph, self._inputs, wanted, self._cycles, self._on_run)
        self._histograms |= seen.histograms
        self._means |= seen.means
        if self.graph is self.source:
            self._magnitudes |= seen.magnitudes
            self._outputs.extend(() if self._outputs else seen.outputs)

    def _further(self, what: Plan) -> Measurements:
        """What equalisation and bias correction measure, if the settings allow them."""
        magnitudes: dict[str, int] = {}
        means: dict[str, int] = {}
        if self._may.equalize == "auto" and self.graph is self.source:
            magnitudes = magnitudes_wanted(self.graph, self._may.per_channel)
        if self._may.correct_bias != "off":
            filters = {name for item in what.filters for name in item.tensors}
            means = means_wanted(self.graph, filters, self._adds_biases)
        samples = fitting_samples(self.graph, self._inputs, self._cycles).stop
        return Measurements(magnitudes=magnitudes, means=means, samples=samples)

    @property
    def outputs(self) -> Sequence[Run]:
        """The outputs of ``source`` in every run, if they were measured and are not large; else none."""
        return self._outputs

    def _is_stored(self, name: str) -> bool:
        return self.graph.tensors[name].data is not None

    def _operation(self, error: Unsupported) -> GraphOperation | None:
        """The operation that lowering refused, which computes the tensor of the error."""
        name = error.location.tensor
        return next((item for item in self.graph.operations if name in item.outputs), None)
