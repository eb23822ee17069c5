"""Programs on NVIDIA GPUs: the plans of the native executor, with CUDA kernels in the place of its functions."""
