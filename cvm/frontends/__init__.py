"""Front ends: one package per document format; each reads, validates and flattens into a `cvm.graph.QuantizedGraph`."""
