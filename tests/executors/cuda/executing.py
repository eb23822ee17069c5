"""The driver that checks every call, with kernels that run on this processor: modules stay the text of LLVM."""

from __future__ import annotations

import functools
import sys
import types

import pytest

from cvm.executors.cuda import opened
from cvm.executors.cuda.device.protocol import Prepared
from tests.executors.cuda.fake_driver import FakeDriver, Launched
from tools.serial_device import _Code

__all__ = ["driver"]

_loaded = functools.cache(_Code)


def executed(image: bytes, one: Launched) -> None:
    count = len(one.parameters) // 2
    addresses, steps = one.parameters[:count], one.parameters[count:]
    launch = Prepared(one.function, one.grid, one.block[0], one.shared, addresses, steps)
    _loaded(image.decode()).launch(launch, 1, 1)


def driver(monkeypatch: pytest.MonkeyPatch, gpus: int = 1) -> FakeDriver:
    """A driver in place of the package's, as a new process finds it."""
    made = FakeDriver(gpus=gpus, execute=executed)
    package, bindings = types.ModuleType("cuda"), types.ModuleType("cuda.bindings")
    for name, module in (("cuda", package), ("cuda.bindings", bindings), ("cuda.bindings.driver", made)):
        monkeypatch.setitem(sys.modules, name, module)
    opened._used.cache_clear()
    return made
