"""The trial of a machine: every class of kernels is compared with the NumPy executor on extreme values.

It finds a processor, a hypervisor or a code generator that computes wrong results, before a user's network runs. A
class of kernels has a small program; several of them are tried as one, which costs a third of what they cost alone. The
result of the trial is stored with compiled code, so each machine is tried once per version of this package.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from cvm.executors.base import Int32Array, returned
from cvm.executors.native.emit.machine import Machine
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.distrust import Distrusted
from cvm.executors.native.runtime.networks import network_of
from cvm.executors.native.runtime.trial_programs import CLASSES, Class
from cvm.program.merging import merged
from cvm.program.program import Program
from cvm.program.verifier import VerifiedProgram, verify

__all__ = ["agrees", "failure"]

PASSED = b"passed"
TOGETHER = 8
"""At most this many classes are tried by one program: its run is so short that it is rehearsed on all data that the
rehearsal knows (`rehearsal.QUICK`).
"""
AT_ONCE = 2
"""How many of these programs are tried at the same time: Python works for one, the code generator for the other."""


def failure(machine: Machine, used: frozenset[str] | None = None) -> str | None:
    """The first class of kernels for which a machine gives wrong results, or None. Every class is tried once.

    ``used`` are the kinds of kernels (`cvm.executors.native.runtime.classes`) to try; None stands for all. If no class
    tries one of them, all are tried.
    """
    whole = cache.key(machine, ("trial",))
    if used is None and cache.read(whole) == PASSED:
        return None
    known = frozenset().union(*(one.tries(machine) for one in CLASSES))
    needed = [one for one in CLASSES if used is None or used - known or used & one.tries(machine)]
    left = [one for one in needed if cache.read(_name(machine, one)) != PASSED]
    some = [left[first : first + TOGETHER] for first in range(0, len(left), TOGETHER)]
    wrong = next((said for said in _at_once(partial(_failure, machine), some) if said is not None), None)
    if used is None and wrong is None:
        cache.write(whole, PASSED)
    return wrong


def _name(machine: Machine, one: Class) -> str:
    """The name of the note that a machine has passed in a class."""
    return cache.key(machine, ("trial", one.name))


def _at_once(tell: Callable[[Sequence[Class]], str | None], some: Sequence[Sequence[Class]]) -> Iterator[str | None]:
    """What ``tell`` says of each list of classes, in order.

    A program is planned and checked while the code generator, which does not hold Python's lock, works for another.
    """
    with ThreadPoolExecutor(AT_ONCE) as threads:
        try:
            told = [threads.submit(tell, classes).result for classes in some]
        except RuntimeError:  # the system has no more threads
            threads.shutdown(cancel_futures=True)
            told = [partial(tell, classes) for classes in some]
        try:
            for result in told:
                yield result()
        finally:
            threads.shutdown(cancel_futures=True)


def _failure(machine: Machine, classes: Sequence[Class]) -> str | None:
    """The first of some classes for which the machine gives wrong results; else None.

    One program tries all of them, since a program costs more than its kernels. If it fails, each class is tried alone
    to name the one that fails. If none does, the first one is named: the machine is not to be trusted.
    """
    fault = _fault(machine, merged([one.made() for one in classes]))
    if fault is not None:
        alone = (fault,) if len(classes) == 1 else (_fault(machine, one.made()) for one in classes)
        wrong = (one.name + said for one, said in zip(classes, alone, strict=True) if said is not None)
        return next(wrong, f"{classes[0].name}, with others{fault}")
    for one in classes:
        cache.write(_name(machine, one), PASSED)
    return None


def _fault(machine: Machine, program: Program) -> str | None:
    """None if a machine gives the right results for a program; else what is said of it after the name of its class."""
    try:
        return None if _agrees(machine, verify(program)) else ""
    except RuntimeError as error:  # the code generator cannot compile the code
        return f": {str(error).splitlines()[0]}"


def _agrees(machine: Machine, verified: VerifiedProgram) -> bool:
    try:
        network = network_of(verified, machine, 1, returned(verified.program, frozenset()))
    except Distrusted:
        return False

    def run(feed: Mapping[str, Int32Array]) -> dict[str, Int32Array] | None:
        found = {name: np.empty(shape, np.int32) for name, shape in network.left}
        done = network.run([*(feed[name] for name, _ in network.given), *found.values()])
        return found if done else None

    return agrees(verified, run)


def agrees(
    verified: VerifiedProgram, run: Callable[[Mapping[str, Int32Array]], Mapping[str, Int32Array] | None]
) -> bool:
    """Whether ``run`` gives the outputs of the NumPy executor for extreme inputs. None is no output."""
    from cvm.executors.numpy import NumpyExecutor

    numpy = NumpyExecutor(verified)
    for feed in _feeds(verified):
        found, expected = run(feed), numpy.run(feed, {}).values
        if found is None or any(not np.array_equal(found[name], tensor) for name, tensor in expected.items()):
            return False
    return True


def _feeds(verified: VerifiedProgram) -> Iterator[dict[str, Int32Array]]:
    """Inputs of the greatest numbers, of the least, of both alternating, and of a pattern."""
    values = [source.value for source in verified.program.inputs]

    def filled(rule: Any) -> dict[str, Int32Array]:
        return {
            value.name: np.asarray(rule(np.arange(int(np.prod(value.shape))), value.lo, value.hi))
            .reshape(value.shape)
            .astype(np.int32)
            for value in values
        }

    yield filled(lambda k, lo, hi: np.full(k.shape, hi))
    yield filled(lambda k, lo, hi: np.full(k.shape, lo))
    yield filled(lambda k, lo, hi: np.where(k % 2 == 0, lo, hi))
    yield filled(lambda k, lo, hi: lo + (k * 7919 + k * k % 1009) % (hi - lo + 1))
