"""PTX as machine code that can be kept: the driver's linker gives it, whereas a loaded module does not.

Source: CUDA Driver API, section 6.13 (modules: cuLinkCreate, cuLinkAddData, cuLinkComplete).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from cvm.errors import Unsupported

__all__ = ["Log", "cubin_of"]

SIZE = 2**14
"""The bytes for what the driver says about code that it refuses."""


class Log:
    """What the driver says about code that it refuses: options of a call, and the words after it."""

    def __init__(self, driver: Any) -> None:
        option = driver.CUjit_option
        self._bytes = bytearray(SIZE)
        kinds = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        self.options = (len(kinds), kinds, [self._bytes, SIZE])

    @property
    def said(self) -> str:
        """The words, behind a sentence that ends with none."""
        words = self._bytes.split(b"\0")[0].decode(errors="replace").strip()
        return f". The log says: {words}" if words else ""


def cubin_of(driver: Any, call: Callable[..., Any], text: bytes) -> bytes:
    """Machine code of PTX for the GPU of the current context.

    ``call`` calls a function of the driver by name. Raises what it raises, and `Unsupported` (``cuda.code``) if the
    driver makes nothing.
    """
    source, log = ctypes.create_string_buffer(text), Log(driver)  # the linker reads and writes both until its end
    state = call("cuLinkCreate", *log.options)
    try:
        kind = driver.CUjitInputType.CU_JIT_INPUT_PTX
        call("cuLinkAddData", state, kind, ctypes.addressof(source), len(source), b"kernels", 0, [], [])
        address, size = call("cuLinkComplete", state)
        made = ctypes.string_at(int(address), int(size)) if address else b""
    finally:
        driver.cuLinkDestroy(state)
    if not made:
        raise Unsupported("cuda.code", f"the driver makes no machine code of kernels{log.said}")
    return made
