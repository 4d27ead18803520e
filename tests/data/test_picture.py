"""One picture from a file, whatever its form."""

import numpy as np
import pytest
from PIL import Image

import resnets
from resnets.data.picture import open_picture, pictures_below


@pytest.fixture
def pixels():
    return np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)


def test_the_pixels_are_those_of_the_file(tmp_path, pixels):
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "a.png")), pixels)
    assert open_picture(tmp_path / "a.png", channels=1).mode == "L"


def test_a_turned_picture_stands_upright(tmp_path, pixels):
    exif = Image.Exif()
    exif[0x0112] = 6  # shown turned a quarter clockwise
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(np.asarray(open_picture(tmp_path / "a.png")), np.rot90(pixels, -1))


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path):
    deep = (np.arange(54, dtype=np.uint16) * 1200).reshape(6, 9)
    Image.fromarray(deep).save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "a.png"))[..., 0], deep >> 8)


def test_what_is_transparent_is_white(tmp_path, pixels):
    layer = np.dstack([pixels, np.zeros((6, 9), np.uint8)])
    Image.fromarray(layer).save(tmp_path / "a.png")
    assert (np.asarray(open_picture(tmp_path / "a.png")) == 255).all()


@pytest.mark.parametrize(
    ("data", "message"),
    [(None, "there is no file"), (b"", "is no picture"), (b"GIF89a", "is no picture"), (b"text", "it is none of JPEG")],
)
def test_what_is_no_picture_is_told(tmp_path, data, message):
    if data is not None:
        (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(resnets.UserError, match=message):
        open_picture(tmp_path / "a.jpg")


def test_a_picture_cut_short_is_told(tmp_path, pixels):
    Image.fromarray(np.tile(pixels, (20, 20, 1))).save(tmp_path / "a.jpg")
    (tmp_path / "a.jpg").write_bytes((tmp_path / "a.jpg").read_bytes()[:2000])
    with pytest.raises(resnets.UserError, match=r"a\.jpg is no picture that can be read"):
        open_picture(tmp_path / "a.jpg")


def test_pictures_below_a_folder_come_in_order(tmp_path):
    (tmp_path / "z").mkdir()
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.png", "z/c.webp"):
        (tmp_path / name).touch()
    assert [str(p.relative_to(tmp_path)) for p in pictures_below(tmp_path)] == ["a.png", "b.JPG", "z/c.webp"]
