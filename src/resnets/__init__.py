"""Deep residual networks of both papers: build, train, evaluate, explain, reproduce.

>>> import resnets
>>> net = resnets.create("preresnet164", num_classes=100)
>>> net = resnets.load("preresnet20.cifar10")
>>> resnets.evaluate(net, "cifar10").error

torch is imported by what needs it, not by `import resnets`.
"""

from __future__ import annotations

from resnets.version import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import torch

    from resnets.analysis.analyze import analyze
    from resnets.analysis.complexity import complexity
    from resnets.chain import Chain
    from resnets.data import open_data
    from resnets.errors import DivergedError, UserError
    from resnets.evaluation.evaluate import evaluate
    from resnets.evaluation.predict import predict
    from resnets.experiments.reproduce import reproduce
    from resnets.experiments.rerun import rerun
    from resnets.experiments.sweep import sweep
    from resnets.nn import Network, ResNet
    from resnets.recipe import Recipe
    from resnets.report.compare import compare_runs
    from resnets.report.listing import list_runs
    from resnets.spec import Spec
    from resnets.training.callbacks import Callback
    from resnets.training.session import train
    from resnets.training.task import Task
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
    from resnets.weights.convert import convert
    from resnets.weights.export import export
    from resnets.weights.models import load
    from resnets.weights.networks import load_weights, save_weights
    from resnets.zoo import list_models, spec_of

_WHERE = {  # each public name and its module, which is imported when the name is asked for
    **dict.fromkeys(("DivergedError", "UserError"), "errors"),
    **dict.fromkeys(("Conv1x1", "Dropout", "ExclusiveGate", "Identity", "Plain", "Scale"), "unit_spec"),
    **dict.fromkeys(("Shortcut", "ShortcutGate", "register_order", "register_shortcut"), "unit_spec"),
    **dict.fromkeys(("list_models", "spec_of"), "zoo"),
    **dict.fromkeys(("load_weights", "save_weights"), "weights.networks"),
    "Chain": "chain",
    "Recipe": "recipe",
    "ResNet": "nn",
    "Spec": "spec",
    "analyze": "analysis.analyze",
    "complexity": "analysis.complexity",
    "convert": "weights.convert",
    "evaluate": "evaluation.evaluate",
    "export": "weights.export",
    "load": "weights.models",
    "open_data": "data",
    "predict": "evaluation.predict",
    "reproduce": "experiments.reproduce",
    "rerun": "experiments.rerun",
    "sweep": "experiments.sweep",
    "train": "training.session",
    "Callback": "training.callbacks",
    "Task": "training.task",
    "compare_runs": "report.compare",
    "list_runs": "report.listing",
}
_ROOMS = (
    *("analysis", "chain", "data", "detection", "doctor", "engine", "errors", "evaluation", "experiments", "metadata"),
    *("nn", "options", "papers", "recipe", "report", "runs", "spec", "training", "unit_spec", "weights", "zoo"),
)

__all__ = [
    "Callback",
    "Chain",
    "Conv1x1",
    "DivergedError",
    "Dropout",
    "ExclusiveGate",
    "Identity",
    "Plain",
    "Recipe",
    "ResNet",
    "Scale",
    "Shortcut",
    "ShortcutGate",
    "Spec",
    "Task",
    "UserError",
    "__version__",
    "analyze",
    "compare_runs",
    "complexity",
    "convert",
    "create",
    "evaluate",
    "export",
    "list_models",
    "list_runs",
    "load",
    "load_weights",
    "open_data",
    "predict",
    "register_order",
    "register_shortcut",
    "reproduce",
    "rerun",
    "save_weights",
    "spec_of",
    "sweep",
    "train",
]


def create(
    name: str,
    *,
    pretrained: bool | str = False,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    **changes: Any,
) -> Network:
    """Build a network by name, initialised as in the papers.

    `changes` are the fields of `Spec`, or of `Chain` for other systems (`num_classes=100`, `order="bn_after_add"`,
    `shortcut=ExclusiveGate(bias=-6)`, `stem="cifar"`, `blocks=`, `widths=` ...) and `depth=`.
    `seed` or `generator` makes the initial weights reproducible. `pretrained=True` loads trained weights, as
    `resnets.load` does, and `pretrained="a1_in1k"` those of one training (`resnets models --pretrained`); with
    `num_classes` the network gets a new classifier, drawn by `seed`.

    >>> net = resnets.create("preresnet20", num_classes=100, seed=0)
    >>> net = resnets.create("preresnet20", pretrained=True)
    """
    if pretrained:
        from resnets.errors import UserError
        from resnets.weights.pretrained import file_of, name_of, public_of

        known = name_of(name, pretrained)
        given = {**changes, **({"generator": 0} if generator else {})}
        num_classes = given.pop("num_classes", None)
        if given:
            raise UserError(
                f"{', '.join(given)} cannot be combined with pretrained; resnets.load({known!r}, num_classes=5) gives "
                "a trained network a new classifier."
            )
        path = file_of(known)  # a mistake is refused before torch is imported
        from resnets.weights.models import load

        return load(
            known if public_of(known) else path, num_classes=num_classes, seed=seed or 0, device=device, dtype=dtype
        )
    from resnets.zoo import spec_of

    chosen = spec_of(name, **changes)
    from resnets.nn import build

    return build(chosen, seed=seed, generator=generator, device=device, dtype=dtype)


def __getattr__(name: str) -> Any:
    import importlib

    if name in _WHERE:
        return getattr(importlib.import_module(f"resnets.{_WHERE[name]}"), name)
    if name in _ROOMS:
        return importlib.import_module(f"resnets.{name}")
    raise AttributeError(f"module 'resnets' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_ROOMS})
