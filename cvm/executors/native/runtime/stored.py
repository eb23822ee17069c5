"""Compiled networks on disk: code, packed constants, and the parts of the plan that a run needs.

A file begins with the length of its description (8 bytes, little-endian) and the description (JSON). The code follows,
then the constants if they are small. Large constants have a file of their own, named after their content. So networks
of one program that return other values, or use another number of threads, share it. The file is mapped, so that all
sessions that use it, in this process and in others, have one copy of it in memory.
"""

from __future__ import annotations

import hashlib
import json
import threading
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from cvm.executors.native.plan.memory import SLACK, aligned
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime import cache
from cvm.records import dataclass

__all__ = ["SLACK", "Compiled", "aligned", "keep_constants", "kept_constants", "restore", "store"]

MANY = 2**16
"""Constants of at least this many bytes are stored in a file of their own."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A network that can be loaded: its plan without the parts that only compiling needs, its code and its constants.

    ``threads`` is the largest number of threads of a run. ``stages`` are ranges of calls, each of which runs without a
    stop. ``constants`` start at an address that is a multiple of 64, with `SLACK` bytes behind them. ``room`` is the
    memory of a thread for a batch, in bytes, and ``grouped`` says that several samples share it (see `batches`).
    """

    plan: Plan
    threads: int
    stages: tuple[tuple[int, int], ...]
    code: bytes
    constants: Bytes
    room: int = 0
    grouped: bool = False


_HEAD = bytes(-cache.DIGEST % 64)
"""What precedes constants in a file, so that they lie at a multiple of 64 bytes."""
_in_use: WeakValueDictionary[str, Bytes] = WeakValueDictionary()
"""The large constants of all networks of this process, by the names of their files."""
_lock = threading.Lock()


def _shared(apart: str, size: int, own: Bytes | None = None) -> Bytes | None:
    """The constants of a file, in the memory that all networks of this process share.

    If the file is missing or damaged, ``own`` becomes this memory, unless it is None.
    """
    with _lock:
        found = _in_use.get(apart)
        if found is None:
            content = cache.mapped(apart, len(_HEAD) + size + SLACK)
            found = own if content is None else content[len(_HEAD) : len(_HEAD) + size]
            if found is not None:
                _in_use[apart] = found
        return found


def keep_constants(constants: Bytes) -> tuple[str | None, Bytes]:
    """Store constants in a file of their own if they are many and that is possible.

    Returns the name of the file, or None for few constants, and the constants, in the memory in which they are shared.
    """
    if constants.size < MANY:
        return None, constants
    apart = "constants-" + hashlib.sha256(constants.data).hexdigest()
    cache.write(apart, _HEAD, constants.data, bytes(SLACK), bounded=False)
    return apart, _shared(apart, constants.size, constants)  # type: ignore[return-value]


def kept_constants(apart: str | None, size: int, own: bytes) -> Bytes | None:
    """The constants of the file ``apart``, or those that ``own`` holds, which stood behind the code.

    Returns None if the file is missing or damaged.
    """
    if apart is not None:
        return _shared(apart, size)
    constants = aligned(size + SLACK)[:size]
    constants[:] = np.frombuffer(own, np.uint8)
    return constants


def store(name: str, network: Compiled) -> Bytes:
    """Store a compiled network if that is possible. Returns its constants, in the memory in which they are shared."""
    apart, constants = keep_constants(network.constants)
    made = network.plan
    description: dict[str, Any] = {
        "threads": network.threads,
        "stages": network.stages,
        "arena": made.arena,
        "arrays": made.arrays,
        "written": made.written,
        "joined": made.joined,
        "calls": [(call.function, call.units, call.what, call.note, call.cost, call.per_thread) for call in made.calls],
        "code": len(network.code),
        "constants": constants.size,
        "apart": apart,
        "room": network.room,
        "grouped": network.grouped,
    }
    text = json.dumps(description).encode()
    parts = [len(text).to_bytes(8, "little"), text, network.code]
    cache.write(name, b"".join(parts if apart else [*parts, constants.tobytes()]))
    return constants


def restore(name: str) -> Compiled | None:
    """The network that was stored under a name, or None if a part of it is missing or damaged."""
    data = cache.read(name)
    if data is None:
        return None
    start = 8 + int.from_bytes(data[:8], "little")
    found = json.loads(data[8:start])
    end = start + found["code"]
    constants = kept_constants(found["apart"], found["constants"], data[end:])
    if constants is None:
        return None
    calls = tuple(KernelCall(function, (), *others) for function, *others in found["calls"])
    arrays = tuple(found["arrays"])
    made = Plan({}, calls, {}, found["arena"], b"", arrays, found["written"], found["joined"], {})
    stages = tuple((first, end) for first, end in found["stages"])
    code = data[start:end]
    return Compiled(made, found["threads"], stages, code, constants, found["room"], found["grouped"])
