"""An emulator of CUDA kernels: it runs the LLVM IR of a kernel on the CPU, and names what a GPU would not tell.

It takes exactly the part of the IR and of the ``llvm.nvvm`` intrinsics that it knows, and refuses everything else by
name. See `EmulatedDevice` for the device, and `KernelDefect` for what it notices.
"""

from tools.cuda_emulator.defects import KernelDefect, NotEmulated
from tools.cuda_emulator.device import EmulatedDevice

__all__ = ["EmulatedDevice", "KernelDefect", "NotEmulated"]
