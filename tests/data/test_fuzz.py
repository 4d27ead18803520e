"""Three thousand mutated files: each becomes pixels or a sentence; nothing crashes, hangs or stays open."""

import os
import random
import re

import numpy as np
import pytest

from pictures import DECODERS, decode_by, encoded, smooth
from resnets.data import decode as module
from resnets.data.decode import BadImageError, Opened
from resnets.data.random_crops import View
from tools.torture.mutation import mutate

FILES = 1000  # for each decoder
VIEW = View("aspect", 16, (0, 0))


def originals():
    """A file of every kind that decoders have code of their own for."""
    from PIL import Image

    picture = smooth(48, 36)
    exif = Image.Exif()
    exif[0x0112] = 6
    yield encoded(picture)
    yield encoded(picture, progressive=True, optimize=True)
    yield encoded(picture, subsampling=0, restart_marker_blocks=2)
    yield encoded(picture.convert("L"))
    yield encoded(picture.convert("CMYK"))
    yield encoded(picture, exif=exif, comment=b"a comment", icc_profile=b"x" * 300)
    yield encoded(picture, "PNG")
    yield encoded(picture.convert("P"), "PNG", transparency=bytes(range(200)))
    yield encoded(picture.convert("RGBA"), "PNG")
    yield encoded(Image.fromarray(np.arange(48 * 36, dtype=np.uint16).reshape(36, 48)), "PNG")


def open_files():
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@pytest.mark.parametrize("decoder", DECODERS)
def test_mutated_files_do_no_harm(decoder, monkeypatch):
    decode_by(decoder, monkeypatch)
    monkeypatch.setattr(module, "MOST", 1 << 20)  # larger sizes, which a mutation may claim, would only take time
    draw = random.Random(decoder)
    numbers, _ = VIEW.numbers(0, 0, np.arange(FILES))
    before, good, told = open_files(), 0, set()
    kinds = list(originals())
    for u in numbers:
        data = mutate(draw.choice(kinds), draw)
        try:
            assert VIEW(data, u).shape == (16, 16, 3)
            opened = Opened(data)
            pixels = opened.pixels()
            assert pixels.shape == (opened.size[1], opened.size[0], 3)
            assert all(isinstance(note, str) for note in opened.notes)
            good += 1
        except BadImageError as bad:
            told.add(str(bad))
    assert open_files() == before
    assert 100 < good < FILES - 100  # both kinds were met
    assert all(re.fullmatch(r"(cannot be decoded \(.+\)|has .+|is empty)", sentence) for sentence in told)
