"""What makes codes exact: multipliers with proofs, thresholds, tables, decisions about sums of any size."""
