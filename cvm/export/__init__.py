"""Programs as models of other systems."""
