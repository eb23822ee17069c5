"""Compiled networks on disk: code, packed constants, and the parts of the plan that a run needs.

A file begins with the length of its description (8 bytes, little-endian) and the description (JSON). The code follows,
then the constants if they are small. Large constants have a file of their own, named after their content. So networks
of one program that return other values, or use another number of threads, share it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime import cache

__all__ = ["SLACK", "Compiled", "aligned", "restore", "store"]

SLACK = 64 * 8
"""The bytes behind the arena and the constants. Kernels may read, but do not use, up to 64 elements behind a tensor."""
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


def aligned(size: int) -> Bytes:
    """Zeroed bytes whose address is a multiple of 64."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def store(name: str, network: Compiled) -> None:
    """Store a compiled network if that is possible."""
    constants, apart = network.constants, None
    if constants.size >= MANY:
        apart = "constants-" + hashlib.sha256(constants.data).hexdigest()
        cache.write(apart, constants.data, bounded=False)
    made = network.plan
    description: dict[str, Any] = {
        "threads": network.threads,
        "stages": network.stages,
        "arena": made.arena,
        "arrays": made.arrays,
        "written": made.written,
        "joined": made.joined,
        "calls": [(call.function, call.units, call.what, call.note, call.cost) for call in made.calls],
        "code": len(network.code),
        "constants": constants.size,
        "apart": apart,
        "room": network.room,
        "grouped": network.grouped,
    }
    text = json.dumps(description).encode()
    parts = [len(text).to_bytes(8, "little"), text, network.code]
    cache.write(name, b"".join(parts if apart else [*parts, constants.tobytes()]))


def restore(name: str) -> Compiled | None:
    """The network that was stored under a name, or None if a part of it is missing or damaged."""
    data = cache.read(name)
    if data is None:
        return None
    start = 8 + int.from_bytes(data[:8], "little")
    found = json.loads(data[8:start])
    end = start + found["code"]
    constants = aligned(found["constants"] + SLACK)[: found["constants"]]
    if found["apart"] is None:
        constants[:] = np.frombuffer(data, np.uint8, offset=end)
    elif not cache.read_into(found["apart"], constants):
        return None
    calls = tuple(KernelCall(function, (), *others) for function, *others in found["calls"])
    arrays = tuple(found["arrays"])
    made = Plan({}, calls, {}, found["arena"], b"", arrays, found["written"], found["joined"], {})
    stages = tuple((first, end) for first, end in found["stages"])
    code = data[start:end]
    return Compiled(made, found["threads"], stages, code, constants, found["room"], found["grouped"])
