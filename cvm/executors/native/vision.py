OPS = frozenset({"get_valid_count", "non_max_suppression"})
PLANS = {}
