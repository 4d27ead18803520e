"""A CIFAR of thirty images, written in every form in which the real one is published."""

import dataclasses
import hashlib
import io
import json
import struct
import tarfile

import numpy as np
import pytest
from PIL import Image

from resnets.data.dataset_spec import RECORD, DatasetSpec
from resnets.data.sets import CIFAR10, CIFAR100


class Recorder:
    """A progress that keeps what it was told."""

    def __init__(self):
        self.notes = []
        self.tasks = []

    def note(self, text):
        self.notes.append(text)

    def task(self, what, total):
        import contextlib

        self.tasks.append((what, total))
        return contextlib.nullcontext(lambda steps: None)


@pytest.fixture
def recorder():
    return Recorder()


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """No cache, no data at hand, no network, no npm: an empty working folder."""
    monkeypatch.setenv("RESNETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RESNETS_DATA", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    return work


def _rows(train_labels, test_labels, seed):
    rows = np.empty(len(train_labels) + len(test_labels), RECORD)
    rng = np.random.default_rng(seed)
    rows["label"] = np.concatenate([rng.permutation(train_labels), rng.permutation(test_labels)])
    rows["image"] = rng.integers(0, 256, (len(rows), 3, 32, 32), dtype=np.uint8)
    return rows


def _describe(like, rows, counts, official, **changes):
    known = dataclasses.replace(
        like,
        counts=counts,
        batches=(),
        official="",
        layouts=tuple(dataclasses.replace(lay, md5="") for lay in like.layouts),
        download="http://127.0.0.1:9/" + like.download.rsplit("/", 1)[-1],  # the port that throws away
        **changes,
    )
    content = hashlib.sha256(known.canonical(rows).tobytes()).hexdigest()
    return dataclasses.replace(
        known, content=content, official=hashlib.sha256(rows.tobytes()).hexdigest() if official else ""
    )


@dataclasses.dataclass
class Tiny:
    """Rows, and the description under which they are a true CIFAR."""

    rows: np.ndarray
    known: DatasetSpec

    def layout(self, form):
        return next(lay for lay in self.known.layouts if lay.form == form)

    def parts(self, form):
        layout = self.layout(form)
        train = np.split(self.rows[: self.known.counts[0]], len(layout.train))
        return dict(zip(layout.train + layout.test, [*train, self.rows[self.known.counts[0] :]], strict=True))

    def files(self, form):
        parts, layout = self.parts(form), self.layout(form)
        if form == "binary":
            return {name: rows.tobytes() for name, rows in parts.items()}
        if form == "binary_fine":
            return {name: b"".join(b"\x07" + row.tobytes() for row in rows) for name, rows in parts.items()}
        if form == "python":
            key = "labels" if len(self.known.classes) == 10 else "fine_labels"
            return {name: official_pickle(rows, key) for name, rows in parts.items()}
        labels = self.rows["label"].tolist()
        lists = labels[: self.known.counts[0]], labels[self.known.counts[0] :]
        files = {name: json.dumps(values).encode() for name, values in zip(layout.extra, lists, strict=True)}
        return files | {
            name: png(rows["image"].reshape(-1, 3, 1024).transpose(0, 2, 1)) for name, rows in parts.items()
        }

    def write(self, form, root, files=None):
        folder = root / self.layout(form).folder
        folder.mkdir(parents=True)
        for name, data in (files or self.files(form)).items():
            (folder / name).write_bytes(data)
        return folder

    def pack(self, form, root, files=None):
        layout = self.layout(form)
        root.mkdir(parents=True, exist_ok=True)
        path = root / layout.archive.replace("*", "1.1.1")
        with tarfile.open(path, "w:gz") as tar:
            for name, data in (files or self.files(form)).items():
                member = tarfile.TarInfo(f"{layout.folder}/{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
        return path

    def write_folders(self, root):
        for number, row in enumerate(self.rows):
            part = "train" if number < self.known.counts[0] else "test"
            folder = root / part / self.known.classes[row["label"]]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{number}.png").write_bytes(png(row["image"].transpose(1, 2, 0)))
        return root

    def with_md5(self, path, form="binary"):
        """The description that knows this archive."""
        md5 = hashlib.md5(path.read_bytes()).hexdigest()
        layouts = (dataclasses.replace(lay, md5=md5) if lay.form == form else lay for lay in self.known.layouts)
        return dataclasses.replace(self.known, layouts=tuple(layouts))


def png(pixels):
    file = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(file, "PNG")
    return file.getvalue()


def official_pickle(rows, key="labels"):
    """A batch as Python 2 wrote it, protocol 2: every str is a BINSTRING, the array is numpy.core's."""

    def text(data):
        return b"U" + bytes([len(data)]) + data if len(data) < 256 else b"T" + struct.pack("<i", len(data)) + data

    def whole(value):
        return b"J" + struct.pack("<i", value)

    dtype = (
        b"cnumpy\ndtype\n" + text(b"u1") + b"K\x00K\x01\x87R(K\x03" + text(b"|") + b"NNN" + whole(-1) * 2 + b"K\x00tb"
    )
    array = b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text(b"b") + b"\x87R(K\x01"
    array += whole(len(rows)) + whole(3072) + b"\x86" + dtype + b"\x89" + text(rows["image"].tobytes()) + b"tb"
    labels = b"](" + b"".join(whole(int(label)) for label in rows["label"]) + b"e"
    names = b"](" + text(b"a_s_1.png") * len(rows) + b"e"
    items = text(b"data") + array + text(key.encode()) + labels + text(b"batch_label") + text(b"batch 1")
    return b"\x80\x02}(" + items + text(b"filenames") + names + b"u."


@pytest.fixture(scope="session")
def tiny():
    """Like CIFAR-10: five training files, 2 and 1 images a class; its batches' hashes are known."""
    rows = _rows(np.repeat(np.arange(10), 2), np.arange(10), seed=10)
    known = _describe(CIFAR10, rows, (20, 10), official=True)
    parts = Tiny(rows, known).parts("binary").values()
    return Tiny(rows, dataclasses.replace(known, batches=tuple(hashlib.md5(p.tobytes()).hexdigest() for p in parts)))


@pytest.fixture(scope="session")
def tiny100():
    """Like CIFAR-100: one training file, 1 image a class; known by its content only."""
    rows = _rows(np.arange(100), np.arange(100), seed=100)
    return Tiny(rows, _describe(CIFAR100, rows, (100, 100), official=False))
