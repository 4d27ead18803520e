"""Broken copies of CIFAR, of IDX files and of ImageNet's archives."""

from __future__ import annotations

import gzip
import io
import random
import struct
import tarfile
from pathlib import Path

import numpy as np

from resnets.data.archive import read_archive
from resnets.data.idx import read_idx
from resnets.data.layouts import read_files
from resnets.data.prepare import META, TRUTH
from resnets.data.sets import CIFAR10
from tests.data.conftest import Tiny, _describe, _rows, official_pickle
from tools.torture.command import run
from tools.torture.mutation import mutate, near_front
from tools.torture.pictures import encoded, smooth

FORMS = ("binary", "python", "sheets")


def idx(values: np.ndarray) -> bytes:
    return struct.pack(">HBB", 0, 8, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape) + values.tobytes()


def pack(files: dict[str, bytes], mode: str = "w:gz") -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode=mode) as tar:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return file.getvalue()


def meta() -> bytes | None:
    """As the official meta.mat, with three classes; None without scipy."""
    try:
        from scipy.io import savemat
    except ImportError:
        return None
    kind = [(n, object) for n in ("ILSVRC2012_ID", "WNID", "words", "num_children", "num_train_images")]
    rows = [(i, f"n0000000{i}", "a, b", 0, 2) for i in (1, 2, 3)] + [(4, "n00001740", "entity", 3, 0)]
    file = io.BytesIO()
    savemat(file, {"synsets": np.array(rows, kind).reshape(-1, 1)}, do_compression=True)
    return file.getvalue()


class Archives:
    """One broken file for a reader, or for `data fetch` and `data prepare`."""

    def __init__(self, folder: Path) -> None:
        rows = _rows(np.repeat(np.arange(10), 2), np.arange(10), seed=10)
        self.tiny = Tiny(rows, _describe(CIFAR10, rows, (20, 10), official=True))
        self.files = {form: self.tiny.files(form) for form in FORMS}
        self.packed = {
            form: pack({f"{self.tiny.layout(form).folder}/{name}": data for name, data in files.items()})
            for form, files in self.files.items()
        }
        self.idx = idx(np.arange(2 * 28 * 28, dtype=np.uint8).reshape(2, 28, 28))
        self.batch = official_pickle(rows[:2])
        self.meta = meta()
        self.image = encoded(smooth(12, 9))

    def attack(self, draw: random.Random, folder: Path) -> None:
        ways = [self._idx, self._files, self._archive, self._fetch]
        draw.choice(ways + [self._prepare] * (self.meta is not None))(draw, folder)

    def _idx(self, draw: random.Random, folder: Path) -> None:
        data = mutate(self.idx, draw) if draw.random() < 0.7 else self.idx
        if draw.random() < 0.5:
            data = near_front(gzip.compress(data), draw)
        read_idx(data, "broken.idx")

    def _files(self, draw: random.Random, folder: Path) -> None:
        form = draw.choice(FORMS)
        files, layout = dict(self.files[form]), self.tiny.layout(form)
        name = draw.choice(sorted(files))
        files[name] = near_front(files[name], draw)
        read_files(self.tiny.known, layout, files, "broken")

    def _archive(self, draw: random.Random, folder: Path) -> None:
        form = draw.choice(FORMS)
        layout, path = self.tiny.layout(form), folder / "broken.tgz"
        data = self.packed[form]
        if draw.random() < 0.6:  # broken inside of what gzip has packed
            data = gzip.compress(near_front(gzip.decompress(data), draw), 1)
        path.write_bytes(near_front(data, draw) if draw.random() < 0.5 else data)
        read_archive(path, [f"{layout.folder}/{name}" for name in layout.files])

    def _fetch(self, draw: random.Random, folder: Path) -> None:
        if draw.random() < 0.5:
            self._fetch_idx(draw, folder)
            return
        form = draw.choice(FORMS)
        layout = self.tiny.layout(form)
        place = folder / layout.folder
        place.mkdir(parents=True)
        for name, data in self.files[form].items():
            (place / name).write_bytes(near_front(data, draw))
        run("data", "fetch", "cifar10", "--dir", folder)

    def _fetch_idx(self, draw: random.Random, folder: Path) -> None:
        suffix = draw.choice(("", ".gz"))
        for part in ("train", "t10k"):
            for what in ("images-idx3", "labels-idx1"):
                data = near_front(self.idx, draw)
                data = gzip.compress(data) if suffix else data
                (folder / f"{part}-{what}-ubyte{suffix}").write_bytes(data)
        run("data", "fetch", "fashion-mnist", "--dir", folder)

    def _prepare(self, draw: random.Random, folder: Path) -> None:
        root = "ILSVRC2012_devkit_t12"
        found = near_front(self.meta or b"", draw) if draw.random() < 0.5 else self.meta or b""
        truth = mutate(b"3\n1\n2\n", draw) if draw.random() < 0.5 else b"3\n1\n2\n"
        data = pack({f"{root}/{META}": found, f"{root}/{TRUTH}": truth})
        (folder / "devkit.tar.gz").write_bytes(near_front(data, draw) if draw.random() < 0.3 else data)
        val = pack({f"ILSVRC2012_val_0000000{i}.JPEG": self.image for i in (1, 2, 3)}, "w")
        (folder / "val.tar").write_bytes(near_front(val, draw) if draw.random() < 0.6 else val)
        run("data", "prepare", "imagenet", "--devkit", "devkit.tar.gz", "--val", "val.tar", "--out", "imagenet")
