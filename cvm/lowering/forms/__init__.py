"""What a real tensor may be while a graph is lowered, and how ops are emitted that compute it."""
