"""What becomes of a step that holds bad samples."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from headrace.errors import ConfigError, DataError, IndexOutOfRangeError
from headrace.rng import SampleRng, Stream, derive
from headrace.state import BadSample

OnBadSample = Literal["raise", "replace", "mask"]

# A dataset whose draws are all bad is broken as a whole; 64 draws miss a dataset that is half
# good with probability 2^-64.
MAX_DRAWS = 64

# A state lists a few of these and stays about a kilobyte.
_REASON_LETTERS = 120

_DATA_ERRORS = (DataError, ValueError, LookupError, EOFError, struct.error, zlib.error)
_NEVER = (OSError, TimeoutError, MemoryError, ConfigError, IndexOutOfRangeError)


def is_data_error(error: BaseException) -> bool:
    """Whether an error says that the bytes of a sample are bad.

    Decoding, checksums and missing fields do; time-outs, denied access and full memory never.
    """
    if isinstance(error, DataError):
        return True
    # Pillow's class for a file that is no image is an OSError; it is named, not imported.
    if type(error).__name__ == "UnidentifiedImageError":
        return True
    return isinstance(error, _DATA_ERRORS) and not isinstance(error, _NEVER)


def _in_a_line(error: BaseException) -> str:
    line = " ".join(f"{type(error).__name__}: {error}".split())
    return line if len(line) <= _REASON_LETTERS else f"{line[: _REASON_LETTERS - 3]}..."


@dataclass(frozen=True, slots=True)
class BadSamplePolicy:
    """How bad samples are survived.

    Attributes:
        on_bad_sample: "raise", or go on with a replacement, whose row "mask" gives weight 0.
        seed: Seed of the loader, for the replacements.
        num_samples: Samples of the dataset.
    """

    on_bad_sample: OnBadSample
    seed: int
    num_samples: int

    @property
    def masks(self) -> bool:
        """Whether a replaced row gets weight 0."""
        return self.on_bad_sample == "mask"

    def survives(self, error: BaseException) -> bool:
        """Whether a step may go on without this sample."""
        return self.on_bad_sample != "raise" and is_data_error(error)

    def replacements(self, epoch: int, index: int) -> Iterator[int]:
        """Draw candidates for a bad sample: the k-th from derive(seed, epoch, index, k, 4)."""
        for k in range(MAX_DRAWS):
            key = derive(self.seed, epoch, index, k, Stream.REPLACEMENT)
            yield SampleRng(key).next_int(self.num_samples)


@dataclass(slots=True)
class Substitution:
    """The samples of one step, with good ones in place of those found bad so far.

    Attributes:
        samples: Sample index of each row, as it will be delivered.
        bad: What was found bad.
        bad_rows: Rows that hold a replacement.
    """

    policy: BadSamplePolicy
    step: int
    epoch: int
    samples: list[int]
    bad: list[BadSample]
    bad_rows: set[int]
    _draws: dict[int, Iterator[int]]
    _known_bad: set[int]

    @staticmethod
    def start(policy: BadSamplePolicy, step: int, epoch: int, samples: list[int]) -> Substitution:
        """Begin with the samples of the picks."""
        return Substitution(policy, step, epoch, samples, [], set(), {}, set())

    def replace(self, row: int, error: BaseException, where: str) -> bool:
        """Put the next candidate into a row; give False when the step cannot go on."""
        if not self.policy.survives(error):
            return False
        index = self.samples[row]
        self._known_bad.add(index)
        if row not in self._draws:
            self._draws[row] = self.policy.replacements(self.epoch, index)
            self.bad.append(BadSample(self.step, index, where, _in_a_line(error)))
            self.bad_rows.add(row)
        for candidate in self._draws[row]:
            if candidate not in self._known_bad:
                self.samples[row] = candidate
                return True
        first = self.bad[list(self._draws).index(row)].index
        error.add_note(
            f"Sample {first} of this step was bad, and so was all that was drawn in its place: "
            "the data may be broken as a whole."
        )
        return False
