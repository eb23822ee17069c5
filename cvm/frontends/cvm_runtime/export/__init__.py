"""From programs to models of cvm-runtime.

A program becomes expressions that the library's rules admit (`arithmetic`, `contractions`, `suppression`), those become
its nodes (`writing`, `draft`), and `exporter` goes through the program. What is written is read again before it is
handed out.
"""

from cvm.frontends.cvm_runtime.export.exporter import Exported, exported

__all__ = ["Exported", "exported"]
