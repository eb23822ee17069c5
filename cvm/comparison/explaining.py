"""Find the arithmetic that gives an engine's codes where they differ from the exact ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.comparing import Compared
from cvm.comparison.model import Model as Opened
from cvm.comparison.model import in_file
from cvm.comparison.models import Model, Numbers, models_for
from cvm.comparison.regions import Region, Regions
from cvm.inputs import Feed
from cvm.records import dataclass

__all__ = ["Example", "Explanation", "explained"]

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Example:
    """One element, worked out both ways."""

    sample: int
    index: tuple[int, ...]
    engine: int
    exact: int
    exactly: str
    """The exact result in steps of the scale, in decimals; the code is this, rounded, plus ``zero``."""
    zero: int
    stages: tuple[tuple[str, str], ...]
    """What the model computes, step by step."""


@dataclass(frozen=True, slots=True)
class Explanation:
    """What explains the codes of one tensor that its operators make differently."""

    name: str
    differ: int
    model: str
    """The rounding model; "" if none is closer to the engine's codes than the exact meaning is."""
    source: str
    explained: int
    """Codes that differ from the exact ones and are those of the model."""
    astray: int
    """Codes that the model gives and the engine does not have, over all codes of the tensor."""
    example: Example | None

    @property
    def left(self) -> int:
        """Codes that differ and that the model does not give."""
        return self.differ - self.explained


@dataclass(slots=True)
class _Tally:
    explained: int = 0
    astray: int = 0
    tried: bool = False


def explained(found: Compared, feeds: Sequence[Feed]) -> list[Explanation]:
    """An explanation for each tensor to which its operators add a difference, in the order of the file.

    Every model for the region is tried on all samples. That one is taken which gives the engine's code most often over
    all codes, those that are exact included, if it does so more often than the exact meaning.
    """
    model = found.model
    regions = Regions(model)
    wanted = [item for item in found.tensors if item.own.differ]
    tallies = {
        item.name: [(each, _Tally()) for each in models_for(regions.regions[item.name])]
        for item in wanted
        if item.name in regions.regions
    }
    for sample, feed in enumerate(feeds):
        engine = {name: codes[sample] for name, codes in found.shown.codes.items()}
        real, exact = regions.values(feed, engine), model.follows(feed, engine)
        for name, tried in tallies.items():
            numbers = Numbers(regions.regions[name], real, regions)
            codes = engine[name].reshape(exact[name].shape)
            for each, tally in tried:
                _count(each, numbers, codes, exact[name], tally, regions)
    return [
        _described(item.name, item.own.differ, tallies.get(item.name, []), model, found, feeds, regions)
        for item in wanted
    ]


def _modelled(each: Model, numbers: Numbers, shape: tuple[int, ...], regions: Regions) -> Array | None:
    """The codes of a model in the layout of the file; None where it does not apply."""
    stages = each.stages(numbers)
    return None if not stages else _in_file(stages[-1][1], numbers.region, shape, regions)


def _in_file(array: Array, region: Region, shape: tuple[int, ...], regions: Regions) -> Array:
    """An array in the shape of the region's result, in the layout of the place in the file."""
    laid = regions.carried(region, array)
    return in_file(laid, region.place).reshape(shape)


def _count(each: Model, numbers: Numbers, engine: Array, exact: Array, tally: _Tally, regions: Regions) -> None:
    codes = _modelled(each, numbers, exact.shape, regions)
    if codes is None:
        return
    tally.tried = True
    tally.explained += int(((engine != exact) & (codes == engine)).sum())
    tally.astray += int((codes != engine).sum())


def _described(
    name: str,
    differ: int,
    tried: Sequence[tuple[Model, _Tally]],
    model: Opened,
    found: Compared,
    feeds: Sequence[Feed],
    regions: Regions,
) -> Explanation:
    # The exact meaning itself gets `differ` codes wrong: a model that is no better explains nothing.
    useful = [(each, tally) for each, tally in tried if tally.tried and tally.explained and tally.astray < differ]
    if not useful:
        return Explanation(name, differ, "", "", 0, differ, None)
    best, tally = min(useful, key=lambda pair: pair[1].astray)
    example = _example(name, best, model, found, feeds, regions)
    return Explanation(name, differ, best.name, best.source, tally.explained, tally.astray, example)


def _example(
    name: str, best: Model, model: Opened, found: Compared, feeds: Sequence[Feed], regions: Regions
) -> Example | None:
    """The first element that differs and that the model explains."""
    region = regions.regions[name]
    for sample, feed in enumerate(feeds):
        engine = {key: codes[sample] for key, codes in found.shown.codes.items()}
        exact = model.follows(feed, engine)[name]
        numbers = Numbers(region, regions.values(feed, engine), regions)
        stages = best.stages(numbers)
        if not stages:
            continue
        arrays = [
            (words, _in_file(np.broadcast_to(array, numbers.result.shape), region, exact.shape, regions))
            for words, array in stages
        ]
        codes = engine[name].reshape(exact.shape)
        places = np.argwhere((codes != exact) & (arrays[-1][1] == codes))
        if len(places):
            index = tuple(int(n) for n in places[0])
            steps = _in_file(numbers.result / numbers.scale, region, exact.shape, regions)[index]
            return Example(
                sample,
                index,
                int(codes[index]),
                int(exact[index]),
                f"{float(steps):.12g}",
                region.zero,
                tuple((words, _number(array[index])) for words, array in arrays),
            )
    return None


def _number(value: Any) -> str:
    return str(int(value)) if np.asarray(value).dtype.kind in "iu" else f"{float(value):.9g}"
