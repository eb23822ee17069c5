"""Shapes of region-of-interest operations: NNEF 1.0.1 section 4.6."""

from __future__ import annotations

from cvm.graph.shapes.shape_call import Results, ShapeCall, rule

__all__: list[str] = []


@rule("4.6.1", "avg_roi_pool", "max_roi_pool")
def roi_pool(call: ShapeCall) -> Results:
    """One result per region, with the extents ``output_size`` in its spatial dimensions."""
    shape, rois, batch_index = call.shape("input"), call.shape("rois"), call.shape("batch_index")
    spatial = len(shape) - 2
    if spatial < 1:
        raise call.conflict("rank", f"the input must have spatial dimensions, found rank {len(shape)}")
    if len(rois) != 2 or rois[1] != 2 * spatial:
        raise call.conflict("rois", f"regions must have shape [N, {2 * spatial}], found {list(rois)}")
    if batch_index != (rois[0], 1):
        raise call.conflict("batch_index", f"batch_index must have shape [{rois[0]}, 1], found {list(batch_index)}")
    return ((rois[0], shape[1], *call.positive("output_size", spatial)),)


@rule("4.6.2", "roi_resample")
def roi_resample(call: ShapeCall) -> Results:
    """One result per region, with the extents ``output_size`` in its spatial dimensions."""
    call.one_of("method", "asymmetric", "symmetric", "aligned")
    return roi_pool(call)


@rule("4.6.2", "avg_roi_align", "max_roi_align")
def roi_align(call: ShapeCall) -> Results:
    """One result per region with the extents ``output_size``; each region is sampled ``sampling_rate`` times as
    densely, then pooled.
    """
    call.one_of("resize_method", "asymmetric", "symmetric", "aligned")
    results = roi_pool(call)
    call.positive("sampling_rate", len(call.integers("output_size")))
    return results
