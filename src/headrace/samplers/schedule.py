"""Steps, epochs and positions, as pure arithmetic over a schedule of pieces.

With one piece, epoch and step in epoch are a divmod by the steps per epoch. A later piece may
change the batch size (at once: what is left of the epoch is cut by the new size) and the number
of samples (from the first epoch that begins at or after the piece).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from headrace.config import whole
from headrace.errors import ConfigError


class Piece(NamedTuple):
    """What holds from a global step on.

    Attributes:
        from_step: Global step at which the piece begins.
        global_batch: Rows of a full global batch.
        num_samples: Samples in the order, from the first epoch that begins in this piece.
    """

    from_step: int
    global_batch: int
    num_samples: int


class Run(NamedTuple):
    """Consecutive steps of one epoch that are cut by one batch size.

    Attributes:
        epoch: The epoch.
        first_step: Global step of the first.
        num_steps: How many.
        step_in_epoch: Step in the epoch of the first.
        position: Where in the order of the epoch the first begins.
        global_batch: Rows of a full batch.
        num_samples: Samples in the order of the epoch.
        num_positions: Length of the order of the epoch: samples times repeats.
    """

    epoch: int
    first_step: int
    num_steps: int
    step_in_epoch: int
    position: int
    global_batch: int
    num_samples: int
    num_positions: int


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Steps that are cut alike: the rest of one epoch, or whole epochs from `epoch` on.

    Attributes:
        rest_of_epoch: Which of the two.
        step_in_epoch: Step in `epoch` of `first_step`; 0 for whole epochs.
        position: Position in the order of `epoch` at `first_step`; 0 for whole epochs.
        steps: Steps of the rest, or of each whole epoch.
    """

    first_step: int
    epoch: int
    rest_of_epoch: bool
    step_in_epoch: int
    position: int
    steps: int
    global_batch: int
    num_samples: int


def _first_step(stretch: _Stretch) -> int:
    return stretch.first_step


class Schedule:
    """Where every global step of a run lies; immutable, so any thread may ask.

    Attributes:
        pieces: The pieces, ascending, the first from step 0.
        drop_last: Whether a short last batch is left out.
        repeats: Positions per sample (`augment`).
        inside_epochs: The steps of pieces that begin inside an epoch.
    """

    def __init__(
        self, pieces: Sequence[tuple[int, int, int]], drop_last: bool = True, repeats: int = 1
    ) -> None:
        self.pieces = _checked_pieces(pieces)
        self.drop_last = drop_last
        self.repeats = repeats
        self.inside_epochs: tuple[int, ...] = ()
        self._stretches: list[_Stretch] = []
        for piece in self.pieces:
            self._add(piece)
        self._whole = [s for s in self._stretches if not s.rest_of_epoch]
        self._whole_epochs = [stretch.epoch for stretch in self._whole]

    @property
    def num_picks(self) -> int:
        """Picks that an epoch of the last piece delivers."""
        last = self.pieces[-1]
        delivered = self._steps_of_epoch(last) * last.global_batch
        return min(delivered, last.num_samples * self.repeats)

    def locate(self, step: int) -> tuple[int, int]:
        """Give `(epoch, step in epoch)` of a global step.

        Raises:
            ConfigError: `step` is negative, or its epochs have no steps.
        """
        stretch, epoch, into = self._find(step)
        return epoch, stretch.step_in_epoch + into

    def first_step(self, epoch: int) -> int:
        """Give the global step at which an epoch begins.

        Raises:
            ConfigError: `epoch` is negative.
        """
        if epoch < 0:
            raise ConfigError("epoch", "0 or more", epoch)
        stretch = self._whole[bisect_right(self._whole_epochs, epoch) - 1]
        return stretch.first_step + (epoch - stretch.epoch) * stretch.steps

    def steps_in(self, epoch: int) -> int:
        """Give the number of steps of an epoch; 0 where a batch is larger than the epoch."""
        return self.first_step(epoch + 1) - self.first_step(epoch)

    def rows_in(self, step: int) -> int:
        """Give the rows of the global batch at a step."""
        stretch, _, into = self._find(step)
        left = self._positions(stretch) - stretch.position - into * stretch.global_batch
        return min(stretch.global_batch, left)

    def runs(self, steps: range) -> Iterator[Run]:
        """Cut consecutive steps where an epoch ends or a piece begins.

        Raises:
            ConfigError: `steps` is not consecutive, or holds a step that does not exist.
        """
        if steps and steps.step != 1:
            raise ConfigError("steps", "consecutive steps", steps)
        step = steps.start
        while step < steps.stop:
            run = self._run_at(step, steps.stop)
            yield run
            step += run.num_steps

    def _run_at(self, step: int, stop: int) -> Run:
        stretch, epoch, into = self._find(step)
        after = bisect_right(self._stretches, step, key=_first_step)
        if after < len(self._stretches):
            stop = min(stop, self._stretches[after].first_step)
        return Run(
            epoch=epoch,
            first_step=step,
            num_steps=min(stop - step, stretch.steps - into),
            step_in_epoch=stretch.step_in_epoch + into,
            position=stretch.position + into * stretch.global_batch,
            global_batch=stretch.global_batch,
            num_samples=stretch.num_samples,
            num_positions=self._positions(stretch),
        )

    def _find(self, step: int) -> tuple[_Stretch, int, int]:
        """Give the stretch of a step, its epoch, and the steps into that epoch's part of it."""
        if step < 0:
            raise ConfigError("step", "0 or more", step)
        stretch = self._stretches[bisect_right(self._stretches, step, key=_first_step) - 1]
        if not stretch.steps:
            wanted = f"at most the {self._positions(stretch)} picks of an epoch"
            cure = f"No epoch has a step, so there is no step {step}."
            raise ConfigError("batch_size", wanted, stretch.global_batch, cure)
        epochs, into = divmod(step - stretch.first_step, stretch.steps)
        return stretch, stretch.epoch + epochs, into

    def _positions(self, stretch: _Stretch) -> int:
        return stretch.num_samples * self.repeats

    def _steps(self, positions: int, global_batch: int) -> int:
        return positions // global_batch if self.drop_last else -(-positions // global_batch)

    def _add(self, piece: Piece) -> None:
        """Let a piece hold from its first step on.

        There are two cases: an epoch begins there, or one is under way and its rest comes first.
        """
        epoch, rest = self._under_way(piece) if self._stretches else (0, None)
        self._stretches = [s for s in self._stretches if s.first_step < piece.from_step]
        begins = piece.from_step
        if rest is not None:
            epoch, begins = epoch + 1, begins + rest.steps
            self._stretches += [rest] if rest.steps else []
        steps = self._steps_of_epoch(piece)
        self._stretches.append(
            _Stretch(begins, epoch, False, 0, 0, steps, piece.global_batch, piece.num_samples)
        )

    def _under_way(self, piece: Piece) -> tuple[int, _Stretch | None]:
        """Give the epoch at the first step of a piece, and its rest unless it begins there."""
        last = self._stretches[-1]
        if piece.from_step == last.first_step:
            return last.epoch, None
        stretch, epoch, into = self._find(piece.from_step)
        step_in_epoch = stretch.step_in_epoch + into
        if not step_in_epoch:
            return epoch, None
        self.inside_epochs += (piece.from_step,)
        position = stretch.position + into * stretch.global_batch
        left = self._positions(stretch) - position
        return epoch, _Stretch(
            first_step=piece.from_step,
            epoch=epoch,
            rest_of_epoch=True,
            step_in_epoch=step_in_epoch,
            position=position,
            steps=self._steps_of_rest(step_in_epoch, left, piece.global_batch),
            global_batch=piece.global_batch,
            num_samples=stretch.num_samples,
        )

    def _steps_of_epoch(self, piece: Piece) -> int:
        return self._steps_of_rest(0, piece.num_samples * self.repeats, piece.global_batch)

    def _steps_of_rest(self, step_in_epoch: int, positions: int, global_batch: int) -> int:
        whole, short = divmod(positions, global_batch)
        return whole + (short > 0 and not self.drop_last)


class FixedSchedule(Schedule):
    """A schedule whose epochs have a given number of steps, each with a full batch.

    Attributes:
        steps_per_epoch: The number.
    """

    def __init__(self, pieces: Sequence[tuple[int, int, int]], steps_per_epoch: int) -> None:
        self.steps_per_epoch = steps_per_epoch
        super().__init__(pieces)

    @property
    def num_picks(self) -> int:
        return self.steps_per_epoch * self.pieces[-1].global_batch

    def rows_in(self, step: int) -> int:
        return self._find(step)[0].global_batch

    def _steps_of_rest(self, step_in_epoch: int, positions: int, global_batch: int) -> int:
        return self.steps_per_epoch - step_in_epoch


def _checked_pieces(pieces: Sequence[tuple[int, int, int]]) -> tuple[Piece, ...]:
    found = [
        Piece(whole("step", step), whole("batch_size", batch), whole("num_samples", samples))
        for step, batch, samples in pieces
    ]
    if not found or found[0].from_step != 0:
        raise ConfigError("schedule", "pieces of which the first is from step 0", list(pieces))
    for piece in found:
        if piece.global_batch < 1:
            raise ConfigError("batch_size", "1 or more", piece.global_batch)
        if not 0 <= piece.num_samples < 2**63:
            raise ConfigError("num_samples", "0 to 2^63 - 1", piece.num_samples)
    for before, after in pairwise(found):
        if after.from_step < before.from_step or after.num_samples < before.num_samples:
            raise ConfigError(
                "schedule",
                "pieces in the order of their steps that never lose samples",
                list(pieces),
                "Data may be appended to a run; for less data start a new run.",
            )
    # Of several pieces from one step only the last ever holds.
    return tuple({piece.from_step: piece for piece in found}.values())
