"""The op vectors made with the C++ library cvm-runtime (``../shared/cvm_runtime/vectors``), in this project's terms."""
