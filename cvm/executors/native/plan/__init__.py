"""What is computed, as data: homes of tensors, groups of nodes, calls of kernels, and claims of what these do."""
