"""Small files that claim or unpack to much: each command stays below a bound above what it takes with torch loaded."""

import gzip
import io
import json
import os
import pickle
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import resnets
from resnets.metadata import Metadata, Preprocessing

pytestmark = pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from /proc")
GIB = 1024  # MiB
MEASURE = """
import sys
import torch, resnets.evaluation.predict, resnets.weights.convert, resnets.evaluation.evaluate, resnets.data.check
from resnets.cli import main
def peak():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) // 1024 for line in file if line.startswith("VmHWM"))
before = peak()
code = main(sys.argv[1:])
print(f"peak {peak() - before} code {code}", file=sys.stderr)
"""


def run(*words):
    """The exit code, MiB above what the process takes before the command, and what it says."""
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURE, *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, env=env, check=True)
    *_, peak, _, code = done.stderr.split()
    return int(code), int(peak), done.stderr


@pytest.fixture
def weights(tmp_path):
    """A small net for pictures of 32x32."""
    net = resnets.create("preresnet20", blocks=1, widths=(4, 8, 8), num_classes=5, seed=0)
    said = Metadata(preprocessing=Preprocessing((0.5,) * 3, (0.2,) * 3))
    resnets.save_weights(net, tmp_path / "net.safetensors", metadata=said.to_metadata())
    return tmp_path / "net.safetensors"


def flat(folder, name, mode, side, **options):
    """A picture of one colour: some hundred kilobytes, whatever its size."""
    folder.mkdir(exist_ok=True)
    Image.new(mode, (side, side), 100 if mode in ("L", "P") else (100,) * len(mode)).save(folder / name, **options)
    return folder / name


def test_many_large_pictures_wait_for_each_other(tmp_path, weights):
    first = flat(tmp_path / "pictures", "0.png", "L", 7000)
    for i in range(1, 6):
        os.link(first, first.with_name(f"{i}.png"))
    code, peak, told = run("predict", first.parent, "--weights", weights, "--json")
    assert (code, told.count("could not be read")) == (0, 0)
    assert peak < GIB  # 49 million pixels of four bytes, six times, are more


def test_a_picture_with_transparency_is_not_copied_more_than_twice(tmp_path, weights):
    code, peak, _ = run("predict", flat(tmp_path / "pictures", "0.png", "RGBA", 11_000), "--weights", weights)
    assert code == 0
    assert peak < GIB


@pytest.mark.parametrize(
    ("name", "options"), [("a.jpg", {"progressive": True}), ("a.webp", {"lossless": True, "quality": 0, "method": 0})]
)
def test_decoders_that_hold_more_copies_get_smaller_pictures(tmp_path, weights, name, options):
    path = flat(tmp_path / "pictures", name, "RGB", 8200, **options)
    code, peak, told = run("predict", path, "--weights", weights)
    assert code == 1
    assert "has 8200x8200 pixels, more than" in told
    assert peak < 200


def test_a_line_of_pixels_is_not_scaled_as_a_whole(tmp_path, weights):
    Image.new("L", (1, 1_000_000), 50).save(tmp_path / "line.png")
    code, peak, _ = run("predict", tmp_path / "line.png", "--weights", weights)
    assert (code, peak < 200) == (0, True)
    code, peak, told = run("predict", tmp_path / "line.png", "--weights", weights, "--multi-scale", "32,64")
    assert (code, peak < 200) == (1, True)
    assert "line.png has 1x1000000 pixels and is too long to be used whole" in told


# --- files that claim much --------------------------------------------------------------------


def refused(words, sentence):
    code, peak, told = run(*words)
    assert code == 2
    assert sentence in told
    assert "Traceback" not in told
    assert peak < GIB


def packed_tar(path, name, size):
    """A package whose member is `size` zeros; gzip makes a thousandth of it."""
    with gzip.open(path, "wb", 1) as packed:
        member = tarfile.TarInfo(name)
        member.size = size
        packed.write(member.tobuf())
        for _ in range(size >> 20):
            packed.write(bytes(1 << 20))
        packed.write(bytes(1024))


def test_an_archive_that_unpacks_to_gigabytes(tmp_path):
    packed_tar(tmp_path / "p.tgz", "package/model.json", 1200 << 20)
    refused(["import", tmp_path / "p.tgz", "-o", tmp_path / "o.safetensors"], "unpacks to more than 268,435,456 bytes")


def test_a_description_that_names_a_shard_many_times(tmp_path):
    model = {
        "modelTopology": {"model_config": {"config": {"layers": []}}},
        "weightsManifest": [{"paths": ["a.bin"] * 400, "weights": []}],
    }
    (tmp_path / "model.json").write_text(json.dumps(model))
    (tmp_path / "a.bin").write_bytes(bytes(4 << 20))
    refused(["import", tmp_path / "model.json", "-o", tmp_path / "o.safetensors"], "bytes of weights")


def torch_file(path, pickled, **members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a/data.pkl", pickled)
        archive.writestr("a/version", "3\n")
        for name, data in members.items():
            archive.writestr(f"a/{name}", data)
    return path


IMPORT = ["--network", "resnet20"]


def test_a_torch_file_that_unpacks_to_gigabytes(tmp_path):
    path = torch_file(tmp_path / "w.pth", pickle.dumps({}, protocol=2), more=bytes(600 << 20))
    refused(["import", path, "-o", tmp_path / "o.safetensors", *IMPORT], "torch does not compress weights")


@pytest.mark.parametrize("kind", ["zip", "legacy"])
def test_a_pickle_that_asks_for_gigabytes(tmp_path, kind):
    pickled = b"\x80\x02cbuiltins\nbytearray\n\x8a\x05\x00\x00\x00\x80\x00\x85R."  # bytearray(1 << 31)
    assert pickle.loads(pickled[:-10] + b"\x8a\x01\x07\x85R.") == bytearray(7)
    path = tmp_path / "w.pth"
    if kind == "zip":
        torch_file(path, pickled)
    else:
        torch.save({}, path, _use_new_zipfile_serialization=False)
        head = io.BytesIO(path.read_bytes())
        for _ in range(3):
            pickle.load(head)
        path.write_bytes(head.getvalue()[: head.tell()] + pickled)
    refused(["import", path, "-o", tmp_path / "o.safetensors", *IMPORT], "holds bytearray, which no weights need")


def test_weights_that_ask_for_a_vast_crop(tmp_path, weights):
    net = resnets.load(weights)
    said = Metadata(preprocessing=Preprocessing((0.5,) * 3, (0.2,) * 3, crop=12_000, resize=12_000))
    resnets.save_weights(net, weights, metadata=said.to_metadata())
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    refused(["predict", tmp_path / "a.png", "--weights", weights], "and that at most 1,024")


@pytest.mark.parametrize(
    "pickled", [b"\x80\x02Nr\xff\xff\xff\x0f.", b"\x80\x05\x96" + struct.pack("<Q", 1 << 32) + b"."]
)
def test_a_pickle_of_some_bytes(tmp_path, pickled, monkeypatch):
    """One asks for a place in a memo of four gigabytes, one for as many bytes."""
    from resnets.data.unpickle import read_batch

    loaded = []
    monkeypatch.setattr("resnets.data.unpickle._Reader", lambda *args: loaded.append(args))
    with pytest.raises(resnets.UserError, match="is not a CIFAR batch"):
        read_batch(pickled, "here")
    assert not loaded  # it was refused before it was unpickled


def test_a_text_that_a_pickle_encodes_many_times():
    from resnets.data.unpickle import read_batch

    text = b"X" + struct.pack("<I", 1 << 20) + b"a" * (1 << 20) + b"q\x01"
    pickled = b"\x80\x02](c_codecs\nencode\nq\x00" + text + b"h\x00h\x01\x85R" * 1000 + b"e."
    with pytest.raises(resnets.UserError, match="it encodes more bytes than it has"):
        read_batch(pickled, "here")


def test_idx_files_that_are_none(tmp_path):
    from resnets.data.idx import read_idx

    many = struct.pack(">HBB", 0, 8, 65) + struct.pack(">65I", *[1] * 65) + b"x"
    with pytest.raises(resnets.UserError, match="is not an IDX file of bytes"):
        read_idx(many, "here")
    with pytest.raises(resnets.UserError, match=r"here, unpacked, has more than 67,108,864 bytes"):
        read_idx(gzip.compress(struct.pack(">HBBI", 0, 8, 1, 80 << 20) + bytes(80 << 20), 1), "here")


@pytest.mark.parametrize("header", [b"{'descr': '<f4', 'shape': (", b"(" * 900, b"\xff\xfe", b""])
def test_a_broken_cache_is_passed_over(tmp_path, header):
    from resnets.data.fetch import _open_cache
    from resnets.data.sets import DATASETS

    path = tmp_path / "cifar10.npy"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
    with pytest.raises(resnets.UserError, match="is broken"):
        _open_cache(DATASETS["cifar10"], path, "here")
    np.savez(path.with_suffix(".npz"), a=np.zeros(3))
    path.with_suffix(".npz").rename(path)
    with pytest.raises(resnets.UserError, match="is broken"):
        _open_cache(DATASETS["cifar10"], path, "here")
