"""Operations on regions of interest (NNEF 1.0.1 section 4.6) give exactly the codes of the document."""

from __future__ import annotations

from random import Random

from tests.lowering.draws.regions import Regions
from tests.lowering.properties import Cases, check, drawn, exhaustively


def regions(random: Random, call: str) -> None:
    document = Regions(random)
    # Sums of samples over three axes need more than 32 bits and are refused.
    spatial = random.randint(1, 2 if "avg_roi_align" in call else 3)
    document.extents = tuple(random.randint(1, 5) for _ in range(spatial))
    batch, count = random.randint(1, 3), random.randint(1, 3)
    x = document.external((batch, random.randint(1, 2), *document.extents))
    document.rois = document.external((count, 2 * spatial))
    document.quantisers[document.rois] = "linear_quantize(min = 0.0, max = 63.75, bits = 8)"
    index = document.integers((count, 1), 0, batch - 1)
    size = [random.randint(1, 3) for _ in range(spatial)]
    rate = [random.randint(1, 2) for _ in range(spatial)]
    method = random.choice(["symmetric", "asymmetric", "aligned"])
    text = call.format(x=x, rois=document.rois, index=index, size=size, rate=rate, method=method)
    y = document.apply(text)
    document.quantise(y, bits=random.choice([4, 8]))
    check(document, y)


POOL = "({x}, {rois}, {index}, output_size = {size})"
ALIGN = "({x}, {rois}, {index}, output_size = {size}, sampling_rate = {rate}, resize_method = '{method}')"

CASES: Cases = {
    name: (lambda call: lambda random: regions(random, call))(name + arguments)
    for name, arguments in {
        "max_roi_pool": POOL,
        "avg_roi_pool": POOL,
        "roi_resample": POOL[:-1] + ", method = '{method}')",
        "avg_roi_align": ALIGN,
        "max_roi_align": ALIGN,
    }.items()
}

test_a_few_documents = drawn(CASES, 5)
test_many_documents = exhaustively(CASES)
