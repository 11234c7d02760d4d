"""The sampler that a loader's arguments ask for."""

from __future__ import annotations

import numpy as np
import pytest

from headrace import Loader
from headrace.samplers import Bucketed, Mixing, Sampler, Sequential, Shuffled


@pytest.mark.parametrize(
    ("sampler", "warned"),
    [
        (
            Mixing.end_to_end([30, 40], [1, 1], 10, 5),
            ["Mixing covers samples 0 to 69, but the data has 100: the others never come"],
        ),
        (
            Bucketed(range(50), 10, 2),
            ["Bucketed covers samples 0 to 49, but the data has 100: the others never come"],
        ),
        (
            Shuffled(50, 10),
            ["Shuffled covers samples 0 to 49, but the data has 100: the others never come"],
        ),
        (Mixing([(0, 5), (90, 10)], [1, 1], 10, 5), []),
        (Sequential(100, 10), []),
    ],
    ids=["mixing", "bucketed", "shuffled", "whole mixing", "whole"],
)
def test_a_sampler_that_covers_less_than_the_data_is_named_once(
    sampler: Sampler, warned: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    """Data that never comes would otherwise be missed by nobody."""
    with Loader(np.zeros(100), sampler=sampler, workers=0):
        pass

    assert [message.split(".")[0] for message in caplog.messages] == warned
