"""Every error that headrace raises, each also a builtin that a caller would already catch.

The sentence is built in the constructor from facts that stay readable as attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class HeadraceError(Exception):
    """The root of all errors of headrace. Each can be pickled, facts included."""

    def __reduce__(self) -> tuple[Any, ...]:
        # Constructors take facts and build the sentence, so they cannot be called with `args`.
        return _unpickled, (type(self), self.args, self.__dict__)


def _unpickled(
    kind: type[HeadraceError], args: tuple[Any, ...], facts: dict[str, Any]
) -> HeadraceError:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(facts)
    return error


class ConfigError(HeadraceError, ValueError):
    """A knob has a value that cannot work.

    Attributes:
        knob: The keyword as the user writes it.
    """

    def __init__(self, knob: str, wanted: str, found: object, cure: str = "") -> None:
        self.knob = knob
        self.wanted = wanted
        self.found = found
        super().__init__(f"{knob}: wanted {wanted}, got {found!r}.{' ' + cure if cure else ''}")


class TimeoutWithoutThreadsError(ConfigError, AssertionError):
    """`headrace.torch.DataLoader` has a `timeout` and no threads; torch's asserts that too."""

    def __init__(self, timeout_s: float) -> None:
        cure = "A batch that the calling thread builds cannot be late: set num_workers too."
        super().__init__("timeout", "0 with num_workers=0", timeout_s, cure)


class MissingExtraError(HeadraceError, ImportError):
    """An optional library is not installed."""

    def __init__(self, extra: str, library: str, needed_for: str) -> None:
        self.extra = extra
        self.library = library
        super().__init__(
            f"{needed_for} needs {library}, which is not installed. "
            f"Install it with: pip install 'headrace[{extra}]'"
        )


class IndexOutOfRangeError(HeadraceError, IndexError):
    """A sample index lies outside `[0, length)`."""

    def __init__(self, index: int, length: int, what: str) -> None:
        self.index = index
        self.length = length
        super().__init__(f"{what}: index {index} is outside [0, {length}).")


class DataError(HeadraceError, ValueError):
    """The bytes of a sample are not what they should be: decoding, checksum, missing field.

    The only kind of error that `on_bad_sample` may survive.
    """


class FormatError(DataError):
    """A file is not in the format that was expected.

    Attributes:
        name: The file or object.
    """

    def __init__(self, name: str, wanted: str, found: str, cure: str = "") -> None:
        self.name = name
        self.wanted = wanted
        self.found = found
        # What a library says may end in a stop of its own.
        found = found.removesuffix(".")
        super().__init__(f"{name}: wanted {wanted}, found {found}.{' ' + cure if cure else ''}")


class SourceError(HeadraceError, OSError):
    """A read from a source failed."""


class NotFoundError(SourceError, FileNotFoundError):
    """A source holds no object of this name."""

    def __init__(self, source: object, name: str, hint: str = "") -> None:
        self.source = source
        self.name = name
        super().__init__(f"{name!r} is not in {source!r}.{' ' + hint if hint else ''}")


class ShortReadError(SourceError, EOFError):
    """An object ended before the wanted range did."""

    def __init__(self, source: object, name: str, wanted: object, got_bytes: int) -> None:
        self.source = source
        self.name = name
        self.wanted = wanted
        self.got_bytes = got_bytes
        super().__init__(
            f"{name} in {source!r}: wanted bytes {wanted}, got {got_bytes}. "
            "The object is shorter than it should be."
        )


class SourceChangedError(SourceError):
    """An object is not the one that was opened."""

    def __init__(self, source: object, name: str, wanted: object, found: object) -> None:
        self.source = source
        self.name = name
        self.wanted = wanted
        self.found = found
        super().__init__(
            f"{name} in {source!r} changed during the run: opened as {wanted}, now {found}. "
            "Batches would mix two versions, so reading stops."
        )


class RowErrors(HeadraceError):  # noqa: N818 - the name the dataset contract gives it
    """Some rows of a read are bad; every other row has been filled.

    Attributes:
        errors: Row number in `out` (not the sample index) to the error of that row.
    """

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        self.errors = dict(errors)
        first = next(iter(self.errors.items()), None)
        tail = f", first: row {first[0]}: {first[1]}" if first else ""
        super().__init__(f"{len(self.errors)} bad rows{tail}")


class SampleError(HeadraceError):
    """A sample could not be made; the original error is the cause.

    Raised by the loader when the consumer reaches the step that holds the sample. The class
    raised is also the class of the original error where that can be done, so
    `except ValueError` still works.

    Attributes:
        step: Global step of the batch.
        index: Sample index in the dataset, or None when the batch as a whole failed.
        where: File, key or range of the sample, where the dataset can tell.
    """

    def __init__(self, step: int, index: int | None, where: str, cause: str) -> None:
        self.step = step
        self.index = index
        self.where = where
        at = f"sample {index}" if index is not None else "the batch"
        place = f" ({where})" if where else ""
        # Not super(): the class joined to this one has a constructor that takes other facts.
        Exception.__init__(self, f"step {step}, {at}{place}: {cause}")


class CollateError(DataError):
    """Samples of one batch do not fit together.

    Attributes:
        field: The '/'-joined name of the column, empty when it is about whole samples.
        indices: The dataset indices of the samples that disagree, or of the one at fault.
    """

    def __init__(self, message: str, field: str = "", indices: tuple[int, ...] = ()) -> None:
        self.field = field
        self.indices = indices
        super().__init__(message)


class UnknownColumnError(HeadraceError, KeyError):
    """A batch has no column of this name.

    Attributes:
        name: The name asked for.
        names: The names that the batch has.
    """

    def __init__(self, name: str, names: tuple[str, ...]) -> None:
        self.name = name
        self.names = names
        super().__init__(name, names)

    def __str__(self) -> str:
        # KeyError shows the repr of its argument; a sentence is easier to read.
        return f"no column {self.name!r}; this batch has {', '.join(map(repr, self.names))}."


class TooManyBadSamplesError(DataError):
    """More samples were bad than `max_bad_samples` allows.

    Attributes:
        limit: How many it allows.
        step: Global step of the batch that held one more.
        cure: What to do.
    """

    def __init__(self, limit: int, last: str, step: int) -> None:
        self.limit = limit
        self.step = step
        self.cure = (
            "Look at the data behind the last ones (state_dict()['bad_samples']), or raise "
            "max_bad_samples."
        )
        super().__init__(
            f"step {step}: more than {limit} bad samples; the last: {last.removesuffix('.')}. "
            f"{self.cure}"
        )


class PurityError(HeadraceError, ValueError):
    """A dataset gives different bytes for the same index, or draws from a global generator."""


class CoverageError(HeadraceError, AssertionError):
    """An epoch does not deliver every sample with its own data.

    Attributes:
        indices: Some of the samples that it is about.
    """

    def __init__(self, found: str, indices: tuple[int, ...]) -> None:
        self.indices = indices
        super().__init__(f"{found}; among them {', '.join(map(str, indices))}.")


class StateError(HeadraceError, ValueError):
    """A state does not belong to this loader.

    Attributes:
        differences: Field name to (value in the state, value of this loader).
    """

    def __init__(self, differences: Mapping[str, tuple[Any, Any]], cure: str = "") -> None:
        self.differences = dict(differences)
        listed = "; ".join(
            f"{name}: the state has {theirs!r}, this loader has {ours!r}"
            for name, (theirs, ours) in self.differences.items()
        )
        super().__init__(f"the state does not fit. {listed}.{' ' + cure if cure else ''}")


class ClosedError(HeadraceError, RuntimeError):
    """The loader, stream, ring or source is closed."""


class InterruptedTakeError(ClosedError):
    """An interrupt (Ctrl-C) fell into the handing over of a batch, which is gone."""

    def __init__(self) -> None:
        super().__init__(
            "an interrupt fell into the taking of a batch, which is gone. Begin a new stream "
            "(`loader.stream()`): it starts at that step."
        )


class SecondConsumerError(HeadraceError, RuntimeError):
    """A batch was asked for while another thread or task waits for one of the same stream."""

    def __init__(self) -> None:
        super().__init__(
            "another thread or task is already waiting for a batch of this stream. One consumer "
            "at a time: hand the batches on from it."
        )


class BatchTimeoutError(HeadraceError, RuntimeError):
    """A batch was not there within `timeout`. The next take goes on waiting for it.

    Attributes:
        timeout_s: The time-out.
        threads: The line that each reader thread is at.
    """

    def __init__(self, timeout_s: float, threads: str) -> None:
        self.timeout_s = timeout_s
        self.threads = threads
        super().__init__(
            f"no batch within timeout={timeout_s:g} s; readers: {threads or 'none'}. Raise "
            "timeout, or see what the line named waits for."
        )


class WorkerFailedError(HeadraceError, RuntimeError):
    """A reader thread of `headrace.torch.DataLoader` could not begin; told for each batch but the
    first, which raises the error itself.
    """

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"worker_init_fn, or the copy of the dataset, failed before: {reason}")


class ForkedError(HeadraceError, RuntimeError):
    """A live loader or stream was used in a forked child."""

    def __init__(self, what: str, parent_pid: int) -> None:
        self.parent_pid = parent_pid
        super().__init__(
            f"{what} was made in process {parent_pid} and its threads do not exist in this "
            "forked child. Make the loader in the child, or start processes by 'spawn'."
        )


class LoopRunningError(HeadraceError, RuntimeError):
    """A blocking call that needs an event loop was made inside a running one."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what} would block the event loop that runs in this thread. "
            "Use `async for batch in loader.epoch(e)`, or workers >= 1."
        )


class CannotStartThreadError(HeadraceError, RuntimeError):
    """This platform or process starts no thread; what wanted one does its work on the caller.

    Attributes:
        name: Name that the thread would have had.
    """

    def __init__(self, name: str, cause: str) -> None:
        self.name = name
        super().__init__(f"cannot start thread {name!r}: {cause}. Use workers=0.")


class ReaderDiedError(HeadraceError, RuntimeError):
    """A thread or the loop of headrace ended by an error of its own; the fault is ours."""


class ChildDiedError(HeadraceError, RuntimeError):
    """A process that was started for a part of the work ended before it was done.

    Attributes:
        exit_code: What it ended with; the negative number of a signal that killed it.
    """

    def __init__(self, what: str, exit_code: int, last_words: str) -> None:
        self.exit_code = exit_code
        said = f" It wrote:\n{last_words}" if last_words else " It wrote nothing."
        super().__init__(f"{what} ended with exit code {exit_code}.{said}")


class WouldWait(HeadraceError, BlockingIOError):  # noqa: N818 - a signal, not a failure
    """A `_nowait` call could not finish at once."""
