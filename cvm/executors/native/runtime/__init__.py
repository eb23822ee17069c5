"""Machine code: compiled, kept, proven, tried, loaded, and run by several threads."""
