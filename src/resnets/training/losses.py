"""The loss of a step, which the recipe and the network give together."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from resnets.recipe import Recipe
from resnets.training.schedule import Schedule


def squared_hinge(scores: Tensor, labels: Tensor) -> Tensor:
    """Each class against the others: the mean over images of sum max(0, 1 - s z)^2, s = 1 for the label and -1 else."""
    signs = torch.full_like(scores, -1.0).scatter_(1, labels[:, None], 1.0)
    return (1 - signs * scores).clamp_min(0).square().sum(1).mean()


def soften(scores: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """The cross-entropy to the teacher's probabilities, both scores divided by the temperature (Hinton 2015)."""
    wanted = (teacher / temperature).softmax(1)
    return -(wanted * (scores / temperature).log_softmax(1)).sum(1).mean()


class Loss:
    """Of class scores: by the recipe, with the auxiliary heads of the network and a teacher if there are some."""

    def __init__(self, recipe: Recipe, schedule: Schedule, heads: int = 0, teacher: nn.Module | None = None) -> None:
        self.recipe, self.schedule, self.heads, self.teacher = recipe, schedule, heads, teacher

    def __call__(self, model: nn.Module, images: Tensor, labels: Tensor, step: int) -> tuple[Tensor, Tensor]:
        """The loss of some images in a step, and their scores."""
        if not self.heads:
            scores: Tensor = model(images)
            loss = self.of_scores(scores, labels)
        else:
            scores, auxiliary = model(images, aux=True)
            loss, weight = self.of_scores(scores, labels), self.schedule.aux_weight(step)
            for own, found in auxiliary:  # also when they no longer count, as all parameters need gradients
                loss = loss + own * weight * self.of_scores(found, labels)
        if self.teacher is not None and (weight := self.schedule.distill_weight(step)):
            with torch.no_grad():
                wanted = self.teacher(images)
            loss = loss + weight * soften(scores, wanted, self.recipe.temperature)
        return loss, scores

    def of_scores(self, scores: Tensor, labels: Tensor) -> Tensor:
        if self.recipe.loss == "hinge":
            return squared_hinge(scores, labels)
        return functional.cross_entropy(scores, labels, label_smoothing=self.recipe.label_smoothing)
