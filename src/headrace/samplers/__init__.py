"""What is wanted: samplers say, as pure arithmetic, what every step of a run contains."""

from headrace.samplers.sampler import Resume, Sampler
from headrace.samplers.sequential import Sequential
from headrace.samplers.shuffled import Shuffled

__all__ = ["Resume", "Sampler", "Sequential", "Shuffled"]
