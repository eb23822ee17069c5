"""Benchmarks: int8 networks with fixed seeds, built for our executors and for other engines, and timed side by side."""
