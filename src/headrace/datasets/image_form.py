"""The form in which images are wanted: which numbers, which size, which order of axes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from headrace import config
from headrace.datasets.image_boxes import Size
from headrace.errors import ConfigError

Mode = Literal["rgb", "rgba", "gray", "gray16"]
Channels = Literal["last", "first"]

CHANNELS: dict[str, int] = {"rgb": 3, "rgba": 4, "gray": 1, "gray16": 1}


@dataclass(frozen=True, slots=True)
class ImageForm:
    """What becomes of every image. All are part of a dataset's fingerprint.

    Attributes:
        mode: "rgb", "rgba" or "gray" of uint8, or "gray16" of uint16.
        size: Height and width of every sample; None leaves images as large as they are.
        resize: What the shorter side is scaled to before `size` is cut out of the centre.
        channels: "last" gives [H, W, C], "first" [C, H, W].
        background: What shows through where an image is transparent, as (red, green, blue);
            None leaves alpha out of account, so that hidden colours show.
        fast_scaling: Whether a JPEG may be scaled down while it is decoded.
    """

    mode: Mode = "rgb"
    size: Size | None = None
    resize: int | None = None
    channels: Channels = "last"
    background: tuple[int, int, int] | None = None
    fast_scaling: bool = True

    def __post_init__(self) -> None:
        config.one_of("mode", self.mode, *CHANNELS)
        config.one_of("channels", self.channels, "last", "first")
        if self.size is not None:
            object.__setattr__(self, "size", _size(self.size))
        if self.resize is not None:
            _check_resize(self.resize, self.size)
        if self.background is not None:
            object.__setattr__(self, "background", _colour(self.background))
        config.flag("fast_scaling", self.fast_scaling)

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the pixels."""
        return np.dtype(np.uint16 if self.mode == "gray16" else np.uint8)

    @property
    def depth(self) -> int:
        """Numbers per pixel."""
        return CHANNELS[self.mode]

    def shape(self, size: Size) -> tuple[int, int, int]:
        """Give the shape of a sample of some height and width."""
        height, width = size
        if self.channels == "first":
            return self.depth, height, width
        return height, width, self.depth

    def facts(self) -> dict[str, Any]:
        """Give what a fingerprint must know."""
        return {
            "mode": self.mode,
            "size": None if self.size is None else list(self.size),
            "resize": self.resize,
            "channels": self.channels,
            "background": None if self.background is None else list(self.background),
            "fast_scaling": self.fast_scaling,
        }


def _size(size: Any) -> Size:
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise ConfigError("size", "(height, width) in pixels", size)
    return config.integer("size", size[0], 1), config.integer("size", size[1], 1)


def _check_resize(resize: Any, size: Size | None) -> None:
    if size is None:
        cure = "Give size too, or scale in sample_transform."
        raise ConfigError("resize", "size=(height, width) beside it", resize, cure)
    config.integer("resize", resize, max(size))


def _colour(colour: Any) -> tuple[int, int, int]:
    if not isinstance(colour, tuple | list) or len(colour) != 3:
        raise ConfigError("background", "(red, green, blue), each 0 to 255", colour)
    red, green, blue = (config.integer("background", part, 0, 255) for part in colour)
    return red, green, blue
