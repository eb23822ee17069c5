"""The methods that compute exact codes: proven multipliers, thresholds, tables, and comparisons of sums of any size."""
