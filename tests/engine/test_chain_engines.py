"""Other systems by the engines: exported, estimated, and refused where only residual units make sense."""

import json

import pytest
import torch

import resnets
from resnets import UserError
from resnets.chain import Chain
from resnets.engine import freeze, prepare
from resnets.engine.chain_memory import count_chain
from resnets.engine.inference import inference
from resnets.engine.memory_estimate import forecast
from resnets.evaluation.activation_map import activation_map

EVERY_LAYER = Chain(
    "every",
    (
        "a: drop:0.2 conv:12:3 lrn:5:0.0001:0.75 prelu pool:max:3:s2:ceil drop:0.5:unscaled aux:0.3(linear:K)",
        "b: conv:12:2 maxout:2 highway:3:-2 elu pool:avg:3:p1",
        "c: mix(conv:4:1x3:nobias bn relu | pool:avg:3:p1:nopad conv:4:3 | pool:max:3:p1) sum:0.3(conv:14:3) relu",
        "d: linear:20 relu",
        "e: linear:K",
    ),
    input_size=12,
)
PYRAMID = Chain(
    "pyramid", ("a: conv:6:3 prelu pool:max:2:s2", "b: pyramid:4,3,1 linear:8 prelu", "linear:K"), input_size=13
)


@pytest.mark.parametrize(("chain", "open_size"), [(EVERY_LAYER, True), (PYRAMID, False)])
def test_every_layer_can_be_exported(tmp_path, chain, open_size):
    pytest.importorskip("onnxruntime")
    net = resnets.nn.build(chain, seed=0)
    for tensor in net.state_dict().values():
        if tensor.dim() == 1 and tensor.is_floating_point():
            tensor.uniform_(0.5, 1.5)
    done = resnets.export(net, tmp_path / "x.onnx")
    assert done.difference < 1e-5
    assert done.open_size == open_size
    fixed = resnets.export(net, tmp_path / "x.pt2")
    assert (fixed.difference < 1e-5, fixed.open_size) == (True, False)
    onnx = pytest.importorskip("onnx")
    known = {entry.key: entry.value for entry in onnx.load(tmp_path / "x.onnx").metadata_props}
    assert json.loads(known["spec"]) == chain.to_dict()
    assert ("no other size" in known["use"]) == (not open_size)


def test_what_is_not_exact_is_not_written(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    net = resnets.nn.build(EVERY_LAYER, seed=0)
    net.rows.a.pool1.ceil_mode = False
    with pytest.raises(UserError, match=r"only the every that net\.spec describes can be written as ONNX"):
        resnets.export(net, tmp_path / "x.onnx")
    assert not list(tmp_path.iterdir())


def test_engines_of_inference():
    net = resnets.nn.build(EVERY_LAYER, seed=0).eval()
    x = torch.randn(2, 3, 12, 12)
    with torch.no_grad():
        wanted = net(x)
    assert inference(net, "auto").engine == "plain"
    torch.testing.assert_close(inference(net, "auto")(x), wanted)
    with pytest.raises(
        UserError, match="engine frozen computes residual units, and every has none; choose engine plain"
    ):
        inference(net, "frozen")
    pytest.importorskip("onnxruntime")
    torch.testing.assert_close(inference(net, "onnxruntime")(x), wanted, rtol=1e-4, atol=1e-5)


def test_what_runs_residual_units_refuses_others():
    net = resnets.nn.build(EVERY_LAYER)
    with pytest.raises(UserError, match="freeze takes a residual network of this package, not ChainNet"):
        freeze(net)
    with pytest.raises(UserError, match="prepare runs residual units, and every has none"):
        prepare(net)
    with pytest.raises(UserError, match="analyze measures residual units, and every has none"):
        resnets.analyze(net, "synthetic:64")


def test_the_memory_of_training_is_estimated_from_shapes():
    parameters, numbers = count_chain(EVERY_LAYER, (12, 12))
    net = resnets.nn.build(EVERY_LAYER)
    assert parameters == sum(p.numel() for p in net.parameters())
    assert numbers > sum(t.numel() for t in net.parameters()) // 100
    one, two = (forecast(EVERY_LAYER, batch, 12) for batch in (8, 16))
    assert two.maps == 2 * one.maps


def test_evaluate_and_predict_take_both_kinds(tmp_path):
    data = resnets.open_data("synthetic:64")
    net = resnets.nn.build(resnets.spec_of("allcnn").thin(8), seed=0)
    resnets.save_weights(net, tmp_path / "a.safetensors")
    score = resnets.evaluate(tmp_path / "a.safetensors", data)
    assert score.images == len(data.test_images)
    assert score.context["network"]["kind"] == "chain"
    assert score.context["engine"] == "plain"
    picture = resnets.data.transform.to_picture(data.test_images[0])
    assert len(resnets.predict(net, [picture], top=3)[0].labels) == 3
    with pytest.raises(UserError, match="a class-activation map is drawn of residual networks, and allcnn is none"):
        activation_map(net, torch.zeros(1, 3, 32, 32), 0)
