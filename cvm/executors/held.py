"""State that an executor holds from run to run.

`Executor.run` takes the state as arrays and returns the next one as others, so that each run costs as much as the state
is large. A `Held` keeps the state in the executor's own storage. NumPy and native write an appended row there in place,
where nothing reads the old one afterwards. For the caller, a run has happened or it has not: if it fails, for whatever
reason, the state is the one before it.
"""

from __future__ import annotations

import itertools
import threading
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from cvm.executors.base import Capture, Executor, Int32Array, RunResult, Watch, checked_state
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.model import ProgramParts, Value

__all__ = ["Bound", "Copied", "Held", "Holding", "Storage", "hold"]

_numbers = itertools.count()


@dataclass(eq=False, slots=True)
class Storage:
    """The stored state by name, in a form that the holder knows; several programs may share one.

    Whoever reads or writes it holds ``lock``. ``version`` is a number that no other storage, and no other content, has.
    """

    form: str
    declared: dict[str, Value] = field(default_factory=dict)
    arrays: dict[str, npt.NDArray[Any]] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)
    version: int = field(default_factory=lambda: next(_numbers))

    def changed(self) -> None:
        """Record that the content has changed."""
        self.version = next(_numbers)


@dataclass(frozen=True, eq=False, slots=True)
class Bound:
    """Fixed arrays for the inputs and outputs of many runs.

    ``run`` reads the arrays in ``inputs``, by the names of the inputs, and writes those in ``outputs``, by the names of
    the values that are outputs. It raises `Invalid` as `Held.run` does.
    """

    inputs: Mapping[str, Int32Array]
    outputs: Mapping[str, Int32Array]
    run: Callable[[], None]


class Held(Mapping[str, Int32Array]):
    """The state of a program, held by an executor: a mapping from names to copies of the codes.

    Several threads may use it; their runs happen one after the other.
    """

    form = "int32"
    """How the storage holds codes: holders of one form can share it."""

    def __init__(self, program: ProgramParts, state: Mapping[str, Int32Array], beside: Held | None) -> None:
        self.program = program
        self.shapes = {item.value.name: item.value.shape for item in program.state}
        shared = beside is not None and beside.form == self.form
        self.storage: Storage = beside.storage if shared and beside is not None else Storage(self.form)
        known = self.storage.declared
        left = [item.value for item in program.state if item.value.name not in known]
        if any(known.get(item.value.name, item.value) != item.value for item in program.state):
            raise ValueError("a state is declared otherwise by the program beside")
        for name, codes in checked_state(left, {name: state[name] for name in state if name not in known}).items():
            self.storage.arrays[name] = self.encoded(name, codes)
        known.update({value.name: value for value in left})

    __hash__ = object.__hash__

    def __eq__(self, other: object) -> bool:
        """Whether it is the same state, not an equal one."""
        return self is other

    @property
    def version(self) -> int:
        """A number that another state never had: it changes with each run, of this program or of one beside it."""
        return self.storage.version

    def __iter__(self) -> Iterator[str]:
        return iter(self.shapes)

    def __len__(self) -> int:
        return len(self.shapes)

    def __getitem__(self, name: str) -> Int32Array:
        with self.storage.lock:
            stored = self.storage.arrays[name]
            return self.decoded(name, stored.reshape(-1)).reshape(self.shapes[name])

    def blocks(self, name: str, numbers: npt.NDArray[np.int64], size: int) -> Int32Array:
        """The codes of some blocks of ``size`` neighbouring elements each, row-major: (len(numbers), size).

        Block n begins at element n * size. Zeros stand behind the last element of the tensor.
        """
        with self.storage.lock:
            flat = self.storage.arrays[name].reshape(-1)
            count = flat.size // size
            whole = flat[: count * size].reshape(-1, size)
            if not numbers.size or (numbers[-1] < count and bool((numbers < count).all())):
                return self.decoded(name, whole[numbers])
            found, inside = np.zeros((len(numbers), size), np.int32), numbers < count
            found[inside] = self.decoded(name, whole[numbers[inside]])
            found[~inside, : flat.size - count * size] = self.decoded(name, flat[count * size :])
            return found

    def load(self, state: Mapping[str, Int32Array]) -> None:
        """Replace tensors of the state by codes within their intervals."""
        with self.storage.lock:
            for name, codes in state.items():
                self.storage.arrays[name] = self.encoded(name, codes)
            self.storage.changed()

    @abstractmethod
    def run(
        self, inputs: Mapping[str, Int32Array], capture: Capture = frozenset(), watch: Watch | None = None
    ) -> RunResult:
        """Run once and go on to the next state; see `cvm.executors.Executor.run`.

        The state of the result is empty. With ``capture`` or ``watch``, old and new tensors of the state exist
        side by side. If anything is raised, also by ``watch``, the state is that before the run.
        """

    def decoded(self, name: str, stored: npt.NDArray[Any]) -> Int32Array:
        """The codes that stored elements stand for, as new int32 elements."""
        return stored.astype(np.int32)

    def encoded(self, name: str, codes: Int32Array) -> npt.NDArray[Any]:
        """A new array that stores the codes of a whole tensor."""
        return codes.astype(np.int32)

    def bound(self) -> Bound:
        """Fixed arrays for many runs."""
        shapes = {value.name: value.shape for node in self.program.nodes for value in node.outputs}
        shapes |= {item.value.name: item.value.shape for item in self.program.inputs} | self.shapes
        shapes |= {constant.name: constant.shape for constant in self.program.constants}
        inputs = {item.value.name: np.zeros(item.value.shape, np.int32) for item in self.program.inputs}
        outputs = {item.value: np.zeros(shapes[item.value], np.int32) for item in self.program.outputs}

        def run() -> None:
            values = self.run(inputs).values
            for name, array in outputs.items():
                array[...] = values[name]

        return Bound(inputs, outputs, run)


@runtime_checkable
class Holding(Protocol):
    """An executor that holds state in storage of its own."""

    def hold(self, state: Mapping[str, Int32Array], beside: Held | None = None) -> Held:
        """Hold a state, which is copied. Raises `Invalid` if it is not as the program declares it.

        Tensors that ``beside`` holds too, the state of another program, are shared with it if it stores them in the
        same form; those in ``state`` are ignored then. Raises ValueError if the programs declare one differently.
        """


def hold(
    executor: Executor, program: ProgramParts, state: Mapping[str, Int32Array], beside: Held | None = None
) -> Held:
    """See `Holding.hold`; for any executor of ``program``."""
    if isinstance(executor, Holding):
        return executor.hold(state, beside)
    return Copied(executor, program, state, beside)


class Copied(Held):
    """The state as int32 arrays, which each run of an executor replaces by others."""

    def __init__(
        self, executor: Executor, program: ProgramParts, state: Mapping[str, Int32Array], beside: Held | None
    ) -> None:
        super().__init__(program, state, beside)
        self._executor = executor

    def run(
        self, inputs: Mapping[str, Int32Array], capture: Capture = frozenset(), watch: Watch | None = None
    ) -> RunResult:
        """See `Held.run`."""
        with self.storage.lock:
            arrays = self.storage.arrays
            result = self._executor.run(inputs, {name: arrays[name] for name in self.shapes}, capture, watch)
            arrays.update(result.state)
            self.storage.changed()
        return RunResult(result.values, {})
