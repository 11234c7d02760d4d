"""What waits in a slot: the batch of a step and what rides along with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from headrace.batch import Batch
from headrace.state import BadSample


@dataclass(slots=True, eq=False)
class Built:
    """A finished step.

    Three cases: a batch; a failure, raised when the consumer reaches the step; or neither, for
    a step that the user skips.

    Attributes:
        batch: The batch.
        failure: What to raise in its place.
        pick_digest: Digest of the step's picks, for the history.
        content_digest: Digest of the delivered bytes, 0 where not asked for.
        bad: Samples that were survived.
        nested: State of stateful user objects just after the step was built.
    """

    batch: Batch | None = None
    failure: BaseException | None = None
    pick_digest: int = 0
    content_digest: int = 0
    bad: tuple[BadSample, ...] = ()
    nested: Mapping[str, Any] | None = None
