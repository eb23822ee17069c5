"""The CUDA executor: a program as kernels on a device."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from cvm.executors.base import Capture, Executor, Int32Array, RunResult, Watch, feeds, returned, windows
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.network import Network
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.executor import explained

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["CudaExecutor"]

KEPT = 4
"""The most networks that wait for a further run: one for each set of values that runs return."""
_LOCK = threading.RLock()
"""Held by whoever uses a device."""


class CudaExecutor:
    """A verified program on a device; ``threads`` means nothing here.

    For each set of values that a run returns, a network with memory of its own is made once, and kept until others are
    needed more often. If no plan of the program is proven, the NumPy executor runs it instead; `refusals` and `explain`
    say why. Kernels of the kinds in ``plain`` are written in their plain form; see `Network` for ``apart``.
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
    ) -> None:
        self._verified, self.device, self._plain, self._apart = verified, device, plain, apart
        self._updates = {item.value.name: item.update for item in verified.program.state}
        self._idle: list[Network] = []
        self.refusals: list[str] = []
        self._numpy: Executor | None = None
        self._give_back(self._network(self._always(returned(verified.program, frozenset()))))

    @property
    def device_bytes(self) -> int:
        """The bytes of device memory that waiting networks hold."""
        with _LOCK:
            return sum(network.bytes for network in self._idle)

    def close(self) -> None:
        """Give back all device memory. A further run takes it again."""
        with _LOCK:
            for network in self._idle:
                network.close()
            self._idle.clear()

    def _always(self, names: frozenset[str]) -> frozenset[str]:
        return names | set(self._updates.values())

    def _network(self, wanted: frozenset[str]) -> Network | None:
        """A network that no other run uses; None if none can be trusted."""
        with _LOCK:
            found = next((network for network in reversed(self._idle) if network.wanted == wanted), None)
            if found is not None:
                self._idle.remove(found)
                return found
            if self.refusals:
                return None
            try:
                return Network(self._verified, self.device, wanted, self._plain, self._apart)
            except Distrusted as reason:
                self.refusals.append(str(reason))
                return None

    def _give_back(self, network: Network | None) -> None:
        with _LOCK:
            if network is not None:
                self._idle.append(network)
            for old in self._idle[:-KEPT]:
                old.close()
            del self._idle[:-KEPT]

    def _numpy_executor(self) -> Executor:
        """The NumPy executor, which runs the program if no plan of it is trusted."""
        if self._numpy is None:
            from cvm.executors.numpy import NumpyExecutor

            self._numpy = NumpyExecutor(self._verified)
        return self._numpy

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """See `cvm.executors.Executor.run`."""
        program = self._verified.program
        fed = feeds(program, inputs, state)
        names = returned(program, capture)
        shown = {value.name for node in program.nodes for value in node.outputs} if watch is not None else set()
        network = self._network(self._always(names) | shown)
        if network is None:
            return self._numpy_executor().run(inputs, state, capture, watch)
        try:
            with _LOCK:
                network.run(fed)
            found = {} if watch is None else self._watched(network, fed, self._always(names), watch)
            with _LOCK:
                found |= network.results(sorted(self._always(names) - found.keys()))
        finally:
            self._give_back(network)
        taken = set(names)
        following = {}
        for name, update in self._updates.items():
            following[name] = found[update].copy() if update in taken else found[update]
            taken.add(update)
        return RunResult({name: found[name] for name in sorted(names)}, following)

    def _watched(
        self, network: Network, fed: Mapping[str, Int32Array], names: frozenset[str], watch: Watch
    ) -> dict[str, Int32Array]:
        """Show all tensors of the last run, and return those among ``names`` that nodes compute."""
        program = self._verified.program
        watch(fed)
        kept: dict[str, Int32Array] = {}
        for first, end in windows(program):
            with _LOCK:
                found = network.results([value.name for node in program.nodes[first:end] for value in node.outputs])
            watch(found)
            kept |= {name: array for name, array in found.items() if name in names}
        return kept

    def explain(self) -> tuple[str, ...]:
        """See `cvm.executors.Executor.explain`."""
        network = self._network(self._always(returned(self._verified.program, frozenset())))
        if network is None:
            refusal = f"no kernels are used for this program: {self.refusals[0]}"
            return (refusal, *self._numpy_executor().explain())
        self._give_back(network)
        return tuple(explained(self._verified, network.plan))
