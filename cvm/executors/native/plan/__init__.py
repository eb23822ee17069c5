"""The plan of a network as data: homes of tensors, groups of nodes, calls of kernels, and claims of what calls do."""
