"""What all ways of choosing quantisers for a graph have in common: numbers are observed, widths are given, all kept."""

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
"""Bits of what was refused with more."""
WIDE = 16
"""Bits of the activations that get more."""
WIDE_FILTER = 12
"""Bits of the filters that get more: products with codes of 16 bits still add up."""


class Chooser(ABC):
    """Quantisers for a graph, chosen for the numbers that it computes in float64 from ``inputs``.

    ``source`` is the graph that the program is compared with, ``graph`` the one that gets quantisers: the same numbers,
    with the channels rescaled where the settings say so. A quantiser that the graph has is what it is rounded by.
    Raises as `Reference.run`.
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
        """Forget what was widened and refused."""
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
        """One for other settings, of the same graph and data, that has what was measured on these already."""
        found = copy(self)
        found.settings = settings
        found._begin()
        if settings.equalize != self.settings.equalize:
            found._equalize()
        return found

    def calibration(self) -> Calibration:
        """The graph with the quantisers, and with what the settings say of its channels."""
        if self._found is None:
            found = replace(self._quantised(), rescaled=self._rescaled)
            self._found = self._corrected(found) if self.settings.correct_bias == "on" else found
        return self._found

    @abstractmethod
    def _quantised(self) -> Calibration:
        """The graph with the quantisers."""

    @abstractmethod
    def _corrected(self, found: Calibration) -> Calibration:
        """The same with corrected biases."""

    @abstractmethod
    def groups(self) -> list[Group]:
        """The tensors that share a quantiser and may get more bits than they have: activations, then filters."""

    @abstractmethod
    def remedy(self, error: Unsupported) -> bool:
        """Change what is rounded where lowering refuses an operation; whether there was anything to change."""

    def widen(self, groups: Sequence[Group]) -> None:
        """Give activations of these groups `WIDE` bits, filters `WIDE_FILTER`, and all others what the settings say."""
        self._found = None
        bits = {name: WIDE_FILTER if self._is_stored(name) else WIDE for group in groups for name in group}
        self._widths = bits | dict.fromkeys(self._narrowed, NARROW)

    def _narrow(self, names: Sequence[str]) -> None:
        self._found = None
        self._widths.update(dict.fromkeys(names, NARROW))
        self._narrowed.update(names)

    def _widenable(self, what: Plan, bits: Mapping[str, int]) -> list[Group]:
        """The groups of a plan that may get more bits; ``bits`` are those that differ from the settings."""
        settings = self.settings
        observed = [group for group in what.groups if group.observed]
        activations = [group.tensors for group in observed if bits.get(group.tensors[0], settings.bits) < WIDE]
        is_linear = settings.form != "logarithmic"
        filters = [item.tensors for item in what.filters if is_linear and settings.filter_bits < WIDE_FILTER]
        return [group for group in (*activations, *filters) if not self._narrowed.intersection(group)]

    def _observe(self, what: Plan) -> None:
        """Run the graph for the tensors of a plan whose numbers are not known yet."""
        wanted = [name for group in what.groups for name in group.observed if name not in self._histograms]
        if wanted:
            reference = Reference(self.graph, pseudo_quantize=True)
            names = list(dict.fromkeys(wanted))
            self._histograms |= observed_histograms(reference, self._inputs, names, self._cycles, self._on_run)

    def _is_stored(self, name: str) -> bool:
        return self.graph.tensors[name].data is not None

    def _operation(self, error: Unsupported) -> GraphOperation | None:
        """The operation that was refused: the one that computes the tensor of the error."""
        name = error.location.tensor
        return next((item for item in self.graph.operations if name in item.outputs), None)
