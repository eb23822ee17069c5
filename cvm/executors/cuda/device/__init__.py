"""What runs kernels: the protocol that the driver of NVIDIA and the emulator of the tests implement."""
