"""Defects planted in the native executor: which they are, how they are loaded, and which guard notices them.
`tools/plant_defects.py` is the program.
"""
