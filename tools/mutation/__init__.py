"""Mutants: how they are made, tried and judged. Vectors judge mutants of FORMAL, tests judge mutants of other code.

`operators` lists the replacements of a node. FORMAL (`tools/mutate_formal.py`): `mutants`, `equivalent`,
`trial`. Any package (`tools/mutate.py`): `changes`, `recorder`, `recordings`, `planner`, `runner`, `verdicts`.
"""
