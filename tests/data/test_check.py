"""`resnets data check`: what it counts, what it names, and its exit code."""

import numpy as np
import pytest
from PIL import Image

from pictures import encoded, smooth, tree
from resnets.cli import main


@pytest.fixture
def folder(tmp_path):
    tree(tmp_path / "train")
    tree(tmp_path / "val", each=1)
    return tmp_path


def test_a_good_folder(folder, capsys):
    assert main(["data", "check", str(folder)]) == 0
    told = capsys.readouterr()
    assert "train: 12 images of 3 classes, 4 to 4 a class; shorter sides 30 to 30 pixels, 30 in the middle" in told.out
    assert "val: 3 images of 3 classes, 1 to 1 a class" in told.out
    assert "decoding train: 100 %" in told.err


def test_odd_images_are_counted_and_bad_ones_named(folder, capsys):
    exif = Image.Exif()
    exif[0x0112] = 6
    frames = [smooth(9, 9, seed).quantize() for seed in range(2)]
    odd = {
        "grey.png": encoded(smooth(9, 9).convert("L"), "PNG"),
        "cmyk.jpg": encoded(smooth(9, 9).convert("CMYK")),
        "deep.png": encoded(Image.fromarray(np.full((9, 9), 40_000, np.uint16)), "PNG"),
        "turned.jpg": encoded(smooth(9, 9), exif=exif),
        "moving.gif": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "empty.jpg": b"",
        "cut.jpg": encoded(smooth(99, 99))[:-50],
    }
    for name, data in odd.items():
        (folder / "train" / "dog" / name).write_bytes(data)
    assert main(["data", "check", str(folder)]) == 1
    out = capsys.readouterr().out
    assert "train: 19 images of 3 classes, 4 to 11 a class; shorter sides 9 to 30 pixels" in out
    for line in (
        "  1 greyscale",
        "  1 CMYK",
        "  1 I;16",
        "  1 turned by EXIF",
        "  1 animated",
        "  1 palette",
        "  2 bad",
    ):
        assert line in out.splitlines(), out
    assert f"{folder}/train/dog/empty.jpg is empty" in out
    assert f"{folder}/train/dog/cut.jpg cannot be decoded" in out
    assert main(["data", "check", str(folder), "--bad-images", "skip"]) == 0


def test_bad_words_are_told(folder, capsys):
    assert main(["data", "check", str(folder), "--bad-images", "ignore"]) == 2
    assert main(["data", "check", str(folder / "gone")]) == 2
    told = capsys.readouterr().err
    assert "unknown policy for bad images 'ignore': choose one of error, skip." in told
    assert "there is no folder" in told


def test_an_animation_whose_later_pictures_are_broken_is_good(folder, capsys):
    whole = encoded(smooth(9, 9).quantize(), "GIF")
    begun = b"\x2c" + bytes(9)  # a second picture, of which there is the head alone
    (folder / "train" / "dog" / "moving.gif").write_bytes(whole.removesuffix(b"\x3b") + begun)
    assert main(["data", "check", str(folder)]) == 0
    assert "  1 animated" in capsys.readouterr().out
