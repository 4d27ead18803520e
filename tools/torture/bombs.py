"""Small files that claim or unpack to much more than there is memory for."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

from resnets.data.archive import read_archive
from resnets.data.idx import read_idx
from resnets.data.unpickle import read_batch
from tools.torture.command import run
from tools.torture.pickles import torch_legacy, torch_zip
from tools.torture.runs import Prepared
from tools.torture.weights import THIN, split_header, torch_file, with_header
from tools.torture.worker import Draw

CHUNK = 1 << 24
DEEP = b"[" * 200_000


def gzip_bomb(head: bytes, size: int, tail: bytes = b"") -> bytes:
    """A small gzip file of the head, `size` zeros and the tail: one compressed chunk, repeated.

    It has no valid checksum, which a reader reaches only at the end.
    """

    def packed(data: bytes) -> bytes:
        packer = zlib.compressobj(9, zlib.DEFLATED, -15)
        return packer.compress(data) + packer.flush(zlib.Z_FULL_FLUSH)

    body = packed(head) + packed(bytes(CHUNK)) * (size // CHUNK) + packed(tail) + b"\x03\x00"
    total = len(head) + size + len(tail)
    return b"\x1f\x8b\x08" + bytes(6) + b"\xff" + body + struct.pack("<II", 0, total & 0xFFFFFFFF)


def tar_bomb(name: str, size: int) -> bytes:
    """A compressed tar with one member of `size` zeros."""
    member = tarfile.TarInfo(name)
    member.size = size
    return gzip_bomb(member.tobuf(), size, bytes(1024))


def flat_png(width: int, height: int, kind: int = 2, depth: int = 8) -> bytes:
    """A picture of one colour: kind 0 is grey, 2 RGB, 3 a palette, 6 with transparency."""
    samples = {0: 1, 2: 3, 3: 1, 6: 4}[kind]
    row = bytes(1 + -(-width * samples * depth // 8))
    packer, packed = zlib.compressobj(9), []
    many = max(1, CHUNK // len(row))
    for first in range(0, height, many):
        packed.append(packer.compress(row * min(many, height - first)))
    data = b"".join([*packed, packer.flush()])

    def chunk(name: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, 0)
    palette = chunk(b"PLTE", bytes(3)) + chunk(b"tRNS", bytes(1)) if kind == 3 else b""
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + palette + chunk(b"IDAT", data) + chunk(b"IEND", b"")


def large_pngs(folder: Path) -> list[Path]:
    """Within what is allowed, and beyond it; a flat picture of a hundred million pixels has some kilobytes."""
    sizes = (
        (11_500, 11_500, 2, 8), (11_500, 11_500, 6, 8), (11_500, 11_500, 0, 16), (11_500, 11_500, 3, 8),
        (1, 130_000, 2, 8), (130_000, 1_000, 2, 8), (60_000, 60_000, 0, 1), (2**31 - 1, 1, 0, 1), (30_000, 3_000, 2, 16)
    )  # fmt: skip
    for number, size in enumerate(sizes):
        (folder / f"large{number}.png").write_bytes(flat_png(*size))
    return [folder / f"large{number}.png" for number in range(len(sizes))]


def other_pictures(folder: Path) -> list[Path]:
    image = Image.new("RGB", (11_500, 11_500))
    image.save(folder / "large.jpg")
    image.save(folder / "large.tif", compression="tiff_deflate")
    image.convert("L").save(folder / "large.gif")
    return [folder / f"large.{ending}" for ending in ("jpg", "tif", "gif")]


def compressed_zip(name: str, size: int) -> bytes:
    """A torch file whose pickle is `size` zeros."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open(name, "w", force_zip64=True) as member:
            for _ in range(size // CHUNK):
                member.write(bytes(CHUNK))
        archive.writestr("archive/version", "3\n")
    return file.getvalue()


def laughs() -> bytes:
    """Nested lists, each with ten references to the next: small, but huge when printed."""
    found: Any = "ha" * 50
    for _ in range(12):
        found = [found] * 10
    return pickle.dumps(found, 2)


class Bombs(Prepared):
    """Each bomb in turn, for the command that would unpack it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.large, self.others = large_pngs(folder), other_pictures(folder)
        self.zip = compressed_zip("archive/data.pkl", 1 << 31)
        self.bombs = [value for name, value in sorted(vars(type(self)).items()) if name.startswith("bomb_")]

    def attack(self, draw: Draw, folder: Path) -> None:
        (folder / "p.jpg").write_bytes(self.picture)
        bomb: Callable[[Bombs, random.Random, Path], None] = self.bombs[draw.number % len(self.bombs)]
        self.doing = bomb.__name__
        bomb(self, draw, folder)

    # --- pictures ---

    def bomb_png(self, draw: random.Random, folder: Path) -> None:
        """Within what is allowed, and beyond it; a flat picture of a hundred million pixels has some kilobytes."""
        shutil.copy(draw.choice(self.large), folder / "big.png")
        run("predict", "big.png", *draw.choice(([], ["--ten-crop"], ["--cam", "cam.png"], ["--multi-scale", "64,128"])))

    def bomb_many_pictures(self, draw: random.Random, folder: Path) -> None:
        """Several large ones at once, which are decoded ahead."""
        for number in range(6):
            shutil.copy(self.large[0], folder / f"{number}.png")
        run("predict", *(f"{number}.png" for number in range(6)))

    def bomb_other_pictures(self, draw: random.Random, folder: Path) -> None:
        path = draw.choice(self.others)
        shutil.copy(path, folder)
        run("predict", path.name)

    # --- what weights say of themselves ---

    def bomb_words(self, draw: random.Random, folder: Path) -> None:
        """A huge crop, a network that is far larger than the file."""
        header, tensors = split_header(self.ours)
        words = header["__metadata__"]
        if draw.random() < 0.6:
            side = draw.choice((12_000, 100_000, 2**31, 10**18))
            seen = {"mean": [0.5] * 3, "std": [0.5] * 3, "crop": side, "resize": draw.choice((side, side + 10))}
            words["preprocessing"] = json.dumps(seen)
        else:
            spec = json.loads(words["resnets.spec"])
            field, value = draw.choice((
                ("widths", [10**5] * 3), ("widths", [2**40] * 3), ("blocks", [10**6] * 3), ("blocks", [10**12] * 3),
                ("num_classes", 10**9), ("num_classes", 2**62), ("in_channels", 2**40), ("kernels", [99_999, 3]),
            ))  # fmt: skip
            spec[field] = value
            words["resnets.spec"] = json.dumps(spec)
        (folder / "net.safetensors").write_bytes(with_header(header, tensors))
        commands = (["predict", "p.jpg", "--weights"], ["info"], ["eval", "--data", "synthetic:40"])
        run(*draw.choice((*commands, ["predict", "p.jpg", "--ten-crop", "--weights"])), "net.safetensors")

    def bomb_header(self, draw: random.Random, folder: Path) -> None:
        """A header that claims a length, a tensor that claims a shape."""
        header, tensors = split_header(self.ours)
        if draw.random() < 0.5:
            size = draw.choice((2**40, 2**63, 2**64 - 1, 10**8))
            data = size.to_bytes(8, "little") + b"{" + bytes(1000)
        else:
            name = draw.choice([key for key in header if key != "__metadata__"])
            header[name]["shape"] = draw.choice(([2**40], [2**62, 2], [10**9, 0], [1] * 10_000, [2**31, 2**31, 2**31]))
            data = with_header(header, tensors)
        (folder / "net.safetensors").write_bytes(data)
        run("info", "net.safetensors")

    def bomb_many_tensors(self, draw: random.Random, folder: Path) -> None:
        header: dict[str, Any] = {
            f"t{i}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for i in range(200_000)
        }
        (folder / "net.safetensors").write_bytes(with_header(header, b""))
        run("import", "net.safetensors", *THIN, "-o", "out.safetensors")

    # --- torch files ---

    def bomb_torch(self, draw: random.Random, folder: Path) -> None:
        data = draw.choice((self._wide, self._zip, self._laughs, self._claims))(draw)
        (folder / "net.pth").write_bytes(data)
        commands = (["import", "-o", "out.safetensors"], ["eval", "--data", "synthetic:40"])
        run(*draw.choice(commands), "net.pth", *THIN)

    @staticmethod
    def _wide(draw: random.Random) -> bytes:
        """Tensors that show one number many times, in the file once."""
        size = draw.choice((10**9, 10**12))
        names = ("conv1.weight", "fc.weight", "bn1.bias")
        return torch_file({name: torch.zeros(1).expand(size) for name in names}, legacy=draw.random() < 0.5)

    def _zip(self, draw: random.Random) -> bytes:
        return self.zip

    @staticmethod
    def _laughs(draw: random.Random) -> bytes:
        return draw.choice((torch_zip, torch_legacy, bytes))(laughs())

    @staticmethod
    def _claims(draw: random.Random) -> bytes:
        """Texts and bytes that claim to be longer than the file."""
        claim = draw.choice(
            (b"X\xff\xff\xff\x7f", b"B\xff\xff\xff\x7f", b"\x8d" + b"\xff" * 7 + b"\x7f", b"\x8b\xff\xff\xff\x7f")
        )
        return draw.choice((torch_zip, torch_legacy, bytes))(b"\x80\x04" + claim + b"abc.")

    # --- archives ---

    def bomb_package(self, draw: random.Random, folder: Path) -> None:
        name = draw.choice(("package/model/model.json", "package/model/group1-shard1.bin", "package/readme.md"))
        (folder / "package.tgz").write_bytes(tar_bomb(name, 4 << 30))
        run("import", "package.tgz", "-o", "out.safetensors")

    def bomb_cifar(self, draw: random.Random, folder: Path) -> None:
        path = folder / "cifar.tgz"
        path.write_bytes(tar_bomb("cifar-10-batches-bin/test_batch.bin", draw.choice((1 << 27, 1 << 28, 4 << 30))))
        read_archive(path, ["cifar-10-batches-bin/test_batch.bin"])

    def bomb_idx(self, draw: random.Random, folder: Path) -> None:
        claimed = struct.pack(">HBBIII", 0, 8, 3, 2**31, 2**31, 2**31)
        packed = gzip_bomb(claimed, 4 << 30)
        read_idx(draw.choice((claimed, packed)), "bomb.idx")

    def bomb_batch(self, draw: random.Random, folder: Path) -> None:
        read_batch(draw.choice((laughs(), self._claims(draw))), "bomb")

    def bomb_devkit(self, draw: random.Random, folder: Path) -> None:
        from resnets.data.prepare import META

        (folder / "devkit.tar.gz").write_bytes(tar_bomb(f"ILSVRC2012_devkit_t12/{META}", 4 << 30))
        run("data", "prepare", "imagenet", "--devkit", "devkit.tar.gz", "--out", "imagenet")

    def bomb_npy(self, draw: random.Random, folder: Path) -> None:
        """A kept data set that claims a shape. It is mapped, not read."""
        file = io.BytesIO()
        shape = draw.choice(((2**60,), (2**31, 2**31)))
        np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": shape})
        old, os.environ["RESNETS_CACHE"] = os.environ["RESNETS_CACHE"], str(folder / "cache")
        (folder / "cache").mkdir()
        (folder / "cache" / "cifar10.npy").write_bytes(file.getvalue() + bytes(1000))
        try:
            run("data", "fetch", "cifar10")
        finally:
            os.environ["RESNETS_CACHE"] = old

    # --- JSON ---

    def bomb_json(self, draw: random.Random, folder: Path) -> None:
        """Nested deeply, or a number of a million digits."""
        data = draw.choice(
            (DEEP, DEEP + b"]" * len(DEEP), b'{"a":' * 100_000 + b"1" + b"}" * 100_000, b"9" * 1_000_000)
        )
        place = folder / "runs" / self.run.name
        shutil.copytree(self.run, place)
        (folder / "theirs.safetensors").write_bytes(self.ours)
        name, command = draw.choice((
            (place / "config.json", ["runs", "runs"]),
            (place / "config.json", ["plot", place, "-o", "c.svg"]),
            (place / "result.json", ["runs", "runs"]),
            (place / "result.json", ["results", place, "-o", "o.json"]),
            (place / "metrics.jsonl", ["plot", place, "-o", "c.svg"]),
            (place / "metrics.jsonl", ["runs", "runs"]),
            (place / "metrics.jsonl", ["analyze", place, "--batch", "4"]),
            (folder / "a.json", ["report", "a.json", "-o", "page.html"]),
            (folder / "model.json", ["import", "model.json", "-o", "o.safetensors"]),
            (folder / "c.json", ["import", "theirs.safetensors", "--classes", "c.json", "-o", "o.safetensors"]),
        ))  # fmt: skip
        name.write_bytes(data)
        run(*command)

    def bomb_json_in_header(self, draw: random.Random, folder: Path) -> None:
        header, tensors = split_header(self.ours)
        key = draw.choice(sorted(header["__metadata__"]))
        header["__metadata__"][key] = draw.choice((DEEP.decode(), "9" * 1_000_000, '{"crop": ' + "9" * 10_000 + "}"))
        (folder / "net.safetensors").write_bytes(with_header(header, tensors))
        run(*draw.choice((["info"], ["predict", "p.jpg", "--weights"], ["export", "-o", "o.onnx"])), "net.safetensors")
