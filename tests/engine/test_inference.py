"""Which engine a word means, and what plain and frozen keep of the network."""

import pytest
import torch
from variants import trained

from resnets.engine.frozen import Frozen
from resnets.engine.inference import choose_engine as chosen
from resnets.engine.inference import inference
from resnets.errors import UserError


def test_auto_is_frozen_on_a_cpu_and_plain_elsewhere():
    assert chosen("auto", "cpu") == "frozen"
    assert chosen("auto", "cuda") == "plain"
    assert chosen("frozen", "cuda:1") == "frozen"
    assert isinstance(inference(trained()).scores, Frozen)


@pytest.mark.parametrize(
    ("engine", "device", "message"),
    [
        ("onnxrt", "cpu", "unknown engine 'onnxrt': did you mean onnxruntime"),
        ("openvino", "cuda", "engine 'openvino' runs on the CPU here, not on cuda"),
    ],
)
def test_mistakes(engine, device, message):
    with pytest.raises(UserError, match=message):
        inference(trained(), engine, device)


@pytest.mark.parametrize("engine", ["plain", "frozen"])
def test_the_function_is_of_the_network_as_it_was(engine):
    net, x = trained(), torch.randn(2, 3, 16, 16)
    run = inference(net, engine)
    assert net.training
    net.eval()
    wanted = net(x).detach()
    assert not run(x).requires_grad
    torch.testing.assert_close(run(x), wanted, rtol=1e-5, atol=1e-5)
    for tensor in net.state_dict().values():
        tensor.zero_()
    torch.testing.assert_close(run(x), wanted, rtol=1e-5, atol=1e-5)
