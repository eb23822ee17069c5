"""The base class of all choosers of quantisers: it observes numbers, assigns bit widths, and keeps the results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace

import numpy.typing as npt

from cvm.calibration.driver import Calibration, FilterCache, observed_histograms
from cvm.calibration.equalization import Rescaled, equalized
from cvm.calibration.planning import Plan
from cvm.calibration.sensitivity import Group
from cvm.calibration.settings import Settings
from cvm.errors import Unsupported
from cvm.graph import GraphOperation, QuantizedGraph
from cvm.quantization.calibration import Histogram
from cvm.reference import Reference

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
        self._begin()
        self._equalize()

    def _begin(self) -> None:
        """Forget which tensors were widened and narrowed."""
        self._found: Calibration | None = None
        self._widths: dict[str, int] = {}
        self._narrowed: set[str] = set()

    def _equalize(self) -> None:
        self._histograms: dict[str, Histogram] = {}
        self._rescaled: tuple[Rescaled, ...] = ()
        self.graph = self.source
        if self.settings.equalize == "on":
            channels = self.settings.per_channel
            self.graph, self._rescaled = equalized(
                self.source, self._inputs, per_channel=channels, cycles=self._cycles
            )  # fmt: skip

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
        self._widths = bits | dict.fromkeys(self._narrowed, NARROW)

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
        """Run the graph, and take histograms of the plan's tensors that have none yet."""
        wanted = [name for group in what.groups for name in group.observed if name not in self._histograms]
        if wanted:
            reference = Reference(self.graph, pseudo_quantize=True)
            names = list(dict.fromkeys(wanted))
            self._histograms |= observed_histograms(reference, self._inputs, names, self._cycles, self._on_run)

    def _is_stored(self, name: str) -> bool:
        return self.graph.tensors[name].data is not None

    def _operation(self, error: Unsupported) -> GraphOperation | None:
        """The operation that lowering refused, which computes the tensor of the error."""
        name = error.location.tensor
        return next((item for item in self.graph.operations if name in item.outputs), None)
