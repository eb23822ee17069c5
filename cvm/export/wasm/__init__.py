"""Programs as WebAssembly, with the JavaScript that loads them."""

from cvm.export.wasm.writing import Module, module

__all__ = ["Module", "module"]
