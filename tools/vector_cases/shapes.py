"""Shapes that several families share."""

RANKS = {
    1: (7,),
    2: (3, 5),
    3: (2, 1, 4),
    4: (2, 3, 1, 2),
    5: (1, 2, 2, 1, 3),
    6: (2, 1, 2, 1, 2, 1),
    7: (1, 1, 2, 1, 3, 1, 2),
    8: (1, 2, 1, 1, 2, 1, 2, 1),
}
"""One small shape of every rank."""
