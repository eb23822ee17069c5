"""A Ray cluster that answers tasks.

Nodes receive the tasks with all their data, and need only cvm, in the same version. If a node or process dies, Ray
gives its work to another one.
"""

from __future__ import annotations

import os
import socket
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from typing import Any

from cvm.errors import CvmError, Invalid, LimitExceeded, Mismatch, Unsupported
from cvm.workers import AHEAD, RETRIES, Answer, Job, Task, Tasks

__all__ = ["Cluster"]

ANSWER = 10.0
"""Seconds within which an address must answer."""
PATIENCE = 60.0
"""Seconds for which a cluster may have no processor at all before it is given up."""


class Cluster:
    """A scheduler: the Ray cluster at ``address`` (``HOST:PORT``, ``ray://HOST:PORT`` or ``auto``).

    At most ``count`` tasks are given out at a time (None: as many as keep all processors busy).
    """

    def __init__(self, address: str, count: int | None = None) -> None:
        self._address, self._count = address, count

    def answers(self, job: Job[Task, Answer], tasks: Tasks[Task]) -> Iterator[tuple[str, Answer]]:
        """See `Scheduler.answers`.

        Also raises `Unsupported` (``cluster.ray``) if Ray is not installed, `Invalid` (``cluster.address``) if no
        cluster is there, `Mismatch` (``cluster.version``) if a node has another cvm, and `LimitExceeded`
        (``limit.workers``) if the cluster has lost all its processors.
        """
        waiting = iter(tasks)
        first = next(waiting, None)
        if first is None:
            return
        with _connected(self._address) as ray:
            given: dict[Any, str] = {}
            ask = ray.remote(num_cpus=1, max_retries=RETRIES)(_answer).remote
            shelf = [ray.put(job)]  # inside a list, a worker fetches it only if it does not have it
            identity = job.identity()
            for name, task in chain([first], waiting):
                given[ask(identity, shelf, task)] = name
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


def _arrived(ray: Any, given: dict[Any, str]) -> Iterator[tuple[str, Any]]:
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
        name = given.pop(answer)
        try:
            yield name, ray.get(answer)
        except ray.exceptions.RayTaskError as error:
            if isinstance(error.cause, CvmError):
                raise error.cause from None
            raise
        except ray.exceptions.RayError as error:
            message = f"{name}: {RETRIES + 1} workers were lost with it, memory may be exhausted: {_briefly(error)}"
            raise LimitExceeded("limit.memory", message) from None


# On the nodes

_workers: dict[str, Callable[[Any], Any]] = {}
"""The prepared worker of this process, by the identity of its job."""


def _answer(identity: str, shelf: list[Any], task: Any) -> Any:
    """Answer one task. ``shelf`` holds the job, and ``identity`` is its identity."""
    if identity not in _workers:
        import ray

        job: Job[Any, Any] = ray.get(shelf[0])
        if job.identity() != identity:
            raise Mismatch("cluster.version", "a node of the cluster has another version of cvm")
        _workers.clear()
        _workers[identity] = job.worker()
    return _workers[identity](task)
