"""Parts of generated pages that need more than a few lines."""
