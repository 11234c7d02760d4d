"""Pixels as numbers for a model: scaling to [0, 1], normalising, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from headrace.errors import ConfigError

Channels = Literal["last", "first"]

_LARGEST = {torch.uint8: 255, torch.uint16: 65535}


def to_float(
    pixels: torch.Tensor,
    *,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    channels: Channels = "last",
) -> torch.Tensor:
    """Give images as float32 with the channels first, as torch's layers take them.

    uint8 is divided by 255 and uint16 by 65535, so that both lie in [0, 1]. Floats are taken to
    be scaled already and keep their values. Runs on the device of the pixels; of images with
    the channels last the result is in torch's channels_last memory format, without a copy.

    Args:
        pixels: `[..., H, W, C]`, or `[..., C, H, W]` as `channels` says; one image or many.
        mean: Subtracted from each channel after scaling.
        std: What each channel is divided by after that.
        channels: Where the channels of `pixels` are.

    Raises:
        ConfigError: The pixels are of another dtype, or `mean` or `std` is not one number per
            channel, or `std` has a 0.
    """
    if channels not in ("last", "first"):
        raise ConfigError("channels", "'last' or 'first'", channels)
    if not isinstance(pixels, torch.Tensor) or pixels.dim() < 3:
        raise ConfigError("pixels", "a tensor of images, [..., H, W, C]", pixels)
    if channels == "last":
        pixels = pixels.movedim(-1, -3)
    scaled = _scaled(pixels)
    for knob, values in (("mean", mean), ("std", std)):
        if values is not None:
            by = _per_channel(knob, values, scaled)
            scaled = scaled - by if knob == "mean" else scaled / by
    return scaled


def resize(pixels: NDArray[Any] | torch.Tensor, size: tuple[int, int]) -> NDArray[Any]:
    """Give an image scaled to a height and width, bilinear and antialiased.

    uint8 is scaled by whole numbers, so the result is the same on every machine.

    Args:
        pixels: `[H, W, C]` of uint8 or uint16, an array or a CPU tensor; a part of a larger
            image will do.
        size: Height and width.

    Raises:
        ConfigError: The pixels are no such array, or the size is not two whole numbers from 1 on.
    """
    image = _as_image(pixels)
    if not _is_size(size):
        raise ConfigError("size", "(height, width) in pixels", size)
    out = np.empty((*size, image.shape[2]), image.dtype)
    resize_into(image, out)
    return out


def resize_into(pixels: NDArray[Any], out: NDArray[Any]) -> None:
    """Do as `resize` does into memory that is there.

    Args:
        pixels: `[H, W, C]` of uint8 or uint16.
        out: `[height, width, C]` of the same dtype, C-contiguous and writable.
    """
    size = [out.shape[0], out.shape[1]]
    if pixels.dtype == np.uint8:
        # torch would make a part contiguous by several threads, which costs more than it does.
        planes, into = _planes(np.ascontiguousarray(pixels)), _planes(out)
        # What torch.nn.functional.interpolate calls; that one takes no `out`, and fresh memory
        # makes the whole a third slower (375 x 375 to 224 x 224, one core: 220 us for 150).
        torch.ops.aten._upsample_bilinear2d_aa.out(planes, size, False, None, None, out=into)
        return
    # In float64 the sum of any weights times 65535 is far from where rounding would waver.
    planes = _planes(pixels.astype(np.float64))
    if size[1] == 1:
        # torch 2.13 gives wrong floats for an output of one column, and right ones for a row.
        scaled = _interpolated(planes.transpose(2, 3), size[::-1]).transpose(2, 3)
    else:
        scaled = _interpolated(planes, size)
    out[...] = scaled[0].permute(1, 2, 0).round().clamp_(0, 65535).numpy()


def _as_image(pixels: Any) -> NDArray[Any]:
    if isinstance(pixels, torch.Tensor) and pixels.device.type == "cpu":
        pixels = pixels.numpy()
    if not isinstance(pixels, np.ndarray):
        wanted = "a numpy array or a CPU tensor, [H, W, C]"
        raise ConfigError("pixels", wanted, type(pixels).__name__, "Give np.asarray(image).")
    if pixels.ndim != 3 or pixels.dtype not in (np.uint8, np.uint16):
        cure = "Scale to floats afterwards: to_float. Of gray [H, W] give pixels[:, :, None]."
        wanted = "an array [H, W, C] of uint8 or uint16"
        raise ConfigError("pixels", wanted, f"{pixels.dtype} of shape {pixels.shape}", cure)
    return pixels


def _is_size(size: Any) -> bool:
    is_pair = isinstance(size, tuple | list) and len(size) == 2
    return is_pair and all(isinstance(n, int | np.integer) and n >= 1 for n in size)


def _interpolated(planes: torch.Tensor, size: list[int]) -> torch.Tensor:
    return torch.nn.functional.interpolate(planes, size=size, mode="bilinear", antialias=True)


def _planes(pixels: NDArray[Any]) -> torch.Tensor:
    """Give an image as torch sees a batch of one: `[1, C, H, W]`, over the same memory."""
    return torch.from_numpy(pixels).permute(2, 0, 1)[None]


def _scaled(pixels: torch.Tensor) -> torch.Tensor:
    if pixels.dtype.is_floating_point:
        return pixels.to(torch.float32)
    largest = _LARGEST.get(pixels.dtype)
    if largest is None:
        cure = "Their range is not known: divide them yourself."
        raise ConfigError("pixels", "uint8, uint16 or floats", str(pixels.dtype), cure)
    return pixels.to(torch.float32) / largest


def _per_channel(knob: str, values: Sequence[float], images: torch.Tensor) -> torch.Tensor:
    found = torch.as_tensor(values, dtype=torch.float32, device=images.device)
    if found.shape not in ((), (1,), (images.shape[-3],)):
        raise ConfigError(knob, f"{images.shape[-3]} numbers, one per channel", values)
    # A look at numbers on an accelerator would wait for it.
    if knob == "std" and found.device.type == "cpu" and bool((found == 0).any()):
        raise ConfigError(knob, "no 0, since it divides", values)
    return found.reshape(-1, 1, 1)
