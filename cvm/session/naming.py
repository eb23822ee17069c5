"""Which tensors a caller asks for, and the results of runs under the names that the caller knows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal

from cvm.arguments import expected
from cvm.errors import Invalid, Location
from cvm.executors import Capture, Int32Array, RunResult
from cvm.inputs import Layout
from cvm.records import dataclass
from cvm.session.opening import Source
from cvm.session.result import Result

if TYPE_CHECKING:
    from cvm.program.model import ProgramParts

__all__ = ["Captured", "Naming"]


@dataclass(frozen=True, slots=True)
class Captured:
    """The tensors that a caller asks for besides the outputs."""

    tensors: Mapping[str, str] | Literal["all"]
    """For each name, the value of the program that holds its codes."""
    values: Capture
    """These values, for the executor."""


NOTHING = Captured({}, frozenset())
ALL = Captured("all", "all")


class Naming:
    """The names of the outputs and tensors of a program.

    The executor knows values. An output has a name of its own, and so has a tensor of the document.
    """

    def __init__(self, parts: ProgramParts, shapes: Mapping[str, tuple[int, ...]], source: Source) -> None:
        self._outputs, self._shapes, self._source = parts.outputs, shapes, source
        self.quantizers = {out.name: out.quantizer for out in parts.outputs if out.quantizer is not None}
        """The quantisers of the outputs that have one."""

    def captured(self, capture: str | Iterable[str] | None) -> Captured:
        """The tensors that ``capture`` names, as `Session.run` takes it. Raises `Invalid` (``executors.capture``)."""
        if capture is None:
            return NOTHING
        if capture == "all":
            return ALL
        names = [capture] if isinstance(capture, str) else capture
        if not isinstance(names, Iterable):
            raise expected("capture", "'all', a name or names of tensors", capture)
        verified = self._source.verified
        values = {item.tensor: item.value for item in verified.program.provenance.exactness}
        tensors = {name: name if name in verified.shapes else values.get(name, name) for name in names}
        for name, value in tensors.items():
            if not value:
                kept = "it is constant, or only another order of some value (--no-optimize keeps those)"
                message = f"the program has no value for the tensor {name!r}: {kept}"
                raise Invalid("executors.capture", message, Location(tensor=name))
        return Captured(tensors, frozenset(tensors.values()))

    def single(self, result: RunResult) -> Result:
        """The outputs of one run."""
        return Result({output.name: result.values[output.value] for output in self._outputs}, self.quantizers)

    def joined(self, results: Sequence[RunResult], layout: Layout, captured: Captured) -> Result:
        """The outputs and captured tensors of several runs, stacked as their inputs were."""
        values = {name: layout.join([result.values[name] for result in results]) for name in results[0].values}
        return self.labelled(values, layout, captured)

    def labelled(self, values: Mapping[str, Int32Array], layout: Layout, captured: Captured) -> Result:
        """The outputs and captured tensors among values that are stacked already."""
        codes = {output.name: values[output.value] for output in self._outputs}
        tensors = {name: name for name in values} if captured.tensors == "all" else captured.tensors
        codes |= {name: values[value] for name, value in sorted(tensors.items()) if name not in codes}
        quantizers = {
            output.name: layout.quantizer(output.quantizer, self._shapes[output.value])
            for output in self._outputs
            if output.quantizer is not None
        }
        return Result(codes, quantizers)
