"""The reference and the NumPy executor multiply on one thread, and leave the number of threads as it was."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from cvm.blas import one_thread, openblas
from cvm.executors import create, initial_state
from cvm.program import verify
from cvm.reference import Reference
from tests.executors.test_executors import fed, network
from tests.reference.graphs import computed, external, graph, operation


@pytest.fixture
def threads() -> Iterator[list[int]]:
    """A list to write numbers of threads into, while three are what the process had."""
    found = openblas()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    get, put = found
    before = get()
    put(3)
    try:
        yield []
        assert get() == 3
    finally:
        put(before)


def count() -> int:
    found = openblas()
    assert found is not None
    return found[0]()


def test_products_are_computed_on_one_thread(threads: list[int]) -> None:
    def change(name: str, arrays: list[np.ndarray]) -> list[np.ndarray]:  # type: ignore[type-arg]
        threads.append(count())
        return arrays

    tensors = [external("x", (1, 4)), computed("y", (1, 4))]
    model = graph("x", "y", tensors, operation("relu", "y", x="x"))
    Reference(model).side_by_side({"x": np.ones((2, 4))}, slice(None), change)
    assert threads == [1]


def test_the_numpy_executor_computes_on_one_thread(threads: list[int]) -> None:
    program = network()
    create("numpy", verify(program)).run(fed(program), initial_state(program), watch=lambda _: threads.append(count()))
    before, *during = threads  # what is fed is shown before the first product
    assert before == 3
    assert set(during) == {1}


def test_what_was_is_restored_after_an_error_and_after_the_last_of_several(threads: list[int]) -> None:
    inside, leave = threading.Event(), threading.Event()

    def other() -> None:
        with one_thread():
            inside.set()
            leave.wait(20)

    worker = threading.Thread(target=other)

    def fails() -> None:
        with one_thread():
            worker.start()
            assert inside.wait(20)
            threads.append(count())
            raise KeyError

    with pytest.raises(KeyError):
        fails()
    threads.append(count())
    leave.set()
    worker.join()
    assert threads == [1, 1]


@pytest.mark.parametrize("given", [None, "3"])
def test_a_command_begins_no_threads_of_blas_unless_it_is_told_to(given: str | None) -> None:
    code = "import os; from cvm.cli import main; main(['--version']); print(os.environ['OPENBLAS_NUM_THREADS'])"
    environment = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    environment |= {} if given is None else {"OPENBLAS_NUM_THREADS": given}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == (given or "1")


def test_a_caller_that_has_numpy_keeps_its_environment() -> None:
    code = (
        "import numpy, os; from cvm.cli import main; main(['--version']); print('OPENBLAS_NUM_THREADS' in os.environ)"
    )
    environment = {name: text for name, text in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "False"
