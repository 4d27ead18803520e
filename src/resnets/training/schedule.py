"""The learning rate and the image size of each step: pure functions of the step."""

from __future__ import annotations

import math
from dataclasses import dataclass

from resnets.errors import UserError
from resnets.recipe import Recipe, iterations


@dataclass(frozen=True)
class Schedule:
    """A recipe laid out over its steps, for a number of training images."""

    recipe: Recipe
    images: int

    def __post_init__(self) -> None:
        if self.total < 1:
            raise UserError(f"a training of {self.recipe.length} has no step; give a longer one.")

    def steps(self, span: str) -> int:
        return iterations(span, self.images, self.recipe.batch)

    @property
    def total(self) -> int:
        return self.steps(self.recipe.length)

    def notices(self) -> list[str]:
        """Warnings about settings that the user may not have meant."""
        warmup = self.steps(self.recipe.warmup)
        if warmup < self.total:
            return []
        return [
            f"the warm-up of {warmup:,} steps does not end within the {self.total:,} steps of the training: "
            f"the learning rate stays at {self.recipe.warmup_lr:g}."
        ]

    def lr(self, step: int, peak: float | None = None) -> float:
        """The rate with which step `step` (from 0) changes the weights; `peak` stands for the recipe's, if given.

        multistep, with the papers' numbers: 0.01 for steps 0 to 399, 0.1 to 31,999, 0.01 to 47,999, 0.001.
        """
        r = self.recipe
        if peak is not None and peak != r.lr:
            return self.lr(step) * peak / r.lr
        warmup = self.steps(r.warmup)
        if step < warmup:
            return r.warmup_lr
        if r.schedule == "multistep":
            passed = [step >= self.steps(span) for span in r.milestone_spans]
            if r.is_plain_multistep:
                return r.lr * r.gamma ** sum(passed)
            return r.lr * math.prod(factor for factor, past in zip(r.milestone_factors, passed, strict=True) if past)
        if r.schedule == "constant":
            return r.lr
        done = (step - warmup) / max(self.total - warmup, 1)
        if r.schedule == "linear":
            share = 1 - done
        elif r.schedule == "cosine":
            share = (1 + math.cos(math.pi * done)) / 2
        else:  # onecycle: a straight line up to the peak and one down to the end
            share = (done + 1 / self.total) / r.peak if done < r.peak else (1 - done) / (1 - r.peak)
        return r.lr * (r.final_lr + (1 - r.final_lr) * min(share, 1.0))

    def momentum(self, step: int) -> float | None:
        """The momentum of a step, where it changes."""
        goal = self.recipe.momentum_goal
        if goal is None:
            return None
        share = min(step / max(self.steps(goal[1]), 1), 1.0)
        return self.recipe.momentum + (goal[0] - self.recipe.momentum) * share

    def fade(self, step: int) -> float:
        """By what the learning rate of auxiliary heads falls."""
        return (1 + self.recipe.aux_fade * step) ** -0.75

    def aux_weight(self, step: int) -> float:
        """The weight of auxiliary losses in a step, beside what the network says."""
        length = self.recipe.aux_length
        return 0.0 if length and step >= self.steps(length) else self.recipe.aux_weight

    def distill_weight(self, step: int) -> float:
        """The weight of the teacher's scores in a step."""
        line = self.recipe.distill_line
        if line is None:
            return 0.0
        first, last, span = line
        return first + (last - first) * min(step / max(self.steps(span), 1), 1.0)

    def work(self, done: int) -> float:
        """The work of the first `done` steps, in steps of the last size: a step costs what its images have pixels."""
        sides = self.recipe.size_steps or ((1, 0.0),)
        begins = [math.ceil(start * self.total) for _, start in sides]
        ends = [*begins[1:], self.total]
        return sum(
            max(min(done, end) - begin, 0) * (side / sides[-1][0]) ** 2
            for (side, _), begin, end in zip(sides, begins, ends, strict=True)
        )

    def size(self, step: int) -> int | None:
        """The side that images are scaled to, or None to leave them as they are."""
        sides = [side for side, start in self.recipe.size_steps if step >= start * self.total]
        return sides[-1] if sides else None
