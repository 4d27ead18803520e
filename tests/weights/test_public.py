"""Public weights by name: the table against the publishers' own libraries, and fetching from a server of our own."""

import contextlib
import dataclasses
import hashlib
import http.server
import io
import json
import re
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from PIL import Image

import peers
import resnets
from benchmarks.peers import import_torchvision
from resnets.cli import main
from resnets.data.transform import transform_of
from resnets.metadata import Metadata
from resnets.progress import Silent
from resnets.weights import pretrained, public
from resnets.weights.layouts import recognise
from resnets.weights.networks import to_peer
from resnets.weights.public import PUBLIC
from resnets.weights.recognition import infer_spec

THEIRS = {"googlenet_bn": "googlenet"}  # torchvision's names where they differ from ours
PLAIN = ("--engine", "plain")  # the caches of these tests are empty, and compiling kernels takes long
TORCHVISION = [row for row in PUBLIC.values() if row.publisher == "torchvision"]
TIMM = [row for row in PUBLIC.values() if row.publisher == "timm"]


@pytest.fixture(scope="module")
def torchvision():
    try:
        return import_torchvision()
    except ModuleNotFoundError as error:
        pytest.skip(f"torchvision is not installed ({error})")


@pytest.fixture(scope="module")
def timm(torchvision):
    return pytest.importorskip("timm")


def picture(width, height):
    rng = np.random.default_rng(width)
    small = rng.integers(0, 256, (height // 8, width // 8, 3), dtype=np.uint8)
    return Image.fromarray(small).resize((width, height), Image.Resampling.BICUBIC)


# --- the table --------------------------------------------------------------------------------


@pytest.mark.parametrize("row", TORCHVISION, ids=lambda row: row.name)
def test_a_row_is_what_torchvision_says(row, torchvision):
    weights = torchvision.models.get_model_weights(THEIRS.get(row.network, row.network))
    theirs = weights["IMAGENET1K_V2" if "tv2" in row.name else "IMAGENET1K_V1"]
    assert theirs.url == row.address
    metrics = theirs.meta["_metrics"]["ImageNet-1K"]
    assert (row.top1, row.top5) == (metrics["acc@1"], metrics["acc@5"])
    assert row.mebibytes == round(theirs.meta["_file_size"])
    assert row.digits in theirs.url
    seen = theirs.transforms()
    assert row.preprocessing.crop == seen.crop_size[0]
    assert row.preprocessing.resize == seen.resize_size[0]


@pytest.mark.parametrize("row", TIMM, ids=lambda row: row.name)
def test_a_row_is_what_timm_says(row, timm):
    theirs = timm.get_pretrained_cfg(row.file.removeprefix("timm/"))
    assert theirs.hf_hub_id == row.file
    side = (theirs.test_input_size or theirs.input_size)[-1]
    share = (theirs.test_crop_pct if theirs.test_input_size else None) or theirs.crop_pct
    seen = row.preprocessing
    assert (seen.crop, seen.resize) == (side, int(side / share))
    assert (seen.mean, seen.std, seen.interpolation) == (theirs.mean, theirs.std, theirs.interpolation)
    assert row.licence.lower() == theirs.license


@pytest.mark.parametrize("row", PUBLIC.values(), ids=lambda row: row.name)
def test_their_tensors_are_our_network(row, build_peer):
    """By names and shapes, on the meta device; test_peers and test_other_weights compare the numbers."""
    name = row.file.removeprefix("timm/").partition(".")[0] if row.on_hub else THEIRS.get(row.network, row.network)
    options = {"init_weights": False} if not row.on_hub and name in ("googlenet", "inception_v3") else {}
    with torch.device("meta"):
        theirs = build_peer(row.publisher, name, **options)
    tensors = theirs.state_dict()
    spec = infer_spec(tensors, recognise(tensors), "file")
    assert (spec.name, spec.num_classes) == (row.network, 1000)


@pytest.mark.parametrize("size", [(300, 420), (231, 224), (288, 288), (900, 310)], ids=str)
@pytest.mark.parametrize("name", ["resnet50.tv_in1k", "resnet50.tv2_in1k"])
def test_preprocessing_equals_torchvisions(name, size, torchvision):
    row = PUBLIC[name]
    weights = torchvision.models.ResNet50_Weights
    theirs = (weights.IMAGENET1K_V2 if "tv2" in name else weights.IMAGENET1K_V1).transforms()
    ours = transform_of(Metadata(preprocessing=row.preprocessing), resnets.spec_of(row.network))
    assert (ours(picture(*size)) - theirs(picture(*size))).abs().max() < 1e-6


@pytest.mark.parametrize("size", [(300, 420), (231, 224), (288, 288)], ids=str)
@pytest.mark.parametrize("name", ["preresnet50.a1h_in1k", "inception_resnet_v2.tf_in1k"])
def test_preprocessing_equals_timms(name, size, timm):
    from timm.data import create_transform

    row = PUBLIC[name]
    theirs = timm.get_pretrained_cfg(row.file.removeprefix("timm/"))
    side = row.preprocessing.crop
    share = theirs.test_crop_pct or theirs.crop_pct
    seen = create_transform(
        (3, side, side), crop_pct=share, interpolation=theirs.interpolation, mean=theirs.mean, std=theirs.std
    )
    ours = transform_of(Metadata(preprocessing=row.preprocessing), resnets.spec_of(row.network))
    assert (ours(picture(*size)) - seen(picture(*size))).abs().max() < 1e-6


def test_interpolation_is_kept_in_a_file(tmp_path):
    net = resnets.create("resnet18", widths=(4, 4, 4, 4), num_classes=5, seed=0)
    net.metadata = Metadata(preprocessing=PUBLIC["resnet18.a1_in1k"].preprocessing)
    resnets.save_weights(net, tmp_path / "a.safetensors")
    found = resnets.load(tmp_path / "a.safetensors")
    assert found.metadata.preprocessing == net.metadata.preprocessing
    assert "bicubic" in found.transform.name


def test_class_names_are_those_of_wordnet(torchvision, shared_weights):
    names, folders = pretrained.read_imagenet_classes()
    assert len(names) == len(folders) == len(set(folders)) == 1000
    assert list(folders) == sorted(folders)
    theirs = torchvision.models.ResNet18_Weights.IMAGENET1K_V1.meta["categories"]
    same = sum(ours == other for ours, other in zip(names, theirs, strict=True))
    assert same > 950  # torchvision changes some, as the two cranes


# --- fetching ---------------------------------------------------------------------------------


class Server(http.server.ThreadingHTTPServer):
    """Serves `files` by path; `cut` breaks each answer off after so many bytes."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.cut, self.asked = {}, None, []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        server.asked.append((self.path, asked))
        if self.path not in server.files:
            return self.send_error(404)
        body = server.files[self.path]
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(body[start:][: server.cut])

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    """A mirror that the environment names, and an empty cache."""
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv(public.ADDRESS, f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("RESNETS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def small(server, monkeypatch):
    """A row whose file is 40,000 bytes of no meaning."""
    body = np.random.default_rng(0).bytes(40_000)
    row = dataclasses.replace(PUBLIC["resnet18.tv_in1k"], file=f"resnet18-{hashlib.sha256(body).hexdigest()[:8]}.pth")
    monkeypatch.setitem(PUBLIC, row.name, row)
    server.files[f"/{row.file}"] = body
    return row, body


def folder():
    return pretrained.weights_dir()


def listed():
    return sorted(path.name for path in folder().iterdir()) if folder().exists() else []


def test_a_file_is_fetched_once_and_checked(small, server):
    row, body = small
    path = pretrained.file_of(row.name, Silent())
    assert path == folder() / row.file
    assert path.read_bytes() == body
    assert pretrained.file_of(row.name, Silent()) == path
    assert server.asked == [(f"/{row.file}", None)]
    assert listed() == [row.file]
    assert path.stat().st_mode & 0o777 == 0o644


def test_a_wrong_hash_is_refused_and_leaves_nothing(small, server):
    row, body = small
    server.files[f"/{row.file}"] = body[::-1]
    with pytest.raises(resnets.UserError, match=rf"gave a file with sha256 [0-9a-f]{{64}}, not {row.digits}; it was"):
        pretrained.file_of(row.name, Silent())
    assert listed() == []


def test_a_download_that_breaks_off_is_resumed(small, server):
    row, body = small
    server.cut = 15_000
    with pytest.raises(resnets.UserError, match="cut off after 30,000 of 40,000 bytes"):  # two requests
        pretrained.file_of(row.name, Silent())
    assert listed() == [f"{row.file}.part"]
    path = pretrained.file_of(row.name, Silent())
    assert path.read_bytes() == body
    assert [asked for _, asked in server.asked] == [None, "bytes=15000-", "bytes=30000-"]
    assert listed() == [row.file]


def test_a_wrong_beginning_is_fetched_anew(small, server):
    row, body = small
    folder().mkdir(parents=True)
    (folder() / f"{row.file}.part").write_bytes(b"x" * 100)
    (folder() / f"{row.file}.part").chmod(0o600)
    assert pretrained.file_of(row.name, Silent()).read_bytes() == body
    assert [asked for _, asked in server.asked] == ["bytes=100-", None]


def test_a_damaged_file_in_the_cache_is_replaced(small, server, capsys):
    row, body = small
    folder().mkdir(parents=True)
    (folder() / row.file).write_bytes(body[:-1])
    assert pretrained.file_of(row.name).read_bytes() == body
    assert f"skipped: {folder() / row.file} does not have the sha256 {row.digits}" in capsys.readouterr().err


def test_a_file_of_torch_hub_is_used(small, server, tmp_path):
    row, body = small
    there = tmp_path / "torch" / "hub" / "checkpoints" / row.file
    there.parent.mkdir(parents=True)
    there.write_bytes(body)
    assert pretrained.file_of(row.name, Silent()) == there
    assert server.asked == []


def test_what_to_do_without_the_file_is_said(small, server):
    row, _ = small
    del server.files[f"/{row.file}"]
    advice = f"Not Found. Without a network, get {row.official} elsewhere and put it into {folder()} as {row.file};"
    with pytest.raises(resnets.UserError, match=re.escape(advice)):
        pretrained.file_of(row.name, Silent())


def test_what_to_do_without_a_network_is_said(small, monkeypatch, capsys):
    row, _ = small
    with socket.socket() as nobody:  # a port that nobody listens on
        nobody.bind(("127.0.0.1", 0))
        monkeypatch.setenv(public.ADDRESS, f"http://127.0.0.1:{nobody.getsockname()[1]}")
        assert main(["eval", row.name, "--data", "imagenet:nowhere"]) == 2
    said = capsys.readouterr().err
    assert said.splitlines()[-1].startswith(f"resnets: {row.name} is not in the cache and could not be fetched")
    assert f"put it into {folder()} as {row.file}" in said


def test_a_file_that_was_put_there_needs_no_network(small, monkeypatch):
    row, body = small
    monkeypatch.setenv(public.ADDRESS, "http://127.0.0.1:9")
    folder().mkdir(parents=True)
    (folder() / row.file).write_bytes(body)
    assert pretrained.file_of(row.name, Silent()) == folder() / row.file


def test_a_cache_that_cannot_be_written_is_named(small, monkeypatch, tmp_path):
    row, _ = small
    (tmp_path / "file").write_bytes(b"")
    for cache in ("/proc/nothing", str(tmp_path / "file")):  # which even root cannot write into
        monkeypatch.setenv("RESNETS_CACHE", cache)
        with pytest.raises(
            resnets.UserError, match=rf"cannot write {cache}/weights: .*; set RESNETS_CACHE to a folder"
        ):
            pretrained.file_of(row.name, Silent())


# --- from a name to a network -----------------------------------------------------------------


@pytest.fixture(scope="module")
def resnet18():
    """A ResNet-18 as torchvision saves it."""
    net = peers.randomize(resnets.create("resnet18", stride_on="3x3", seed=0)).eval()
    data = io.BytesIO()
    torch.save(to_peer(net, "torchvision"), data)
    return net, data.getvalue()


@pytest.fixture
def published(resnet18, server, monkeypatch):
    net, body = resnet18
    row = dataclasses.replace(PUBLIC["resnet18.tv_in1k"], file=f"resnet18-{hashlib.sha256(body).hexdigest()[:8]}.pth")
    monkeypatch.setitem(PUBLIC, row.name, row)
    server.files[f"/{row.file}"] = body
    return net


def test_create_and_load_by_name(published):
    x = torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    expected = published(x)
    net = resnets.load("resnet18.tv_in1k")
    assert torch.equal(net.eval()(x), expected)
    assert net.classes[:2] == ("tench", "goldfish")
    assert net.metadata.folders[0] == "n01440764"
    assert net.metadata.provenance["source"].startswith("torchvision's resnet18-")
    assert net.transform.name == "crop 224 of 256"
    for name, word in (("resnet18", True), ("resnet18", "tv_in1k"), ("resnet18.tv_in1k", True)):
        assert pretrained.name_of(name, word) == "resnet18.tv_in1k"
    new = resnets.create("resnet18", pretrained=True, num_classes=5, seed=1)
    assert new.classifier.weight.shape == (5, 512)
    assert torch.equal(new.stem.conv.weight, published.stem.conv.weight)


def test_predict_eval_and_train_by_name(published, tmp_path, capsys):
    for wnid in ("n01440764", "n01443537"):
        for part in ("train", "val"):
            (tmp_path / "set" / part / wnid).mkdir(parents=True)
            picture(96, 80).save(tmp_path / "set" / part / wnid / "a.png")
    image = str(tmp_path / "set" / "val" / "n01440764" / "a.png")
    assert main(["predict", image, "--weights", "resnet18.tv_in1k", "--json", "--top", "1", *PLAIN]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    x = resnets.load("resnet18.tv_in1k").transform(Image.open(image))[None]
    assert found["classes"][0]["name"] == pretrained.read_imagenet_classes()[0][int(published(x).argmax())]
    assert main(["eval", "resnet18.tv_in1k", "--data", str(tmp_path / "set"), "--json", "--crop", "64@64", *PLAIN]) == 0
    assert json.loads(capsys.readouterr().out)["images"] == 2
    run = resnets.train(
        "resnet18", str(tmp_path / "set"), "finetune", weights="resnet18.tv_in1k", length="1it", lr=0.0, batch=2,
        weight_decay=0.0, out=str(tmp_path / "runs"), quiet=True, test=False, engine="plain",
    )  # fmt: skip
    tuned = resnets.load(run.weights)
    assert tuned.spec.num_classes == 2
    assert torch.equal(tuned.units[0].residual.conv1.weight, published.units[0].residual.conv1.weight)


def test_a_file_of_another_network_is_refused(published, server, monkeypatch):
    row = dataclasses.replace(PUBLIC["resnet34.tv_in1k"], file=PUBLIC["resnet18.tv_in1k"].file)
    monkeypatch.setitem(PUBLIC, row.name, row)
    with pytest.raises(resnets.UserError, match=r"holds resnet18 with 1000 classes, which is not resnet34\.tv_in1k"):
        resnets.load("resnet34.tv_in1k")


def test_a_pickle_with_an_object_is_refused(server, monkeypatch, tmp_path):
    torch.save({"conv1.weight": Path("code")}, tmp_path / "bad.pth")
    body = (tmp_path / "bad.pth").read_bytes()
    row = dataclasses.replace(PUBLIC["resnet18.tv_in1k"], file=f"resnet18-{hashlib.sha256(body).hexdigest()[:8]}.pth")
    monkeypatch.setitem(PUBLIC, row.name, row)
    server.files[f"/{row.file}"] = body
    with pytest.raises(resnets.UserError, match="holds a Python object"):
        resnets.load("resnet18.tv_in1k")


def test_weights_of_timm_come_from_the_hub(server):
    """Under the name of the network here and under timm's; the hub's pointer states the sha256."""
    net = peers.randomize(resnets.create("preresnet18", stride_on="3x3", stem_activation=False, seed=0)).eval()
    body = safetensors.torch.save(to_peer(net, "timm"))
    digest, place = hashlib.sha256(body).hexdigest(), "/timm/resnetv2_18.ra4_e3600_r224_in1k"
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(body)}\n"
    server.files |= {
        f"{place}/raw/main/model.safetensors": pointer.encode(),
        f"{place}/resolve/main/model.safetensors": body,
    }
    x = torch.randn(1, 3, 64, 64, generator=torch.Generator().manual_seed(0))
    found = resnets.load("timm/resnetv2_18.ra4_e3600_r224_in1k").eval()
    assert torch.equal(found(x), net(x))
    assert found.transform.name == "crop 288 of 288, bicubic"
    assert found.metadata.preprocessing.mean == (0.5, 0.5, 0.5)
    assert pretrained.file_of("preresnet18.ra4_in1k", Silent()).exists()
    assert len(server.asked) == 2
    assert listed() == [f"resnetv2_18.ra4_e3600_r224_in1k-{digest[:8]}.safetensors"]
    (folder() / listed()[0]).unlink()
    server.files[f"{place}/raw/main/model.safetensors"] = b"<html>"
    with pytest.raises(resnets.UserError, match="does not state the sha256"):
        resnets.load("preresnet18.ra4_in1k")
    (folder() / "resnetv2_18.ra4_e3600_r224_in1k.safetensors").write_bytes(body)  # put there by hand
    assert pretrained.file_of("preresnet18.ra4_in1k", Silent()).read_bytes() == body


def test_a_detector_begins_with_vgg_by_name(server, monkeypatch, tmp_path):
    """The convolutions alone are read; those of the classifier may be of any size."""
    from resnets.detector_spec import detector_of
    from resnets.weights.detectors import begin_detector
    from resnets.weights.vgg import list_names

    spec = detector_of("faster_rcnn_vgg16", num_classes=2)
    tensors = {}
    for name, (into, out) in list_names(spec.backbone):
        tensors |= {f"{name}.weight": torch.full((out, into, 3, 3), 0.5), f"{name}.bias": torch.zeros(out)}
    data = io.BytesIO()
    torch.save({**tensors, "classifier.0.weight": torch.zeros(1)}, data)
    body = data.getvalue()
    row = dataclasses.replace(PUBLIC["vgg16.tv_in1k"], file=f"vgg16-{hashlib.sha256(body).hexdigest()[:8]}.pth")
    monkeypatch.setitem(PUBLIC, row.name, row)
    server.files[f"/{row.file}"] = body
    start = begin_detector("vgg16.tv_in1k", spec, ("a", "b"))
    assert start.tensors["backbone.features.0.weight"].unique().tolist() == [0.5]
    assert row.file in start.sentence


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: resnets.create("preresnet164", pretrained=True), "there are no pretrained weights of preresnet164"),
        (lambda: resnets.create("resnet50", pretrained="a1h_in1k"), "'resnet50.a1h_in1k'; there are resnet50.tv_in1k"),
        (lambda: resnets.create("resnet50.tv_in1k", pretrained="tv"), "names its training already"),
        (lambda: resnets.create("resnet51", pretrained=True), "unknown network 'resnet51'"),
        (lambda: resnets.create("resnet50", pretrained=True, stem="cifar"), "stem cannot be combined with pretrained"),
        (lambda: resnets.load("resnet200.tv_in1k"), "'resnet200.tv_in1k'; with tv_in1k there are resnet18"),
        (lambda: resnets.load("resnet50.tv_in1k", network="resnet50"), "leave out --network"),
    ],
)  # fmt: skip
def test_mistakes_are_answered_without_a_download(call, sentence, small, server, monkeypatch):
    row, _ = small
    monkeypatch.setitem(PUBLIC, "resnet50.tv_in1k", dataclasses.replace(PUBLIC["resnet50.tv_in1k"], file=row.file))
    with pytest.raises(resnets.UserError, match=re.escape(sentence)):
        call()


def test_models_lists_them(small, capsys):
    row, _ = small
    assert main(["models", "--pretrained", "--json"]) == 0
    rows = {found["name"]: found for found in json.loads(capsys.readouterr().out)}
    assert rows.keys() == {*pretrained.index(), *PUBLIC}
    assert rows["resnet50.tv_in1k"]["error"] == 23.87
    assert rows[row.name]["file"] is None
    path = pretrained.file_of(row.name, Silent())
    assert main(["models", "resnet18", "--pretrained", "--json"]) == 0
    rows = {found["name"]: found for found in json.loads(capsys.readouterr().out)}
    assert rows.keys() == {"resnet18.tv_in1k", "resnet18.a1_in1k"}
    assert rows[row.name]["file"] == str(path)
    assert main(["models", "--pretrained"]) == 0
    out = capsys.readouterr().out
    assert "the errors that the publishers state" in out
    assert "torchvision BSD-3-Clause, timm Apache-2.0" in out
    assert max(len(line) for line in out.splitlines() if "_in1k" in line and "@" in line) < 80
    assert main(["models", "--pretrained", "nothing*"]) == 2
