"""The trial of a device: kernels are compared with the NumPy executor before a network that needs them is used.

The programs are those of the native executor's trial, one for each class of kernels, on extreme values. If a class
fails, the descriptions of its program are written in their plain form from then on. If the plain form fails too, the
network is not run on the device at all. Then the network itself runs on test data, and the values that it returns are
compared. Each time single samples come first, then a batch of them, since many samples have kernels of their own
(`cvm.executors.cuda.launch.CROWD`). The classes that have passed are noted in the cache of compiled code, for this
device, its driver, and this version of the code. A network that has passed is stored there (`stored`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cvm.errors import CvmError, Unsupported
from cvm.executors.base import Int32Array, initial_state, returned
from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.emit import registry
from cvm.executors.cuda.launch import CROWD
from cvm.executors.cuda.network import Memory, Network
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.classes import kinds_of
from cvm.executors.native.runtime.distrust import Distrusted, Failed
from cvm.executors.native.runtime.trial import agrees
from cvm.executors.native.runtime.trial_programs import CLASSES, Class
from cvm.program.verifier import VerifiedProgram

__all__ = ["Trial"]

PASSED = b"passed"
Feed = Mapping[str, Int32Array]


class Trial:
    """The trial of one device, and what it has found. ``classes`` are those of the native executor's trial."""

    def __init__(self, device: Device, classes: tuple[Class, ...] = CLASSES) -> None:
        self._device, self._classes = device, classes
        self._passed: set[tuple[str, frozenset[type]]] = set()
        self._slow: dict[type, str] = {}

    @property
    def slow(self) -> frozenset[type]:
        """The kinds of kernels whose fast form has failed on the device in this process."""
        return frozenset(self._slow)

    @property
    def said(self) -> tuple[str, ...]:
        """What to say about kinds of kernels whose fast form failed, one line each."""
        return tuple(
            f"kernels of the kind {kind.__name__} are plain, since their fast form FAILED its trial ({name})"
            for kind, name in self._slow.items()
        )

    def failed(self, network: Network, plain: frozenset[type]) -> frozenset[type]:
        """The kinds of kernels that must be written in their plain form, besides those that are, ``plain``.

        If there are none, the network may be used. Raises `Failed` if a plain form fails its trial.
        """
        used = kinds_of(network.plan)
        known = frozenset().union(*(one.tries(CUDA) for one in self._classes))
        for one in self._classes:
            if used - known or used & one.tries(CUDA):
                found = self._tried(one, plain)
                if found:
                    self._slow = dict.fromkeys(found, one.name) | self._slow
                    return frozenset(found)
        return frozenset()

    def _tried(self, one: Class, plain: frozenset[type]) -> frozenset[type]:
        """The kinds of kernels of a class whose fast form gives wrong results."""
        name = self._name(one.name, plain)
        if (one.name, plain) in self._passed or cache.read(name) == PASSED:
            return frozenset()
        verified = one.program()
        try:
            network = Network(verified, self._device, returned(verified.program, frozenset()), plain=plain)
        except Unsupported as error:
            if error.code != "cuda.code":
                raise
            return self.refused(error, plain)
        try:
            right = _right(verified, network)
            kinds = {type(kernel) for kernel in network.plan.functions.values()} & registry.FAST.keys()
        finally:
            network.close()
        if not right:
            if not kinds - plain:
                raise Failed(f"{self._device.name} FAILED its trial ({one.name}), in plain kernels too")
            return frozenset(kinds - plain)
        self._passed.add((one.name, plain))
        cache.write(name, PASSED)
        return frozenset()

    def refused(self, error: Unsupported, plain: frozenset[type]) -> frozenset[type]:
        """The kinds of kernels to write in plain form after the driver has refused the code of a network.

        Raises `Failed` if all kinds are in ``plain``.
        """
        left = frozenset(registry.FAST.keys() - plain)
        if not left:
            raise Failed(f"{self._device.name} takes no code, of plain kernels either: {error.message}") from error
        self._slow |= dict.fromkeys(left, error.message)
        return left

    def _name(self, what: str, plain: frozenset[type]) -> str:
        """The name of the note that something has passed on this device."""
        kinds = sorted(kind.__name__ for kind in plain)
        return cache.key(CUDA, ("cuda trial", self._device.identity, what, *kinds))

    def rehearse(self, verified: VerifiedProgram, network: Network) -> None:
        """Run a network on test data. Raises `Distrusted` if it gives or shows other values than the NumPy executor.

        One sample is compared with the NumPy executor, a batch with single samples on the device.
        """
        program = verified.program
        from cvm.executors.numpy import NumpyExecutor

        random = np.random.default_rng(list(bytes.fromhex(program.digest)))
        state = initial_state(program)
        room = 4 * CROWD * network.sample_bytes <= self._device.available
        feeds = [
            {
                item.value.name: random.integers(item.value.lo, item.value.hi + 1, item.value.shape).astype(np.int32)
                for item in program.inputs
            }
            for _ in range(CROWD if room and not state else 1)
        ]
        seen = network.wanted | network.shown
        made = NumpyExecutor(verified).run(feeds[0], state, seen & _computed(verified))
        expected = {**made.values, **feeds[0], **state}
        fed = [{**feed, **state} for feed in feeds]
        found = _singly(network, fed)
        self._compare(found[0], {value: expected[value] for value in seen & expected.keys()}, "")
        if len(fed) > 1:
            for sample, values in enumerate(_together(network, fed)):
                self._compare(values, {value: found[sample][value] for value in network.wanted}, " in a batch")

    def _compare(self, found: Feed, expected: Feed, where: str) -> None:
        """Raise `Distrusted` if values are not the expected ones."""
        for value in sorted(expected):
            if not np.array_equal(found[value], expected[value]):
                message = f"{value} came out otherwise{where} when the kernels were tried on {self._device.name}"
                raise Distrusted(message)


def _computed(verified: VerifiedProgram) -> frozenset[str]:
    return frozenset(value.name for node in verified.program.nodes for value in node.outputs)


def _singly(network: Network, feeds: Sequence[Feed]) -> list[dict[str, Int32Array]]:
    """The values that a network returns and shows for feeds, one after the other."""
    memory = Memory(network)
    try:
        found = []
        for feed in feeds:
            (values,) = _run(network, memory, [feed])
            found.append(values | {name: memory.fetched(name) for name in network.shown})
        return found
    finally:
        memory.close()


def _together(network: Network, feeds: Sequence[Feed]) -> list[dict[str, Int32Array]]:
    """The values that a network returns for a batch of feeds."""
    memory = Memory(network, len(feeds))
    try:
        return _run(network, memory, feeds)
    finally:
        memory.close()


def _run(network: Network, memory: Memory, feeds: Sequence[Feed]) -> list[dict[str, Int32Array]]:
    for sample, feed in enumerate(feeds):
        for name in network.given:
            memory.put(name, sample, feed[name][None])
    memory.start()
    memory.wait()
    found = {name: memory.result(name, len(feeds)) for name in network.wanted}
    return [{name: found[name][sample] for name in found} for sample in range(len(feeds))]


def _right(verified: VerifiedProgram, network: Network) -> bool:
    """Whether a network gives the NumPy executor's outputs for extreme inputs, singly and in a batch."""
    fed: list[Feed] = []
    found: list[dict[str, Int32Array]] = []

    def run(feed: Feed) -> Feed:
        fed.append(feed)
        found.extend(_singly(network, [feed]))
        return found[-1]

    try:
        if not agrees(verified, run):
            return False
        order = [sample % len(fed) for sample in range(CROWD)]
        batch = _together(network, [fed[number] for number in order])
    except CvmError as error:  # the device has failed, and nothing can be run on it any more
        raise Distrusted(f"a trial failed: {error.message}") from error
    return all(
        np.array_equal(values[name], array)
        for values, number in zip(batch, order, strict=True)
        for name, array in found[number].items()
    )
