"""From the weights of `tools/train_tiny_gpt.py` to the program that comes with cvm (docs/language-models.md)."""
