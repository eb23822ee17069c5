"""Kernels as data: the planner chooses them, the emitter writes their code, and the checker proves it."""
