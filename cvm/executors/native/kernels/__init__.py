"""One module per kind of op: how its nodes are planned, and the text of the kernels that only it has."""
