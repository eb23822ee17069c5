"""The native executor: whole networks compiled to machine code."""

from cvm.executors.native.runtime.executor import NativeExecutor

__all__ = ["NativeExecutor"]
