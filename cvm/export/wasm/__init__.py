"""Programs as WebAssembly, with the JavaScript that loads them."""

from cvm.export.wasm.files import Exported, exported, loader
from cvm.export.wasm.writing import Module, module

__all__ = ["Exported", "Module", "exported", "loader", "module"]
