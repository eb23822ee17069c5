"""An exact evaluator of quantised NNEF documents that shares no code with the product: the oracle of its tests.

It imports nothing but the standard library and numpy, which holds arrays of Python integers (and of int64 where
`products` proves that nothing overflows). `exact` is the interface. Its parts:

    reader, files             texts (3, A.1, 5.3) and tensor files (5.2)
    enclosures, real          intervals in fixed point, and computable real numbers on top of them
    tensors, products         tensors of exact numbers, and their sums of products
    quantization              the four quantisers (4.9.5), from graph.quant and in the graph (7)
    elementwise               4.2        windows, convolution, pooling, resampling   4.3, 4.9.2, 4.9.3
    reductions, shapes        4.4, 4.5   regions, matrices                           4.6, 4.7
    activations               4.9.1      normalizations                              4.9.4
    operations                all of them by name

Where the document is silent or contradicts itself, the docstring of the function says what is done. In short: a border
'ignore' divides averages by the items that count; automatic padding may be negative, and gives reverse operations the
extent x * s; a reflection beyond the input is refused; deconv's filter is (c, C / groups, ...) for C output channels;
argmax over several axes counts row-major; squeeze removes singular dimensions only; a RoI cell starts at the RoI's own
corner, and a pooled RoI lies in the map; aligned interpolation of one item copies it; a range with max <= min gives
min; 0^0 = 1; what is no real number (1 / 0, ln 0, a fractional power of a negative number) is refused.
"""
