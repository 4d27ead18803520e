"""One picture from a file, and the pictures in a folder."""

import numpy as np
import pytest
from PIL import Image

import resnets
from resnets.data.picture import open_picture, pictures_below


def test_the_pixels_are_those_of_the_file(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "a.png")), pixels)
    Image.fromarray(pixels[..., 0]).save(tmp_path / "b.png")
    assert np.array_equal(np.asarray(open_picture(tmp_path / "b.png", channels=1)), pixels[..., 0])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, r"a\.jpg cannot be read \(No such file"),
        (b"", r"a\.jpg is empty"),
        (b"text", r"a\.jpg cannot be decoded"),
    ],
)
def test_what_is_no_picture_is_told(tmp_path, data, message):
    if data is not None:
        (tmp_path / "a.jpg").write_bytes(data)
    with pytest.raises(resnets.UserError, match=message):
        open_picture(tmp_path / "a.jpg")


def test_a_network_of_other_channels_sees_no_pictures(tmp_path):
    with pytest.raises(resnets.UserError, match="the network reads 4"):
        open_picture(tmp_path / "a.jpg", channels=4)


def test_pictures_below_a_folder_come_in_order(tmp_path):
    (tmp_path / "z").mkdir()
    for name in ("b.JPG", "a.png", "notes.txt", ".hidden.png", "z/c.webp"):
        (tmp_path / name).touch()
    assert [str(p.relative_to(tmp_path)) for p in pictures_below(tmp_path)] == ["a.png", "b.JPG", "z/c.webp"]
