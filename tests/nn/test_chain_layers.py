"""Each layer that only chains have, against its formula in float64: forward and gradient."""

import math

import numpy as np
import pytest
import torch
from torch import nn

import resnets
from resnets.chain import Chain
from resnets.nn import ChainNet, build
from resnets.nn.chain import Highway, MapLinear, MaskDropout, Maxout, Mix, Pyramid, Sum, UnevenConv

DRAW = np.random.default_rng(0)


def check(layer, formula, shape=(2, 6, 5, 4)):
    """The layer computes the formula, and its gradients are the formula's slopes along random directions."""
    layer = layer.double()
    for parameter in layer.parameters():
        parameter.data = torch.from_numpy(DRAW.normal(size=parameter.shape))
    x = torch.from_numpy(DRAW.normal(size=shape)).requires_grad_()
    out = layer(x)
    np.testing.assert_allclose(out.detach().numpy(), formula(x.detach().numpy()), rtol=1e-10, atol=1e-12)
    weights = torch.from_numpy(DRAW.normal(size=out.shape))
    layer.zero_grad()
    (out * weights).sum().backward()
    step = 1e-6
    for tensor in (x, *layer.parameters()):
        direction = torch.from_numpy(DRAW.normal(size=tensor.shape))
        values = []
        with torch.no_grad():
            for sign in (1, -1):
                tensor.add_(direction, alpha=sign * step)
                values.append((formula(x.detach().numpy()) * weights.numpy()).sum())
                tensor.sub_(direction, alpha=sign * step)
        slope = (values[0] - values[1]) / (2 * step)
        assert float((tensor.grad * direction).sum()) == pytest.approx(slope, rel=1e-4, abs=1e-6)


def conv(x, weight, bias, pads=(0, 0, 0, 0), stride=(1, 1)):
    """A convolution, by the sum over the kernel."""
    x = np.pad(x, ((0, 0), (0, 0), pads[:2], pads[2:]))
    high, wide = weight.shape[2:]
    rows, columns = (x.shape[2] - high) // stride[0] + 1, (x.shape[3] - wide) // stride[1] + 1
    out = np.zeros((len(x), len(weight), rows, columns))
    for i in range(rows):
        for j in range(columns):
            window = x[:, :, i * stride[0] : i * stride[0] + high, j * stride[1] : j * stride[1] + wide]
            out[:, :, i, j] = np.tensordot(window, weight, ([1, 2, 3], [1, 2, 3]))
    return out + bias[:, None, None]


def array(tensor):
    return tensor.detach().numpy()


def test_maxout_is_the_largest_of_neighbouring_channels():
    check(Maxout(3), lambda x: np.stack([x[:, 0:3].max(1), x[:, 3:6].max(1)], 1))


def test_elu():
    check(nn.ELU(), lambda x: np.where(x > 0, x, np.expm1(x)))


def test_prelu_has_a_slope_for_each_channel():
    layer = build(Chain("p", ("p: conv:6:1 prelu", "linear:K"), input_size=4)).rows.p.prelu1
    assert layer.weight.shape == (6,)
    assert layer.weight.tolist() == [0.25] * 6
    check(layer, lambda x: np.where(x > 0, x, array(layer.weight)[:, None, None] * x))


def test_local_response_normalization():
    layer = build(Chain("l", ("l: conv:6:1 lrn:5:0.0001:0.75", "linear:K"), input_size=4)).rows.l.lrn1

    def formula(x):
        squares = np.pad(x**2, ((0, 0), (2, 2), (0, 0), (0, 0)))
        total = sum(squares[:, i : i + 6] for i in range(5))
        return x / (1 + 1e-4 / 5 * total) ** 0.75

    check(layer, formula)


def test_highway_gates():
    layer = Highway(6, (3, 3), -2.0)

    def formula(x):
        h, t = (conv(x, array(m.weight), array(m.bias), (1, 1, 1, 1)) for m in (layer.conv, layer.gate))
        t = 1 / (1 + np.exp(-t))
        return t * np.maximum(h, 0) + (1 - t) * x

    check(layer, formula)


def test_highway_gates_are_nearly_closed_at_first():
    net = resnets.create("highway19", seed=0)
    gate = net.rows.stage1_1.highway1.gate
    assert gate.bias.tolist() == [-2.0] * 32


def test_spatial_pyramid_pooling():
    def formula(x):
        found = []
        for side in (3, 2, 1):
            grid = np.zeros((*x.shape[:2], side, side))
            for i in range(side):
                for j in range(side):
                    top, bottom = i * 5 // side, math.ceil((i + 1) * 5 / side)
                    left, right = j * 4 // side, math.ceil((j + 1) * 4 / side)
                    grid[:, :, i, j] = x[:, :, top:bottom, left:right].max((2, 3))
            found.append(grid.reshape(len(x), -1))
        return np.concatenate(found, 1)[:, :, None, None]

    check(Pyramid((3, 2, 1)), formula)


def test_dropout_of_caffe_is_a_mask_in_training_and_its_expectation_in_testing():
    layer = MaskDropout(0.3)
    check(layer.eval(), lambda x: 0.7 * x)
    x = torch.ones(200, 500, 1, 1)
    out = layer.train()(x)
    assert set(out.unique().tolist()) == {0.0, 1.0}
    assert float(out.mean()) == pytest.approx(0.7, abs=0.01)


def windows(x, kernel, stride, reduce, *, ceil, pad=0, counted=True):
    """Pooling; windows are counted as torch counts them, and hang over the edge with `ceil`."""
    fill = -np.inf if reduce is np.max else 0.0
    padded = np.pad(x, ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=fill)
    inside = np.pad(np.ones_like(x), ((0, 0), (0, 0), (pad, pad), (pad, pad)), constant_values=1 if counted else 0)
    sides = []
    for side in padded.shape[2:]:
        number = (math.ceil if ceil else math.floor)((side - kernel) / stride) + 1
        sides.append(number - 1 if ceil and (number - 1) * stride >= side - pad else number)
    out = np.zeros((*x.shape[:2], *sides))
    for i in range(sides[0]):
        for j in range(sides[1]):
            part = np.s_[:, :, i * stride : i * stride + kernel, j * stride : j * stride + kernel]
            if reduce is np.max:
                out[:, :, i, j] = padded[part].max((2, 3))
            else:
                out[:, :, i, j] = padded[part].sum((2, 3)) / inside[part].sum((2, 3))
    return out


@pytest.mark.parametrize(
    "word", ["max:3:s2:ceil", "max:2:s2:ceil", "max:3:s2", "avg:3:p1", "avg:3:p1:nopad", "max:3:p1:s2"]
)
@pytest.mark.parametrize("side", [1, 5, 6, 7])
def test_pooling_with_and_without_windows_over_the_edge(word, side):
    kind, kernel, *more = word.split(":")
    stride, pad = (2 if "s2" in more else 1), (1 if "p1" in more else 0)
    try:
        net = build(Chain("p", (f"p: conv:6:1 pool:{word}", "linear:K"), input_size=side))
    except resnets.UserError:
        assert side + 2 * pad < int(kernel)  # and no window begins inside of the map
        return
    reduce = np.max if kind == "max" else np.mean
    check(
        net.rows.p.pool1,
        lambda x: windows(x, int(kernel), stride, reduce, ceil="ceil" in more, pad=pad, counted="nopad" not in more),
        (2, 6, side, side),
    )


def test_an_even_kernel_keeps_the_map():
    layer = build(Chain("e", ("e: conv:5:2 relu", "linear:K"), in_channels=6)).rows.e.conv1
    assert isinstance(layer, UnevenConv)
    check(layer, lambda x: conv(x, array(layer.weight), array(layer.bias), (0, 1, 0, 1)))


def test_a_fully_connected_layer_reads_the_whole_map_and_convolves_a_larger_one():
    layer = MapLinear(6, (5, 4), 3)
    as_matrix = lambda x: (x.reshape(len(x), -1) @ array(layer.weight).T + array(layer.bias))[:, :, None, None]  # noqa: E731
    check(layer, as_matrix)
    check(layer, lambda x: conv(x, array(layer.weight).reshape(3, 6, 5, 4), array(layer.bias)), (2, 6, 7, 5))


def test_branches_are_mixed_and_summed():
    check(Mix([nn.Identity(), nn.ELU()]), lambda x: np.concatenate([x, np.where(x > 0, x, np.expm1(x))], 1))
    check(Sum(0.17, nn.ELU()), lambda x: x + 0.17 * np.where(x > 0, x, np.expm1(x)))


# --- whole networks ---------------------------------------------------------------------------


def test_auxiliary_heads_score_the_map_that_they_stand_at():
    net = build(Chain("a", ("a: conv:4:3 aux:0.3(pool:avg:all linear:K) relu", "linear:K"), input_size=8), seed=0)
    x = torch.randn(2, 3, 8, 8)
    scores, heads = net(x, aux=True)
    assert torch.equal(scores, net(x))
    ((weight, found),) = heads
    map_ = net.rows.a.conv1(x)  # before the ReLU
    head = net.rows.a.aux1.head.linear1
    assert weight == 0.3
    torch.testing.assert_close(found, map_.mean((2, 3)) @ head.weight.T + head.bias)


def test_a_larger_image_is_scored_by_the_mean_over_its_places():
    """VGG's test of 2014: fully connected layers become convolutions."""
    net = build(Chain("v", ("a: conv:4:3:p0 relu", "b: linear:6 relu", "linear:K"), input_size=8), seed=0).eval()
    x = torch.randn(2, 3, 9, 10)
    crops = [net(x[:, :, i : i + 8, j : j + 8]) for i in range(2) for j in range(3)]
    torch.testing.assert_close(net(x), torch.stack(crops).mean(0))


def test_features_and_head_make_the_scores():
    for name in ("nin", "fitnet4", "maxout", "googlenet"):
        net = resnets.create(name, seed=0).eval()
        x = torch.randn(1, 3, net.spec.input_size, net.spec.input_size)
        with torch.no_grad():
            torch.testing.assert_close(net.forward_head(net.forward_features(x)), net(x))


def test_one_seed_is_one_net_and_other_classes_keep_the_body():
    one, two = (resnets.create("nin", seed=3).state_dict() for _ in range(2))
    assert all(torch.equal(one[name], two[name]) for name in one)
    net = resnets.create("dsn", num_classes=5, seed=0)
    assert isinstance(net, ChainNet)
    assert [net.get_submodule(name).weight.shape[0] for name in net.class_layers] == [5] * 4
