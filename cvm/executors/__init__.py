"""Executors: programs that run programs, all to the same bytes. `EXECUTORS` names them, `create` makes one."""

from __future__ import annotations

import importlib.util
import os
from types import MappingProxyType
from typing import TYPE_CHECKING

from cvm.errors import CvmError, Invalid
from cvm.executors.base import (
    Capture,
    Executor,
    ExecutorFactory,
    Int32Array,
    Rooted,
    RunResult,
    Watch,
    cores,
    initial_state,
)
from cvm.program import leaves

if TYPE_CHECKING:
    from collections.abc import Callable

    from cvm.executors.native.runtime.started import Started
    from cvm.program.verifier import VerifiedProgram

__all__ = [
    "CONCURRENT",
    "DEVICES",
    "EXECUTORS",
    "Capture",
    "Executor",
    "ExecutorFactory",
    "Int32Array",
    "Rooted",
    "RunResult",
    "Watch",
    "choose_executor",
    "cores",
    "create",
    "default",
    "devices",
    "examined",
    "initial_state",
    "keep",
    "recall",
    "stores",
]  # fmt: skip


def _formal(verified: VerifiedProgram, threads: int | None) -> Executor:
    from cvm.executors.formal import FormalExecutor

    return FormalExecutor(verified, threads)


def _numpy(verified: VerifiedProgram, threads: int | None) -> Executor:
    from cvm.executors.numpy import NumpyExecutor

    return NumpyExecutor(verified, threads)


def _native(verified: VerifiedProgram, threads: int | None) -> Executor:
    from cvm.executors.native import NativeExecutor

    return NativeExecutor(verified, threads)


def _hasher() -> leaves.Hasher | None:
    try:
        from cvm.executors.native.runtime.sha256 import hasher

        return hasher()
    except (ImportError, OSError):  # llvmlite cannot be loaded here
        return None


leaves.offer(_hasher)

EXECUTORS = MappingProxyType[str, ExecutorFactory]({"formal": _formal, "numpy": _numpy, "native": _native})
"""The executors that run on every machine, by name. Their modules are imported when the first one is made."""


def _cuda(verified: VerifiedProgram, device: int) -> Executor:
    from cvm.executors.cuda.opened import opened

    return opened(verified, device)


DEVICES = MappingProxyType[str, "Callable[[VerifiedProgram, int], Executor]"]({"cuda": _cuda})
"""The executors that need a device, by name; the second argument is its number. None of them is ever the default."""


def devices() -> tuple[tuple[str, ...], str]:
    """The devices that `DEVICES` can use, each in words, and the reason if there are none."""
    from cvm.executors.cuda.device.bindings import found

    try:
        return tuple(one.words for one in found()), ""
    except CvmError as error:
        return (), error.message


CONCURRENT = frozenset({"native"})
"""The executors that release the interpreter's lock, so that several runs, each on one thread, gain from more cores."""


def default() -> tuple[str, str]:
    """The name of the fastest executor that may be used on this machine, and the reason for the choice.

    The native executor tries each class of its kernels before the first network uses it; `examined` tries all.
    """
    return _fastest(trial=False)


def examined() -> tuple[str, str]:
    """`default`, after the whole trial of this machine."""
    return _fastest(trial=True)


def _fastest(trial: bool) -> tuple[str, str]:
    try:
        from cvm.executors.native.runtime.select import candidate, choice

        found = choice() if trial else candidate()
    except (ImportError, OSError) as error:  # llvmlite is not installed, or cannot be loaded
        return "numpy", f"machine code needs llvmlite: {error}"
    if found.machine is None:
        return "numpy", found.reason
    return "native", found.reason


def stores() -> bool:
    """Whether `default` is the native executor, as far as one knows without LLVM, and keeps code on this machine."""
    from cvm.executors.native.runtime.cache import new_host, trouble

    if importlib.util.find_spec("llvmlite") is None or trouble() is not None:
        return False
    return (new_host() and "CVM_MACHINE" not in os.environ) or default()[0] == "native"


def choose_executor(wish: str | None = None) -> tuple[str, str]:
    """The name of the executor to use, and the reason: ``wish`` if it is given, else `default`."""
    return default() if wish is None else (wish, "asked for")


def create(name: str, verified: VerifiedProgram, threads: int | None = None, device: int | None = None) -> Executor:
    """The executor called ``name`` for a verified program.

    ``device`` is the number of the device for an executor that needs one (None: 0); such an executor may also be called
    ``name:number``. Raises `Invalid` (``executors.unknown``, ``executors.device``), and the errors of the device.
    """
    kind, _, number = str(name).partition(":")
    if kind in DEVICES:
        if number and (not number.isdecimal() or len(number) > 4 or device is not None):
            raise Invalid("executors.device", f"expected a number of a device once, as in {kind}:0, found {name!r}")
        return DEVICES[kind](verified, int(number) if number else device or 0)
    if name not in EXECUTORS:
        names = ", ".join((*EXECUTORS, *DEVICES))
        raise Invalid("executors.unknown", f"there is no executor {name!r}; there are {names}")
    if device is not None:
        raise Invalid("executors.device", f"the executor {name} uses no device; {', '.join(DEVICES)} does")
    return EXECUTORS[name](verified, threads)


def keep(file_hash: str, threads: int, verified: VerifiedProgram, executor: Executor) -> None:
    """Let `recall` find a native executor that was made for a program file. ``file_hash`` is the file's SHA-256."""
    if executor.name != "native":
        return
    from cvm.executors.native import NativeExecutor
    from cvm.executors.native.runtime.started import keep

    if isinstance(executor, NativeExecutor) and executor.network is not None:
        keep(file_hash, threads, verified, executor.network)


def recall(
    file_hash: str, threads: int, verified: Callable[[], VerifiedProgram], known: Callable[[], object] = lambda: None
) -> tuple[Executor, Started] | None:
    """The native executor of a program file from the cache, and the parts of the program that a run needs.

    Nothing is verified or compiled. ``verified`` gives the verified program if more is wanted than its outputs;
    ``known`` is called before constants are read, when the entry of the file has been found. The
    result is None if the file was not verified before on this machine by this version.
    """
    try:
        from cvm.executors.native.runtime.started import recall
    except (ImportError, OSError):  # llvmlite cannot be loaded here
        return None
    started = recall(file_hash, threads, known)
    if started is None:
        return None
    from cvm.executors.native import NativeExecutor

    return NativeExecutor.started(started, verified, threads), started
