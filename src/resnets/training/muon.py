"""Muon: momentum whose step for each filter bank is the nearest orthogonal matrix (Jordan and others, 2024).

A bank of filters is a matrix [out][in x height x width]. SGD's step is mostly its few largest singular directions;
an orthogonal step moves every direction by the same length. All other parameters get SGD's Nesterov step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_QUINTIC = 3.4445, -4.7750, 2.0315  # a polynomial that pulls singular values towards 1, fast rather than exact
_STEPS = 4


def orthogonal(matrices: Tensor) -> Tensor:
    """For each of [n][rows][columns] a matrix of the same singular vectors, all singular values near 1.

    A step of the iteration multiplies X by p(XX^T), a matrix of rows x rows that commutes with XX^T. So the steps are
    computed for XX^T alone, and X, which is many times as wide, is multiplied once, by the product of all of them.
    """
    a, b, c = _QUINTIC
    tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    square, product = x @ x.mT, None
    for step in range(_STEPS):
        factor = b * square + c * square @ square
        factor.diagonal(dim1=1, dim2=2).add_(a)
        product = factor if product is None else factor @ product
        if step + 1 < _STEPS:
            square = factor @ square @ factor
    x = product @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """A group with `filters` set is stepped orthogonally with `lr`; the others as SGD with Nesterov's momentum."""

    def __init__(self, groups: list[dict[str, Any]], lr: float, momentum: float) -> None:
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "filters": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes the loss itself"
        for group in self.param_groups:
            lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
            banks: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                gradient = parameter.grad
                state = self.state[parameter]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                buffer = state["momentum_buffer"]
                if group["filters"]:
                    parameter.mul_(1 - lr * decay)
                    buffer.lerp_(gradient, 1 - momentum)
                    banks.setdefault(parameter.shape, []).append((parameter, gradient.lerp(buffer, momentum)))
                else:
                    gradient = gradient.add(parameter, alpha=decay)
                    buffer.mul_(momentum).add_(gradient)
                    parameter.sub_(gradient.add(buffer, alpha=momentum), alpha=lr)
            for shape, bank in banks.items():  # banks of one shape in one product
                directions = orthogonal(torch.stack([direction.flatten(1) for _, direction in bank]))
                for (parameter, _), direction in zip(bank, directions, strict=True):
                    parameter.sub_(direction.view(shape), alpha=lr)
