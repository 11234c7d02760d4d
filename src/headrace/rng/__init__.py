"""Random numbers as pure arithmetic: the same seed gives the same bits everywhere, for ever.

`mix` and `derive` make keys, `SampleRng` draws one number at a time, and `derive_rows`,
`SampleRngs` do the same for whole batches; row r of the latter equals the former to the bit.
"""

from headrace.rng.sample_rng import SampleRng
from headrace.rng.sample_rngs import SampleRngs
from headrace.rng.words import MASK64, Stream, derive, derive_rows, mix, mix_rows

__all__ = [
    "MASK64",
    "SampleRng",
    "SampleRngs",
    "Stream",
    "derive",
    "derive_rows",
    "mix",
    "mix_rows",
]
