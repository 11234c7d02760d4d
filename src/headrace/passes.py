"""Where a pass over the data starts and ends; pure arithmetic on steps and epochs."""

from __future__ import annotations

from headrace.samplers.sampler import Sampler


def place_of(sampler: Sampler, step: int) -> tuple[int, int]:
    """Give `(epoch, step in epoch)` of a cursor.

    Epochs without steps are legal (fewer samples than a batch): the cursor then stays at 0.
    """
    return (0, 0) if sampler.steps_in(0) == 0 else sampler.locate(step)


def next_pass(
    sampler: Sampler, step: int, is_resumed: bool, epoch_set: int | None
) -> tuple[int, int]:
    """Give where the next plain pass starts, and its epoch.

    Four cases: (1) a state was loaded: at the cursor; (2) `set_epoch` named an epoch: at its
    start; (3) the cursor is inside an epoch, which a break left: the next epoch; (4) the cursor
    is at the start of an epoch: that one.

    Args:
        sampler: The order.
        step: Global step of the cursor.
        is_resumed: Whether a state was loaded and nothing taken since.
        epoch_set: What `set_epoch` named.
    """
    epoch, in_epoch = place_of(sampler, step)
    if is_resumed:
        return step, epoch
    if epoch_set is not None:
        epoch = epoch_set
    elif in_epoch:
        epoch += 1
    return sampler.first_step(epoch), epoch


def end_of(sampler: Sampler, epoch: int) -> int | None:
    """Give the step after the last of an epoch; None when it is not known beforehand."""
    return None if sampler.steps_in(epoch) is None else sampler.first_step(epoch + 1)
