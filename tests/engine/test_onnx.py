"""ONNX Runtime and OpenVINO against the network itself, in float64."""

import sys

import pytest
import torch
from variants import VARIANTS, relative, trained

from resnets.engine.inference import inference
from resnets.errors import UserError

SHAPES = ((3, 24, 24), (2, 19, 25))


def test_the_graph_is_valid_and_open_in_batch_and_size():
    onnx = pytest.importorskip("onnx")
    from resnets.engine.onnx import export

    model = onnx.load_from_string(export(trained(order="full_preact")))
    onnx.checker.check_model(model, full_check=True)
    (images,), (scores,) = model.graph.input, model.graph.output
    sides = [[d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim] for v in (images, scores)]
    assert sides == [["batch", 3, "height", "width"], ["batch", 10]]


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
@pytest.mark.parametrize("options", VARIANTS.values(), ids=VARIANTS)
def test_the_scores_are_the_networks(engine, options):
    pytest.importorskip("onnx")
    pytest.importorskip(engine)
    net = trained(**options)
    run = inference(net, engine)
    assert net.training
    exact = net.double().eval()
    found = []
    for batch, height, width in SHAPES:
        x = torch.randn(batch, net.spec.in_channels, height, width)
        found.append((run(x.contiguous(memory_format=torch.channels_last)), exact(x.double()).detach()))
    for scores, wanted in found:  # a later call must not write into an earlier one's result
        assert relative(scores, wanted) < 1e-5
    with pytest.raises(UserError, match="reads batches of shape"):
        run(torch.randn(1, 7, 24, 24))


@pytest.mark.parametrize(
    ("engine", "missing", "extra"),
    [
        ("onnxruntime", "onnxruntime", "onnx"),
        ("onnxruntime", "onnx", "onnx"),
        ("openvino", "openvino", "openvino"),
        ("openvino", "onnx", "openvino"),
    ],
)
def test_a_missing_package_is_named_with_its_extra(monkeypatch, engine, missing, extra):
    pytest.importorskip(engine)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(UserError, match=rf"needs {missing}; install it with pip install 'resnets\[{extra}\]'"):
        inference(trained(), engine)
