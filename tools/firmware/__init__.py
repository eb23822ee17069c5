"""Exported C on small machines: a Cortex-M under an emulator, and sizes and speed beside TensorFlow Lite Micro."""
