"""Every kind of image file becomes RGB pixels, or a sentence."""

import io
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from PIL import Image

from pictures import DECODERS, decode, decode_by, encoded, photographs, smooth
from resnets.data import decode as module
from resnets.data.decode import MOST, BadImageError, Opened

PICTURE = smooth(60, 40)
PIXELS = np.asarray(PICTURE)


@pytest.fixture(params=DECODERS)
def either(request, monkeypatch):
    """By each of the decoders."""
    decode_by(request.param, monkeypatch)


def close(found, wanted, most=3.0):
    assert found.shape == wanted.shape
    assert found.dtype == np.uint8
    assert np.abs(found.astype(float) - wanted).mean() < most


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM"])
def test_exact_formats_keep_every_pixel(form):
    assert np.array_equal(decode(encoded(PICTURE, form)), PIXELS)


def test_photographs_are_what_pil_makes_of_them(either):
    for data in photographs(10):
        wanted = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
        assert np.abs(decode(data).astype(int) - wanted).max() <= 1


def test_a_smaller_copy_is_never_smaller_than_asked_for(either):
    data = encoded(smooth(803, 601), quality=95)
    wanted = np.asarray(Image.open(io.BytesIO(data)))
    sizes = set()
    for least in ((803, 601), (402, 301), (401, 300), (200, 150), (100, 75), (90, 70), (2000, 10), (1, 1)):
        found = decode(data, least)
        assert found.shape[1] >= min(least[0], 803)
        assert found.shape[0] >= min(least[1], 601)
        sizes.add(found.shape)
        enlarged = np.asarray(Image.fromarray(found).resize((803, 601), Image.Resampling.BILINEAR))
        close(enlarged, wanted)
    assert len(sizes) == 4  # whole, a half, a quarter, an eighth


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "CMYK"])
def test_every_mode_becomes_rgb(mode, either):
    image = PICTURE.convert(mode)
    form = "JPEG" if mode in ("L", "CMYK") else "PNG"
    wanted = np.asarray(image.convert("RGB"))
    close(decode(encoded(image, form, **({"quality": 95} if form == "JPEG" else {}))), wanted)


def test_what_is_transparent_is_white():
    """alpha x + (1 - alpha) 255, of a palette and of pixels."""
    alpha = np.linspace(0, 255, 60 * 40).reshape(40, 60).astype(np.uint8)
    image = PICTURE.copy()
    image.putalpha(Image.fromarray(alpha))
    share = alpha[..., None] / 255
    close(decode(encoded(image, "PNG")), share * PIXELS + (1 - share) * 255, 1.0)
    palette = PICTURE.convert("P")
    data = encoded(palette, "PNG", transparency=bytes(range(256)))
    share = np.asarray(palette)[..., None] / 255
    close(decode(data), share * np.asarray(palette.convert("RGB")) + (1 - share) * 255, 1.0)


def test_sixteen_bits_become_eight():
    values = (np.arange(60 * 40, dtype=np.uint16).reshape(40, 60) * 27).astype(np.uint16)
    found = decode(encoded(Image.fromarray(values), "PNG"))
    assert np.array_equal(found, np.repeat((values >> 8).astype(np.uint8)[..., None], 3, 2))
    assert found.max() > 200


@pytest.mark.parametrize("orientation", range(1, 9))
def test_pictures_are_turned_as_exif_says(orientation, either):
    """Turned back by PIL's own function, which goes another way."""
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(PICTURE, quality=95, exif=exif)
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    opened = Opened(data)
    assert opened.size == (wanted.shape[1], wanted.shape[0])
    assert np.abs(opened.pixels().astype(int) - wanted).max() <= 1
    assert opened.notes == (("turned by EXIF",) if orientation > 1 else ())
    small = Opened(data).pixels((wanted.shape[1] / 2, wanted.shape[0] / 2))
    assert small.shape[:2] == (wanted.shape[0] // 2, wanted.shape[1] // 2)


@pytest.mark.parametrize("form", ["TIFF", "PNG", "WEBP"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_other_formats_are_turned_once(form, orientation, monkeypatch):
    """Also where the picture is converted in strips."""
    from PIL import ImageOps

    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(PICTURE, form, exif=exif, **({"lossless": True} if form == "WEBP" else {}))
    wanted = np.asarray(ImageOps.exif_transpose(Image.open(io.BytesIO(data))))
    for strip in (1, 7 * 60, module._STRIP):
        monkeypatch.setattr(module, "_STRIP", strip)
        opened = Opened(data)
        assert opened.size == (wanted.shape[1], wanted.shape[0])
        assert np.array_equal(opened.pixels(), wanted)


@pytest.mark.parametrize("mode", ["L", "LA", "RGBA", "P", "1", "I;16"])
def test_strips_are_what_the_whole_is(mode, monkeypatch):
    values = np.arange(60 * 40, dtype=np.uint16).reshape(40, 60) * 27
    image = Image.fromarray(values) if mode == "I;16" else PICTURE.convert(mode)
    data = encoded(image, "PNG", **({"transparency": bytes(range(256))} if mode == "P" else {}))
    whole = decode(data)
    monkeypatch.setattr(module, "_STRIP", 7 * 60)
    assert np.array_equal(decode(data), whole)


def test_opening_a_png_decodes_nothing(monkeypatch):
    """PIL would, to look for EXIF behind the pixels."""
    from PIL.PngImagePlugin import PngImageFile

    data = encoded(PICTURE, "PNG")
    monkeypatch.setattr(PngImageFile, "load", lambda self: pytest.fail("it was decoded"))
    assert Opened(data).size == (60, 40)


def test_broken_exif_is_as_none():
    good = encoded(PICTURE, quality=95)
    exif = b"Exif\0\0II*\0\xff\xff\xff\x7f"
    data = good[:2] + b"\xff\xe1" + struct.pack(">H", len(exif) + 2) + exif + good[2:]
    close(decode(data), PIXELS)


def test_of_an_animation_the_first_picture_counts():
    frames = [smooth(30, 20, seed).quantize() for seed in range(3)]
    data = encoded(frames[0], "GIF", save_all=True, append_images=frames[1:])
    opened = Opened(data)
    assert opened.notes == ("palette", "animated")
    close(opened.pixels(), np.asarray(frames[0].convert("RGB")))


def bomb():
    """A PNG of a hundred bytes that claims 60,000 x 60,000 pixels."""

    def chunk(kind, body):
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


JPEG = encoded(PICTURE)
BAD = {
    "empty": (b"", r"^is empty$"),
    "text": (b"no picture at all", r"^cannot be decoded \(it is none of JPEG, PNG"),
    "cut short": (JPEG[: len(JPEG) - 40], r"^cannot be decoded \(.*(?i:truncated)"),
    "PNG cut short": (encoded(PICTURE, "PNG")[:-2000], r"^cannot be decoded"),
    "huge": (bomb(), r"^(has 60000x60000 pixels|cannot be decoded)"),
    "floating point": (encoded(Image.fromarray(np.ones((4, 4), np.float32)), "TIFF"), r"^has floating-point pixels"),
    "a program": (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", r"^cannot be decoded"),
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_picture_is_told(what, either):
    data, words = BAD[what]
    with pytest.raises(BadImageError, match=words):
        decode(data)


def test_a_large_picture_is_allowed_and_a_larger_one_is_not(monkeypatch):
    monkeypatch.setattr(module, "MOST", 60 * 40)
    close(decode(encoded(PICTURE, "PNG")), PIXELS)
    monkeypatch.setattr(module, "MOST", 60 * 40 - 1)
    with pytest.raises(BadImageError, match=r"^has 60x40 pixels, more than 2,399$"):
        decode(encoded(PICTURE, "PNG"))
    assert MOST > 100_000_000


def test_threads_decode_in_silence_and_silence_nobody_else():
    """EXIF that is cut off makes PIL warn. In tests a warning is an error, which would make the picture a bad one."""
    exif = Image.Exif()
    exif[0x010E] = "a picture"
    data = encoded(PICTURE, "PNG", exif=exif.tobytes()[:-6])
    with pytest.warns(UserWarning, match="Truncated File Read"):
        Image.open(io.BytesIO(data)).getexif()
    before = list(warnings.filters)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(decode, [data] * 400))
    assert all(np.array_equal(pixels, PIXELS) for pixels in found)
    assert [rule for rule in warnings.filters if rule != module._PIL_IGNORED] == before
    with pytest.raises(UserWarning, match="another's"):
        warnings.warn("another's", stacklevel=1)
