"""Compiled networks on disk: code, packed constants, and what is known of the plan they were made by.

A file begins with the length of its description (8 bytes, little-endian) and the description (JSON); the code follows,
then the constants, unless these are many. Many constants are a file of their own, named after their content, which the
networks of one program share whatever they return and in however many threads they run.
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
"""Bytes behind the arena and the constants: kernels read, but never use, up to 64 elements behind a tensor."""
MANY = 2**16
"""Bytes of constants from which on they are a file of their own."""

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A network to be loaded: its plan without what only compiling needs, its code and its constants.

    ``threads`` is how many at most share a run, ``stages`` from which call to which it goes without a stop.
    ``constants`` begin at a multiple of 64 and have `SLACK` behind them.
    """

    plan: Plan
    threads: int
    stages: tuple[tuple[int, int], ...]
    code: bytes
    constants: Bytes


def aligned(size: int) -> Bytes:
    """Zeroed bytes from a multiple of 64 on."""
    raw = np.zeros(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size]


def store(name: str, network: Compiled) -> None:
    """Keep a compiled network, if that is possible."""
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
    }
    text = json.dumps(description).encode()
    parts = [len(text).to_bytes(8, "little"), text, network.code]
    cache.write(name, b"".join(parts if apart else [*parts, constants.tobytes()]))


def restore(name: str) -> Compiled | None:
    """The network that was kept under a name, if all of it is there."""
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
    return Compiled(made, found["threads"], stages, data[start:end], constants)
