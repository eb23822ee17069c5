"""Mutants: how they are made, tried and judged, those of FORMAL by vectors, those of other code by tests.

`operators` says what may replace a node. FORMAL (`tools/mutate_formal.py`): `mutants`, `equivalent`,
`trial`. Any package (`tools/mutate.py`): `changes`, `recorder`, `recordings`, `planner`, `runner`, `verdicts`.
"""
