"""From programs to models of cvm-runtime.

A program becomes expressions that the library's rules admit (`arithmetic`, `contractions`, `suppression`), those become
its nodes (`writing`, `draft`), and `exporter` goes through the program. What is written is read again before it is
handed out. `exported` gives a program as a model; `saved` gives the model's files.
"""

from cvm.export.cvm_runtime.exporter import Exported, exported
from cvm.export.cvm_runtime.files import Files, saved

__all__ = ["Exported", "Files", "exported", "saved"]
