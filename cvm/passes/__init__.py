"""Passes make programs from programs with the same codes.

`optimize` makes a program that costs less gas, `legalize` one that has only the document's ops.
"""
