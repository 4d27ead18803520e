"""Our own files: what is written is read back, and nothing half-written stays."""

import errno
import json
import os
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

import peers
import resnets
from resnets.unit_spec import SHORTCUTS
from resnets.weights.networks import read_spec, to_peer

NARROW = (8, 16, 32, 64)
FAMILIES = [
    ("resnet20", {}),
    ("preresnet20", {}),
    ("plain20", {}),
    ("resnet110_1layer", {}),
    ("preresnet110_1layer", {}),
    ("resnet164", {"blocks": 2}),
    ("preresnet164", {"blocks": 2, "num_classes": 100}),
    ("preresnet1001", {"blocks": 1}),
    ("resnet1202", {"blocks": 1}),
    ("resnet18", {}),
    ("preresnet18", {"widths": NARROW, "stem_activation": False}),
    ("plain18", {"widths": NARROW, "num_classes": 5}),
    ("resnet50", {"widths": NARROW}),
    ("preresnet50", {"widths": NARROW, "in_channels": 1}),
    *[("resnet20", {"blocks": 1, "shortcut": kind}) for kind in SHORTCUTS if kind != "plain"],
    *[("resnet20", {"blocks": 1, "order": order}) for order in ("bn_after_add", "relu_before_add", "relu_preact")],
    *[("preresnet20", {"blocks": 1, "resize": r, "share_activation": "resize"}) for r in ("pad_both", "pad_pool")],
]


def tiny(name="resnet20", **changes):
    return peers.randomize(resnets.create(name, **{"blocks": 1, **changes}))


def same(a, b):
    a, b = a.state_dict(), b.state_dict()
    return list(a) == list(b) and all(torch.equal(a[k], b[k]) and a[k].dtype == b[k].dtype for k in a)


@pytest.mark.parametrize(("name", "changes"), FAMILIES, ids=lambda v: v if isinstance(v, str) else str(v or ""))
def test_round_trip(tmp_path, name, changes):
    net = peers.randomize(resnets.create(name, **changes)).eval()
    path = tmp_path / "net.safetensors"
    resnets.save_weights(net, path)
    again = resnets.load(path).eval()
    assert again.spec == net.spec == read_spec(path)
    assert same(again, net)
    size = max(net.spec.min_size, 16)
    x = torch.randn(2, net.spec.in_channels, size, size)
    with torch.no_grad():
        assert torch.equal(again(x), net(x))
    other = resnets.create(name, seed=9, **changes)
    report = resnets.load_weights(other, path)
    assert same(other, net)
    assert str(report) == f"Loaded {len(net.state_dict())} tensors named as in resnets."


@pytest.mark.parametrize(("source", "name", "changes"), [
    ("torchvision", "resnet18", {"widths": NARROW}),
    ("timm", "resnet50", {"widths": NARROW}),
    ("timm", "preresnet50", {"widths": NARROW, "stem_activation": False}),
    ("akamaster", "resnet20", {"resize": "pad_both"}),
])  # fmt: skip
def test_round_trip_in_the_format_of_a_peer(tmp_path, source, name, changes):
    net = peers.randomize(resnets.create(name, **changes))
    path = tmp_path / "net.safetensors"
    resnets.save_weights(net, path, format=source)
    for asked in ("auto", source):
        other = resnets.create(name, seed=9, **changes)
        resnets.load_weights(other, path, source=asked)
        assert same(other, net)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64], ids=str)
def test_dtype_and_memory_format_survive(tmp_path, dtype):
    net = tiny().to(dtype).to(memory_format=torch.channels_last)
    path = tmp_path / "net.safetensors"
    resnets.save_weights(net, path)
    assert same(resnets.load(path, device="cpu"), net)
    wide = tiny(seed=9, dtype=torch.float64)
    resnets.load_weights(wide, path)
    assert same(wide.to(dtype), net)
    peer = to_peer(tiny(resize="pad_both").to(dtype).to(memory_format=torch.channels_last), "akamaster")
    assert all(t.is_contiguous() and t.device.type == "cpu" and not t.requires_grad for t in peer.values())


def test_float64_values_beyond_float32_survive(tmp_path):
    net = tiny(dtype=torch.float64)
    with torch.no_grad():
        net.classifier.bias[0] = 1e300
    path = tmp_path / "net.safetensors"
    resnets.save_weights(net, path)
    assert resnets.load(path).classifier.bias[0] == 1e300


def test_loaded_nets_train_and_share_nothing_with_the_file(tmp_path):
    path = tmp_path / "net.safetensors"
    resnets.save_weights(tiny(), path)
    before = path.read_bytes()
    net = resnets.load(path)
    assert net.training
    assert all(p.requires_grad for p in net.parameters())
    net(torch.randn(2, 3, 32, 32)).sum().backward()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(p.grad)
    assert path.read_bytes() == before


def test_header_says_what_is_inside(tmp_path):
    path = tmp_path / "net.safetensors"
    net = tiny(num_classes=3)
    resnets.save_weights(net, path, metadata={"error": "8.75", "dataset": "CIFAR-10 été"})
    with safe_open(path, framework="pt") as file:
        header = file.metadata()
    assert json.loads(header.pop("resnets.spec")) == net.spec.to_dict()
    assert header == {
        "format": "pt",
        "resnets.version": resnets.__version__,
        "error": "8.75",
        "dataset": "CIFAR-10 été",
    }


@pytest.mark.parametrize(
    ("metadata", "word"), [({"format": "x"}, "'format'"), ({"resnets.spec": "x"}, "'resnets.spec'"), ({"n": 1}, "1")]
)
def test_metadata_that_cannot_be_kept_is_refused(tmp_path, metadata, word):
    with pytest.raises(resnets.UserError, match=word):
        resnets.save_weights(tiny(), tmp_path / "net", metadata=metadata)
    assert list(tmp_path.iterdir()) == []


def test_the_spec_is_read_without_the_tensors(tmp_path, monkeypatch):
    path = tmp_path / "net.safetensors"
    net = tiny()
    resnets.save_weights(net, path)
    monkeypatch.setattr("resnets.weights.files.read", None)
    assert read_spec(str(path)) == net.spec


def test_files_have_the_usual_permissions(tmp_path):
    path, usual = tmp_path / "net.safetensors", tmp_path / "usual"
    resnets.save_weights(tiny(), path)
    usual.touch()
    assert path.stat().st_mode == usual.stat().st_mode


@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()], ids=repr)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, where, error):
    path = tmp_path / "net.safetensors"
    resnets.save_weights(tiny(), path)
    before = path.read_bytes()

    def fail(*_):
        raise error

    monkeypatch.setattr(where, fail)
    with pytest.raises(resnets.UserError if isinstance(error, OSError) else KeyboardInterrupt) as caught:
        resnets.save_weights(tiny(seed=1), path)
    if isinstance(error, OSError):
        assert str(caught.value).startswith(f"cannot write {path}: the disk is full; earlier files are intact")
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for path in ("folder", "absent/net", "file/net"):
        with pytest.raises(resnets.UserError, match=f"^cannot write {tmp_path / path}: "):
            resnets.save_weights(tiny(), tmp_path / path)
    assert sorted(tmp_path.iterdir()) == [tmp_path / "file", tmp_path / "folder"]
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_net_that_left_its_spec_is_not_written(tmp_path):
    net = tiny()
    net.classifier = torch.nn.Linear(64, 3)
    with pytest.raises(resnets.UserError, match=r"classifier\.weight, classifier\.bias: set net\.spec"):
        resnets.save_weights(net, tmp_path / "net")
    with pytest.raises(resnets.UserError, match="no weights to write"):
        resnets.save_weights(resnets.create("resnet20", device="meta"), tmp_path / "net")
    assert list(tmp_path.iterdir()) == []


def test_paths_may_be_text_or_path(tmp_path):
    net = tiny()
    resnets.save_weights(net, str(tmp_path / "net"))
    assert same(resnets.load(str(tmp_path / "net")), resnets.load(Path(tmp_path / "net")))


def test_the_same_net_is_the_same_bytes(tmp_path):
    net = resnets.create("preresnet20", blocks=1, seed=0)
    metadata = {word: word for word in "abcdefgh"}
    for name in ("a", "b"):
        resnets.save_weights(net, tmp_path / name, metadata=metadata)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    with safe_open(tmp_path / "a", framework="pt") as file:
        assert file.metadata()["h"] == "h"
