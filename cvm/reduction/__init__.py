"""Smallest failures: from a network that fails to the smallest one that still does."""
