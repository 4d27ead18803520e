"""Deep residual networks of both papers: build, train, test, explain, reproduce.

>>> import resnets
>>> net = resnets.create("preresnet164", num_classes=100)

torch is imported by what needs it, not by `import resnets`.
"""

from __future__ import annotations

from resnets.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import torch

    from resnets.analysis.complexity import complexity
    from resnets.errors import DivergedError, UserError
    from resnets.nn import ResNet
    from resnets.spec import Spec
    from resnets.training.session import train
    from resnets.unit_spec import (
        Conv1x1,
        Dropout,
        ExclusiveGate,
        Identity,
        Plain,
        Scale,
        Shortcut,
        ShortcutGate,
        register_order,
        register_shortcut,
    )
    from resnets.weights.networks import load, load_weights, save_weights
    from resnets.zoo import list_models, spec_of

_LAZY = {  # where each name lives; what takes time to import is imported when it is asked for
    **dict.fromkeys(("DivergedError", "UserError"), "resnets.errors"),
    **dict.fromkeys(
        ("Conv1x1", "Dropout", "ExclusiveGate", "Identity", "Plain", "Scale", "Shortcut", "ShortcutGate"),
        "resnets.unit_spec",
    ),
    **dict.fromkeys(("register_order", "register_shortcut"), "resnets.unit_spec"),
    "Spec": "resnets.spec",
    **dict.fromkeys(("list_models", "spec_of"), "resnets.zoo"),
    **dict.fromkeys(("load", "load_weights", "save_weights"), "resnets.weights.networks"),
    "ResNet": "resnets.nn",
    "complexity": "resnets.analysis.complexity",
    "train": "resnets.training.session",
}

__all__ = [
    "Conv1x1",
    "DivergedError",
    "Dropout",
    "ExclusiveGate",
    "Identity",
    "Plain",
    "ResNet",
    "Scale",
    "Shortcut",
    "ShortcutGate",
    "Spec",
    "UserError",
    "__version__",
    "complexity",
    "create",
    "list_models",
    "load",
    "load_weights",
    "register_order",
    "register_shortcut",
    "save_weights",
    "spec_of",
    "train",
]


def create(
    name: str,
    *,
    pretrained: bool = False,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **changes: Any,
) -> ResNet:
    """Build a network by name, initialised as the papers do.

    `changes` are the fields of `Spec` (`num_classes=100`, `order="bn_after_add"`,
    `shortcut=ExclusiveGate(bias=-6)`, `stem="cifar"`, `blocks=`, `widths=` ...) and `depth=`.
    `seed` or `generator` makes the initial weights reproducible. With `pretrained` the name is that of a trained
    network in the package, as `preresnet20.cifar10`, which comes as it is.
    """
    if pretrained:
        from resnets.errors import UserError
        from resnets.weights.pretrained import file_of

        if changes or seed is not None or generator is not None:
            raise UserError(f"a pretrained {name} comes as it is; leave out what would change it.")
        path = file_of(name)
        from resnets.weights.networks import load

        return load(path).to(device=device, dtype=dtype)
    from resnets.zoo import spec_of

    chosen = spec_of(name, **changes)
    from resnets.nn import build

    return build(chosen, seed=seed, generator=generator, device=device, dtype=dtype)


_ROOMS = (  # found by `resnets.engine` alone, without an import of its own
    *("analysis", "data", "engine", "errors", "evaluation", "experiments", "nn", "papers", "recipe", "report", "runs"),
    *("spec", "training", "unit_spec", "weights", "zoo"),
)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _ROOMS:
        return importlib.import_module(f"resnets.{name}")
    if name not in _LAZY:
        raise AttributeError(f"module 'resnets' has no attribute {name!r}")
    return getattr(importlib.import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
