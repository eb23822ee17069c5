"""Shared by front ends whose tensors have data types: builders of graphs, and grids of scales and zero points."""
