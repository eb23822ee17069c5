"""The CUDA executor: a program as kernels on a device."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from cvm.errors import CvmError, Invalid, LimitExceeded, Location, Unsupported
from cvm.executors.base import (
    Capture,
    Executor,
    Int32Array,
    RunResult,
    Watch,
    checked_inputs,
    feeds,
    next_state,
    returned,
    windows,
)
from cvm.executors.batching import Entry
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.network import Memory, Network
from cvm.executors.cuda.shown import Shown
from cvm.executors.cuda.stored import entry, restore, store
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.executor import explained

if TYPE_CHECKING:
    from cvm.executors.cuda.hashing import Hashing
    from cvm.executors.cuda.trial import Trial
    from cvm.program.verifier import VerifiedProgram

__all__ = ["CudaExecutor"]

KEPT = 4
"""The most networks that wait for a further run: one for each set of values that runs return."""
GROUP = 64
"""The most samples of one run. Kernels fill a GPU with fewer; two runs share the device, so that one copies while the
other one computes."""
PINNED = 2**30
"""The most bytes of the host that the copies of one run occupy, if it has more than one sample."""
_LOCKS: weakref.WeakKeyDictionary[Device, threading.RLock] = weakref.WeakKeyDictionary()
"""For each device, the lock that is held by whoever uses it."""
_LOCK = threading.Lock()
"""Held while a lock is entered."""
Give: TypeAlias = "Callable[[Memory, int, int], None]"
"""Puts ``count`` samples, from the sample ``first`` on, into a memory: (memory, first, count)."""
Take: TypeAlias = "Callable[[Memory, int, int], None]"
"""Takes the results of these samples out of it."""


def _lock_of(device: Device) -> threading.RLock:
    """The lock of a device: executors that share it work by turns, those of two devices do not wait for each other."""
    with _LOCK:
        return _LOCKS.setdefault(device, threading.RLock())


class CudaExecutor:
    """A verified program on a device; ``threads`` means nothing here.

    For each set of values that a run returns, a network is made once, and kept until others are needed more often. If
    no plan of the program is proven, the NumPy executor runs it instead; `refusals` and `explain` say why. Kernels of
    the kinds in ``plain`` are written in their plain form; see `Network` for ``apart``. ``trial`` tries the kernels of
    a network on the device before it is used and stored; without it, the device is trusted, and nothing is stored.
    ``hashing`` hashes tensors there.
    """

    name = "cuda"

    def __init__(
        self,
        verified: VerifiedProgram,
        threads: int | None = None,
        *,
        device: Device,
        plain: frozenset[type] = frozenset(),
        apart: bool = False,
        trial: Trial | None = None,
        hashing: Hashing | None = None,
    ) -> None:
        self._verified, self.device, self._apart = verified, device, apart
        self._plain, self._trial, self._hashing = plain, trial, hashing
        self._updates = {item.value.name: item.update for item in verified.program.state}
        self._networks: dict[tuple[frozenset[str], frozenset[str]], Network] = {}
        self._idle: list[tuple[Network, Memory]] = []
        self._busy: list[Network] = []
        """The networks that runs of other threads use, once for each run."""
        self._lock = _lock_of(device)
        self.refusals: list[str] = []
        with self._used(frozenset()):
            pass

    @property
    def device_bytes(self) -> int:
        """The bytes of device memory that networks and the memory of waiting runs hold."""
        with self._lock:
            waiting = sum(memory.bytes for _, memory in self._idle)
            return waiting + sum(network.bytes for network in self._networks.values())

    def close(self) -> None:
        """Give back all device memory but that of runs of other threads, which give it back when they have ended.

        A further run takes memory again.
        """
        with self._lock:
            while self._networks:
                self._forget(self._networks.popitem()[1])

    # Networks and their memory --------------------------------------------------------------------------------------

    def _always(self, names: frozenset[str]) -> frozenset[str]:
        return names | set(self._updates.values())

    @contextlib.contextmanager
    def _used(self, capture: Capture, shown: frozenset[str] = frozenset()) -> Iterator[tuple[Network, Memory] | None]:
        """A network that returns the outputs and ``capture``, and memory of one run, which no other run uses.

        None if no network can be trusted.
        """
        with self._lock:
            network = self._network(self._always(returned(self._verified.program, capture)), shown)
            memory = network and self._memory(network, 1)
            if network is not None:
                self._busy.append(network)
        try:
            yield (network, memory) if network and memory else None
        finally:
            if network and memory:
                self._give_back(network, memory)

    def _network(self, wanted: frozenset[str], shown: frozenset[str]) -> Network | None:
        """The network that returns some values and shows others; None if none can be trusted."""
        key = wanted, shown - wanted
        found = self._networks.pop(key, None)
        if found is None and not self.refusals:
            try:
                found = self._made(*key)
            except Distrusted as reason:
                self.refusals.append(str(reason))
        if found is not None:
            self._networks[key] = found  # the one that was used last stands last
            for old in [*self._networks][:-KEPT]:
                self._forget(self._networks.pop(old))
        return found

    def _made(self, wanted: frozenset[str], shown: frozenset[str]) -> Network:
        """Make a network. Its kernels are tried on the device; those of a kind that fails become plain.

        A network that has passed is stored. One that is restored has passed on this device in these forms.
        """
        while True:
            if self._trial is not None:
                self._plain |= self._trial.slow
            name = self._entry(wanted, shown)
            found = None if name is None else restore(name)
            try:
                network = Network(self._verified, self.device, wanted, shown, self._plain, self._apart, found)
            except Unsupported as error:
                if self._trial is None or error.code != "cuda.code":
                    raise
                self._plain |= self._trial.refused(error, self._plain)
                continue
            if self._trial is None or found is not None:
                return network
            try:
                failed = self._trial.failed(network, self._plain)
                if not failed:
                    self._trial.rehearse(self._verified, network)
            except BaseException:
                network.close()
                raise
            if not failed:
                if name is not None:
                    store(name, network.written)
                return network
            network.close()
            self._plain |= failed

    def _entry(self, wanted: frozenset[str], shown: frozenset[str]) -> str | None:
        """The name under which a network is stored; None if nothing tries it, or if its tensors lie apart."""
        if self._trial is None or self._apart:
            return None
        return entry(self.device, self._verified.program.digest, wanted, shown, self._plain)

    def _forget(self, network: Network) -> None:
        """Give back a network, or leave that to the run that uses it."""
        for item in [item for item in self._idle if item[0] is network]:
            self._idle.remove(item)
            item[1].close()
        if network not in self._busy:
            network.close()

    def _memory(self, network: Network, samples: int) -> Memory:
        """Memory for so many samples. Waiting memory gives way if the device has too little."""
        for item in self._idle:
            if item[0] is network and item[1].samples == samples:
                self._idle.remove(item)
                return item[1]
        try:
            return Memory(network, samples)
        except LimitExceeded:
            if not self._idle:
                raise
            self._trim(0)
            return Memory(network, samples)

    def _give_back(self, network: Network, memory: Memory) -> None:
        """Keep memory for a further run, or close it if its network was forgotten while it ran."""
        with self._lock:
            self._busy.remove(network)
            if network in self._networks.values():
                self._idle.append((network, memory))
                self._trim(KEPT)
                return
            memory.close()
            if network not in self._busy:
                network.close()

    def _trim(self, count: int) -> None:
        """Let at most ``count`` memories wait."""
        while len(self._idle) > count:
            self._idle.pop(0)[1].close()

    @cached_property
    def _numpy(self) -> Executor:
        """The NumPy executor, which runs the program if no plan of it is trusted."""
        from cvm.executors.numpy import NumpyExecutor

        return NumpyExecutor(self._verified)

    # Single runs ----------------------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`. The mappings that ``watch`` gets are `Shown`."""
        program = self._verified.program
        fed = feeds(program, inputs, state)
        names = returned(program, capture)
        shown = {value.name for node in program.nodes for value in node.outputs} if watch is not None else set()
        with self._used(capture, frozenset(shown)) as used:
            if used is None:
                return self._numpy.run(inputs, state, capture, watch)
            network, memory = used
            with self._lock:
                for name in network.given:
                    memory.put(name, 0, fed[name][None])
                memory.start()
                memory.wait()
                found = {name: memory.result(name, 1)[0] for name in network.wanted}
            if watch is not None:
                watch(fed)
                self._show(memory, watch)
        return RunResult({name: found[name] for name in sorted(names)}, next_state(self._updates, found, names))

    def _show(self, memory: Memory, watch: Watch) -> None:
        """Show the tensors that nodes have computed, window by window."""
        program = self._verified.program
        roots = None if self._hashing is None else self._hashing.of(memory)
        for first, end in windows(program):
            names = [value.name for node in program.nodes[first:end] for value in node.outputs]
            watch(Shown(names, memory, self._lock, roots))

    # Batches --------------------------------------------------------------------------------------------------------

    def entry(self) -> Entry | None:
        """See `cvm.executors.batching.Batching.entry`. There is none: inputs are copied to the device."""
        return None

    def run_batch(
        self,
        samples: int,
        inputs: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        into: Mapping[str, Int32Array] | None = None,
    ) -> dict[str, Int32Array] | None:
        """See `cvm.executors.batching.Batching.run_batch`."""
        program = self._verified.program
        for item in program.inputs:
            array, value = inputs[item.value.name], item.value
            if array.dtype != np.int32 or array.shape != (samples, *value.shape):
                message = f"a batch needs int32 of shape {[samples, *value.shape]}, found {list(array.shape)}"
                raise Invalid("executors.input.shape", message, Location(tensor=value.name))
            if array.min() < value.lo or array.max() > value.hi:
                for sample in range(samples):
                    checked_inputs(program, {name: inputs[name][sample] for name in inputs})
        results = dict(into or {})

        def give(memory: Memory, first: int, count: int) -> None:
            for item in program.inputs:
                memory.put(item.value.name, 0, inputs[item.value.name][first : first + count])

        def take(memory: Memory, first: int, count: int) -> None:
            for name in names:
                found = memory.result(name, count)
                results.setdefault(name, np.empty((samples, *found.shape[1:]), np.int32))[first : first + count] = found

        names = returned(program, capture)
        return results if self._grouped(samples, capture, give, take) else None

    def run_samples(
        self, feeds: Sequence[Mapping[str, Int32Array]], capture: Capture = frozenset()
    ) -> list[dict[str, Int32Array]] | None:
        """See `cvm.executors.batching.Batching.run_samples`."""
        program = self._verified.program
        fed = [checked_inputs(program, feed) for feed in feeds]
        results: list[dict[str, Int32Array]] = [{} for _ in feeds]

        def give(memory: Memory, first: int, count: int) -> None:
            for sample in range(count):
                for name, array in fed[first + sample].items():
                    memory.put(name, sample, array[None])

        def take(memory: Memory, first: int, count: int) -> None:
            for name in names:
                found = memory.result(name, count)
                for sample in range(count):
                    results[first + sample][name] = found[sample].copy()

        names = returned(program, capture)
        return results if self._grouped(len(feeds), capture, give, take) else None

    def _grouped(self, samples: int, capture: Capture, give: Give, take: Take) -> bool:
        """Run groups of samples by turns in two memories, so that one group is copied while another is computed.

        Returns False, without running anything, if there is no network for the program.
        """
        if self._verified.program.state:
            return False
        with self._lock:
            network = self._network(returned(self._verified.program, capture), frozenset())
            if network is None:
                return False
            size = self._group(network, samples)
            running: list[tuple[Memory, int, int]] = []
            try:
                for first in range(0, samples, size):
                    count = min(size, samples - first)
                    if len(running) == 2:
                        memory = _ended(running, take)
                    else:
                        memory = self._memory(network, size)
                    running.append((memory, first, count))
                    give(memory, first, count)
                    memory.repeat(count)
                    memory.start()
                while running:
                    self._idle.append((network, _ended(running, take)))
            finally:
                for memory, _, _ in running:  # there are none unless something was raised
                    with contextlib.suppress(CvmError):
                        memory.wait()
                    memory.close()
                self._trim(KEPT)
        return True

    def _group(self, network: Network, samples: int) -> int:
        """The samples of a run: half of them, as many as `GROUP`, or as many as fit in half of the memory twice.

        Their copies take at most `PINNED` bytes of the host, since pinned memory is taken from everybody.
        """
        size = max(1, min(GROUP, -(-samples // 2)))
        while size > 1 and size * network.copied_bytes > PINNED:
            size //= 2
        while size > 1 and 4 * size * network.sample_bytes > self.device.available:
            size //= 2
        return size

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        with self._used(frozenset()) as used:
            if used is None:
                refusal = f"no kernels are used for this program: {self.refusals[0]}"
                return (refusal, *self._numpy.explain())
            said = () if self._trial is None else self._trial.said
            return (f"on {self.device.name}", *said, *explained(self._verified, used[0].plan))


def _ended(running: list[tuple[Memory, int, int]], take: Take) -> Memory:
    """Wait for the run that was started first, take its results, and return its memory."""
    memory, first, count = running[0]
    memory.wait()
    take(memory, first, count)
    running.pop(0)
    return memory
