"""Programs as object files for other processors and systems: the native executor's code, ahead of time."""

from cvm.export.object.writing import Exported, exported

__all__ = ["Exported", "exported"]
