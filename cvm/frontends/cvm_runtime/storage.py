"""Storage plans: every entry of a model has the index of the storage that holds it.

Nothing in cvm depends on a plan: a program has values, not storage. A plan determines the costs
(`cvm.frontends.cvm_runtime.metering`), must keep the rules of the library (`check_storage`), and affects the library's
results where these rules are not enough: an entry may be overwritten while it is still needed (`overwritten`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from cvm.errors import Invalid, LimitExceeded
from cvm.frontends.cvm_runtime.graph import DATA, Graph
from cvm.frontends.cvm_runtime.metering import STORAGE, storage_bytes

__all__ = ["check_storage", "overwritten", "planned"]


def check_storage(graph: Graph) -> None:
    """Check the library's rules: an op that does not work in place shares no storage with its inputs; at most 2^32
    bytes.

    Raises `Invalid` (``cvm_runtime.storage``) and `LimitExceeded` (``limit.cvm_runtime.storage``).
    """
    for node in graph.nodes:
        if node.operator is None or node.operator.in_place:
            continue
        results = {graph.storage[number] for number in range(node.first, node.first + node.outputs)}
        shared = [entry for entry in node.inputs if graph.storage[graph.number(entry)] in results]
        if shared:
            message = f"a result of {node.operator.name} has the storage of its input {list(shared[0])}"
            raise Invalid("cvm_runtime.storage", message, node.location)
    total = storage_bytes(graph)
    if total > STORAGE:
        raise LimitExceeded("limit.cvm_runtime.storage", f"{total} bytes of storage exceed {STORAGE}")


def overwritten(graph: Graph) -> str | None:
    """How the plan destroys a value that is still needed, by a later result or in the next run; None if it does not.

    Variables are written before everything else: ``data`` at each run, parameters only once.
    """
    holder: dict[int, int] = {}  # from a storage index to the entry that it holds
    for node in graph.variables:
        if graph.storage[node.first] in holder:
            return f"the variable {node.name!r} has the storage of another one"
        holder[graph.storage[node.first]] = node.first
    parameters = {graph.storage[node.first] for node in graph.variables if node.name != DATA}
    for node in graph.nodes:
        if node.operator is None:
            continue
        for entry in node.inputs:
            if holder[graph.storage[graph.number(entry)]] != graph.number(entry):
                return f"an input of the node {node.name!r} has been overwritten"
        for number in range(node.first, node.first + node.outputs):
            if graph.storage[number] in parameters:
                return f"the node {node.name!r} overwrites a parameter"
            if graph.storage[number] in graph.storage[node.first : number]:
                return f"two results of the node {node.name!r} have the same storage"
            holder[graph.storage[number]] = number
    for entry in graph.heads:
        if holder[graph.storage[graph.number(entry)]] != graph.number(entry):
            return "a head has been overwritten"
    return None


def planned(
    shapes: Sequence[tuple[int, ...]],
    reads: Sequence[Sequence[int]],
    writes: Sequence[Sequence[int]],
    kept: Sequence[int],
) -> tuple[int, ...]:
    """A plan in which no entry is overwritten while it is needed.

    ``shapes`` has the shapes of all entries; ``reads`` and ``writes`` have the entries that each step reads and writes,
    in order; the entries of ``kept`` have storage of their own. Free storage is reused for as many elements.
    """
    own = set(kept)
    last = {number: step for step, numbers in enumerate(reads) for number in numbers}
    plan: dict[int, int] = {number: index for index, number in enumerate(kept)}
    count = len(plan)
    free: dict[int, list[int]] = {}
    for step, numbers in enumerate(writes):
        fresh = [number for number in numbers if number not in plan]
        for number in fresh:
            waiting = free.get(math.prod(shapes[number]))
            if waiting:
                plan[number] = waiting.pop()
            else:
                plan[number] = count
                count += 1
        # An entry that nobody reads is free at once, but only after all results of its step have their storage.
        for number in sorted({*reads[step], *fresh} - own):
            if last.get(number, step) == step:
                free.setdefault(math.prod(shapes[number]), []).append(plan[number])
    return tuple(plan[number] for number in range(len(shapes)))
