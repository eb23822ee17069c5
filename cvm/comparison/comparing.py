"""Compare what an engine shows with the exact codes: what each of its operators adds, and what it inherits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.model import Model, Operator, opened
from cvm.comparison.running import Shown
from cvm.inputs import Feed
from cvm.records import dataclass

__all__ = ["Compared", "Counts", "Difference", "Disagreement", "agreement", "compared", "disagreements"]

Codes = npt.NDArray[np.int64]


@dataclass(slots=True)
class Counts:
    """How codes differ, over all samples."""

    of: int = 0
    differ: int = 0
    farthest: int = 0
    """The largest distance, in codes."""
    above: int = 0
    """Where the engine's code is the greater one."""
    channels: set[int] = field(default_factory=set)
    """The indices along the channel axis (the last, or axis 1 of four in ONNX) where codes differ."""
    border: int = 0
    """For images: differences in the outermost rows and columns."""
    image: bool = False
    """Whether the tensor has rows and columns."""
    first: tuple[int, tuple[int, ...], int, int] | None = None
    """The first difference: sample, index, the engine's code, the exact one."""

    def add(self, sample: int, engine: Codes, exact: Codes, channel_axis: int) -> None:
        """Take one sample into account."""
        self.of += exact.size
        self.image = exact.ndim == 4
        away = engine - exact
        places = np.nonzero(away)
        if not places[0].size:
            return
        self.differ += int(places[0].size)
        self.farthest = max(self.farthest, int(np.abs(away).max()))
        self.above += int((away > 0).sum())
        self.channels.update(np.unique(places[channel_axis]).tolist())
        if exact.ndim == 4:
            rows, columns = (axis for axis in (1, 2, 3) if axis != channel_axis % 4)
            ends = [(places[axis] == 0) | (places[axis] == exact.shape[axis] - 1) for axis in (rows, columns)]
            self.border += int((ends[0] | ends[1]).sum())
        if self.first is None:
            index = tuple(int(axis[0]) for axis in places)
            self.first = sample, index, int(engine[index]), int(exact[index])

    def to_json(self) -> dict[str, Any]:
        """A JSON document."""
        found: dict[str, Any] = {"of": self.of, "differ": self.differ, "farthest": self.farthest, "above": self.above}
        found |= {"channels": len(self.channels), "border": self.border, "image": self.image}
        if self.first is not None:
            sample, index, engine, exact = self.first
            found["first"] = {"sample": sample, "index": list(index), "engine": engine, "exact": exact}
        return found


@dataclass(frozen=True, eq=False, slots=True)
class Difference:
    """One tensor of the model: how the engine's codes differ from the exact ones."""

    name: str
    operators: tuple[Operator, ...]
    """The operators that compute it from the tensors that the engine shows before it."""
    own: Counts
    """Against what follows exactly from the engine's own tensors before it: what these operators add."""
    total: Counts
    """Against the exact codes for the same inputs: what they add and what they inherit."""


@dataclass(frozen=True, eq=False, slots=True)
class Compared:
    """An engine's tensors beside the exact ones."""

    model: Model
    """The model, with the tensors that the engine shows."""
    shown: Shown
    samples: int
    tensors: tuple[Difference, ...]
    """In the order of the file."""
    classes: tuple[tuple[int, int], ...]
    """For each sample, the index of the greatest code of the last tensor: in the engine, and exactly."""

    @property
    def first(self) -> Difference | None:
        """The first tensor, in the order of the file, to which its operators add a difference; None without one."""
        return next((item for item in self.tensors if item.own.differ), None)


def compared(model: Model, found: Shown, feeds: Iterable[Feed]) -> Compared:
    """Compare all tensors that the engine shows. ``feeds`` gives the input codes of each sample.

    If it hides tensors, the model is opened once more without them.
    """
    if found.hidden:
        model = opened(model.path, [place.name for place in model.places if place.name in found.codes])
    sums: Mapping[str, tuple[Counts, Counts]] = {place.name: (Counts(), Counts()) for place in model.places}
    classes = []
    for sample, feed in enumerate(feeds):
        engine = {name: codes[sample] for name, codes in found.codes.items()}
        exact, follows = model.exact(feed), model.follows(feed, engine)
        for place in model.places:
            codes = engine[place.name].reshape(exact[place.name].shape)
            axis = channel_axis(model, codes.ndim)
            for counts, right in zip(sums[place.name], (follows, exact), strict=True):
                counts.add(sample, codes, right[place.name].astype(np.int64), axis)
        last = model.places[-1].name
        classes.append((int(engine[last].argmax()), int(exact[last].argmax())))
    tensors = tuple(Difference(place.name, model.operators[place.name], *sums[place.name]) for place in model.places)
    return Compared(model, found, len(classes), tensors, tuple(classes))


def channel_axis(model: Model, rank: int) -> int:
    """The axis of channels: the last in TFLite; in ONNX axis 1 of tensors of rank 4, else the last."""
    return 1 if model.kind == "onnx" and rank == 4 else -1


def agreement(runs: Sequence[Shown]) -> dict[str, int]:
    """For each tensor that all runs show, how many codes are not the same in all of them."""
    names = [name for name in runs[0].codes if all(name in run.codes for run in runs)]
    found = {}
    for name in names:
        first = runs[0].codes[name]
        different = np.zeros(first.shape, bool)
        for run in runs[1:]:
            different |= run.codes[name].reshape(first.shape) != first
        found[name] = int(different.sum())
    return found


@dataclass(frozen=True, slots=True)
class Disagreement:
    """An engine whose settings do not give the same codes."""

    engine: str
    groups: tuple[tuple[str, ...], ...]
    """The settings, those together that give the same codes everywhere."""
    tensors: Mapping[str, int]
    """For each shown tensor that is not the same in all settings, in the order of the file: codes that differ."""
    outputs: Mapping[str, int]
    """The same for the outputs of the file, where the engine shows nothing else."""


def disagreements(runs: Sequence[Shown]) -> list[Disagreement]:
    """The engines that disagree with themselves: with other threads, instruction sets or other settings."""
    engines: dict[str, list[Shown]] = {}
    for run in runs:
        engines.setdefault(" ".join(run.setting.command) or run.setting.engine, []).append(run)
    found = []
    for engine, same in engines.items():
        tensors = {name: count for name, count in agreement(same).items() if count}
        outputs = {name: count for name, count in _outputs_apart(same).items() if count}
        if tensors or outputs:
            found.append(Disagreement(engine, _groups(same), tensors, outputs))
    return found


def _outputs_apart(runs: Sequence[Shown]) -> dict[str, int]:
    first = runs[0].outputs
    return {
        name: int(np.any([run.outputs[name] != array for run in runs[1:] if name in run.outputs], axis=0).sum())
        for name, array in first.items()
        if len(runs) > 1
    }


def _groups(runs: Sequence[Shown]) -> tuple[tuple[str, ...], ...]:
    groups: list[list[Shown]] = []
    for run in runs:
        for group in groups:
            if not any(agreement([group[0], run]).values()) and not any(_outputs_apart([group[0], run]).values()):
                group.append(run)
                break
        else:
            groups.append([run])
    return tuple(tuple(run.setting.label for run in group) for group in groups)
