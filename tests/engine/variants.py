"""Small networks of every kind, with weights and statistics as training leaves them."""

import torch

import resnets
from resnets.nn import ResNet
from resnets.unit_spec import KERNELS, ORDERS, Plain, parse_shortcut

SMALL = {"widths": (4, 6, 8), "blocks": 2}
SHORTCUTS = ("scale:0.7:-1.2", "exclusive_gate:-1", "shortcut_gate:-1", "conv1x1", "dropout:0.3", "dropout:0.3:true")
VARIANTS = {
    **{f"{o}-{k}": {"order": o, "kernels": KERNELS[k]} for o in ORDERS for k in KERNELS},
    **{
        f"{order}-{shortcut}-{resize}": {"order": order, "shortcut": parse_shortcut(shortcut), "resize": resize}
        for order in ("original", "full_preact")
        for shortcut in SHORTCUTS
        for resize in ("pad", "project")
    },
    **{f"{o}-{r}": {"order": o, "resize": r} for o in ORDERS for r in ("pad_both", "pad_pool", "project")},
    "plain": {"shortcut": Plain()},
    "large stem": {"stem": "imagenet", "kernels": KERNELS["bottleneck"], "resize": "project"},
    "large stem, pre-activation": {"stem": "imagenet", "order": "full_preact", "stride_on": "1x1"},
    "bare stem": {"order": "full_preact", "stem_activation": False},
    "bare stem, ReLU": {"order": "relu_preact", "stem_activation": False, "share_activation": "resize"},
    "shared at every resize": {"order": "full_preact", "share_activation": "resize"},
    "one channel, one stage": {"in_channels": 1, "widths": (3,), "blocks": 2, "order": "full_preact"},
    "other kernels": {"kernels": (5, 1, 3), "order": "full_preact"},
}  # fmt: skip


def trained(**options: object) -> ResNet:
    """A network in training mode after some batches, its BN weights of both signs."""
    net = resnets.create("resnet20", seed=0, **{**SMALL, **options})
    draw = torch.Generator().manual_seed(1)
    for name, tensor in net.named_parameters():
        if tensor.dim() == 1:
            tensor.data.normal_(0.5 if name.endswith("weight") else 0, 0.5, generator=draw)
    net.train()
    with torch.no_grad():
        for _ in range(3):
            net(torch.randn(8, net.spec.in_channels, 24, 20, generator=draw))
    return net


def relative(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """The largest difference, as a share of the largest value."""
    return float((found.double() - wanted.double()).abs().max() / wanted.double().abs().max())
