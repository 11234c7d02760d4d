"""The contract of a sampler: what every step of a run contains, as pure arithmetic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

from headrace.pick import Picks

Resume = Literal["seek", "replay", "reread", "none"]


class Sampler(ABC):
    """Says which samples make up each global step of a run.

    Duties of an implementation:
        - Pure: the same arguments always give the same picks, whatever was asked before.
        - Thread-safe: any method may be called from several threads at once.
        - Only the sampler maps steps to epochs; no other module divides.
        - `picks` costs in proportion to what is asked, not to the size of the epoch.
        - Steps are GLOBAL (0, 1, 2, ... over the whole run) and slots are positions in the
          GLOBAL batch, so a rank asks for its own slice of slots.
    """

    resume: Resume = "seek"
    """How a state of this sampler is restored: "seek" O(1), "replay" O(epoch), "none" never."""

    @property
    @abstractmethod
    def global_batch_size(self) -> int:
        """Rows of a full global batch, in the last piece of the schedule."""

    @property
    @abstractmethod
    def num_picks(self) -> int:
        """Picks that one epoch delivers over all steps (dropped ones not counted)."""

    @property
    @abstractmethod
    def num_samples(self) -> int:
        """Samples of the dataset that the order runs over."""

    @abstractmethod
    def locate(self, step: int) -> tuple[int, int]:
        """Give `(epoch, step in epoch)` of a global step.

        Raises:
            ValueError: `step` is negative, or the epochs are empty.
        """

    @abstractmethod
    def first_step(self, epoch: int) -> int:
        """Give the global step at which an epoch begins."""

    @abstractmethod
    def steps_in(self, epoch: int) -> int | None:
        """Give the number of steps of an epoch, or None when it is not known beforehand."""

    @abstractmethod
    def rows_in(self, step: int) -> int:
        """Give the rows of the global batch at a step (the last of an epoch may be short)."""

    @abstractmethod
    def picks(self, steps: range, slots: slice = slice(None)) -> Picks:
        """Give the picks of some steps, step by step and slot by slot.

        Args:
            steps: Consecutive global steps (a range of step 1). They may cross epoch ends.
            slots: Which slots of each global batch, as a slice of step 1.

        Returns:
            Picks ordered by (step, slot); a short batch gives fewer rows.
        """

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Give the JSON facts that decide the order: kind, sizes, seed, arguments."""

    def rescheduled(self, schedule: Sequence[tuple[int, int, int]]) -> Sampler:
        """Give this sampler with other batch sizes or data from some steps on.

        Args:
            schedule: Pieces `(from_step, global_batch, num_samples)`, ascending, the first from
                step 0. A new batch size holds at once without repeating or skipping picks; a
                new number of samples holds from the first epoch that begins at or after
                `from_step`.

        Raises:
            ConfigError: This kind of sampler cannot do that.
        """
        from headrace.errors import ConfigError

        raise ConfigError(
            "allow",
            "a sampler whose schedule can change",
            type(self).__name__,
            "Resume with the batch size and data that the state was made with.",
        )
