"""Parts of JPEG files against the same parts of the whole picture, decoded by PIL and scaled by torch."""

import io
import random

import numpy as np
import pytest
from PIL import Image

from pictures import decode_by, encoded, photographs, smooth
from resnets.data import jpeg
from resnets.data.decode import BadImageError, Opened
from resnets.data.jpeg import Box, ScaledBox
from resnets.data.random_crops import View
from resnets.data.resampling import resize_by_torch
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


def noise(width, height, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


@pytest.mark.parametrize("quality", [1, 30, 75, 100])
@pytest.mark.parametrize("optimize", [False, True])
def test_codes_of_every_length(quality, optimize):
    """Flat blocks end at once, blocks of noise at the last value; rare values have codes longer than a lookup."""
    pixels = np.concatenate([noise(96, 40), np.full((24, 96, 3), 200, np.uint8), noise(96, 16, 1) // 64 * 80], 0)
    pixels[8:16, 40:48] = np.where(np.indices((8, 8)).sum(0) % 2, 255, 0)[..., None]
    for subsampling in (0, 2):
        data = encoded(Image.fromarray(pixels), quality=quality, optimize=optimize, subsampling=subsampling)
        check(data, random.Random(quality), 8)


def test_greyscale():
    check(encoded(smooth(99, 70).convert("L")), random.Random(0), 20)


def test_photographs():
    draw = random.Random(1)
    for data in photographs(12):
        check(data, draw, 6)


def square(data, shrink, size, scaled, side):
    out = np.full((side + 1, side, side, 3), 77, np.uint8)
    assert jpeg.load().square(data, shrink, size, scaled, out[0])
    assert (out[1:] == 77).all()  # nothing is written behind it
    return out[0]


@pytest.mark.parametrize(
    "options", [{}, {"progressive": True}, {"subsampling": 0}, {"restart_marker_blocks": 5}], ids=str
)
def test_a_square_is_what_torch_scales_to_the_bit(options):
    """Larger, smaller, by whole numbers and by fractions, of boxes of any shape, mirrored or not."""
    draw = random.Random(str(options))
    for number in range(60):
        width, height = draw.choice(
            [(300, 260), (37, 211), (640, 9), (1, 1), (draw.randint(1, 90), draw.randint(1, 90))]
        )
        data = encoded(Image.fromarray(noise(width, height, number)), quality=95, **options)
        shrink = draw.choice([1, 1, 1, 2, 4, 8]) if min(width, height) >= 8 else 1
        pixels = whole(data, shrink)
        size = pixels.shape[1], pixels.shape[0]
        box = list(boxes(*size, draw, 1))[draw.choice([0, 2])]
        side = draw.choice([1, 7, 32, 97, 224, box.width])
        parts = [length - draw.choice([0, 0.5, 0.999]) * (length > 1) for length in box[2:]]
        scale = parts[0] / side, parts[1] / side
        wanted = resize_by_torch(box.cut(pixels), scale, side)
        assert np.array_equal(square(data, shrink, size, ScaledBox(box, scale, False), side), wanted)
        assert np.array_equal(square(data, shrink, size, ScaledBox(box, scale, True), side), wanted[:, ::-1])


def test_one_pixel_of_very_many_does_not_overflow():
    data = encoded(Image.new("RGB", (20000, 1), "white"))
    found = square(data, 1, (20000, 1), ScaledBox(Box(0, 0, 20000, 1), (20000.0, 1.0), False), 1)
    assert (found == 255).all()


def test_a_square_of_other_memory_or_of_more_than_its_box_is_refused():
    decoder, data, part = jpeg.load(), encoded(smooth(40, 30)), ScaledBox(Box(0, 0, 8, 8), (1.0, 1.0), False)
    for out in (np.empty((8, 9, 3), np.uint8), np.empty((8, 8, 3), np.int8), np.empty((8, 16, 3), np.uint8)[:, ::2]):
        with pytest.raises(ValueError, match="contiguous bytes"):
            decoder.square(data, 1, (40, 30), part, out)
    for scale in (2.0, 0.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="are more than"):
            decoder.square(data, 1, (40, 30), part._replace(scale=(1.0, scale)), np.empty((8, 8, 3), np.uint8))
    assert not decoder.square(data, 1, (7, 30), part, np.empty((8, 8, 3), np.uint8))


def files_of_all_kinds():
    picture = Image.blend(smooth(90, 70), Image.fromarray(noise(90, 70)), 0.2)
    yield "usual", encoded(picture)
    yield "large", encoded(picture.resize((700, 500)), quality=60)
    yield "grey", encoded(picture.convert("L"))
    yield "CMYK", encoded(picture.convert("CMYK"))
    yield "RGB", encoded(picture, keep_rgb=True)
    yield "progressive", encoded(picture, progressive=True)
    for orientation in (0, 1, 3, 6):
        exif = Image.Exif()
        exif[0x0112] = orientation
        yield f"EXIF {orientation}", encoded(picture, exif=exif)
    yield "cut off", encoded(picture)[:-300]
    yield "cut off inside", encoded(picture)[:-300] + b"\xff\xd9"


@pytest.mark.parametrize("data", [pytest.param(data, id=name) for name, data in files_of_all_kinds()])
@pytest.mark.parametrize("kind", ["aspect", "scale"])
def test_crops_are_the_same_without_the_decoder(data, kind, monkeypatch):
    """To the bit, or the same sentence."""
    view = View(kind, 48, (55, 103))

    def crops():
        for i, u in enumerate(view.numbers(0, 0, np.arange(12))[0]):
            try:
                yield view(data, u, i % 2 == 1).tobytes()
            except BadImageError as bad:
                yield str(bad)

    found = list(crops())
    decode_by("PIL", monkeypatch)
    assert found == list(crops())


def test_only_exif_that_turns_the_picture_needs_pil(monkeypatch):
    decoded = []
    monkeypatch.setattr(Opened, "_decode_by_pil", lambda self, shrink: decoded.append(self.orientation))
    for name, data in files_of_all_kinds():
        if name in ("usual", "EXIF 1"):
            assert Opened(data).pixels().shape == (70, 90, 3)
        elif name == "EXIF 6":
            Opened(data).pixels()
    assert decoded == [6]


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


@pytest.mark.parametrize("options", [{}, {"subsampling": 0, "restart_marker_blocks": 2}, {"optimize": True}], ids=str)
def test_any_damage_of_the_codes_is_judged_by_pil(options, monkeypatch):
    """Pixels of a damaged file are those of PIL, also where it is still a valid code. PIL refuses a few more."""
    data, draw = encoded(smooth(64, 48), quality=90, **options), random.Random(str(options))
    start = data.index(b"\xff\xda") + 14
    files = []
    for _ in range(150):
        damaged = bytearray(data)
        for _ in range(draw.choice([1, 1, 3])):
            damaged[draw.randrange(start, len(data) - 2)] = draw.choice([0, 255, 0xD0, draw.randrange(256)])
        files.append(bytes(damaged))
    header, out = jpeg.load().header(data), np.empty(3 * 64 * 48, np.uint8)
    accepted = sum(jpeg.load().part(file, 1, header.size, Box(0, 0, 64, 48), out) for file in files)
    assert 3 < accepted < 140  # both kinds were met
    found = [_describe(file) for file in files]
    decode_by("PIL", monkeypatch)
    differ = [(ours, pil) for ours, pil in zip(found, map(_describe, files), strict=True) if ours != pil]
    assert all(isinstance(ours, bytes) and isinstance(pil, str) for ours, pil in differ)
    assert len(differ) < 5


def _describe(data):
    try:
        return Opened(data).pixels().tobytes()
    except BadImageError as bad:
        return str(bad)


def test_a_library_that_scales_otherwise_than_torch_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(jpeg.ctypes, "CDLL", lambda _: None)
    loaded = jpeg.load()
    monkeypatch.setattr(jpeg, "Jpeg", lambda _: loaded)
    assert jpeg._open(tmp_path / "library.so") is loaded
    monkeypatch.setattr(jpeg, "resize_by_torch", lambda *_: np.zeros((7, 7, 3), np.uint8))
    with pytest.raises(NotBuiltError, match="wrong pixels"):
        jpeg._open(tmp_path / "library.so")


def test_a_library_that_decodes_nothing_is_not_used(monkeypatch, tmp_path):
    monkeypatch.setattr(jpeg.Jpeg, "part", lambda *_: False)
    monkeypatch.setattr(jpeg.ctypes, "CDLL", lambda _: jpeg.load())
    monkeypatch.setattr(jpeg.Jpeg, "__init__", lambda self, library: None)
    monkeypatch.setattr(jpeg.Jpeg, "header", lambda self, data: ((40, 50), False))
    with pytest.raises(NotBuiltError, match="wrong pixels"):
        jpeg._open(tmp_path / "library.so")
