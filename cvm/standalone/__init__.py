"""Stand-alone verifiers: each module is one file, needs only Python's standard library, and imports nothing of cvm.

``python -m cvm.standalone.verify_receipt`` and ``python -m cvm.standalone.verify_step`` run them where cvm is
installed; a copy of either file runs by itself anywhere.
"""
