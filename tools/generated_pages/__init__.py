"""The pages of docs/ that are generated: a module for each, whose ``PAGE`` says what stands in it."""
