"""Collators for samples that differ in length: padding, masks, line images."""

from headrace.collators.images import ImageCollator
from headrace.collators.masked_mean import masked_mean
from headrace.collators.next_tokens import NextTokenCollator
from headrace.collators.padded import PadCollator
from headrace.collators.padding_stats import PaddingStats, padding_stats, planned_padding
from headrace.collators.planar import gray8_to_planar, rgb8_to_planar
from headrace.collators.text import TextCollator

__all__ = [
    "ImageCollator",
    "NextTokenCollator",
    "PadCollator",
    "PaddingStats",
    "TextCollator",
    "gray8_to_planar",
    "masked_mean",
    "padding_stats",
    "planned_padding",
    "rgb8_to_planar",
]
