"""Engines on fewer instruction sets than the machine has: by their own variables, or on an emulated processor.

oneDNN and OpenVINO read the instruction set that they may use from the environment. ONNX Runtime and XNNPACK ask the
processor; for them QEMU emulates one, if it is installed.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from types import MappingProxyType

from cvm.errors import Invalid, Unsupported

__all__ = ["INSTRUCTION_SETS", "limited"]

_ONEDNN: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2", "OV_CPU_MAX_ISA": "AVX2"},
        "avx512": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE"},
        "avx512_vnni": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
        "avx512_bf16": {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"},
    }
)
"""Variables of the environment for OpenVINO. Its own kernels and those of oneDNN need the same limit."""
_PROCESSORS: Mapping[str, str] = MappingProxyType({"avx2": "Haswell-noTSX"})
"""Processors that QEMU 7 emulates in full."""
INSTRUCTION_SETS = ("default", *_ONEDNN)
"""The names of instruction sets."""


def limited(engine: str, isa: str) -> tuple[list[str], dict[str, str]]:
    """What runs an engine on an instruction set: words before its command, and variables of the environment.

    Raises `Invalid` (``compare.engine``) for an unknown name and `Unsupported` (``compare.isa``) where neither the
    engine nor an emulator can be limited to it.
    """
    if isa == "default":
        return [], {}
    if isa not in INSTRUCTION_SETS:
        raise Invalid("compare.engine", f"isa is one of {', '.join(INSTRUCTION_SETS)}, found {isa!r}")
    if engine == "openvino":
        return [], dict(_ONEDNN[isa])
    processor, emulator = _PROCESSORS.get(isa), shutil.which("qemu-x86_64")
    if processor is None:
        known = ", ".join(["default", *_PROCESSORS])
        raise Unsupported("compare.isa", f"{engine} takes no limit to {isa}; an emulated processor has {known}")
    if emulator is None:
        message = f"{engine} asks the processor for its instruction sets, and for {isa} qemu-x86_64 is not installed"
        raise Unsupported("compare.isa", message)
    return [emulator, "-cpu", processor], {}
