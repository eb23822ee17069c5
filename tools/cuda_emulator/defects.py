"""What the emulator raises: defects of kernels, and code that it does not know."""

from __future__ import annotations

from cvm.errors import Invalid, Location, Unsupported

__all__ = ["KernelDefect", "NotEmulated", "unknown"]


class KernelDefect(Invalid):
    """A kernel does what a GPU would not notice, or would notice only sometimes. ``kind`` names it:

    ``outside`` an access outside the allocation that the address belongs to; ``misaligned`` an address that is no
    multiple of what the instruction promises; ``constant`` a store to bytes that no kernel may change; ``unwritten`` a
    read of bytes that nobody has written; ``race`` two threads that touch the same byte with no barrier between them,
    and one of them writes; ``block race`` the same for two blocks of one launch; ``pending copy`` an access to bytes
    that an asynchronous copy may still write; ``barrier`` a barrier that some threads of a block do not reach;
    ``divergent`` an instruction of a whole warp that only some of its threads reach; ``poison`` an operation whose
    result LLVM leaves open; ``order`` a result that depends on the order of threads; ``endless`` more steps than a
    kernel may take.
    """

    def __init__(self, kind: str, message: str, kernel: str = "", instruction: str = "") -> None:
        where = f"{message}; kernel {kernel}, instruction: {instruction}" if kernel else message
        super().__init__(f"emulator.{kind.replace(' ', '_')}", f"{kind}: {where}", Location(op=kernel or None))
        self.kind = kind


class NotEmulated(Unsupported):
    """Code that LLVM accepts and the emulator does not know."""


def unknown(what: str, text: str) -> NotEmulated:
    """The error for an unknown instruction, type or intrinsic."""
    return NotEmulated("emulator.unknown", f"the emulator does not know {what}: {text.strip()}")
