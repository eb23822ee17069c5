"""As the sample implementation computes."""
