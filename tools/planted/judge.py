"""The process that runs one planted defect and judges it.

Events are printed as lines of JSON: (what, where, why). ``trial`` and ``refused`` come from the guards, ``crashed`` is
an exception, ``wrong`` a result that is not NumPy's, ``changed`` a result that would be wrong with the guards off.
"""

from __future__ import annotations

import importlib.abc
import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from cvm.executors.native.emit.machine import Machine
    from cvm.executors.native.runtime.executor import NativeExecutor
    from tools.planted.samples import Sample

__all__ = ["Guards", "judge", "plant"]

VARIANTS = ((1, False), (2, True))
"""The number of threads, and whether all tensors are captured."""


class _Planted(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Loads one module from other source text."""

    def __init__(self, name: str, text: str) -> None:
        self._name, self._text = name, text

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        return spec_from_loader(name, self) if name == self._name else None

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._text, f"<planted {self._name}>", "exec"), module.__dict__)


def plant(name: str, text: str) -> None:
    """Give a module that is not yet imported another source text."""
    assert name not in sys.modules, f"{name} is there already"
    sys.meta_path.insert(0, _Planted(name, text))


@dataclass(frozen=True)
class Guards:
    """Whether the guards are on, and the trial; with ``long``, samples are rehearsed as long runs are."""

    on: bool = True
    trial: bool = True
    long: bool = False


def judge(samples: Sequence[Sample], machine: str, guards: Guards, seconds: float) -> None:
    """Try the machine, then all samples on it; after a first refusal, for at most ``seconds`` more seconds."""
    try:
        from cvm.executors.native.runtime.select import named

        chosen = named(machine)
        why = _tried(chosen) if guards.on and guards.trial else None
        if why is not None:
            _event("trial", *why)
            return
        if not guards.on:
            _unguarded()
        if guards.long:
            _long()
    except Exception as error:
        _event("crashed", "the trial", f"{type(error).__name__}: {error}")
        return
    _event("passed", "the trial", "")
    _all(samples, chosen, guards.on, seconds)
    _event("done", "", "")


def _event(what: str, where: str, why: str) -> None:
    print(json.dumps([what, where, why[:300]]), flush=True)


def _tried(machine: Machine) -> tuple[str, str] | None:
    """The refusal by the trial of a machine, and the guard that noticed; None if there is no refusal."""
    from cvm.executors.native.runtime.executor import NativeExecutor
    from cvm.executors.native.runtime.trial import failure
    from cvm.executors.native.runtime.trial_programs import programs

    what = failure(machine)
    if what is None:
        return None
    verified = dict(programs()).get(what)
    refusals = NativeExecutor(verified, 1, machine).refusals if verified else ["the code generator refuses the code"]
    return what, refusals[0] if refusals else "another result"


def _unguarded() -> None:
    from cvm.executors.native.runtime import proven, rehearsal

    proven.__dict__["unproven"] = lambda *arguments: {}
    rehearsal.__dict__["rehearse"] = lambda *arguments: None


def _long() -> None:
    from cvm.executors.native.runtime import rehearsal

    rehearsal.QUICK = -1


def _all(samples: Sequence[Sample], machine: Machine, guarded: bool, seconds: float) -> None:
    from cvm.executors.native.runtime import calls, networks

    end, worth, grain = None, networks.WORTH, calls.GRAIN
    for threads, everything in VARIANTS if guarded else VARIANTS[:1]:
        shared = threads > 1
        networks.WORTH, calls.GRAIN = (0, 1) if shared else (worth, grain)
        for sample in samples:
            where = f"{sample.name}, {threads} threads" + (", captured" if everything else "")
            for event in _one(sample, machine, threads, everything):
                if event[0] == "refused" and not guarded:
                    continue
                _event(event[0] if guarded or event[0] != "wrong" else "changed", where, event[1])
                if event[0] in ("refused", "crashed"):
                    end = end or time.monotonic() + seconds
                if event[0] == "wrong" or not guarded:
                    return
            if end is not None and time.monotonic() > end:
                return


def _one(sample: Sample, machine: Machine, threads: int, everything: bool) -> Iterator[tuple[str, str]]:
    """The findings in one sample."""
    from cvm.errors import Invalid
    from cvm.executors.base import initial_state
    from cvm.executors.native.runtime.executor import NativeExecutor

    try:
        verified = sample.verified()
        native = NativeExecutor(verified, threads, machine)
        state = initial_state(verified.program)
        outputs = {output.value for output in verified.program.outputs}
        for feed, values, following in zip(sample.feeds, sample.values, sample.states, strict=True):
            found = native.run(feed, state, "all" if everything else frozenset())
            yield from _differences(found.values, values if everything else {name: values[name] for name in outputs})
            yield from _differences(found.state, following)
            state = found.state
        for feed in () if everything else sample.refused:
            try:
                native.run(feed, state)
            except Invalid:
                continue
            yield "wrong", "an element beyond its interval is taken"
        yield from _refusals(native)
    except Exception as error:
        yield "crashed", f"{type(error).__name__}: {error}"


def _differences(found: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    if found.keys() < right.keys():
        yield "wrong", f"there is no {sorted(right.keys() - found.keys())}"
    for name in right.keys() & found.keys():
        if not np.array_equal(found[name], right[name]):
            indices = np.argwhere(found[name] != right[name])
            first = tuple(map(int, indices[0]))
            yield (
                "wrong",
                f"{name}: {len(indices)} elements, first {first}: {found[name][first]} != {right[name][first]}",
            )


def _refusals(native: NativeExecutor) -> Iterator[tuple[str, str]]:
    """The refusals by the guards for the networks of an executor."""
    yield from (("refused", reason) for reason in native.refusals)
    for network in native._networks.values():
        for call in network.plan.calls if network is not None else ():
            if "plain, since otherwise" in call.note:
                yield "refused", f"the plan is not proven, {call.what}: {call.note}"
