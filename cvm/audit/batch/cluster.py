"""A Ray cluster that verifies receipts.

Only this process reads the folder and writes the log. Nodes receive the bytes of a receipt and of its inputs, and need
only cvm, in the same version. If a node or process dies, Ray gives its work to another one.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cvm.audit.batch.work import Finished, Order, Task, Worker, read_task
from cvm.errors import CvmError, Invalid, LimitExceeded, Mismatch, Unsupported

__all__ = ["RETRIES", "Cluster"]

RETRIES = 3
"""How often the same receipt may be given to another worker."""
ANSWER = 10.0
"""Seconds within which an address must answer."""
PATIENCE = 60.0
"""Seconds for which a cluster may have no processor at all before it is given up."""
AHEAD = 2
"""How many receipts are given out at a time for each processor."""


class Cluster:
    """A scheduler: the Ray cluster at ``address`` (``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``).

    At most ``count`` receipts are given out at a time (None: as many as keep all processors busy).
    """

    def __init__(self, address: str, count: int | None = None) -> None:
        self._address, self._count = address, count

    def answers(self, folder: Path, paths: Sequence[str], order: Order) -> Iterator[Finished]:
        """See `Scheduler.answers`.

        Also raises `Unsupported` (``cluster.ray``) if Ray is not installed, `Invalid` (``cluster.address``) if no
        cluster is there, `Mismatch` (``cluster.version``) if a node has another cvm, and `LimitExceeded`
        (``limit.workers``) if the cluster has lost all its processors.
        """
        if not paths:
            return
        with _connected(self._address) as ray:
            given: dict[Any, str] = {}
            ask = ray.remote(num_cpus=1, max_retries=RETRIES)(_finished).remote
            shelf = [ray.put(order)]  # inside a list, a worker fetches it only if it does not have it
            identity = _identity(order)
            for path in paths:
                given[ask(identity, shelf, read_task(folder, path))] = path
                if len(given) >= (self._count or AHEAD * _processors(ray)):
                    yield from _arrived(ray, given)
            while given:
                yield from _arrived(ray, given)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ImportError:
        raise Unsupported("cluster.ray", "a cluster needs Ray: pip install 'cvm[cluster]'") from None
    _require_answer(address)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray warns about its own future
            ray.init(address, log_to_driver=False, logging_level="ERROR")
    except (ConnectionError, RuntimeError, ValueError, TimeoutError, AssertionError, ImportError) as error:
        raise Invalid("cluster.address", f"no Ray cluster at {address!r}: {_briefly(error)}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Require a gRPC server (Ray's protocol) at HOST:PORT. Without this check Ray would retry for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:
        return
    try:
        with socket.create_connection((host.strip("[]"), int(port)), ANSWER) as connection:
            connection.settimeout(ANSWER)
            if _SECRET:
                return
            connection.sendall(_GREETING)
            answer = connection.recv(9)
    except (OSError, ValueError, OverflowError) as error:
        raise Invalid("cluster.address", f"nothing answers at {address!r}: {_briefly(error)}") from None
    if answer[3:4] != b"\x04":
        raise Invalid("cluster.address", f"what answers at {address!r} is no Ray cluster")


_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
"""The first bytes of a client of HTTP/2, and so of gRPC: a fixed text and a settings frame, type 4 (RFC 9113, 3.4)."""
_SECRET = os.environ.get("RAY_USE_TLS", "0") not in ("", "0")
"""Whether servers expect encryption; then only Ray itself can talk to them."""


def _briefly(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _processors(ray: Any) -> int:
    return max(1, int(ray.cluster_resources().get("CPU", 0)))


def _arrived(ray: Any, given: dict[Any, str]) -> Iterator[Finished]:
    """Wait for at least one answer, and remove the finished ones from the pending ones."""
    patience = time.monotonic() + PATIENCE
    ready, _ = ray.wait(list(given), timeout=1.0)
    while not ready:
        if ray.cluster_resources().get("CPU", 0) > 0:
            patience = time.monotonic() + PATIENCE
        elif time.monotonic() > patience:
            raise LimitExceeded("limit.workers", f"the cluster has had no processor for {PATIENCE:.0f} seconds")
        ready, _ = ray.wait(list(given), timeout=1.0)
    for answer in ready:
        path = given.pop(answer)
        try:
            yield ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CvmError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            message = f"{path}: {RETRIES + 1} workers were lost with it, memory may be exhausted: {_briefly(error)}"
            raise LimitExceeded("limit.memory", message) from None


# On the nodes

_workers: dict[str, Worker] = {}
"""The worker of this process, with the identity of its order."""


def _identity(order: Order) -> str:
    """The key of a worker: the identity of its order, and the salt."""
    return f"{order.identity()} {order.judging.salt}"


def _finished(identity: str, shelf: list[Any], task: Task) -> Finished:
    """Verify one receipt. ``shelf`` holds the order; ``identity`` is the order's identity."""
    if identity not in _workers:
        import ray

        order: Order = ray.get(shelf[0])
        if _identity(order) != identity:
            raise Mismatch("cluster.version", "a node of the cluster has another version of cvm")
        _workers.clear()
        _workers[identity] = Worker(order)
    return _workers[identity].finished(task)
