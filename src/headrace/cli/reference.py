"""The same steps without a stop and without training: what the stopped run is held against."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.cli.delivery import Delivery, size_of
from headrace.cli.job import Job, open_loader


@dataclass(frozen=True, slots=True)
class Reference:
    """An uninterrupted pass over the steps of a job.

    Attributes:
        delivery: What it delivered.
        verified_steps: Steps of the stopped run whose picks were worked out again and agree.
        elapsed_s: From opening the data to the last batch.
    """

    delivery: Delivery
    verified_steps: int
    elapsed_s: float


def uninterrupted(job: Job, cut: int, stopped_run: Mapping[str, Any]) -> Reference:
    """Take every batch of a job in this process, from step 0 on.

    Args:
        job: What to read, and how.
        cut: Steps before the cut of the delivery.
        stopped_run: Last state of the run that was stopped; its order is verified.

    Raises:
        StateError: The stopped run took other picks than this loader delivers.
    """
    began = time.perf_counter()
    with open_loader(job) as loader:
        at_cut, sizes = loader.state_dict(), []
        for batch in loader.stream(0, job.steps):
            sizes.append(size_of(batch))
            if batch.step + 1 == cut:
                at_cut = loader.state_dict()
        elapsed_s = time.perf_counter() - began
        delivery = Delivery(sizes, at_cut, loader.state_dict())
        return Reference(delivery, loader.verify(stopped_run), elapsed_s)
