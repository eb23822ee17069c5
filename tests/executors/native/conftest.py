"""Settings of the tests of native code: a cache of their own, and sharing between threads however small the work."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext

import pytest

from cvm.executors.native.runtime import calls, networks
from tests.executors.native import comparison
from tools.emulated_x86 import with_emulated_machines


@pytest.fixture(params=["some", pytest.param("every", marks=pytest.mark.long)])
def ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """`comparison.compare` takes some machines, threads and captures together; in the long suites all of them."""
    monkeypatch.setattr(comparison, "EVERY_WAY", request.param == "every")


@pytest.fixture(scope="package", autouse=True)
def _small_work_is_shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Calls are split into as many chunks as units and threads allow; the compiled code lies in a cache of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CVM_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("CVM_MACHINE", raising=False)
        patch.setattr(networks, "WORTH", 0)
        patch.setattr(calls, "GRAIN", 1)
        with with_emulated_machines() if comparison.EMULATED else nullcontext():
            yield
