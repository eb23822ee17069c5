"""The native executor: a program compiled to one function of machine code."""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from cvm.errors import Invalid, Location, Unsupported
from cvm.executors.base import (
    Capture,
    Executor,
    Int32Array,
    RunResult,
    Watch,
    checked_inputs,
    cores,
    feeds,
    next_state,
    returned,
)
from cvm.executors.batching import Entry, address
from cvm.executors.held import Copied, Held
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.plan.steps import Plan
from cvm.executors.native.runtime.distrust import Distrusted, Failed
from cvm.executors.native.runtime.networks import Network, network_of
from cvm.executors.native.runtime.resident import Resident
from cvm.executors.native.runtime.select import candidate, require
from cvm.executors.native.runtime.watched import Watched

if TYPE_CHECKING:
    from cvm.executors.native.runtime.started import Started
    from cvm.program.model import ProgramParts
    from cvm.program.verifier import VerifiedProgram

__all__ = ["NativeExecutor"]


class NativeExecutor:
    """A verified program as machine code. ``threads`` is the largest number of threads; None means one per core.

    For each set of captured names, a network that returns these tensors too is compiled once. If the machine code of a
    network is `Distrusted`, the NumPy executor runs the program instead; `refusals` and `explain` say why. Without a
    ``machine``, the fastest one is taken, and each class of its kernels passes a trial before it is used.
    """

    name = "native"

    def __init__(self, verified: VerifiedProgram, threads: int | None = None, machine: Machine | None = None) -> None:
        self._begin(lambda: verified, verified.program, threads, machine)
        self._main: Network | None = None
        if self._program.state:
            self.resident()  # what a session runs; networks that take the state as arrays are made when asked for
        else:
            self._main = self._network(self._outputs)

    @classmethod
    def started(cls, started: Started, verified: Callable[[], VerifiedProgram], threads: int) -> NativeExecutor:
        """An executor whose network is loaded. ``verified`` gives the program, if more than its outputs is wanted."""
        executor = cls.__new__(cls)
        executor._begin(verified, started.parts, threads, None)
        executor._main = None
        if started.parts.state:
            executor._resident_network, executor._resident_made = started.network, True
        else:
            executor._main = executor._networks[executor._outputs] = started.network
        return executor

    def _begin(
        self,
        verified: Callable[[], VerifiedProgram],
        parts: ProgramParts,
        threads: int | None,
        machine: Machine | None,
    ) -> None:
        self._loaded = verified
        self._machine = machine or _candidate()
        self._require = require if machine is None else None
        self._threads = threads or cores()
        self._program = parts
        self._updates = {kept.value.name: kept.update for kept in self._program.state}
        self._networks: dict[frozenset[str], Network | None] = {}
        self._watched_networks: dict[frozenset[str], tuple[Network, Watched] | None] = {}
        self.refusals: list[str] = []
        self._lock = threading.Lock()
        self._outputs = frozenset(output.value for output in self._program.outputs)
        self._resident_network: Network | None = None
        self._resident_made = False
        self._unused = True

    @property
    def _verified(self) -> VerifiedProgram:
        return self._loaded()

    @property
    def threads(self) -> int:
        """The largest number of threads."""
        return self._threads

    @property
    def network(self) -> Network | None:
        """The network that returns the outputs; None if the NumPy executor computes them.

        If there is state, it stays in the arrays of this network.
        """
        return self._resident_network if self._program.state else self._main

    @property
    def machine(self) -> Machine:
        """The instruction set for which the program is compiled."""
        return self._machine

    def _network(self, names: frozenset[str]) -> Network | None:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._networks:
                self._networks[wanted] = self._made(wanted)
            return self._networks[wanted]

    def _watched(self, names: frozenset[str]) -> tuple[Network, Watched] | None:
        wanted = names | set(self._updates.values())
        with self._lock:
            if wanted not in self._watched_networks:
                network = self._made(wanted, watched=True)
                shows = network and Watched(network, self._verified.program, network.plan, wanted)
                self._watched_networks[wanted] = (network, shows) if network and shows else None
            return self._watched_networks[wanted]

    def resident(self) -> Network | None:
        """The network whose arrays hold the state from run to run; None if there is none that can be trusted."""
        with self._lock:
            if not self._resident_made:
                self._resident_network, self._resident_made = self._made(self._outputs, resident=True), True
            return self._resident_network

    def hold(self, state: Mapping[str, Int32Array], beside: Held | None = None) -> Held:
        """See `cvm.executors.held.Holding.hold`."""
        if self._unused:
            self._unused = False
            _return_free_memory()
        network = self.resident() if self._program.state else self._main
        if network is None:
            return Copied(self, self._verified.program, state, beside)
        return Resident(self, network, self._program, state, beside)

    def _made(self, wanted: frozenset[str], watched: bool = False, resident: bool = False) -> Network | None:
        """Make a network that is proven and tried. If there is none, record the refusal and return None.

        If the machine fails its trial, the next one is taken.
        """
        while True:
            try:
                return network_of(
                    self._verified, self._machine, self._threads, wanted, watched, self._require, resident
                )
            except Distrusted as reason:
                self.refusals.append(str(reason))
                following = candidate().machine if isinstance(reason, Failed) else None
                if following is None:
                    return None
                self._machine = following

    @cached_property
    def _numpy(self) -> Executor:
        """The NumPy executor, which runs the program if its machine code is not trusted."""
        from cvm.executors.numpy import NumpyExecutor

        return NumpyExecutor(self._verified)

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        if self._unused:
            self._unused = False
            _return_free_memory()
        names = returned(self._verified.program, capture) if capture else self._outputs
        if watch is None:
            network = self._main or self._network(names) if not capture else self._network(names)
            if network is None:
                return self._numpy.run(inputs, state, capture)
            arrays = self._arrays(network, inputs, state)
            results = {name: np.empty(shape, np.int32) for name, shape in network.left}
            done = network.run([*arrays, *results.values()])
        else:
            watched = self._watched(names)
            if watched is None:
                return self._numpy.run(inputs, state, capture, watch)
            network, shows = watched
            arrays = self._arrays(network, inputs, state)
            fed = {name: array for (name, _), array in zip(network.given, arrays, strict=True)}
            results = {name: np.empty(shape, np.int32) for name, shape in network.left if name in shows.returned}
            done = shows.run(fed, results, watch)
        if not done:
            feeds(self._program, inputs, state)  # raises `Invalid`, which names the input
            raise AssertionError("the check of the inputs contradicts itself")
        if not self._updates:
            return RunResult(results, {})
        values = {name: results[name] for name in sorted(names)}
        return RunResult(values, next_state(self._updates, results, names))

    def entry(self) -> Entry | None:
        """See `cvm.executors.batching.Batching.entry`."""
        network = self._for_batches(frozenset())
        if network is None:
            return None
        return Entry(tuple(network.given), tuple(name for name, _ in network.left), network.run_on)

    def run_batch(
        self,
        samples: int,
        inputs: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        into: Mapping[str, Int32Array] | None = None,
    ) -> dict[str, Int32Array] | None:
        """See `cvm.executors.batching.Batching.run_batch`."""
        network = self._for_batches(capture)
        if network is None or network.batches is None:
            return None
        for name, shape in network.given:
            array = inputs[name]
            if array.dtype != np.int32 or array.shape != (samples, *shape) or not array.flags.c_contiguous:
                message = f"a batch needs C-contiguous int32 of shape {[samples, *shape]}, found {list(array.shape)}"
                raise Invalid("executors.input.shape", message, Location(tensor=name))
        results = dict(into or {})
        for name, shape in network.left:
            if name not in results:
                results[name] = np.empty((samples, *shape), np.int32)
        arrays = [*(inputs[name] for name, _ in network.given), *(results[name] for name, _ in network.left)]
        bases = [array.ctypes.data for array in arrays]
        steps = [array.nbytes // samples for array in arrays]
        tables = np.arange(samples, dtype=np.int64)[:, None] * np.array(steps, np.int64) + np.array(bases, np.int64)
        bad = network.run_all(tables)
        if bad is not None:
            checked_inputs(self._program, {name: inputs[name][bad] for name, _ in network.given})
            raise AssertionError("the check of the inputs contradicts itself")
        return results

    def run_samples(
        self, feeds: Sequence[Mapping[str, Int32Array]], capture: Capture = frozenset()
    ) -> list[dict[str, Int32Array]] | None:
        """See `cvm.executors.batching.Batching.run_samples`."""
        network = self._for_batches(capture)
        if network is None or network.batches is None:
            return None
        results = [{name: np.empty(shape, np.int32) for name, shape in network.left} for _ in feeds]
        given = [self._arrays(network, feed, {}) for feed in feeds]
        rows = [
            [address(array) for array in (*arrays, *result.values())]
            for arrays, result in zip(given, results, strict=True)
        ]
        bad = network.run_all(np.array(rows, np.int64).reshape(len(feeds), -1))
        if bad is not None:
            checked_inputs(self._program, feeds[bad])
            raise AssertionError("the check of the inputs contradicts itself")
        return results

    def _for_batches(self, capture: Capture) -> Network | None:
        """The network that computes the samples of a batch; None if there is none, or if the program has state."""
        if self._program.state:
            return None
        if self._unused:
            self._unused = False
            _return_free_memory()
        if not capture:
            return self._main
        return self._network(returned(self._verified.program, capture))

    def _arrays(
        self, network: Network, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
    ) -> list[Int32Array]:
        """The arrays that a network reads. Raises `Invalid` for arrays that are not as the program declares them."""
        arrays = _plain(network, len(self._program.inputs), inputs, state)
        if arrays is None:
            fed = feeds(self._program, inputs, state)
            arrays = [fed[name] for name, _ in network.given]
        return arrays

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        network = self.resident() if self._program.state else self._main
        network = network or self._network(self._outputs)
        if network is None:
            refusal = f"machine code is not used for this program: {self.refusals[0]}"
            return (refusal, *self._numpy.explain())
        return tuple(explained(self._verified, network.plan))


def _plain(
    network: Network, count: int, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
) -> list[Int32Array] | None:
    """The arrays that a network reads, or None if some have other names, types, shapes or layouts than it needs.

    ``count`` is the number of inputs. Arrays that pass need no conversion.
    """
    if len(inputs) != count or len(state) != len(network.given) - count:
        return None
    arrays = []
    for index, (name, shape) in enumerate(network.given):
        array = (inputs if index < count else state).get(name)
        if array is None or array.dtype != np.int32 or array.shape != shape or not array.flags.c_contiguous:
            return None
        arrays.append(array)
    return arrays


def explained(verified: VerifiedProgram, made: Plan) -> list[str]:
    """One line per node: the notes of its kernels, or the name of the node whose kernel computes it."""
    notes: dict[str, list[str]] = {}
    for call in made.calls:
        notes.setdefault(call.what, []).append(call.note)
    lines = []
    for node in verified.program.nodes:
        names = [value.name for value in node.outputs]
        found = [note for name in names for note in dict.fromkeys(notes.get(name, ()))]
        if not found:
            root = made.joined.get(names[0])
            found = [f"computed inside the kernel of {root}" if root else "no code: another view of its input"]
        lines.append(f"{', '.join(names)} = {node.op}: {'; '.join(found)}")
    return lines


def _return_free_memory() -> None:
    """Let the C library return free memory to the system.

    Verifying and planning allocate and free several times the size of the constants.
    """
    with contextlib.suppress(OSError, AttributeError, TypeError):  # only glibc has this function
        ctypes.CDLL(None).malloc_trim(0)


def _candidate() -> Machine:
    """The machine to compile for. Raises `Unsupported` (``executors.native``) if all have failed their trials."""
    found = candidate()
    if found.machine is None:
        raise Unsupported("executors.native", f"no machine code can be trusted here: {found.reason}")
    return found.machine
