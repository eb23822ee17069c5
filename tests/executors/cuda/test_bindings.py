"""The package cuda-bindings, on a library in C in place of NVIDIA's driver: what arrives there is what was meant."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).with_name("libcuda.c")
SCRIPT = """
import numpy as np
from cvm.errors import CvmError
from cvm.executors.cuda.device.bindings import found
from cvm.executors.cuda.device.driver import Driver
from cvm.executors.cuda.device.protocol import Prepared

TEXT = b".visible .entry first(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) .visible .entry none()"

print(found()[0].words, flush=True)
one = Driver(0, lambda ir, capability: TEXT if ir == "good" else b"bad")
address, host = one.allocate(64), one.host(64)
one.upload(address, np.arange(16, dtype=np.int32))
code = one.load("good")
first = Prepared("first", (3, 2, 5), 128, 60_000, (2**40 + 5, 7), (64, 0))
run = one.prepare(code, [first, Prepared("none", (1, 1, 1), 32, 0, ())], [], [(address, host)])
run.start()
run.wait()
assert host.view(np.int32).tolist() == [*range(16)], host
assert run.timed() == 0.00025
assert one.available == 2**35
host[:] = 7
one.upload(address, host)
back = np.zeros(64, np.uint8)
one.download(address, back)
assert (back == 7).all()
try:
    one.load("wrong")
except CvmError as error:
    print(error.code, error.message.split("The log says: ")[1], flush=True)
run.close()
one.unload(code)
one.free(address)
one.free_host(host)
one.close()
"""
RUN = """first may have 60000 bytes
first 3 2 5, 128 1 1, 60000: 10000000005 7 40 0
none 1 1 1, 32 1 1, 0:
cuda.code no entry in 16384 bytes of log
released
"""


def library(folder: Path, *options: str) -> dict[str, str]:
    """The environment of a process that finds the library of C where it looks for the driver's."""
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip("cuda-bindings is not installed (the extra cuda)")
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("there is no C compiler, or this system has no shared libraries like Linux")
    command = [compiler, "-shared", "-fPIC", *options, "-o", str(folder / "libcuda.so.1"), str(SOURCE), "-ldl"]
    subprocess.run(command, check=True)
    return {**os.environ, "LD_LIBRARY_PATH": str(folder), "PYTHONPATH": os.pathsep.join(sys.path)}


def test_arguments_arrive_as_they_were_meant(tmp_path: Path) -> None:
    environment = library(tmp_path, "-Wall", "-Wextra", "-Werror")
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    words = "GPU of C (device 0, compute capability 9.0, driver for CUDA 12.2)\n"
    assert done.stdout == f"{words}{RUN}"


def test_a_function_that_the_driver_lacks_is_named(tmp_path: Path) -> None:
    environment = library(tmp_path, "-DcuDeviceGetCount=other")
    script = "import cvm.executors as executors; print(executors.devices()[1])"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cuDeviceGetCount failed: ")
    assert "install a version of cuda-bindings for this driver" in done.stdout
