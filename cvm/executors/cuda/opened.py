"""The CUDA executor on a GPU of this machine: its driver, and its trial before it is used."""

from __future__ import annotations

import threading
from functools import cache
from typing import TYPE_CHECKING

from cvm.executors.cuda import ptx
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.executor import CudaExecutor
from cvm.executors.cuda.hashing import Hashing
from cvm.executors.cuda.trial import Trial

if TYPE_CHECKING:
    from cvm.program.verifier import VerifiedProgram

__all__ = ["opened", "used"]


_OPENING = threading.RLock()
"""Held while a GPU is opened, so that two threads do not open it twice."""


def used(index: int) -> tuple[Driver, Trial, Hashing | None]:
    """The GPU with this number, which all sessions of this process share, with its trial and its hashes of leaves.

    The last is None if the GPU's digests are not those of `hashlib`. Raises the errors of `Driver`, and `Unsupported`
    (``cuda.capability``) if the GPU is too old.
    """
    with _OPENING:
        return _used(index)


@cache
def _used(index: int) -> tuple[Driver, Trial, Hashing | None]:
    device = Driver(index, ptx.assembled)
    ptx.nearest(device.capability)
    hashing = Hashing(device)
    return device, Trial(device), hashing if hashing.right else None


def opened(verified: VerifiedProgram, index: int) -> CudaExecutor:
    """The executor of a program on the GPU with this number. Raises as `used`."""
    device, trial, hashing = used(index)
    return CudaExecutor(verified, device=device, trial=trial, hashing=hashing)
