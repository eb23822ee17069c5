"""cvm: deterministic, integer-only neural-network inference whose result is a fact.

`__all__` names the public surface; each name is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from cvm import errors

if TYPE_CHECKING:
    from cvm.api import compile, load, quantize, quantize_program, run_op, verify
    from cvm.audit.receipt import Receipt
    from cvm.generation import generate
    from cvm.program import Program
    from cvm.session import Result, Session

__all__ = [
    "Program",
    "Receipt",
    "Result",
    "Session",
    "compile",
    "errors",
    "generate",
    "load",
    "quantize",
    "quantize_program",
    "run_op",
    "verify",
]

_HOMES = {
    "Program": "cvm.program.program",
    "Receipt": "cvm.audit.receipt",
    "Result": "cvm.session",
    "Session": "cvm.session",
    "compile": "cvm.api",
    "generate": "cvm.generation",
    "load": "cvm.api",
    "quantize": "cvm.api",
    "quantize_program": "cvm.api",
    "run_op": "cvm.api",
    "verify": "cvm.api",
}


def __getattr__(name: str) -> Any:
    if name == "webnn":
        return import_module("cvm.webnn")
    if name == "__version__":
        return import_module("importlib.metadata").version("cvm")
    if name not in _HOMES:
        raise AttributeError(f"module 'cvm' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
