"""Settings of all tests."""

from hypothesis import settings

# Machines are noisy and proofs take as long as they take: a test fails for what it finds, never for its duration.
settings.register_profile("cvm", deadline=None)
settings.load_profile("cvm")
