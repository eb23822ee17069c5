"""The text of kernels: LLVM IR, and the instructions that differ between processors."""
