"""Code that several rules share: operands, moved data, sums along axes and windows, digits, quotients."""
