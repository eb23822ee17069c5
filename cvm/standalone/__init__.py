"""Verifiers that stand alone: each module is one file, needs Python's standard library, and imports nothing of cvm.

``python -m cvm.standalone.verify_receipt`` and ``python -m cvm.standalone.verify_step`` run them where cvm is
installed; copied somewhere else, each file runs by itself.
"""
