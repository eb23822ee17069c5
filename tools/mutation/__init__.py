"""Mutants of FORMAL: how they are made, loaded and judged. `tools/mutate_formal.py` is the program."""
