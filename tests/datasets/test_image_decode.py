"""What becomes of the pixels of every kind of file."""

from __future__ import annotations

import io
import itertools
import struct
import subprocess
import sys
import zlib
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from headrace import images
from headrace.datasets import image_jpeg, image_pillow
from headrace.datasets.exif import jpeg_orientation
from headrace.datasets.image_boxes import centre_box
from headrace.datasets.image_decode import decode, decode_into, decode_whole
from headrace.datasets.image_form import ImageForm, Mode
from headrace.errors import ConfigError, FormatError
from tests.datasets.pictures import encoded, pattern

RGB = ImageForm()


def pixels_of(data: bytes, **form: Any) -> NDArray[Any]:
    return decode(data, "x.png", ImageForm(**form))


def saved(image: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    into = io.BytesIO()
    image.save(into, kind, **options)
    return into.getvalue()


def png(width: int, height: int, depth: int, colour: int, rows: list[bytes]) -> bytes:
    """Write a PNG by its specification, not by the library under test."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        body = kind + data
        return struct.pack(">I", len(data)) + body + struct.pack(">I", zlib.crc32(body))

    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    filtered = b"".join(b"\0" + row for row in rows)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(filtered))
        + chunk(b"IEND", b"")
    )


DEEP = png(2, 2, 16, 0, [struct.pack(">HH", 0, 257), struct.pack(">HH", 40000, 65535)])


def test_16_bit_gray_keeps_its_values() -> None:
    """Nothing is clipped at 255 or read as signed (B16)."""
    found = pixels_of(DEEP, mode="gray16")

    assert found.dtype == np.uint16
    assert found[:, :, 0].tolist() == [[0, 257], [40000, 65535]]


def test_16_bit_gray_is_scaled_to_8_bits() -> None:
    """From end to end: value / 257, in every mode of uint8 (B16)."""
    gray = [[0, 1], [156, 255]]

    assert pixels_of(DEEP, mode="gray")[:, :, 0].tolist() == gray
    rgb = pixels_of(DEEP)
    assert rgb.dtype == np.uint8
    assert [rgb[:, :, k].tolist() for k in range(3)] == [gray] * 3
    rgba = pixels_of(DEEP, mode="rgba")
    assert [rgba[:, :, k].tolist() for k in (0, 3)] == [gray, [[255, 255], [255, 255]]]


def test_8_bit_gray_is_scaled_to_16_bits() -> None:
    """So that both kinds of file have one range (B16)."""
    found = pixels_of(encoded(np.array([[0, 1], [128, 255]], np.uint8)), mode="gray16")

    assert found.dtype == np.uint16
    assert found[:, :, 0].tolist() == [[0, 257], [128 * 257, 65535]]


def test_other_deep_files_keep_their_values() -> None:
    """A big-endian TIFF of 16 bits, and integers of 32 bits within 16 (B16)."""
    values = np.array([[0, 300], [40000, 65535]], np.uint16)
    portable = saved(Image.fromarray(values), "TIFF")
    wide = saved(Image.fromarray(values.astype(np.int32)), "TIFF")

    assert pixels_of(portable, mode="gray16")[:, :, 0].tolist() == values.tolist()
    assert pixels_of(wide, mode="gray16")[:, :, 0].tolist() == values.tolist()


def test_numbers_of_no_known_range_are_refused() -> None:
    """32-bit integers beyond 16 bits, and floats (B16, S4-10)."""
    wide = saved(Image.fromarray(np.array([[0, 70000]], np.int32)), "TIFF")
    floats = saved(Image.fromarray(np.array([[0.5, 2.0]], np.float32)), "TIFF")

    with pytest.raises(FormatError, match=r"x\.png: .*32-bit integers from 0 to 70000"):
        pixels_of(wide)
    with pytest.raises(FormatError, match="32-bit floats, whose range is not known"):
        pixels_of(floats)


def test_a_palette_becomes_its_colours() -> None:
    """With its transparency where that is asked for (S4-14)."""
    image = Image.new("P", (2, 1))
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putdata([0, 1])
    data = saved(image, transparency=bytes([0, 255]))

    assert pixels_of(data)[0].tolist() == [[255, 0, 0], [0, 0, 255]]
    assert pixels_of(data, mode="rgba")[0].tolist() == [[255, 0, 0, 0], [0, 0, 255, 255]]
    assert pixels_of(data, background=(9, 8, 7))[0].tolist() == [[9, 8, 7], [0, 0, 255]]


def test_alpha_is_left_out_or_laid_over_a_colour() -> None:
    """Without a background the colours that it hides show (S4-14)."""
    data = encoded(np.array([[[200, 100, 0, 0], [200, 100, 0, 51], [1, 2, 3, 255]]], np.uint8))

    assert pixels_of(data)[0].tolist() == [[200, 100, 0], [200, 100, 0], [1, 2, 3]]
    assert pixels_of(data, background=(0, 0, 255))[0].tolist() == [
        [0, 0, 255],
        [40, 20, 204],
        [1, 2, 3],
    ]
    assert pixels_of(data, mode="rgba")[0, 1].tolist() == [200, 100, 0, 51]
    assert pixels_of(data, mode="gray", background=(255, 255, 255))[0, 0].tolist() == [255]


def test_gray_with_alpha_is_treated_as_colours_are() -> None:
    """Two channels, as PNG allows (S4-14)."""
    data = saved(Image.merge("LA", [Image.new("L", (1, 1), 100), Image.new("L", (1, 1), 0)]))

    assert pixels_of(data)[0, 0].tolist() == [100, 100, 100]
    assert pixels_of(data, background=(255, 0, 0))[0, 0].tolist() == [255, 0, 0]
    assert pixels_of(data, mode="gray")[0, 0].tolist() == [100]


def test_cmyk_becomes_rgb() -> None:
    """As a JPEG, which simplejpeg leaves to Pillow, and as a TIFF (S4-14)."""
    inks = Image.new("CMYK", (16, 16), (255, 0, 0, 0))
    jpeg, tiff = saved(inks, "JPEG", quality=100), saved(inks, "TIFF")

    assert image_jpeg.decode(jpeg, RGB) is None
    assert np.abs(pixels_of(jpeg)[8, 8].astype(int) - [0, 255, 255]).max() <= 3
    assert pixels_of(tiff)[8, 8].tolist() == [0, 255, 255]
    assert pixels_of(tiff, mode="gray")[8, 8].tolist() == [179]


def test_one_bit_and_several_frames_are_read() -> None:
    """Black and white are 0 and 255; of frames the first is taken (S4-14)."""
    bits = saved(Image.fromarray(np.array([[True, False]])))
    red, blue = (Image.new("RGB", (2, 2), colour) for colour in ((255, 0, 0), (0, 0, 255)))
    frames = saved(red, "GIF", save_all=True, append_images=[blue])

    assert pixels_of(bits, mode="gray")[0, :, 0].tolist() == [255, 0]
    assert pixels_of(frames)[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_images_are_put_upright(kind: str, orientation: int) -> None:
    """By the Exif orientation, as Pillow's own tool does it (S4-14)."""
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = saved(Image.fromarray(pattern(24, 40)), kind, exif=exif)

    found = pixels_of(data)

    with Image.open(io.BytesIO(data)) as image:
        wanted = np.asarray(ImageOps.exif_transpose(image))
    assert found.shape == ((40, 24, 3) if orientation >= 5 else (24, 40, 3))
    assert np.array_equal(found, wanted)
    assert found.flags.c_contiguous


@pytest.mark.parametrize("order", ["<", ">"])
def test_an_orientation_is_found_behind_other_parts(order: str) -> None:
    """In both byte orders, after segments that say nothing of it (S4-14)."""
    sign = b"II" if order == "<" else b"MM"
    entries = [struct.pack(f"{order}HHIHH", 0x010F, 3, 1, 5, 0)]
    entries.append(struct.pack(f"{order}HHIHH", 0x0112, 3, 1, 6, 0))
    tiff = sign + struct.pack(f"{order}HIH", 42, 8, 2) + b"".join(entries) + bytes(4)
    exif = b"Exif\0\0" + tiff
    start = b"\xff\xd8" + b"\xff\xe1" + struct.pack(">H", 2 + 4) + b"http"
    data = start + b"\xff\xff\xe1" + struct.pack(">H", 2 + len(exif)) + exif + b"\xff\xda\0\x02"

    assert jpeg_orientation(data) == 6
    assert [jpeg_orientation(data[:length]) for length in range(len(start) + 20)] == [1] * (
        len(start) + 20
    )


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")
def test_damaged_exif_is_not_damage_to_the_image() -> None:
    """The image is then taken as it is (S4-14)."""
    exif = b"Exif\0\0MM\0*\xff\xff\xff\xff"
    data = saved(Image.fromarray(pattern(20, 30)), "JPEG", exif=exif)

    assert pixels_of(data).shape == (20, 30, 3)
    assert image_pillow.decode(data, "x", RGB).shape == (20, 30, 3)


KINDS = [{"subsampling": 0}, {"subsampling": 2}, {"progressive": True}, {"keep_rgb": True}]


@pytest.mark.parametrize("options", KINDS, ids=lambda options: next(iter(options)))
@pytest.mark.parametrize("mode", ["rgb", "rgba", "gray"])
@pytest.mark.parametrize("size", [None, (60, 50), (30, 20), (13, 12)])
def test_simplejpeg_and_pillow_give_the_same_pixels(
    options: dict[str, Any], mode: Mode, size: tuple[int, int] | None
) -> None:
    """Whole and scaled down, so a stream does not depend on what is installed (S4-13)."""
    form = ImageForm(mode=mode, size=size)
    exif = Image.Exif()
    exif[0x0112] = 6
    data = saved(Image.fromarray(pattern(243, 317)), "JPEG", quality=90, exif=exif, **options)

    quick = image_jpeg.decode(data, form)

    assert quick is not None
    assert np.array_equal(quick, image_pillow.decode(data, "x", form))
    assert quick.shape[0] == {None: 317, (60, 50): 159, (30, 20): 80, (13, 12): 40}[size]


def test_only_exif_says_how_a_jpeg_was_held() -> None:
    """What XMP says of it both libraries leave alone (S4-13)."""
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF><a tiff:Orientation="6"/></rdf:RDF>'
    data = saved(Image.fromarray(pattern(20, 30)), "JPEG", xmp=xmp + b"</x:xmpmeta>")

    quick = image_jpeg.decode(data, RGB)

    assert quick is not None
    assert quick.shape == (20, 30, 3)
    assert np.array_equal(quick, image_pillow.decode(data, "x", RGB))


@pytest.mark.parametrize("size", [None, (1, 1)])
def test_small_jpegs_are_never_scaled(size: tuple[int, int] | None) -> None:
    """Of 7 pixels 7/8, rounded up, are 7 too, but would be other ones (S4-13)."""
    form = ImageForm(size=size)
    for height, width in ((1, 1), (5, 7), (7, 7), (3, 9), (63, 64), (64, 64), (65, 71)):
        data = saved(Image.fromarray(pattern(height, width)), "JPEG", quality=95)

        quick = image_jpeg.decode(data, form)

        assert quick is not None
        assert np.array_equal(quick, image_pillow.decode(data, "x", form))


def test_a_jpeg_without_simplejpeg_is_pillows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is not installed all images go to Pillow (S4-13)."""
    data = saved(Image.fromarray(pattern(40, 40)), "JPEG")
    monkeypatch.setattr(image_jpeg, "_library", lambda: None)

    assert image_jpeg.decode(data, RGB) is None
    assert pixels_of(data).shape == (40, 40, 3)


def test_what_simplejpeg_refuses_pillow_may_recover() -> None:
    """Stray bytes between the markers spoil no pixel (S4-13)."""
    data = saved(Image.fromarray(pattern(40, 40)), "JPEG")
    stray = data[:-2] + b"\x00\x11\x22" + data[-2:]

    assert np.array_equal(pixels_of(stray), pixels_of(data))


def test_a_jpeg_that_claims_a_huge_size_is_left_to_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a few bytes may claim 65,535 each way: no 12 GB are made for it (S4-13)."""
    data = bytearray(saved(Image.fromarray(pattern(40, 40)), "JPEG"))
    start_of_frame = data.index(b"\xff\xc0")
    data[start_of_frame + 5 : start_of_frame + 9] = b"\xff\xff\xff\xff"
    monkeypatch.setattr("simplejpeg.decode_jpeg", lambda *_, **__: pytest.fail("decoded"))

    with pytest.raises(FormatError, match=r"bomb\.jpg: .*exceeds limit"):
        decode(bytes(data), "bomb.jpg", RGB)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda data: b"", r"found an empty file\."),
        (lambda data: b"<html></html>", "bytes of no known kind"),
        (lambda data: data[: len(data) // 2], "damage"),
        (lambda data: data[:4], "bytes of no known kind|damage"),
    ],
)
@pytest.mark.parametrize("kind", ["JPEG", "PNG", "TIFF", "GIF", "BMP", "WEBP"])
def test_a_broken_file_is_named(kind: str, damage: Any, told: str) -> None:
    """Empty, something else, cut short (S4-13)."""
    data = damage(saved(Image.fromarray(pattern(64, 64)), kind))

    with pytest.raises(FormatError, match=rf"^cat/1\.x: wanted an image \(as rgb\).*({told})"):
        decode(data, "cat/1.x", RGB)


def test_every_image_of_a_size_is_its_scaled_centre() -> None:
    """Resized over the shorter side and cut out of the centre, in either order of axes (S4-14)."""
    picture = pattern(30, 44)
    data = encoded(picture)
    box = centre_box((30, 44), (10, 10))
    wanted = np.asarray(
        Image.fromarray(picture[:, box.left : box.left + 30]).resize(
            (10, 10), Image.Resampling.BILINEAR
        )
    )
    last, first = np.zeros((10, 10, 3), np.uint8), np.zeros((3, 10, 10), np.uint8)

    decode_into(data, "x", ImageForm(size=(10, 10)), last)
    decode_into(data, "x", ImageForm(size=(10, 10), channels="first"), first)

    assert np.abs(last.astype(int) - wanted).max() <= 1
    assert np.array_equal(first, last.transpose(2, 0, 1))


def test_an_image_of_the_wanted_size_keeps_its_pixels() -> None:
    """And so does a cut that needs no scaling (S4-14)."""
    picture = pattern(8, 12)
    whole, cut = np.zeros((8, 12, 3), np.uint8), np.zeros((8, 8, 3), np.uint8)

    decode_into(encoded(picture), "x", ImageForm(size=(8, 12)), whole)
    decode_into(encoded(picture), "x", ImageForm(size=(8, 8)), cut)

    assert np.array_equal(whole, picture)
    assert np.array_equal(cut, picture[:, 2:10])


def test_deep_images_are_scaled_without_clipping() -> None:
    """uint16 goes through floats and comes back as what it was (B16)."""
    form = ImageForm(mode="gray16", size=(3, 3))
    row = np.zeros((3, 3, 1), np.uint16)

    decode_into(encoded(np.full((7, 9), 40001, np.uint16)), "x", form, row)

    assert row.tolist() == [[[40001]] * 3] * 3
    steep = np.array([[[0]], [[1]]], np.uint16)
    assert images.resize(steep, (4, 1))[:, 0, 0].tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16])
@pytest.mark.parametrize("size", [(1, 1), (1, 4), (4, 1), (2, 9), (9, 2)])
def test_images_of_every_size_are_scaled_as_pillow_scales_them(
    dtype: Any, size: tuple[int, int]
) -> None:
    """To within rounding, down to one row or one column (S4-14, B16)."""
    for height, width in itertools.product((1, 2, 3, 7), repeat=2):
        picture = pattern(height, width, seed=height * width).astype(dtype)
        planes = [Image.fromarray(picture[:, :, k].astype(np.float32)) for k in range(3)]
        resized = [plane.resize(size[::-1], Image.Resampling.BILINEAR) for plane in planes]

        found = images.resize(picture, size).astype(float)

        wanted = np.stack([np.asarray(plane) for plane in resized], axis=2)
        assert np.abs(found - wanted).max() <= (0.51 if dtype == np.uint16 else 1.0)


def test_a_whole_image_may_have_its_channels_first() -> None:
    """Contiguous, as it is stacked (S4-14)."""
    picture = pattern(5, 6)

    found = decode_whole(encoded(picture), "x", ImageForm(channels="first"))

    assert np.array_equal(found, picture.transpose(2, 0, 1))
    assert found.flags.c_contiguous
    assert found.flags.writeable


def test_the_scaling_is_torchs_own() -> None:
    """The call with memory of ours gives what the public function gives (S4-14)."""
    import torch

    picture = pattern(31, 47)
    planes = torch.from_numpy(picture).permute(2, 0, 1)[None]
    public = torch.nn.functional.interpolate(planes, size=(12, 20), mode="bilinear", antialias=True)

    assert np.array_equal(
        images.resize(picture[:, ::1], (12, 20)), public[0].permute(1, 2, 0).numpy()
    )
    assert np.array_equal(
        images.resize(picture[3:, 5:], (9, 9)), images.resize(picture[3:, 5:].copy(), (9, 9))
    )


@pytest.mark.parametrize(
    ("form", "told"),
    [
        ({"mode": "RGB"}, "mode: wanted one of 'rgb', 'rgba', 'gray', 'gray16', got 'RGB'"),
        ({"channels": "both"}, "channels: wanted one of 'last', 'first'"),
        ({"size": 224}, r"size: wanted \(height, width\) in pixels, got 224"),
        ({"size": (0, 4)}, "size: wanted an int >= 1, got 0"),
        ({"resize": 256}, r"resize: wanted size=\(height, width\) beside it"),
        ({"size": (224, 200), "resize": 223}, "resize: wanted an int >= 224, got 223"),
        ({"background": "white"}, r"background: wanted \(red, green, blue\)"),
        ({"background": (0, 0, 256)}, "background: wanted an int from 0 to 255, got 256"),
        ({"fast_scaling": "no"}, "fast_scaling: wanted True or False"),
    ],
)
def test_forms_that_cannot_be_are_refused(form: dict[str, Any], told: str) -> None:
    """Each by its knob (S4-14)."""
    with pytest.raises(ConfigError, match=told):
        ImageForm(**form)


def test_pillow_is_imported_at_the_first_image_only(tmp_path: Any) -> None:
    """Neither by headrace nor by making a dataset; without it the error names the extra (S4-13)."""
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.png").write_bytes(encoded(pattern(4, 4)))
    program = """
import importlib.util, sys
import headrace as hr
data = hr.ImageFolder(sys.argv[1])
assert not {"PIL", "simplejpeg", "pyarrow"} & set(sys.modules)
data[0]
assert "PIL" in sys.modules
importlib.util.find_spec = lambda name: None
try:
    hr.ImageFolder(sys.argv[1])
except ImportError as error:
    print(error)
"""

    told = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )

    assert told.stdout == (
        "Reading images needs Pillow, which is not installed. "
        "Install it with: pip install 'headrace[image]'\n"
    )
