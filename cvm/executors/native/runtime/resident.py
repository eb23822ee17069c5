"""State in narrow formats, which machine code reads and changes in place."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Capture, Executor, Int32Array, RunResult, Watch, checked_inputs
from cvm.executors.held import Bound, Held
from cvm.executors.native.descriptions.formats import Format
from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.runtime.networks import Network

if TYPE_CHECKING:
    from cvm.program.model import ProgramParts

__all__ = ["Resident"]


class Resident(Held):
    """The state in the arrays of a network that was made for it.

    The network refuses wrong inputs before it writes anything, and nothing can fail later, so that the state is never
    half an old one. Runs with ``capture`` or ``watch`` work on copies, which then become the state.
    """

    form = "native"

    def __init__(
        self,
        executor: Executor,
        network: Network,
        program: ProgramParts,
        state: Mapping[str, Int32Array],
        beside: Held | None = None,
    ) -> None:
        self._formats: dict[str, Format] = {
            item.value.name: Format.of(item.value.lo, item.value.hi) for item in program.state
        }
        super().__init__(program, state, beside)
        self._executor, self._network = executor, network
        self._given = [(name, shape) for name, shape in network.given if name not in self._formats]

    def run(
        self, inputs: Mapping[str, Int32Array], capture: Capture = frozenset(), watch: Watch | None = None
    ) -> RunResult:
        """See `cvm.executors.held.Held.run`."""
        with self.storage.lock:
            if capture or watch is not None:
                result = self._executor.run(inputs, dict(self), capture, watch)
                arrays = {name: self.encoded(name, codes) for name, codes in result.state.items()}
                for name, array in arrays.items():  # in place: other runs may be bound to these arrays
                    self.storage.arrays[name][...] = array
                self.storage.changed()
                return RunResult(result.values, {})
            fed = self._fed(inputs)
            results = {name: np.empty(shape, np.int32) for name, shape in self._network.left}
            if not self._network.run([*fed, *self._kept(), *results.values()]):
                checked_inputs(self.program, inputs)  # raises `Invalid`, which names the input
                raise AssertionError("the check of the inputs contradicts itself")
            self.storage.changed()
        return RunResult(results, {})

    def load(self, state: Mapping[str, Int32Array]) -> None:
        """See `cvm.executors.held.Held.load`."""
        with self.storage.lock:
            for name, codes in state.items():
                self.storage.arrays[name][...] = self.encoded(name, codes)
            self.storage.changed()

    def _kept(self) -> list[npt.NDArray[Any]]:
        """The arrays of the state, in the order of the network."""
        return [self.storage.arrays[name] for name, _ in self._network.given[len(self._given) :]]

    def _fed(self, inputs: Mapping[str, Int32Array]) -> list[Int32Array]:
        """The inputs in the order of the network. Raises `Invalid` for arrays that are not as the program declares."""
        arrays = []
        for name, shape in self._given:
            array = inputs.get(name)
            if array is None or array.dtype != np.int32 or array.shape != shape or not array.flags.c_contiguous:
                break
            arrays.append(array)
        if len(arrays) == len(self._given) == len(inputs):
            return arrays
        fed = checked_inputs(self.program, inputs)
        return [fed[name] for name, _ in self._given]

    def decoded(self, name: str, stored: npt.NDArray[Any]) -> Int32Array:
        """See `cvm.executors.held.Held.decoded`."""
        codes: Int32Array = stored.astype(np.int32)
        codes -= self._formats[name].bias
        return codes

    def encoded(self, name: str, codes: Int32Array) -> npt.NDArray[Any]:
        """See `cvm.executors.held.Held.encoded`. Kernels may read, but do not use, elements behind the array."""
        format_ = self._formats[name]
        room = aligned(math.prod(codes.shape) * format_.bytes + SLACK)
        stored = room[: len(room) - SLACK].view(format_.dtype).reshape(codes.shape)
        stored[...] = codes.astype(np.int64) + format_.bias
        return stored

    def bound(self) -> Bound:
        """See `cvm.executors.held.Held.bound`."""
        inputs = {name: np.zeros(shape, np.int32) for name, shape in self._given}
        outputs = {name: np.zeros(shape, np.int32) for name, shape in self._network.left}
        arrays = [*inputs.values(), *self._kept(), *outputs.values()]
        start, storage = self._network.bound(arrays), self.storage
        lock, changed = storage.lock, storage.changed

        def run() -> None:
            with lock:
                if not start():
                    checked_inputs(self.program, inputs)
                    raise AssertionError("the check of the inputs contradicts itself")
                changed()

        return Bound(inputs, outputs, run)
