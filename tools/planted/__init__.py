"""Defects planted in the native executor: which, how they are loaded, and who notices. `tools/plant_defects.py` is the
program.
"""
