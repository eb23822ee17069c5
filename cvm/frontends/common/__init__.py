"""What front ends share that record real and integer tensors of data types: graphs being made, grids of numbers."""
