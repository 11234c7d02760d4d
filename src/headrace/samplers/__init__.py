"""What is wanted: samplers say, as pure arithmetic, what every step of a run contains."""

from headrace.samplers.block_shuffled import BlockShuffled
from headrace.samplers.bucketed import Bucketed
from headrace.samplers.mixing import Mixing
from headrace.samplers.sampler import Resume, Sampler
from headrace.samplers.sequential import Sequential
from headrace.samplers.shuffled import Shuffled

__all__ = ["BlockShuffled", "Bucketed", "Mixing", "Resume", "Sampler", "Sequential", "Shuffled"]
