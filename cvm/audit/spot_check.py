"""Spot checks: FORMAL judges drawn elements of the tensors that another executor computed.

A faulty executor makes the same mistake in a receipt and in every verification by that executor, so the two agree. A
spot check does not trust the executor. It repeats drawn runs so that the executor shows every tensor, and requires that

* these runs give the same outputs and next state as the ordinary runs, in every element;
* FORMAL computes the same drawn elements, each from the operands that the executor showed.

An ordinary run fuses ops and keeps most tensors in registers, where FORMAL cannot see them; a run that shows tensors
uses other kernels. If only one of the two is faulty, the first comparison finds it, whatever was drawn. If both are,
FORMAL finds it when it judges a wrong element. Inputs, state and constants are never taken from the executor.

The maker of a receipt must not know what will be judged. Therefore SHA-256 of the identity of what is verified and of a
salt, which the verifier chooses, determines the draw, and nothing else does. The draw goes in rounds: one element of
every tensor of one run, then of the next drawn run. A budget of time (`Judging`) or the caller says how many elements
are drawn. The same salt and the same count judge the same elements, on every machine.
"""

from __future__ import annotations

import math
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from hashlib import sha256
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

import formal.executor
from cvm.agreement import Difference, laid_open, left_difference, makers, tensor_of
from cvm.audit.draw import Draw, draws, shuffled, terms
from cvm.audit.trace import trace_bytes
from cvm.errors import Invalid
from cvm.executors import Executor, Int32Array, RunResult, initial_state
from cvm.inputs import Feed
from cvm.records import dataclass
from formal.nn import conv2d
from formal.tensor import Stored, Tensor

if TYPE_CHECKING:
    from cvm.program import Program
    from cvm.program.model import Node
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Judged", "Judging", "SpotCheck", "fresh_salt", "spot_check"]

SHARE = 0.2
"""The share of the re-execution time that judging may take."""
FLOOR = 0.05
"""Seconds that judging may take, however short the re-execution is."""
RUNS = 64
"""The most runs that are repeated to show their tensors."""
KEPT = 2**28
"""Bytes of state and outputs that are kept for runs that may be repeated; one run is always kept."""
SHOWN = 8e9
"""The speed, in bytes per second, at which an executor is expected to show its tensors."""
SALT_BYTES = 16
_MOST_SALT_BYTES = 64


def fresh_salt() -> str:
    """A salt that nobody can foresee, in hexadecimal."""
    return secrets.token_hex(SALT_BYTES)


@dataclass(frozen=True, slots=True)
class Judging:
    """How much FORMAL judges, and the salt of the draw. Raises `Invalid` (``judge.salt``, ``judge.count``)."""

    salt: str = field(default_factory=fresh_salt)
    """Hexadecimal digits of 1 to 64 bytes."""
    count: int | None = None
    """How many elements to judge, over all tensors and runs; None: as many as the budget allows; 0: none."""
    floor: float = FLOOR
    """Seconds that judging may take however short the re-execution is, if no count is given."""

    def __post_init__(self) -> None:
        if not re.fullmatch(f"([0-9a-fA-F]{{2}}){{1,{_MOST_SALT_BYTES}}}", self.salt):
            expected = f"expected the hexadecimal digits of 1 to {_MOST_SALT_BYTES} bytes"
            raise Invalid("judge.salt", f"{expected} as the salt, found {self.salt!r}")
        if self.count is not None and self.count < 0:
            raise Invalid("judge.count", f"expected 0 or more elements to judge, found {self.count}")


@dataclass(frozen=True, slots=True)
class Judged:
    """What FORMAL judged, and the first difference that was found (None: there is none)."""

    elements: int
    tensors: int
    """How many different tensors these elements belong to."""
    of: int
    """How many tensors the program computes."""
    runs: int
    """How many runs were repeated to show their tensors."""
    salt: str
    difference: Difference | None = None

    def __str__(self) -> str:
        if self.runs == 0:
            return "nothing was judged by FORMAL"
        runs = f"{self.runs} run{'' if self.runs == 1 else 's'}"
        return f"{self.elements} elements of {self.tensors} of {self.of} tensors in {runs} by FORMAL, salt {self.salt}"

    def document(self) -> dict[str, Any]:
        """The counts and the salt, for JSON."""
        return {
            "elements": self.elements,
            "tensors": self.tensors,
            "of": self.of,
            "runs": self.runs,
            "salt": self.salt,
        }


@dataclass(frozen=True, slots=True)
class _Noted:
    """A re-executed run: its number, its inputs, the state before it and its results."""

    number: int
    feed: Feed
    before: Mapping[str, Int32Array]
    result: RunResult


class SpotCheck:
    """Records every run that ``executor`` computes, and then lets FORMAL judge drawn elements of these runs.

    ``identity`` is the hash of what is verified; the draw depends on it and on the salt. ``runs`` is the number of
    runs there will be. With ``fused`` the recorded runs are ordinary ones; without, they showed all tensors, and each
    drawn run is repeated as an ordinary one.
    """

    def __init__(
        self,
        verified: VerifiedProgram,
        executor: Executor,
        judging: Judging,
        identity: bytes,
        runs: int,
        fused: bool = True,
    ) -> None:
        self._verified, self._executor, self._judging, self._fused = verified, executor, judging, fused
        self._seed = sha256(b"cvm1:judge\0" + identity + bytes.fromhex(judging.salt)).hexdigest()
        most = 0 if judging.count == 0 else max(1, min(RUNS, KEPT // max(1, _kept_bytes(verified.program))))
        self._order = shuffled(runs, f"{self._seed}/runs")[:most]
        self._chosen = frozenset(self._order)
        self._noted: dict[int, _Noted] = {}
        self._latest: _Noted | None = None
        self._count, self._fastest = 0, math.inf
        self._of = sum(len(node.outputs) for node in verified.program.nodes)

    @property
    def chosen(self) -> frozenset[int]:
        """The runs that may be repeated; the others need not be recorded."""
        return self._chosen

    def note(
        self, number: int, feed: Feed, before: Mapping[str, Int32Array], result: RunResult, seconds: float
    ) -> None:
        """Record a run: its inputs and state, its results, and how long it took."""
        self._latest = _Noted(number, feed, before, result)
        self._count, self._fastest = self._count + 1, min(self._fastest, seconds)
        if number in self._chosen:
            self._noted[number] = self._latest

    def judged(self, latest_first: bool = False) -> Judged:
        """Repeat drawn runs and let FORMAL judge elements of them, up to the first difference.

        With ``latest_first``, the run that was recorded last is judged first, whether it was drawn or not.
        """
        noted = [self._noted[number] for number in self._order if number in self._noted]
        if latest_first and self._latest is not None and self._judging.count != 0:
            latest = self._latest
            noted = [latest, *(other for other in noted if other.number != latest.number)]
        parts: dict[int, list[Draw]] = {}
        for draw in self._drawn([item.number for item in noted]):
            parts.setdefault(draw.run, []).append(draw)
        by_number = {item.number: item for item in noted}
        elements, tensors = 0, set[tuple[int, int]]()
        for opened, (number, part) in enumerate(parts.items(), 1):
            view = self._view(by_number[number], part)
            difference = view.difference or self._difference_of_what_is_left(by_number[number], view)
            elements += len(view.judged)
            tensors |= {(draw.node, draw.output) for draw in view.judged}
            if difference is not None:
                return Judged(elements, len(tensors), self._of, opened, self._judging.salt, difference)
        return Judged(elements, len(tensors), self._of, len(parts), self._judging.salt)

    def _drawn(self, runs: Sequence[int]) -> list[Draw]:
        """The elements to judge: as many as were asked for, or as the budget allows, but at least one.

        The budget pays for FORMAL and for repeating all drawn runs but the first, without which nothing can be judged.
        """
        order = draws(self._verified, self._seed, runs)
        if self._judging.count is not None:
            return list(islice(order, self._judging.count))
        left = max(SHARE * self._fastest * self._count, self._judging.floor) if runs else 0.0
        per_second = 1 / _seconds_per_term()
        opening = self._fastest + trace_bytes(self._verified.program) / SHOWN
        costs = terms(self._verified)
        taken: list[Draw] = []
        opened = set(runs[:1])
        for draw in order:
            left -= costs[draw.node] / per_second + (0.0 if draw.run in opened else opening)
            if left < 0 and taken:
                break
            opened.add(draw.run)
            taken.append(draw)
        return taken

    def _view(self, noted: _Noted, part: Sequence[Draw]) -> _View:
        view = _View(self._verified.program, noted, part, self._executor.name)
        view.result = self._executor.run(noted.feed, noted.before, watch=view.see)
        return view

    def _difference_of_what_is_left(self, noted: _Noted, view: _View) -> Difference | None:
        """Compare the results of the recorded run, a run in the other way, and the run that showed its tensors."""
        name, program = self._executor.name, self._verified.program
        found = {name: noted.result} if self._fused else {name: self._executor.run(noted.feed, noted.before)}
        if not self._fused:
            found[laid_open(name)] = noted.result
        again = laid_open(name) if self._fused else f"{laid_open(name)}, once more"
        found[again] = view.result
        found[f"what {name} showed"] = view.shown()
        return left_difference(program, noted.number, found, makers(program))


def spot_check(
    verified: VerifiedProgram,
    executor: Executor,
    samples: Iterable[Sequence[Feed]],
    judging: Judging,
    identity: bytes,
) -> Judged:
    """Run ``executor`` on the samples, each a sequence of cycles from the initial state on, and check it.

    Runs of a program without state are left out if they are not drawn.
    """
    program = verified.program
    listed = [list(feeds) for feeds in samples]
    check = SpotCheck(verified, executor, judging, identity, sum(map(len, listed)))
    number = 0
    for feeds in listed:
        state = initial_state(program)
        for feed in feeds:
            if program.state or number in check.chosen:
                start = perf_counter()
                result = executor.run(feed, state)
                check.note(number, feed, state, result, perf_counter() - start)
                state = result.state
            number += 1
    return check.judged()


class _View:
    """Sees a run that shows its tensors: FORMAL judges the drawn elements of each node as soon as it is shown.

    A tensor is copied until its last reader if a judged node reads it later, or if it is a result of the run.
    """

    result: RunResult

    def __init__(self, program: Program, noted: _Noted, part: Sequence[Draw], name: str) -> None:
        self._program, self._noted, self._name = program, noted, name
        self._constants = {constant.name: constant for constant in program.constants}
        self._expanded: dict[str, Tensor] = {}
        self._pending: dict[int, list[Draw]] = {}
        for draw in sorted(part, key=lambda draw: draw.node):
            self._pending.setdefault(draw.node, []).append(draw)
        self._last = {name: number for number in self._pending for name in program.nodes[number].inputs}
        left = [output.value for output in program.outputs] + [kept.update for kept in program.state]
        self._last |= dict.fromkeys(left, len(program.nodes))
        self._given = {**noted.feed, **noted.before}
        self._held: dict[str, Int32Array] = {}
        self.judged: list[Draw] = []
        self.difference: Difference | None = None

    def see(self, tensors: Mapping[str, Int32Array]) -> None:
        """Judge the drawn elements whose operands are known now, and keep the tensors that later elements need."""
        while self._pending and self.difference is None:
            number = next(iter(self._pending))
            node = self._program.nodes[number]
            if node.outputs[0].name not in tensors:
                break
            self._judge(node, self._pending.pop(number), tensors)
        following = next(iter(self._pending), len(self._program.nodes))
        for name in [name for name in self._held if self._last[name] < following]:
            del self._held[name]
        for name, array in tensors.items():
            if self._last.get(name, -1) >= following and name not in self._given:
                self._held[name] = array.copy()

    def shown(self) -> RunResult:
        """The results of the run as they were shown; inputs and constants that are outputs are not shown."""
        if self._pending and self.difference is None:
            raise AssertionError(f"the executor {self._name} did not show every tensor of the run")
        outputs = [output.value for output in self._program.outputs]
        values = {name: self._held.get(name, self.result.values[name]) for name in outputs}
        updates = {kept.value.name: kept.update for kept in self._program.state}
        state = {name: self._held.get(update, self.result.state[name]) for name, update in updates.items()}
        return RunResult(values, state)

    def _judge(self, node: Node, part: Sequence[Draw], tensors: Mapping[str, Int32Array]) -> None:
        outputs = formal.executor.apply(node, [self._operand(name, tensors) for name in node.inputs])
        for draw in part:
            value, array = node.outputs[draw.output], tensors[node.outputs[draw.output].name]
            index = tuple(int(i) for i in np.unravel_index(draw.element, array.shape))
            self.judged.append(draw)
            expected, found = outputs[draw.output][index], int(array[index])
            if expected != found:
                values = {"formal": expected, self._name: found}
                self.difference = Difference(self._noted.number, node.op, value.name, index, values)
                return

    def _operand(self, name: str, tensors: Mapping[str, Int32Array]) -> Tensor:
        """A tensor for FORMAL: an input or state, a constant, or a tensor that the executor showed."""
        if name in self._constants:
            if name not in self._expanded:
                self._expanded[name] = tensor_of(self._constants[name].array())
            return self._expanded[name]
        for known in (self._given, tensors, self._held):
            if name in known:
                return tensor_of(known[name])
        raise AssertionError(f"the executor {self._name} did not show the tensor {name!r}")


def _kept_bytes(program: Program) -> int:
    """The bytes of state and outputs of one run."""
    shapes = {value.name: value.shape for node in program.nodes for value in node.outputs}
    sizes = [math.prod(kept.value.shape) for kept in program.state] * 2
    sizes += [math.prod(shapes.get(output.value, ())) for output in program.outputs]
    return 4 * sum(sizes)


def _seconds_per_term() -> float:
    """The seconds that FORMAL takes for one term of a sum now: the best of three convolutions of one pixel."""
    channels = 128
    line = Stored((1, channels, 1, 1), range(channels))
    best = math.inf
    for _ in range(3):
        start = perf_counter()
        conv2d(line, line, padding=(0, 0), stride=(1, 1), dilation=(1, 1), groups=1)[0, 0, 0, 0]
        best = min(best, perf_counter() - start)
    return max(best / channels, 1e-9)
