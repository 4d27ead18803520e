"""Damaged JPEG files under the sanitizers of the compiler: our reader of codes stays inside its memory."""

import random
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pictures import decode_by, encoded, smooth
from tools.torture.mutation import mutate

FLAGS = ("-std=c++17", "-O1", "-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined")


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    path = tmp_path_factory.mktemp("sanitized") / "program"
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no compiler")
    source = Path(__file__).with_name("sanitized_jpeg.cpp")
    for flags in (("-march=native",), ()):
        command = [compiler, *FLAGS, *flags, str(source), "-o", str(path), "-ljpeg"]
        if subprocess.run(command, capture_output=True, check=False).returncode == 0:
            return path
    pytest.skip("the compiler has no sanitizers")


def originals():
    for width, height in ((90, 70), (33, 200), (1, 1)):
        noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
        picture = Image.blend(smooth(width, height), Image.fromarray(noise), 0.4)
        yield encoded(picture)
        yield encoded(picture, subsampling=0, quality=100, optimize=True)
        yield encoded(picture, subsampling=1, restart_marker_blocks=1)
        yield encoded(picture.convert("L"), restart_marker_blocks=3)


def damage_codes(data, draw):
    """Change a few bytes behind the header."""
    damaged, start = bytearray(data), data.index(b"\xff\xda")
    for _ in range(draw.randint(1, 4)):
        damaged[draw.randrange(start, len(data))] = draw.choice([0, 255, draw.randrange(256)])
    return bytes(damaged)


def test_damaged_files_do_not_reach_foreign_memory(program, tmp_path, monkeypatch):
    decode_by("libjpeg", monkeypatch)
    draw, files = random.Random(0), list(originals())
    files += [change(draw.choice(files[:12]), draw) for change in (mutate, damage_codes) for _ in range(400)]
    paths = [tmp_path / f"{i}.jpg" for i in range(len(files))]
    for path, data in zip(paths, files, strict=True):
        path.write_bytes(data)
    done = subprocess.run([program, *paths], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert 4 * 12 < int(done.stdout) < 4 * len(files)  # the undamaged ones, and some of the others
