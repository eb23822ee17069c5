"""Programs made from programs: `optimize` computes the same codes for less, `legalize` in the document's ops alone."""
