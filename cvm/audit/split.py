"""One run that does the work of several: the roots of the states between them.

A program that appends one row in each run passes through states of which only the last one exists if another program
appends several rows at once. The rows that come later are as they were, so the states between follow from the state
before and the state after.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from cvm.audit.record import States
from cvm.audit.state_roots import ELEMENTS, changed_leaves
from cvm.errors import Mismatch
from cvm.executors import Int32Array
from cvm.executors.held import Held
from cvm.program.appends import Append
from cvm.records import dataclass

__all__ = ["SplitRun"]


@dataclass(slots=True)
class _Rows:
    """The leaves of a tensor that hold the rows of all runs."""

    numbers: npt.NDArray[np.int64]
    content: Int32Array
    """As the runs so far have left them."""
    row: npt.NDArray[np.int64]
    """The row of each element: its index along the axis."""
    after: Int32Array | None = None


class SplitRun:
    """The states of a held state between the runs that one run stands for.

    Made before the run, which appends ``count`` rows to each tensor in ``appends``; those of the single runs begin at
    ``first``. Call `ran` after it, and then `step` for each of the single runs.
    """

    def __init__(self, states: States, held: Held, appends: Mapping[str, Append], first: int, count: int) -> None:
        self._states, self._held, self._appends, self._first = states, held, appends, first
        self._trees, self.roots = states.trees(held)
        self._rows: dict[str, _Rows] = {}
        for name, append in appends.items():
            shape, axis = append.shape, append.axis
            numbers = changed_leaves(shape, axis, append.start(first), count)
            elements = numbers[:, None] * ELEMENTS + np.arange(ELEMENTS)
            row = elements // math.prod(shape[axis + 1 :]) % shape[axis]
            row[elements >= math.prod(shape)] = -1
            self._rows[name] = _Rows(numbers, held.blocks(name, numbers, ELEMENTS), row)

    def ran(self) -> None:
        """Read what the run has left."""
        for name, rows in self._rows.items():
            rows.after = self._held.blocks(name, rows.numbers, ELEMENTS)

    def step(self, number: int, others: Mapping[str, Int32Array]) -> dict[str, bytes]:
        """The roots after single run ``number``; ``others`` are the tensors that it replaces as a whole."""
        changed = []
        for name, rows in self._rows.items():
            assert rows.after is not None
            here = rows.row == self._appends[name].start(self._first + number)
            rows.content[here] = rows.after[here]
            leaves = here.any(axis=1)
            changed.append((name, rows.numbers[leaves], rows.content[leaves]))
        for name, codes in others.items():
            padded = np.zeros(-(-codes.size // ELEMENTS) * ELEMENTS, np.int32)
            padded[: codes.size] = codes.reshape(-1)
            changed.append((name, np.arange(len(padded) // ELEMENTS), padded.reshape(-1, ELEMENTS)))
        self._trees.replace(changed)
        self.roots = self.roots | {name: self._trees.root(name) for name, _, _ in changed}
        return self.roots

    def end(self) -> None:
        """Note the roots after all runs. Raises `Mismatch` (``generation.prefill``) if the run has left other rows."""
        for name, rows in self._rows.items():
            if rows.after is None or not np.array_equal(rows.content, rows.after):
                message = f"the program has written other rows of {name!r} than single runs would have written"
                raise Mismatch("generation.prefill", message)
        self._states.known(self._held, self._trees, self.roots)
