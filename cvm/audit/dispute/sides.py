"""The two kinds of parties: one that has all tensors of its run, and one that has only a trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from cvm.audit.dispute import questions as q
from cvm.audit.dispute.evidence import Evidence, OpenProgram
from cvm.audit.dispute.game import Statement
from cvm.audit.dispute.party import Witnessed, children_of, open_trace
from cvm.audit.trace import Trace
from cvm.errors import Invalid, Location
from cvm.executors import Int32Array, create, initial_state
from cvm.inputs import Intake, Layout, arrange
from cvm.program.merkle import Tree

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["Recounting", "computed", "evidence_from", "side_of", "statement_of"]

Arrays = Mapping[str, npt.NDArray[Any]]


def computed(
    verified: VerifiedProgram,
    inputs: Mapping[str, Any],
    *,
    cycles: bool = False,
    codes: bool = False,
    run: int = 0,
    state: Arrays | None = None,
    executor: str | None = None,
) -> Evidence:
    """All tensors of one run, computed from a program and its inputs.

    ``cycles`` and ``codes`` say what the arrays are, as for `Session.run`. ``run`` counts the runs of ``inputs``
    sample by sample and, with ``cycles``, cycle by cycle in each sample. ``state`` is the state before each sample
    (None: the initial state). Raises `Invalid` for arrays that no run can have, and
    (``dispute.run``, ``state.names``) for a run or a state that does not exist.
    """
    from cvm.executors import choose_executor

    _, samples = arrange(verified.program, inputs, cycles, Intake(codes))
    runs = [(feeds, index) for feeds in samples for index in range(len(feeds))]
    _require_run(run, len(runs))
    feeds, index = runs[run]
    made = create(choose_executor(executor)[0], verified)
    before = initial_state(verified.program) if state is None else _state(verified, state)
    for feed in feeds[:index]:
        before = made.run(feed, before).state
    result = made.run(feeds[index], before, "all")
    return Evidence(OpenProgram(verified.program), {**before, **feeds[index], **result.values})


def _state(verified: VerifiedProgram, arrays: Arrays) -> dict[str, Int32Array]:
    shapes = {item.value.name: item.value.shape for item in verified.program.state}
    if set(arrays) != set(shapes):
        raise Invalid("state.names", f"expected the state {sorted(shapes)}, found {sorted(arrays)}")
    return {name: _tensor(name, shape, arrays[name]) for name, shape in shapes.items()}


def evidence_from(
    program: OpenProgram,
    arrays: Arrays,
    begin: Arrays | None = None,
    *,
    run: int = 0,
    layout: Layout | None = None,
) -> Evidence:
    """The evidence in arrays, as ``cvm run --codes --capture all`` writes them: by the names of values, or of outputs.

    ``begin`` holds inputs and state of the run if the arrays do not. The arrays may hold several runs, as ``layout``
    says (None: one run); ``run`` selects one of them. Raises `Invalid`,
    ``dispute.tensor``, for a tensor that is missing, of another shape, or not of int32 codes, and ``dispute.run`` for
    a run that does not exist.
    """
    runs = Layout() if layout is None else layout
    _require_run(run, runs.runs)
    named = {item.value: arrays[item.name] for item in program.program.outputs if item.name in arrays}
    given, known = {**arrays, **named}, begin or {}
    constants = program.constant_arrays
    return Evidence(
        program,
        {
            name: _tensor(name, shape, _one_run(given[name], shape, runs, run) if name in given else known.get(name))
            for name, shape in program.shapes.items()
            if name not in constants
        },
    )


def _one_run(array: npt.NDArray[Any], shape: tuple[int, ...], layout: Layout, run: int) -> npt.NDArray[Any]:
    """The part of an array that belongs to one run; an array that does not hold all runs is taken as one run's."""
    return layout.run(array, shape, run) if array.shape == layout.shape(shape) else array


def _require_run(run: int, runs: int) -> None:
    if not 0 <= run < runs:
        raise Invalid("dispute.run", f"there are {runs} runs of these inputs, counted from 0: there is no {run}")


def _tensor(name: str, shape: tuple[int, ...], array: npt.NDArray[Any] | None) -> Int32Array:
    where = Location(tensor=name)
    if array is None:
        raise Invalid("dispute.tensor", "this tensor is missing: expected what `cvm run --capture all` writes", where)
    if array.shape != shape:
        expected = f"expected shape {list(shape)}, that of one run"
        raise Invalid("dispute.tensor", f"{expected}, found {list(array.shape)}", where)
    if array.dtype.kind not in "iu" or not -(2**31) <= int(array.min()) <= int(array.max()) < 2**31:
        expected = "expected codes of 32 bits, as `cvm run --codes` writes them"
        raise Invalid("dispute.tensor", f"{expected}, found dtype {array.dtype}", where)
    return np.ascontiguousarray(array, np.int32)


class Recounting:
    """A party with a trace and the program but without tensors: it can only say on which op it differs."""

    def __init__(self, program: OpenProgram, trace: Trace) -> None:
        self._program = program
        self._trace = trace
        self._log = Tree.of(trace.records())

    @property
    def root(self) -> bytes:
        """The trace root that the party claims."""
        return self._trace.root

    def answer(self, question: q.Question) -> q.Answer:
        """The answer to a question about the trace."""
        match question:
            case q.OpenTrace():
                return open_trace(self._program, self._trace)
            case q.LogNode(start, end):
                return children_of(self._log, start, end)
            case q.OpenOp(op):
                program = self._program
                return q.OpOpening(program.record(op), program.nodes.prove(op).path, self._trace.steps[op])
            case _:
                return None


def statement_of(true: Evidence) -> Statement:
    """The statement about a run on which both parties agree."""
    return Statement(true.trace.program, true.trace.inputs, true.trace.before)


def side_of(true: Evidence, given: Evidence | Trace) -> Witnessed | Recounting:
    """The party with this evidence or trace. If the trace is the true one, the party gets all tensors."""
    if isinstance(given, Evidence):
        return Witnessed(given)
    return Witnessed(true) if given == true.trace else Recounting(true.program, given)
