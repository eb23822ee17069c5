"""The integer program: data, canonical bytes, digest, verification."""
