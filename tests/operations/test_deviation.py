"""Which element of an output is nearest to its limit, or furthest beyond it."""

from __future__ import annotations

import math

import pytest
import torch

from ladder.operations import Deviation, Reference

LIMITS = (0.0, 1.0, 4.0)


@pytest.mark.parametrize(
    ("output", "deviation", "is_allowed"),
    [
        ((0.0, 0.0, 0.0), Deviation(0.0, 0.0, 0.0, 0), True),
        ((0.0, 0.5, 1.0), Deviation(1.0, 0.5, 1.0, 1), True),
        ((0.0, 1.0, 4.0), Deviation(4.0, 1.0, 1.0, 1), True),
        ((0.0, -3.0, 5.0), Deviation(5.0, 3.0, 1.0, 1), False),
        ((2.0**-30, 9.0, 9.0), Deviation(9.0, 2.0**-30, 0.0, 0), False),
        ((0.0, -math.inf, 9.0), Deviation(math.inf, math.inf, 1.0, 1), False),
    ],
)
def test_the_element_nearest_to_its_limit(
    output: tuple[float, ...], deviation: Deviation, is_allowed: bool
) -> None:
    exact = torch.zeros(len(LIMITS), dtype=torch.float64)
    found = Reference({"o": exact}, {"o": torch.tensor(LIMITS).double()}).deviation("o", torch.tensor(output))
    assert found == deviation
    assert found.is_allowed == is_allowed


def test_nan_is_never_allowed() -> None:
    exact = torch.zeros(len(LIMITS), dtype=torch.float64)
    for place in range(len(LIMITS)):
        output = torch.tensor([2.0, math.inf, 9.0])
        output[place] = math.nan
        found = Reference({"o": exact}, {"o": torch.tensor(LIMITS).double()}).deviation("o", output)
        assert found.place == place and math.isnan(found.error) and math.isnan(found.largest)
        assert not found.is_allowed
