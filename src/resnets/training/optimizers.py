"""Optimizers: SGD, Muon and the classes of `torch.optim`; their parameter groups and their state as named tensors."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from resnets.engine.native.build import load
from resnets.errors import UserError, one_of
from resnets.nn.chain import Aux
from resnets.recipe import Recipe, read_keywords
from resnets.training.muon import Muon

_CLOSURES = ("LBFGS", "SparseAdam")  # need the loss computed again, or sparse gradients


def _classes() -> dict[str, type[torch.optim.Optimizer]]:
    found = (value for value in vars(torch.optim).values() if inspect.isclass(value))
    kinds = {kind.__name__: kind for kind in found if issubclass(kind, torch.optim.Optimizer)}
    return {name: kinds[name] for name in kinds if name not in ("Optimizer", "Muon", "SGD", *_CLOSURES)}


def resolve_optimizer(recipe: Recipe) -> Recipe:
    """The recipe with its optimizer spelled as torch.optim spells it; an unknown name or keyword is refused."""
    if recipe.optimizer in ("sgd", "muon"):
        return recipe
    known = {name.lower(): name for name in _classes()}
    if recipe.optimizer.lower() not in known:
        raise one_of("optimizer", recipe.optimizer, ["sgd", "muon", *known.values()])
    name = known[recipe.optimizer.lower()]
    taken = inspect.signature(_classes()[name]).parameters
    options = [word for word in taken if word not in ("params", "lr", "weight_decay")]
    for word in read_keywords(recipe.optimizer_options):
        if word not in options:
            raise one_of(f"option of {name}", word, options)
    if recipe.weight_decay and "weight_decay" not in taken:
        raise UserError(f"{name} has no weight decay: give weight_decay 0.")
    return dataclasses.replace(recipe, optimizer=name)


def build_optimizer(recipe: Recipe, groups: list[dict[str, Any]], fused: bool) -> torch.optim.Optimizer:
    if recipe.optimizer == "muon":
        on_cpu = all(parameter.device.type == "cpu" for group in groups for parameter in group["params"])
        return Muon(groups, recipe.lr, recipe.momentum, load().kernels if fused and on_cpu else None)
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, recipe.lr, recipe.momentum, nesterov=recipe.nesterov, fused=fused)
    if not recipe.weight_decay:
        groups = [{key: value for key, value in group.items() if key != "weight_decay"} for group in groups]
    options = read_keywords(recipe.optimizer_options)
    try:
        return _classes()[recipe.optimizer](groups, lr=recipe.lr, **options)  # type: ignore[call-arg]
    except (TypeError, ValueError, RuntimeError) as error:
        raise UserError(f"{recipe.optimizer} refuses its options ({error}).") from None


def decay_groups(net: nn.Module, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameters with and without weight decay; for Muon also the filters of the units.

    The papers' Torch code decays everything; `decay_on weights` leaves out BN and biases.
    """
    rates, decays = _factors(net, recipe)
    filters = {id(m.weight) for m in getattr(net, "units", net).modules() if isinstance(m, nn.Conv2d)}
    kinds: dict[str, list[nn.Parameter]] = {"decayed": [], "free": [], "filters": []}
    for parameter in filter(lambda p: p.requires_grad, net.parameters()):
        if recipe.optimizer == "muon" and id(parameter) in filters:
            kinds["filters"].append(parameter)
        else:
            kinds["decayed" if parameter.dim() > 1 or recipe.decay_on == "all" else "free"].append(parameter)
    groups: list[dict[str, Any]] = [
        *_split(kinds["decayed"], recipe, rates, decays),
        *_split(kinds["free"], recipe, rates, dict.fromkeys(map(id, kinds["free"]), 0.0)),
        {"params": kinds["filters"], "weight_decay": recipe.muon_decay, "filters": True, "rate": recipe.muon_lr},
    ]
    found = [{"rate": recipe.lr, **group} for group in groups if group["params"]]
    if not found:
        raise UserError("the network has no parameter to train.")
    return found


def _factors(net: nn.Module, recipe: Recipe) -> tuple[dict[int, tuple[float, bool]], dict[int, float]]:
    """Parameters whose learning rate or weight decay the recipe changes: the factors, and whether a rate fades."""
    rates: dict[int, tuple[float, bool]] = {}
    decays: dict[int, float] = {}
    classes = getattr(net, "class_layers", ())
    auxiliary = {id(p) for m in net.modules() if isinstance(m, Aux) for p in m.parameters()}
    for name, module in net.named_modules():
        if not isinstance(module, nn.Conv2d | nn.Linear):
            continue
        for kind, parameter in module.named_parameters(recurse=False):
            aux = id(parameter) in auxiliary
            rate = recipe.aux_lr if aux else recipe.classifier_lr if name in classes else 1.0
            rate *= recipe.conv_lr if isinstance(module, nn.Conv2d) else 1.0
            rates[id(parameter)] = rate * (recipe.bias_lr if kind == "bias" else 1.0), aux and recipe.aux_fade > 0
            decays[id(parameter)] = recipe.linear_decay if isinstance(module, nn.Linear) else 1.0
    return rates, decays


def _split(
    parameters: list[nn.Parameter],
    recipe: Recipe,
    rates: dict[int, tuple[float, bool]],
    decays: dict[int, float],
) -> list[dict[str, Any]]:
    """A group for each learning rate and weight decay, in the order of their first parameters."""
    found: dict[tuple[float, bool, float], list[nn.Parameter]] = {}
    for parameter in parameters:
        key = *rates.get(id(parameter), (1.0, False)), decays.get(id(parameter), 1.0)
        found.setdefault(key, []).append(parameter)
    return [
        {
            "params": some,
            "weight_decay": recipe.weight_decay * decay,
            **({"rate": recipe.lr * rate} if rate != 1 else {}),
            **({"fades": True} if fades else {}),
        }
        for (rate, fades, decay), some in found.items()
    ]


# --- state ------------------------------------------------------------------------------------


def optimizer_state(optimizer: torch.optim.Optimizer, net: nn.Module) -> dict[str, Tensor]:
    """The whole state by names of parameters: `momentum.NAME`, as in older checkpoints, and `optimizer.NAME.ENTRY`."""
    found = {}
    for name, parameter in net.named_parameters():
        for entry, value in optimizer.state.get(parameter, {}).items():
            if value is not None:
                key = f"momentum.{name}" if entry == "momentum_buffer" else f"optimizer.{name}.{entry}"
                found[key] = value if isinstance(value, Tensor) else _to_tensor(value)
    return found


def _to_tensor(value: Any) -> Tensor:
    """A number as a vector of one element; no optimizer has such vectors, so that `load` makes it a number again."""
    return torch.tensor([value], dtype=torch.int64 if isinstance(value, int) else torch.float64)


def load_optimizer_state(optimizer: torch.optim.Optimizer, net: nn.Module, tensors: dict[str, Tensor]) -> None:
    places = {id(p): i for i, p in enumerate(p for group in optimizer.param_groups for p in group["params"])}
    parameters = dict(net.named_parameters())
    state: dict[int, dict[str, Any]] = {}
    for name, entry, tensor in _entries(tensors):
        parameter = parameters[name]
        value: Any = tensor
        if tensor.shape == parameter.shape and tensor.is_floating_point():
            # In the parameter's own memory layout, which decides the order of sums.
            value = torch.empty_like(parameter, dtype=tensor.dtype).copy_(tensor)
        elif tensor.shape == (1,) and tensor.dtype in (torch.int64, torch.float64):
            value = tensor.item()
        state.setdefault(places[id(parameter)], {})[entry] = value
    if state:
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _entries(tensors: dict[str, Tensor]) -> Iterator[tuple[str, str, Tensor]]:
    for key, tensor in tensors.items():
        kind, _, name = key.partition(".")
        if kind == "momentum":
            yield name, "momentum_buffer", tensor
        elif kind == "optimizer":
            name, _, entry = name.rpartition(".")
            yield name, entry, tensor


def fits_optimizer(net: nn.Module, tensors: dict[str, Tensor]) -> bool:
    """Whether the state belongs to parameters of this network, and momentum has their shapes."""
    shapes = {name: parameter.shape for name, parameter in net.named_parameters()}
    return all(
        name in shapes and (entry != "momentum_buffer" or tensor.shape == shapes[name])
        for name, entry, tensor in _entries(tensors)
    )
