"""What a draft refuses to write, so that the rule that asked for it can leave the program as it is."""

from __future__ import annotations

import numpy as np
import pytest

from cvm.passes.optimize.draft import Declined, Draft
from cvm.program import verify
from tests.passes.optimize.chains import add, built


@pytest.mark.parametrize("element", [2**63, -(2**63), 2**64])
def test_an_element_beyond_64_bits_is_declined(element: int) -> None:
    draft = Draft(verify(built(0, 9, lambda b, x: add(b, "abs", x))))
    with pytest.raises(Declined, match="64 bits"):
        draft.constant(np.array([element], object), "c", "parameter")
    assert draft.array(draft.constant(np.array([2**63 - 1], object), "c", "parameter")) == [2**63 - 1]
