"""`resnets export`: other programs compute what PyTorch does, and read in the file how to feed it."""

import dataclasses
import json
import sys
import zipfile

import pytest
import torch

import resnets
from resnets.cli import main
from resnets.metadata import Metadata, Preprocessing
from resnets.weights import export as module

KINDS = {
    "basic": ("resnet20", {"blocks": 1, "widths": (4, 8, 8)}),
    "pooled": ("resnet20", {"blocks": 1, "widths": (4, 8, 8), "resize": "pad_pool"}),
    "bottleneck": ("preresnet50", {"blocks": 1, "widths": (4, 4, 8, 8), "num_classes": 5}),
    "gated": ("resnet110", {"blocks": 1, "widths": (4, 8, 8), "shortcut": "exclusive_gate:-1"}),
    "plain": ("plain20", {"blocks": 1, "widths": (4, 8, 8)}),
}


def made(kind):
    name, changes = KINDS[kind]
    net = resnets.create(name, seed=0, **changes)
    draw = torch.Generator().manual_seed(1)
    for tensor_name, tensor in net.state_dict().items():
        if "running" in tensor_name:
            tensor.uniform_(0.5, 1.5, generator=draw)
    return net


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def save(net, path="net.safetensors"):
    said = Metadata(
        tuple(f"class {i}" for i in range(net.spec.num_classes)),
        preprocessing=Preprocessing((0.1, 0.2, 0.3), (0.5, 0.6, 0.7), crop=48, resize=52),
        provenance={"source": "a test"},
    )
    resnets.save_weights(net, path, metadata=said.to_metadata())
    return path


@pytest.mark.parametrize("fold", [False, True], ids=["as it is", "folded"])
@pytest.mark.parametrize("kind", KINDS)
def test_onnx_runtime_computes_the_same_for_any_batch_and_size(here, capsys, kind, fold):
    onnx, runtime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    net = made(kind).eval()
    assert main(["export", save(net), *(["--fold"] if fold else []), "-o", "net.onnx"]) == 0
    assert "compared with PyTorch on three shapes" in capsys.readouterr().out
    session = runtime.InferenceSession("net.onnx", providers=["CPUExecutionProvider"])
    for shape in ((1, 3, 40, 52), (4, 3, 33, 47)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            torch.testing.assert_close(
                torch.from_numpy(session.run(None, {"images": x.numpy()})[0]), net(x), rtol=1e-4, atol=1e-4
            )
    model = onnx.load("net.onnx")
    norms = sum(node.op_type == "BatchNormalization" for node in model.graph.node)
    whole = sum(isinstance(m, torch.nn.BatchNorm2d) for m in net.modules())
    assert norms < whole if fold else norms == whole
    told = {prop.key: prop.value for prop in model.metadata_props}
    assert json.loads(told["preprocessing"])["crop"] == 48
    assert json.loads(told["classes"])[2] == "class 2"
    assert json.loads(told["provenance"]) == {"source": "a test"}
    assert "(x / 255 - [0.1, 0.2, 0.3]) / [0.5, 0.6, 0.7]" in told["use"]


@pytest.mark.parametrize(("normalize", "whitened"), [("gcn", False), ("gcn-zca", True)])
def test_the_file_of_a_net_for_whitened_images_says_so(normalize, whitened):
    net = resnets.create("allcnn", device="meta")
    net.metadata = Metadata(preprocessing=Preprocessing((0.1, 0.2, 0.3), (0.5, 0.6, 0.7), normalize))
    told = module.describe(net)["use"]
    assert "x less its own mean, times 55 / its length, less preprocessing.mean" in told
    assert ("times preprocessing.whitening" in told) == whitened
    assert "no other size" in told  # the mean image has one
    assert "0.1" not in told


@pytest.mark.parametrize(("kind", "fold"), [("basic", False), ("pooled", True), ("bottleneck", True)])
def test_torch_export_computes_the_same_for_any_batch_and_size(here, capsys, kind, fold):
    net = made(kind).eval()
    words = ["export", save(net), "--format", "torch-export", *(["--fold"] if fold else [])]
    assert main(words) == 0
    path = f"{net.spec.name}.pt2"
    assert capsys.readouterr().out.splitlines()[-1] == path
    loaded = torch.export.load(path).module()
    for shape in ((1, 3, 40, 52), (4, 3, 33, 47)):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():
            torch.testing.assert_close(loaded(x), net(x), rtol=1e-4, atol=1e-4)
    with zipfile.ZipFile(path) as archive:
        told = next(archive.read(name) for name in archive.namelist() if name.endswith("resnets.json"))
    assert json.loads(json.loads(told)["preprocessing"])["resize"] == 52


def test_a_graph_that_computes_something_else_is_not_written(here, capsys, monkeypatch):
    wrong = made("basic")
    with torch.no_grad():
        wrong.classifier.bias += 1
    pytest.importorskip("onnxruntime")
    exported = module.onnx_model
    monkeypatch.setattr(module, "onnx_model", lambda net, **options: exported(wrong, **options))
    assert main(["export", save(made("basic")), "-o", "net.onnx"]) == 2
    assert "differ from PyTorch's by" in capsys.readouterr().err
    assert not (here / "net.onnx").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["resnet20", "--format", "tflite"], "unknown format 'tflite'"),
        (["absent.safetensors"], "there is no file absent.safetensors"),
        (["net.safetensors", "--depth", "32"], "says itself what its network is"),
        (["net.safetensors", "-o", "absent/net.onnx"], "cannot write"),
    ],
)
def test_mistakes_in_export_get_one_sentence(here, capsys, words, message):
    save(made("basic"))
    assert main(["export", *words]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "file"),
    [("../out", "_out.pt2"), ("/tmp/x y", "_tmp_x_y.pt2"), (".profile", "profile.pt2"), ("..", "network.pt2")],
)
def test_the_name_in_a_file_of_weights_leads_nowhere_else(here, monkeypatch, name, file):
    (here / "inside").mkdir()
    monkeypatch.chdir(here / "inside")
    net = made("basic")
    net.spec = dataclasses.replace(net.spec, name=name)
    path = save(net)
    assert main(["export", path, "--format", "torch-export"]) == 0
    assert sorted(found.name for found in here.rglob("*") if found.is_file()) == sorted([file, "net.safetensors"])
    assert (here / "inside" / file).is_file()


@pytest.mark.parametrize("missing", ["onnx", "onnxruntime"])
def test_without_its_packages_the_error_speaks_of_exporting(here, capsys, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert main(["export", save(made("basic")), "-o", "net.onnx"]) == 2
    told = capsys.readouterr().err
    assert f"exporting to ONNX needs {missing}; install it with pip install 'resnets[onnx]'" in told
    assert not (here / "net.onnx").exists()
