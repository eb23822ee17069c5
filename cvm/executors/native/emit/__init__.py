"""The text of kernels: LLVM IR, what a kernel is as data, and the instructions that differ between processors."""
