"""The functions of NVIDIA's driver, as the package ``cuda-bindings`` gives them, and the GPUs that it offers.

Versions 12.8 to 13 of the package were read, and the functions that are used here are the same in all of them. The
package finds each function in the driver when it is first called, so a package that is newer than the driver works
as long as the driver has the functions that are called.

Source: CUDA Driver API, sections 6.2 to 6.6 (errors, initialisation, versions, devices).
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from cvm.errors import Invalid, LimitExceeded, Unsupported
from cvm.records import dataclass

__all__ = ["ADVICE", "Found", "bindings", "checked", "chosen", "found"]

OLDEST = 12_000
"""The least version of the driver, as it states it: 1000 * major + 10 * minor of CUDA."""
BUILD = Path("/proc/driver/nvidia/version")
"""Where Linux says which build of the driver is loaded. Two builds for one version of CUDA may translate PTX otherwise.
"""
ADVICE = "run the program with the executor native, which needs no GPU"


def bindings() -> Any:
    """The functions of the driver. Raises `Unsupported` (``cuda.package``, ``cuda.driver``)."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError as error:
        message = f"the CUDA executor needs the package cuda-bindings: pip install 'cvm[cuda]' ({error})"
        raise Unsupported("cuda.package", message) from error
    try:
        (status,) = driver.cuInit(0)
    except (RuntimeError, OSError) as error:  # the library of the driver is not on this machine
        message = f"there is no NVIDIA driver on this machine ({_first_line(error)}); {ADVICE}"
        raise Unsupported("cuda.driver", message) from error
    except ValueError as error:
        message = f"the NVIDIA driver cannot be used ({_first_line(error)}); nvidia-smi says more, or {ADVICE}"
        raise Unsupported("cuda.driver", message) from error
    if status == driver.CUresult.CUDA_ERROR_NO_DEVICE:
        raise _without_gpu()
    if status != driver.CUresult.CUDA_SUCCESS:
        message = f"the NVIDIA driver cannot be used ({_said(driver, status)}); nvidia-smi says more, or {ADVICE}"
        raise Unsupported("cuda.driver", message)
    version = checked(driver, "cuDriverGetVersion")
    if version < OLDEST:
        had, needed = map(_words, (version, OLDEST))
        message = f"the NVIDIA driver supports CUDA {had}; update it: the CUDA executor needs one for {needed} or later"
        raise Unsupported("cuda.driver", message)
    return driver


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def _words(version: int) -> str:
    """A version as the driver states it, as major.minor."""
    return f"{version // 1000}.{version % 1000 // 10}"


def _said(driver: Any, status: Any) -> str:
    """The name and the sentence of the driver for an error."""
    words = [driver.cuGetErrorName(status)[1], driver.cuGetErrorString(status)[1]]
    return ": ".join(word.decode(errors="replace") for word in words if isinstance(word, bytes))


def checked(driver: Any, function: str, *arguments: Any, what: str = "", place: str = "") -> Any:
    """Call a function of the driver, and return its result, if it has one.

    Raises `LimitExceeded` (``cuda.memory``) if there is too little memory, `Unsupported` (``cuda.package``) if the
    driver lacks the function, and `Unsupported` (``cuda.call``) for any other failure. ``what`` says what the call is
    for, ``place`` on which GPU.
    """
    where = "".join(f" {word}" for word in (what, place) if word)
    try:
        status, *results = getattr(driver, function)(*arguments)
    except RuntimeError as error:  # the package looks functions up when they are called
        message = f"{function} failed{where}: {_first_line(error)}; install a version of cuda-bindings for this driver"
        raise Unsupported("cuda.package", f"{message} (`nvidia-smi` shows its version of CUDA), or {ADVICE}") from error
    except ValueError as error:  # an error that was not known yet when the package was made
        message = f"{function} failed{where}: {_first_line(error)}; a GPU that has failed once needs a new process"
        raise Unsupported("cuda.call", f"{message}, or {ADVICE}") from error
    if status == driver.CUresult.CUDA_SUCCESS:
        return results[0] if len(results) == 1 else tuple(results)
    message = f"{function} failed{where}: {_said(driver, status)}"
    if status == driver.CUresult.CUDA_ERROR_OUT_OF_MEMORY:
        advice = "use a smaller batch, end other programs that use this GPU, or choose another one"
        raise LimitExceeded("cuda.memory", f"{message}; {advice}")
    raise Unsupported("cuda.call", f"{message}; a GPU that has failed once needs a new process, or {ADVICE}")


@dataclass(frozen=True, slots=True)
class Found:
    """A GPU that the driver offers: its index, name, compute capability and bytes of memory."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int
    version: str
    """The CUDA version that the driver supports."""
    build: str = ""
    """What the system says of the driver's version and build, which the driver itself does not state; empty elsewhere
    than on Linux."""

    @property
    def words(self) -> str:
        """The GPU in words."""
        major, minor = self.capability
        return f"{self.name} (device {self.index}, compute capability {major}.{minor}, driver for CUDA {self.version})"


def found() -> tuple[Found, ...]:
    """All GPUs that the driver offers. Raises `Unsupported` if there is none, or no driver, or no package for it."""
    driver = bindings()
    return tuple(_described(driver, index) for index in range(_count(driver)))


def chosen(driver: Any, index: int) -> Found:
    """One GPU. Raises `Invalid` (``cuda.device``) for an index that no GPU has."""
    count = _count(driver)
    if not 0 <= index < count:
        offered = "0" if count == 1 else f"0 to {count - 1}"
        raise Invalid("cuda.device", f"there is no GPU {index}: the driver numbers them {offered} (`cvm doctor`)")
    return _described(driver, index)


def _count(driver: Any) -> int:
    count = int(checked(driver, "cuDeviceGetCount"))
    if not count:
        raise _without_gpu()
    return count


def _without_gpu() -> Unsupported:
    return Unsupported("cuda.device", f"the NVIDIA driver finds no GPU; {ADVICE}, or see CUDA_VISIBLE_DEVICES")


def _described(driver: Any, index: int) -> Found:
    device = checked(driver, "cuDeviceGet", index)
    name = checked(driver, "cuDeviceGetName", 128, device).split(b"\0")[0].decode(errors="replace")
    kinds = driver.CUdevice_attribute
    major, minor = (
        checked(driver, "cuDeviceGetAttribute", kind, device)
        for kind in (
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
            kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
        )
    )
    version = _words(checked(driver, "cuDriverGetVersion"))
    memory = int(checked(driver, "cuDeviceTotalMem", device))
    return Found(index, name, (int(major), int(minor)), memory, version, _build())


def _build() -> str:
    try:
        return " ".join(BUILD.read_text(errors="replace").split())
    except OSError:
        return ""
