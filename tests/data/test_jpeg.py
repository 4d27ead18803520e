"""Parts of JPEG files against the same parts of the whole picture, decoded by PIL."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from pictures import decode_by, encoded, photographs, smooth
from resnets.data import jpeg
from resnets.data.decode import Opened
from resnets.data.jpeg import Box
from resnets.native_build import NotBuiltError


@pytest.fixture(autouse=True)
def compiled(monkeypatch):
    decode_by("libjpeg", monkeypatch)


def whole(data, shrink):
    """By PIL, shrunk as libjpeg does."""
    image = Image.open(io.BytesIO(data))
    size = image.size
    image.draft("RGB", (size[0] // shrink, size[1] // shrink))
    return np.asarray(image.convert("RGB"))


def part(data, shrink, size, box):
    out = np.full(3 * box.width * box.height + 8, 77, np.uint8)
    assert jpeg.load().part(data, shrink, size, box, out)
    assert (out[-8:] == 77).all()  # nothing is written behind it
    return out[:-8].reshape(box.height, box.width, 3)


def boxes(width, height, draw, count):
    yield Box(0, 0, width, height)
    yield Box(width - 1, height - 1, 1, 1)
    for _ in range(count):
        w, h = draw.randint(1, width), draw.randint(1, height)
        yield Box(draw.randint(0, width - w), draw.randint(0, height - h), w, h)


def check(data, draw, count):
    for shrink in (1, 2, 4, 8):
        wanted = whole(data, shrink)
        height, width, _ = wanted.shape
        for box in boxes(width, height, draw, count):
            found = part(data, shrink, (width, height), box)
            assert np.array_equal(found, wanted[box.top : box.top + box.height, box.left : box.left + box.width])


@pytest.mark.parametrize("subsampling", [0, 1, 2])
@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"restart_marker_blocks": 3}], ids=["", "progressive", "restarts"]
)
def test_a_part_is_that_of_the_whole_picture_to_the_bit(subsampling, options):
    draw = random.Random(str((subsampling, options)))
    for size in ((203, 119), (64, 48), (17, 250), (8, 9)):
        noise = np.random.default_rng(1).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8)
        picture = Image.blend(smooth(*size), Image.fromarray(noise), 0.3)
        check(encoded(picture, subsampling=subsampling, quality=90, **options), draw, 12)


def test_greyscale():
    check(encoded(smooth(99, 70).convert("L")), random.Random(0), 20)


def test_photographs():
    draw = random.Random(1)
    for data in photographs(12):
        check(data, draw, 6)


def test_unusual_files_are_left_to_others():
    find = jpeg.load().header
    picture = smooth(40, 30)
    exif = Image.Exif()
    exif[0x0112] = 6
    assert find(encoded(picture)) == ((40, 30), False)
    assert find(encoded(picture) + b"x" * 500) == ((40, 30), False)
    assert find(encoded(picture, exif=exif)) == ((40, 30), True)
    assert find(encoded(picture.convert("CMYK"))) is None
    assert find(encoded(picture, keep_rgb=True)) is None
    assert find(encoded(picture, "PNG")) is None
    assert find(encoded(picture)[:-2]) is None  # cut short
    assert find(b"") is None


def test_a_box_outside_or_another_size_is_refused():
    data, out = encoded(smooth(40, 30)), np.empty(3 * 40 * 30, np.uint8)
    decoder = jpeg.load()
    for box in (Box(-1, 0, 10, 10), Box(0, 21, 10, 10), Box(31, 0, 10, 10), Box(0, 0, 0, 5)):
        assert not decoder.part(data, 1, (40, 30), box, out)
    assert not decoder.part(data, 1, (41, 30), Box(0, 0, 5, 5), out)
    assert not decoder.part(encoded(smooth(40, 30).convert("CMYK")), 1, (40, 30), Box(0, 0, 5, 5), out)
    with pytest.raises(ValueError, match="too few"):
        decoder.part(data, 1, (40, 30), Box(0, 0, 40, 30), out[:-1])


def test_damage_in_the_middle_is_judged_by_pil(monkeypatch):
    """What libjpeg warns of is decoded again, to what it was without the decoder of our own."""
    data = bytearray(encoded(smooth(200, 150), quality=95))
    middle = len(data) * 2 // 3
    data[middle : middle + 40] = bytes(40)
    found = Opened(bytes(data)).pixels()
    decode_by("PIL", monkeypatch)
    assert np.array_equal(found, Opened(bytes(data)).pixels())


def test_a_library_that_decodes_nothing_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(jpeg.Jpeg, "part", lambda *_: False)
    monkeypatch.setattr(jpeg.ctypes, "CDLL", lambda _: jpeg.load())
    monkeypatch.setattr(jpeg.Jpeg, "__init__", lambda self, library: None)
    monkeypatch.setattr(jpeg.Jpeg, "header", lambda self, data: ((40, 50), False))
    with pytest.raises(NotBuiltError, match="wrong pixels"):
        jpeg._open(tmp_path / "library.so")
