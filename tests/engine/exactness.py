"""How near gradients are to those in float64."""

import copy

import torch
from torch.nn import functional


def batch(net, dtype=torch.float32, seed=2):
    x = torch.randn(6, net.spec.in_channels, 20, 16, generator=torch.Generator().manual_seed(seed))
    return x.to(dtype), torch.arange(6) % net.spec.num_classes


def gradients(model, net, dtype=torch.float32, seed=2):
    """Of all parameters and the images; the output first."""
    x, y = batch(net, dtype, seed)
    x.requires_grad_()
    torch.manual_seed(3)  # for the dropout shortcut
    out = model(x)
    functional.cross_entropy(out, y).backward()
    return [out.detach(), x.grad, *(p.grad for p in net.parameters())]


def exact(net, seed=2):
    """The gradients in float64, of a copy; dropout draws the same masks there."""
    twin = copy.deepcopy(net).double()
    return gradients(twin, twin, torch.float64, seed)


def error(found, wanted):
    return float((found.double() - wanted.double()).norm() / wanted.double().norm().clamp_min(1e-6))


def spread(found, wanted):
    """The error over all tensors: the root of the mean of the squares."""
    errors = [error(ours, true) for ours, true in zip(found, wanted, strict=True)]
    return (sum(e * e for e in errors) / len(errors)) ** 0.5
