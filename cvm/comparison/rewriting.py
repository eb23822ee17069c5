"""Find what an engine's graph optimisation changes: run a model level by level, from none to the level in question.

An engine may put other operators in place of those of the file, and drop quantisers between them. Where a lower level
gives the exact codes, the difference is not one of rounding: a rewrite made it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.comparison.comparing import Compared, compared
from cvm.comparison.engines import ENGINES, Setting
from cvm.comparison.model import Model
from cvm.comparison.running import Shown, shown
from cvm.frontends.onnx.outputs import dequantised_from
from cvm.inputs import Feed
from cvm.records import dataclass

__all__ = ["Drop", "Level", "Rewritten", "Search", "searched"]

Array = npt.NDArray[Any]
_TRIED = 16
"""The most dropped quantisers that are kept, one by one: those next to tensors that a rewrite changes come first."""


@dataclass(frozen=True, slots=True)
class Level:
    """What an engine gives at one level of optimisation."""

    level: str
    own: int
    """The codes of shown tensors that are their operators' own differences."""
    outputs: int
    """The codes of the file's outputs that are not exact, where the engine shows nothing else."""
    of: int
    """The codes of these outputs."""
    dropped: tuple[str, ...]
    """The quantised tensors of the file that the engine's graph has no longer."""
    new: tuple[str, ...]
    """The kinds of operators that the engine's graph has at this level, and not at the level below."""


@dataclass(frozen=True, slots=True)
class Rewritten:
    """A tensor whose operators are exact up to one level, and not above it."""

    name: str
    exact_at: str
    """The highest level at which they are exact."""
    level: str
    """The next level, at which they are not."""
    differ: int
    operator: str
    """The operator that the engine has there instead, if it tells."""


@dataclass(frozen=True, slots=True)
class Drop:
    """A quantiser that a level drops, and what becomes of the outputs if the engine must keep it."""

    name: str
    level: str
    before: int
    """Codes of the outputs that are not exact without it."""
    after: int
    """Codes of the outputs that are not exact if it is kept."""


@dataclass(frozen=True, slots=True)
class Search:
    """The levels of one engine, and the rewrites that change codes."""

    levels: tuple[Level, ...]
    rewritten: tuple[Rewritten, ...]
    drops: tuple[Drop, ...]
    """Only those that change how many codes of the outputs are exact."""
    tried: int
    """How many dropped quantisers were kept, one by one."""


@dataclass(frozen=True, eq=False, slots=True)
class _Exact:
    """The exact codes of an output; ``scale`` and ``zero`` if the file gives it as real numbers."""

    codes: Array
    scale: float | None
    zero: int


def searched(model: Model, setting: Setting, inputs: Mapping[str, Array], feeds: Sequence[Feed]) -> Search | None:
    """Run the model at every level up to the level of the setting. Returns None if the engine has no levels.

    Raises `Unsupported` as `shown` does.
    """
    engine = ENGINES.get(setting.engine)
    if engine is None or setting.optimization not in engine.levels[1:]:
        return None
    names = engine.levels[: engine.levels.index(setting.optimization) + 1]
    runs = [shown(model, replace(setting, optimization=name), inputs, keeping=True) for name in names]
    found = [compared(model, run, feeds) for run in runs]
    exact = _exact_outputs(model, runs[0], feeds)
    counts = [_inexact(run.outputs, exact) for run in runs]
    of = sum(item.codes.size for item in exact.values())
    levels, below = [], set(runs[0].ops)
    for name, run, each, count in zip(names, runs, found, counts, strict=True):
        own = sum(item.own.differ for item in each.tensors)
        levels.append(Level(name, own, count, of, run.dropped, tuple(sorted(set(run.ops) - below))))
        below = set(run.ops)
    rewritten = _rewritten(found)
    drops, tried = _drops(model, runs, counts, rewritten, inputs, exact)
    return Search(tuple(levels), rewritten, drops, tried)


def _rewritten(found: Sequence[Compared]) -> tuple[Rewritten, ...]:
    """The tensors that differ by themselves at the last level, and do not at some level below it."""
    own = [{item.name: item.own.differ for item in each.tensors} for each in found]
    made = []
    for name, differ in own[-1].items():
        exact = [number for number, each in enumerate(own) if each.get(name) == 0]
        if not differ or not exact:
            continue
        last = exact[-1]
        below, above = (found[number].shown for number in (last, last + 1))
        made.append(
            Rewritten(
                name, below.setting.optimization, above.setting.optimization, differ, above.operators.get(name, "")
            )
        )
    return tuple(made)


def _drops(
    model: Model,
    runs: Sequence[Shown],
    counts: Sequence[int],
    rewritten: Sequence[Rewritten],
    inputs: Mapping[str, Array],
    exact: Mapping[str, _Exact],
) -> tuple[tuple[Drop, ...], int]:
    """The quantisers without which other codes of the outputs are exact, for each level that changes this number."""
    order = {place.name: number for number, place in enumerate(model.places)}
    drops, tried, known = [], 0, set(runs[0].dropped)
    for number in range(1, len(runs)):
        fresh = [name for name in runs[number].dropped if name not in known]
        known.update(fresh)
        if counts[number] == counts[number - 1]:
            continue
        fresh.sort(key=lambda name: min((abs(order[name] - order[item.name]) for item in rewritten), default=0))
        for name in fresh[: _TRIED - tried]:
            tried += 1
            kept = shown(model, runs[number].setting, inputs, [name])
            after = _inexact(kept.outputs_while_showing, exact)
            if after != counts[number]:
                drops.append(Drop(name, runs[number].setting.optimization, counts[number], after))
    return tuple(drops), tried


def _exact_outputs(model: Model, run: Shown, feeds: Sequence[Feed]) -> dict[str, _Exact]:
    """The exact codes of those outputs of the file that are quantised, or real numbers of quantised codes."""
    places = {place.name for place in model.places}
    sources = dequantised_from(model.path) if model.kind == "onnx" else {}
    exact = [model.exact(feed) for feed in feeds]
    found = {}
    for name in run.outputs:
        source, scale, zero = sources.get(name, (name, None, 0))
        if source in places:
            found[name] = _Exact(np.stack([codes[source] for codes in exact]), scale, zero)
    return found


def _inexact(outputs: Mapping[str, Array], exact: Mapping[str, _Exact]) -> int:
    """How many codes of the outputs are not exact."""
    count = 0
    for name, item in exact.items():
        made = outputs[name].reshape(item.codes.shape)
        codes = made if item.scale is None else np.rint(made.astype(np.float64) / item.scale) + item.zero
        count += int((codes != item.codes).sum())
    return count
