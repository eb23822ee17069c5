"""The cases of `spec_vectors`: one module per op family, as in `cvm.ops` and `formal`; errata; whole programs."""
