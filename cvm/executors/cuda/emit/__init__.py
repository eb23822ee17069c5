"""The text of CUDA kernels, written from the same descriptions as native code."""
