"""The contract of a builder: spans of picks in, finished steps out."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from headrace.batch import Batch
from headrace.build.bad_samples import BadSamplePolicy, Substitution
from headrace.build.built import Built
from headrace.build.calls import Raised, attempt
from headrace.build.content import content_digest
from headrace.build.sample_error import sample_error
from headrace.collate import Columns, as_columns, check_transformed, collate_names, free_columns
from headrace.pick import PickKeys, Picks
from headrace.plan import Span
from headrace.stats import BuildTimes

T = TypeVar("T")

Transform = Callable[[Batch, PickKeys], Any]
Hop = Callable[..., Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Finish:
    """The last part of every builder: names, keys, transform, digest.

    Attributes:
        seed: Seed of the loader, for the pick keys.
        lay_out: Makes the columns of a batch of those read and their samples, before all else.
        names: The user's `names=`.
        transform: The user's `transform=`, run here when the batch lands on the host; one that
            must be awaited is left to TransformingBuilder.
        with_content: Whether to hash what is delivered.
        policy: How bad samples are survived.
        where: Says where a sample lives, for messages.
        times: Where builders count what they spend.
    """

    seed: int
    policy: BadSamplePolicy
    where: Callable[[int], str]
    lay_out: Callable[[Columns, NDArray[np.int64]], Columns] | None = None
    names: tuple[str, ...] | None = None
    transform: Transform | None = None
    with_content: bool = False
    times: BuildTimes = field(default_factory=BuildTimes)

    def keys(self, span: Span, position: int, substitution: Substitution | None = None) -> PickKeys:
        """Give the pick keys of one step of a span; a replaced row has its replacement's."""
        return _keys(self.seed, span, position, _replaced(substitution))

    def substitution(self, span: Span, position: int) -> Substitution:
        """Begin to replace bad samples of one step."""
        samples = span.picks.sample[span.rows(position)].tolist()
        return Substitution.start(self.policy, span.steps[position], span.epochs[position], samples)

    def finish(
        self,
        span: Span,
        position: int,
        columns: Columns,
        substitution: Substitution | None = None,
    ) -> Built:
        """Make the finished step from its columns; what user code raises becomes a failure."""
        made = attempt(self._finish, span, position, columns, substitution)
        if isinstance(made, Raised):
            return self.failed(span, position, made.error)
        batch, content = made
        bad = tuple(substitution.bad) if substitution is not None else ()
        return Built(batch, None, span.digests[position], content, bad)

    def _finish(
        self, span: Span, position: int, columns: Columns, substitution: Substitution | None
    ) -> tuple[Batch, int]:
        rows = span.rows(position)
        replaced = _replaced(substitution)
        samples = span.picks.sample[rows] if replaced is None else replaced
        if self.lay_out is not None:
            columns = self.lay_out(columns, samples)
        columns = collate_names(columns, self.names)
        mask = None
        if substitution is not None and replaced is not None and self.policy.masks:
            mask = _mask(len(replaced), substitution.bad_rows)
        batch = Batch(
            columns.names,
            columns.values,
            step=span.steps[position],
            epoch=span.epochs[position],
            num_rows=columns.num_rows,
            indices=samples,
            # Bound to the seed alone: a kept batch must not keep a loader and its dataset.
            pick_keys=partial(_keys, self.seed, span, position, replaced),
            mask=mask,
            structure=columns.structure,
        )
        if self.transform is not None:
            keys = self.keys(span, position, substitution)
            began = self.times.clock()
            batch = with_result(batch, self.transform(batch, keys))
            self.times.add_transform(began, is_assembling=True)
        if not self.with_content:
            return batch, 0
        return batch, content_digest(batch, span.picks.slot[rows])

    def failed(
        self,
        span: Span,
        position: int,
        error: BaseException,
        index: int | None = None,
    ) -> Built:
        """Make a step that raises when the consumer reaches it."""
        where = self.where(index) if index is not None else ""
        return Built(failure=sample_error(error, span.steps[position], index, where))


def _replaced(substitution: Substitution | None) -> NDArray[np.int64] | None:
    """Give the samples of a step some of whose picks were replaced; None where none was."""
    if substitution is None or not substitution.bad_rows:
        return None
    return indices_of(substitution.samples)


def _keys(seed: int, span: Span, position: int, replaced: NDArray[np.int64] | None) -> PickKeys:
    picks = span.picks[span.rows(position)]
    return PickKeys(
        seed=seed,
        epoch=span.epochs[position],
        step_in_epoch=span.steps[position] - span.first_steps[position],
        sample=picks.sample if replaced is None else replaced,
        repeat=picks.repeat,
        slot=picks.slot,
    )


def with_result(batch: Batch, value: object) -> Batch:
    """Give a batch with the columns that a transform returned, its rows unchanged.

    Raises:
        ConfigError: The row count changed.
        TypeError: It is still to be awaited.
    """
    if value is batch:
        return batch
    if hasattr(value, "__await__"):
        if inspect.iscoroutine(value):
            value.close()
        raise TypeError("transform gave an awaitable: write it as `async def`, so it is awaited")
    columns = as_columns(value, None, "transform")
    check_transformed(batch.num_rows, columns, free_columns(batch))
    return Batch(
        columns.names,
        columns.values,
        step=batch.step,
        epoch=batch.epoch,
        num_rows=batch.num_rows,
        indices=batch.indices,
        pick_keys=batch.pick_keys,
        weight=batch.weight,
        mask=batch.mask,
        structure=columns.structure,
    )


def _mask(rows: int, bad_rows: set[int]) -> Any:
    import torch

    mask = torch.ones(rows, dtype=torch.bool)
    mask[sorted(bad_rows)] = False
    return mask


class Builder(ABC):
    """Builds the steps of claimed spans.

    Exactly one of `build_blocking` and `build` does the work, as `waits` says. Neither raises
    for a fault of the data or of user code: that becomes the failure of its step, and the other
    steps of the span are still built. Safe from several threads at once.

    Attributes:
        joins_steps: Whether several steps at once cost less than one by one. Where they do not,
            a span of several would only hold back its first step.
        names: Names of the columns as they are read, where these are known beforehand.
    """

    joins_steps: bool = False
    names: tuple[str, ...] | None = None

    def __init__(self, finish: Finish, hop: Hop | None = None) -> None:
        """Prepare.

        Args:
            finish: The last part.
            hop: Runs a blocking call of a waiting build off the loop, on a reader thread.
        """
        self.finish = finish
        self.times = finish.times
        self._hop = hop

    def assemble(self, call: Callable[..., T], *args: Any) -> T:
        """Run what makes batches of what was read, and count its time."""
        began = self.times.clock()
        made = call(*args)
        self.times.add_assembly(began)
        return made

    async def assemble_off_loop(self, call: Callable[..., T], *args: Any) -> T:
        """Do as `assemble` for a waiting build, where it does not hold up the loop."""
        if self._hop is None:
            return self.assemble(call, *args)
        result: T = await self._hop(self.assemble, call, *args)
        return result

    @property
    @abstractmethod
    def waits(self) -> bool:
        """Whether spans must be built on an event loop."""

    @property
    @abstractmethod
    def step_bytes(self) -> int:
        """What a full step holds, exactly or by the estimate so far."""

    @property
    def typical_bytes(self) -> int:
        """What a full step may be expected to hold, for an estimate; may look at lengths."""
        return self.step_bytes

    @property
    def beside_bytes(self) -> int:
        """What making a full step takes beside it: samples, or rows in another form."""
        return self.typical_bytes

    @abstractmethod
    def bytes_of(self, picks: Picks, ends: NDArray[np.int64]) -> list[int]:
        """Give what each step of a window holds in host memory until it is taken."""

    def build_blocking(self, span: Span) -> list[Built]:
        """Build every step of a span on the calling thread."""
        raise RuntimeError(f"{type(self).__name__} needs an event loop")

    async def build(self, span: Span) -> list[Built]:
        """Build every step of a span, waiting on the running loop.

        Does not return or pass on a cancellation while anything may write to its memory.
        """
        return self.build_blocking(span)


def indices_of(samples: Sequence[int]) -> NDArray[np.int64]:
    """Give sample indices as an array."""
    return np.asarray(samples, dtype=np.int64)
