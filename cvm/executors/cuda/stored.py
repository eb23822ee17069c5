"""Written networks on disk, so that a program is planned, proven, written and tried once for a device.

The files lie in the cache of the native executor, by its rules (`cvm.executors.native.runtime.cache`). An entry begins
with the length of its description (8 bytes, little-endian) and the description (JSON); the text of the kernels follows,
then the constants if they are few. More constants have a file of their own, named after their content.

A network is stored when its plan has been proven and its code has been tried on the device. The digest of the file
covers the plan, the text and the constants or their name, so the verdicts hold for exactly what is restored. The name
of the file (`entry`) covers all that the verdicts depend on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from cvm.executors.cuda.device.protocol import Device
from cvm.executors.cuda.launch import Kernels, Launch
from cvm.executors.cuda.written import Written
from cvm.executors.native.emit.machine import CUDA
from cvm.executors.native.plan.homes import Buffer
from cvm.executors.native.plan.steps import KernelCall, Plan
from cvm.executors.native.runtime import cache
from cvm.executors.native.runtime.stored import keep_constants, kept_constants

__all__ = ["entry", "restore", "store"]


def entry(device: Device, digest: str, wanted: frozenset[str], shown: frozenset[str], plain: frozenset[type]) -> str:
    """The name of the entry of a network: of a program by its digest, on a device, for values that it gives and shows.

    The name depends on the source code of planner, checker, emitter and trial, on LLVM's version, and on the device
    with its compute capability and its driver.
    """
    forms = sorted(kind.__name__ for kind in plain)
    said = json.dumps([device.identity, device.capability, digest, sorted(wanted), sorted(shown), forms])
    return cache.key(CUDA, ("cuda network", said))


def store(name: str, network: Written) -> None:
    """Store a network if that is possible."""
    plan, kernels = network.plan, network.kernels
    text = kernels.ir.encode()
    constants = np.frombuffer(plan.constants, np.uint8)
    apart = keep_constants(constants)[0]
    description: dict[str, Any] = {
        "arena": plan.arena,
        "arrays": plan.arrays,
        "written": plan.written,
        "joined": plan.joined,
        "kept": plan.kept,
        "calls": [(call.function, call.units, call.what, call.note, call.cost) for call in plan.calls],
        "launches": [_said(one, plan) for one in kernels.launches],
        "of calls": kernels.calls,
        "text": len(text),
        "constants": constants.size,
        "apart": apart,
    }
    said = json.dumps(description).encode()
    parts = [len(said).to_bytes(8, "little"), said, text]
    cache.write(name, b"".join(parts if apart else [*parts, constants.tobytes()]))


def restore(name: str) -> Written | None:
    """The network of an entry, or None if a part of it is missing, damaged, or another user could have written it."""
    data = cache.read(name)
    if data is None:
        return None
    start = 8 + int.from_bytes(data[:8], "little")
    found = json.loads(data[8:start])
    end = start + found["text"]
    constants = kept_constants(found["apart"], found["constants"], data[end:])
    if constants is None:
        return None
    arena = Buffer("arena", found["arena"])
    calls = tuple(KernelCall(function, (), *others) for function, *others in found["calls"])
    made = Plan(
        {}, calls, {arena: 0}, found["arena"], constants.data, tuple(found["arrays"]), found["written"],
        found["joined"], {}, kept=tuple(found["kept"]),
    )  # fmt: skip
    launches = tuple(_launch(one, arena) for one in found["launches"])
    return Written(made, Kernels(data[start:end].decode(), launches, tuple(found["of calls"])))


def _said(one: Launch, plan: Plan) -> list[Any]:
    """A launch as data. The offset of an address in the arena counts from the start of the arena."""
    places = [(buffer.kind, buffer.index, plan.offsets.get(buffer, 0) + offset) for buffer, offset in one.arguments]
    crowded = None if one.crowded is None else _said(one.crowded, plan)
    return [one.function, one.grid, one.block, one.shared, places, crowded]


def _launch(said: Sequence[Any], arena: Buffer) -> Launch:
    function, grid, block, shared, places, crowded = said
    arguments = tuple((arena if kind == "arena" else Buffer(kind, index=index), at) for kind, index, at in places)
    other = None if crowded is None else _launch(crowded, arena)
    return Launch(function, tuple(grid), block, shared, arguments, other)
