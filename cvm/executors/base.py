"""The contract of executors: what every executor takes, returns and promises.

An executor is made once from a verified program and run many times. It keeps no state: every run takes the state as an
argument and returns the next one. Every array that it returns is an independent, writable, C-contiguous int32 array. It
never writes to the arrays that it is given.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from cvm.errors import Invalid, Location
from cvm.records import dataclass

if TYPE_CHECKING:
    from cvm.program.model import ProgramParts, Value
    from cvm.program.verifier import VerifiedProgram

__all__ = [
    "WINDOW",
    "Capture",
    "Executor",
    "ExecutorFactory",
    "Int32Array",
    "Rooted",
    "RunResult",
    "Watch",
    "checked_inputs",
    "checked_state",
    "cores",
    "feeds",
    "initial_state",
    "next_state",
    "returned",
    "windows",
]

Int32Array: TypeAlias = npt.NDArray[np.int32]
Watch: TypeAlias = "Callable[[Mapping[str, Int32Array]], None]"
"""A function that gets tensors of a run by name. They belong to the executor and may change as soon as it returns."""
WINDOW = 2**23
"""The most bytes of tensors that are shown at once, unless the outputs of a single node have more."""
Capture: TypeAlias = frozenset[str] | Literal["all"]
"""Names of values to return besides the outputs; "all" stands for every input, state and node output."""


@dataclass(frozen=True, slots=True)
class RunResult:
    """The result of a run: tensors by value name, and the next state by the name of the state's value.

    A run of a `cvm.executors.held.Held`, which keeps the state itself, leaves ``state`` empty.
    """

    values: dict[str, Int32Array]
    state: dict[str, Int32Array]


@runtime_checkable
class Rooted(Protocol):
    """Tensors that a `Watch` gets from an executor that can hash them where they lie."""

    def roots(self) -> dict[str, bytes] | None:
        """The tensor roots by name (``docs/commitments.md``, section 3); None if they must be hashed here."""


class Executor(Protocol):
    """A verified program, ready to run."""

    @property
    def name(self) -> str:
        """The name under which `cvm.executors.create` makes it."""

    def run(
        self,
        inputs: Mapping[str, Int32Array],
        state: Mapping[str, Int32Array],
        capture: Capture = frozenset(),
        watch: Watch | None = None,
    ) -> RunResult:
        """Run once. ``inputs`` and ``state`` are keyed by value name; `initial_state` gives the first state.

        The result holds the program's outputs and the values in ``capture``. ``watch`` is called during the run, and
        gets every tensor exactly once: first all inputs and the state, then the outputs of nodes in execution order, as
        many nodes at once as `windows` says. Raises `Invalid` if the arrays are not as the program declares them, and
        any exception that ``watch`` raises; nothing else can fail.
        """

    def explain(self) -> tuple[str, ...]:
        """One line per node, in execution order: the method chosen for it, and the bound that justifies it."""


ExecutorFactory: TypeAlias = "Callable[[VerifiedProgram, int | None], Executor]"
"""Makes an executor from a verified program and a number of threads (None: the executor decides)."""


def cores() -> int:
    """The number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def initial_state(program: ProgramParts) -> dict[str, Int32Array]:
    """The state before the first run, as fresh arrays."""
    constants = {constant.name: constant for constant in program.constants}
    return {state.value.name: constants[state.initial].array().copy() for state in program.state}


def next_state(
    updates: Mapping[str, str], found: Mapping[str, Int32Array], given: Iterable[str]
) -> dict[str, Int32Array]:
    """The next state from the tensors of a run. ``updates`` names the tensor that each state becomes.

    Tensors in ``given`` are given to the caller too. A tensor that would be handed out twice is copied.
    """
    taken, following = set(given), {}
    for name, update in updates.items():
        following[name] = found[update].copy() if update in taken else found[update]
        taken.add(update)
    return following


def windows(program: ProgramParts, size: int | None = None) -> list[tuple[int, int]]:
    """The windows: nodes whose outputs are shown together, as pairs (first node, end).

    The outputs of a window have at most ``size`` bytes (None: `WINDOW`), or the window is a single node.
    """
    bound = WINDOW if size is None else size
    ends: list[tuple[int, int]] = []
    first = held = 0
    for index, node in enumerate(program.nodes):
        made = 4 * sum(math.prod(value.shape) for value in node.outputs)
        if index > first and held + made > bound:
            ends.append((first, index))
            first, held = index, 0
        held += made
    return [*ends, (first, len(program.nodes))] if program.nodes else []


def feeds(
    program: ProgramParts, inputs: Mapping[str, Int32Array], state: Mapping[str, Int32Array]
) -> dict[str, Int32Array]:
    """The arrays that a run starts from: all inputs and state values, checked, and copied unless they are C-contiguous.

    Raises `Invalid` with code ``executors.<feed>.<rule>``, feed being ``input`` or ``state`` and rule being ``names``,
    ``dtype``, ``shape`` or ``interval``. The proofs of a program hold for no other arrays.
    """
    return checked_inputs(program, inputs) | checked_state([source.value for source in program.state], state)


def checked_inputs(program: ProgramParts, inputs: Mapping[str, Int32Array]) -> dict[str, Int32Array]:
    """The inputs alone of `feeds`."""
    return _checked("input", [source.value for source in program.inputs], inputs)


def checked_state(declared: list[Value], state: Mapping[str, Int32Array]) -> dict[str, Int32Array]:
    """The state alone of `feeds`, as far as it is ``declared``."""
    return _checked("state", declared, state)


def returned(program: ProgramParts, capture: Capture) -> frozenset[str]:
    """The names of the values that a run returns: outputs and captured ones.

    Raises `Invalid` (code ``executors.capture``) for a name that is no input, state or node output of the program.
    """
    capturable = frozenset(_capturable(program))
    if capture == "all":
        capture = capturable
    unknown = sorted(capture - capturable)
    if unknown:
        raise Invalid("executors.capture", f"there is no value {unknown[0]!r} to capture", Location(tensor=unknown[0]))
    return capture | {output.value for output in program.outputs}


def _capturable(program: ProgramParts) -> Iterable[str]:
    yield from (source.value.name for source in program.inputs)
    yield from (source.value.name for source in program.state)
    yield from (value.name for node in program.nodes for value in node.outputs)


def _checked(feed: str, declared: list[Value], given: Mapping[str, Int32Array]) -> dict[str, Int32Array]:
    expected, found = {value.name for value in declared}, set(given)
    if expected != found:
        name = min(expected ^ found)
        what = "is missing" if name in expected else "is unknown"
        raise Invalid(f"executors.{feed}.names", f"{feed} {name!r} {what}", Location(tensor=name))
    return {value.name: _fitting(feed, value, given[value.name]) for value in declared}


def _fitting(feed: str, value: Value, array: Int32Array) -> Int32Array:
    where = Location(tensor=value.name)
    if array.dtype != np.int32:
        raise Invalid(f"executors.{feed}.dtype", f"the {feed} must be int32, found {array.dtype}", where)
    if array.shape != value.shape:
        expected, found = list(value.shape), list(array.shape)
        raise Invalid(f"executors.{feed}.shape", f"the {feed} must have shape {expected}, found {found}", where)
    lo, hi = int(array.min()), int(array.max())
    if lo < value.lo or value.hi < hi:
        message = f"the {feed} must lie in [{value.lo}, {value.hi}], found elements in [{lo}, {hi}]"
        raise Invalid(f"executors.{feed}.interval", message, where)
    return np.ascontiguousarray(array)
