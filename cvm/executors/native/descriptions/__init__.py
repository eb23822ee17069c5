"""Kernels as data: what the planner chooses, the emitter writes and the checker proves. Nothing here writes code."""
