"""FORMAL: the reference executor, written line for line from the mathematics.

Python integers only. An op is a shape and a function from an output index to an integer; the full tensor is that
function over its range. Read `formal.tensor` first, then the family modules in the order of the document: reduce,
broadcast, nn, elemwise, transform, vision; then extension, and `formal.executor`, which runs whole programs.
`ERRATA.md` lists where the document is wrong or silent and what holds instead; comments refer to it as (E1), (E2), ..
"""
