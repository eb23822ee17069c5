"""From programs to models of cvm-runtime.

Every op of a program becomes an expression of ops that the library's rules admit (`arithmetic`, `contractions`,
`suppression`); expressions become nodes of the library (`writing`, `draft`); `exporter` walks over the program. The
written model is read again before it is returned. `exported` gives a program as a model; `saved` gives its files.
"""

from cvm.export.cvm_runtime.exporter import Exported, exported
from cvm.export.cvm_runtime.files import Files, saved

__all__ = ["Exported", "Files", "exported", "saved"]
