"""One program over a data set on a Ray cluster of two workers: the bytes of one machine, also when a worker is killed.

``pip install 'cvm[cluster]'``, then ``pytest tests/mapping/test_map_cluster.py``.
"""

from __future__ import annotations

from typing import Any

import pytest

from cvm.workers.cluster import Cluster
from tests.audit.test_cluster import machines, needs_ray
from tests.mapping.test_map import ITEMS, images, mapped

__all__ = ["images", "machines"]

pytestmark = pytest.mark.filterwarnings("ignore")  # Ray's own


@needs_ray
def test_a_worker_that_is_killed_loses_no_item(machines: Any, images: Any, tmp_path: Any) -> None:
    made, workers = machines
    forms, _, _ = images
    counts: list[int] = []

    def kill(count: int) -> None:
        counts.append(count)
        if len(counts) == 20:
            made.remove_node(workers[0], allow_graceful=False)

    done = mapped(forms / "all.npz", tmp_path / "cluster.npz", scheduler=Cluster(made.address), progress=kill)
    assert (done.items, counts[-1]) == (ITEMS, ITEMS)
    mapped(forms / "all.npz", tmp_path / "here.npz")
    assert (tmp_path / "cluster.npz").read_bytes() == (tmp_path / "here.npz").read_bytes()
