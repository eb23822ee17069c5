"""cvm: deterministic, integer-only neural-network inference whose result is a fact."""
