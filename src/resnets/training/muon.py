"""Muon: momentum whose step for each filter bank is the nearest orthogonal matrix (Jordan and others, 2024).

A bank of filters is a matrix [out][in x height x width]. SGD's step is mostly its few largest singular directions;
an orthogonal step moves every direction by the same length. All other parameters get SGD's Nesterov step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from resnets.engine.native.kernels import Kernels
from resnets.engine.threads import do_side_by_side

_QUINTIC = 3.4445, -4.7750, 2.0315  # a polynomial that pulls singular values towards 1, fast rather than exact
_STEPS = 4


def orthogonal(matrices: Tensor, multiply: Callable[[Tensor, Tensor], Tensor] = torch.matmul) -> Tensor:
    """For each of [...][rows][columns] a matrix of the same singular vectors, all singular values near 1.

    A step of the iteration multiplies X by p(XX^T), a matrix of rows x rows that commutes with XX^T. So the steps are
    computed for XX^T alone, and X, which is many times as wide, is multiplied once, by the product of all of them.
    """
    a, b, c = _QUINTIC
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT.contiguous() if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    square = product = multiply(x, x.mT)
    for step in range(_STEPS):
        factor = b * square + c * multiply(square, square)
        factor.diagonal(dim1=-2, dim2=-1).add_(a)
        product = multiply(factor, product) if step else factor
        if step + 1 < _STEPS:
            square = multiply(multiply(factor, square), factor)
    x = multiply(product, x)
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """A group with `filters` set is stepped orthogonally with `lr`; the others as SGD with Nesterov's momentum."""

    def __init__(
        self, groups: list[dict[str, Any]], lr: float, momentum: float, kernels: Kernels | None = None
    ) -> None:
        self.kernels = kernels
        super().__init__(groups, {"lr": lr, "momentum": momentum, "weight_decay": 0.0, "filters": False})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        assert closure is None, "the loop computes the loss itself"
        works = []
        for group in self.param_groups:
            banks: dict[tuple[torch.Size, int], list[tuple[Tensor, Tensor]]] = {}  # on a CPU one by one, else by shape
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                if "momentum_buffer" not in (state := self.state[parameter]):
                    state["momentum_buffer"] = torch.zeros_like(parameter)
                if group["filters"]:
                    alone = len(banks) if parameter.device.type == "cpu" else -1
                    banks.setdefault((parameter.shape, alone), []).append((parameter, parameter.grad))
                else:
                    self._step_as_sgd(parameter, parameter.grad, group)
            works += [(parts[0][0].numel(), partial(self._step_orthogonally, parts, group)) for parts in banks.values()]
        works.sort(key=lambda work: work[0], reverse=True)
        do_side_by_side([step for _, step in works])

    def _step_as_sgd(self, parameter: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        gradient = gradient.add(parameter, alpha=group["weight_decay"])
        buffer = self.state[parameter]["momentum_buffer"]
        buffer.mul_(group["momentum"]).add_(gradient)
        parameter.sub_(gradient.add(buffer, alpha=group["momentum"]), alpha=group["lr"])

    @torch.no_grad()  # which each thread has for itself
    def _step_orthogonally(self, banks: list[tuple[Tensor, Tensor]], group: dict[str, Any]) -> None:
        """Step filter banks of one shape by their gradients."""
        directions = []
        for parameter, gradient in banks:
            parameter.mul_(1 - group["lr"] * group["weight_decay"])
            buffer = self.state[parameter]["momentum_buffer"]
            buffer.lerp_(gradient, 1 - group["momentum"])
            directions.append(gradient.lerp(buffer, group["momentum"]).flatten(1))
        if self.kernels and len(banks) == 1:
            steps = [orthogonal(directions[0], self.kernels.multiply)]
        else:
            steps = list(orthogonal(torch.stack(directions)))
        for (parameter, _), direction in zip(banks, steps, strict=True):
            parameter.sub_(direction.view(parameter.shape), alpha=group["lr"])
