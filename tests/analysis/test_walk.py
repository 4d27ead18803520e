"""The way through a network and back does not hold all maps at once."""

import weakref

import torch

import resnets
from resnets.analysis import forward_backward as subject
from resnets.analysis.propagation import propagation


def test_a_deep_network_is_walked_with_few_maps(monkeypatch):
    """100 units: 10 maps kept, up to 10 of a segment that is run again, and what is in hand."""
    maps: list[weakref.ref] = []
    most = 0
    run = subject.run

    def watched(*given):
        nonlocal most
        out = run(*given)
        maps.append(weakref.ref(out))
        most = max(most, sum(ref() is not None for ref in maps))
        return out

    monkeypatch.setattr(subject, "run", watched)
    net = resnets.create("preresnet20", widths=(4,), blocks=100, kernels="one_layer", seed=0)
    found = propagation(net, torch.randn(2, 3, 8, 8), torch.arange(2))
    assert len(found.share) == 100
    assert len(maps) == 100 + 9 * 10  # the way there, and nine units of each of ten segments again
    assert 10 <= most <= 24
