"""Memory between pages that nobody may touch: a program that runs here writes and reads nothing that is not its own.

    python -m tests.executors.native.guarded MACHINE AIM FIRST LAST

runs the networks FIRST to LAST once with everything flush with the end of its pages and once with the beginning. The
arena and the constants end `SLACK` bytes before the last page, as the executor promises; arrays of the caller have no
slack. Inputs and constants cannot be written. Outputs are compared with NumPy's, and what lies beside each must stay as
it was.
"""

from __future__ import annotations

import ctypes
import mmap
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from cvm.executors import Capture, initial_state
from cvm.executors.base import returned
from cvm.executors.native import NativeExecutor
from cvm.executors.native.plan.memory import SLACK
from cvm.executors.native.runtime.select import named
from cvm.executors.numpy import NumpyExecutor
from cvm.program import Program, verify
from tools.feeds import Feed, feeds
from tools.planted.networks import network

PAGE = mmap.PAGESIZE
CANARY = 0xA5
NONE, READ, BOTH = 0, mmap.PROT_READ, mmap.PROT_READ | mmap.PROT_WRITE


@dataclass(frozen=True, eq=False)
class Region:
    """``size`` bytes from ``address`` on, of ``whole``: all bytes between two pages that cannot be touched."""

    address: int
    size: int
    first: int
    whole: npt.NDArray[np.uint8]

    def protect(self, rights: int) -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mprotect(ctypes.c_void_p(self.first), ctypes.c_size_t(self.whole.size), rights):
            raise OSError(ctypes.get_errno(), "mprotect")

    @property
    def content(self) -> npt.NDArray[np.uint8]:
        start = self.address - self.first
        return self.whole[start : start + self.size]

    def spared(self) -> bool:
        """Whether all bytes around the content are as they were."""
        start = self.address - self.first
        around = np.concatenate([self.whole[:start], self.whole[start + self.size :]])
        return bool((around == CANARY).all())


@contextmanager
def region(size: int, slack: int, at_end: bool) -> Iterator[Region]:
    """Pages for ``size`` bytes and ``slack`` bytes behind them, the content at one end or the other."""
    pages = -(-(size + slack) // PAGE) or 1
    memory = mmap.mmap(-1, (pages + 2) * PAGE)
    base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    whole = np.frombuffer(memory, np.uint8, pages * PAGE, PAGE)
    whole.flags.writeable = True
    whole[:] = CANARY
    first = base + PAGE
    address = first + pages * PAGE - size - slack if at_end else first
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (base, first + pages * PAGE):
        if libc.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(PAGE), NONE):
            raise OSError(ctypes.get_errno(), "mprotect")
    yield Region(address, size, first, whole)  # the pages go with the process


def run(program: Program, feed: Feed, machine: str, at_end: bool, capture: Capture) -> None:
    """One run among guards, compared with NumPy's."""
    verified = verify(program)
    state = initial_state(program)
    known = NumpyExecutor(verified).run(feed, state, "all")
    constants = {constant.name: constant.array() for constant in program.constants}
    executor = NativeExecutor(verified, 1, named(machine))
    made = executor._network(returned(program, capture))
    assert made is not None, "the program has no ops for native code"
    given = {**state, **feed}
    with ExitStack() as stack:
        arena = stack.enter_context(region(made.plan.arena, SLACK, at_end))
        packed = stack.enter_context(region(made.packed.size, SLACK, at_end))
        packed.content[:] = made.packed
        packed.protect(READ)
        arrays: list[Region] = []
        for name, shape in (*made.given, *made.left):
            array = stack.enter_context(region(4 * int(np.prod(shape)), 0, at_end))
            if len(arrays) < len(made.given):
                array.content[:] = given[name].reshape(-1).view(np.uint8)
                array.protect(READ)
            arrays.append(array)
        table = np.array([array.address for array in arrays], np.int64)
        job = np.array([0, 0, arena.address, packed.address, table.ctypes.data, 0], np.int64)
        assert made._start(job.ctypes.data) == -1
        for (name, shape), array in zip(made.left, arrays[len(made.given) :], strict=True):
            found = array.content.view(np.int32) if array.address % 4 == 0 else array.content.copy().view(np.int32)
            right = known.values[name] if name in known.values else constants[name]
            np.testing.assert_array_equal(found.reshape(shape), right, err_msg=name)
        for area in (arena, packed, *arrays):
            assert area.spared(), "bytes outside a tensor were written"


def main() -> None:
    machine, aim, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    for seed in range(first, last):
        program = network(aim, seed)
        for feed in feeds(program, 4, seed)[-1:]:
            for at_end in (True, False):
                print(machine, aim, seed, at_end, flush=True)
                run(program, feed, machine, at_end, "all" if seed % 3 == 0 else frozenset())
    print("done")


if __name__ == "__main__":
    main()
