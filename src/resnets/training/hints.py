"""FitNets' first stage (Romero 2015): a thin, deep student learns to predict a hidden row of its teacher."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from resnets.errors import UserError, one_of
from resnets.nn import ChainNet
from resnets.nn.chain import Maxout
from resnets.nn.initialization import initialize_by
from resnets.runs import ModuleKey
from resnets.training.classification import Classification
from resnets.training.distributed import Workers
from resnets.training.task import Setup

_PIECES = 2  # of the regressor's maxout


class Hinted(nn.Module):
    """A student up to its guided row, and the regressor from there to the teacher's hint."""

    def __init__(self, student: ChainNet, row: str, regressor: nn.Module) -> None:
        super().__init__()
        self.student, self.row, self.regressor = student, row, regressor
        for name, layers in student.rows.named_children():  # those behind the guided row are not trained
            layers.requires_grad_(name in _rows_up_to(student, row))

    def forward(self, x: Tensor) -> Tensor:
        return self.regressor(forward_to(self.student, self.row, x))


def _rows_up_to(net: ChainNet, row: str) -> list[str]:
    names = [name for name, _ in net.rows.named_children()]
    return names[: names.index(row) + 1]


def forward_to(net: ChainNet, row: str, x: Tensor) -> Tensor:
    """The map behind a row."""
    for name in _rows_up_to(net, row):
        x = net.rows.get_submodule(name)(x)
    return x


class Hints(Classification):
    """Half the squared distance between the regressor's prediction and the teacher's map. It has no scores."""

    kind = "hints"
    numbers = {"loss": 1.0}  # noqa: RUF012

    def open(self, setup: Setup) -> None:
        super().open(setup)
        self.splits = []

    def build(self, seed: int) -> nn.Module:
        student, teacher = super().build(seed), self.teacher_net
        if not isinstance(student, ChainNet) or not isinstance(teacher, ChainNet):
            raise UserError("hints go from a row of a chain to a row of another, as from maxout to fitnet4.")
        assert self.recipe.hint_rows is not None
        there, here = self.recipe.hint_rows
        for net, row in ((teacher, there), (student, here)):
            if row not in (known := [name for name, _ in net.rows.named_children()]):
                raise one_of(f"row of {net.spec.name}", row, known)
        side = self.image_side(self.recipe)
        if side is None:
            raise UserError("hints need the size of the images, which these data sets do not say.")
        with torch.no_grad():
            x = torch.zeros(1, student.spec.in_channels, side, side)
            wanted = forward_to(teacher, there, x.to(next(teacher.parameters()).device))
            found = forward_to(student.eval(), here, x)
        kernel = found.shape[2] - wanted.shape[2] + 1, found.shape[3] - wanted.shape[3] + 1
        if min(kernel) < 1:
            raise UserError(
                f"row {here} of {student.spec.name} leaves a map of {found.shape[2]}x{found.shape[3]}, smaller than "
                f"the teacher's {wanted.shape[2]}x{wanted.shape[3]} at {there}: choose an earlier row."
            )
        conv = nn.Conv2d(found.shape[1], _PIECES * wanted.shape[1], kernel)
        regressor = nn.Sequential(conv, Maxout(_PIECES))
        assert conv.bias is not None
        nn.init.zeros_(conv.bias)
        draw = torch.Generator().manual_seed(seed)
        initialize_by(regressor, self.recipe.init if self.recipe.init != "lsuv" else "xavier", draw)
        self.teacher_row = there
        return Hinted(student, here, regressor).train()

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        images, _ = batch
        teacher = self.teacher_net
        assert isinstance(teacher, ChainNet)
        with torch.no_grad():
            wanted = forward_to(teacher, self.teacher_row, images)
        return (model(images) - wanted).square().flatten(1).sum(1).mean() / 2, {}

    def score(self, model: nn.Module, split: str, workers: Workers) -> dict[str, Any]:
        raise AssertionError("hints have no scores")

    def finish(self, net: nn.Module) -> None:
        pass

    def save(self, net: nn.Module, path: Path, header: Mapping[str, str]) -> None:
        """The student alone, which the second stage begins with."""
        assert isinstance(net, Hinted)
        assert not isinstance(self.network, ModuleKey)
        student = net.student
        student.requires_grad_(True)
        super().save(student, path, header)
