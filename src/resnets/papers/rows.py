"""What a table of the papers is made of: rows that can be trained, and cells that hold the papers' values for them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

TESTS = ("224 crop", "299 crop", "320 crop", "10 crops", "5 scales")  # of ImageNet; a row may be tested by several


@dataclass(frozen=True)
class Row:
    """One thing to train. Tables that name an equal row share it, and so its runs."""

    network: str  # of the zoo
    changes: tuple[tuple[str, str], ...] = ()  # of its spec
    data: str = "cifar10"
    recipe: str = "cifar-paper"
    teacher: Row | None = None  # whose run it learns from
    begins: Row | None = None  # with whose weights it begins
    validation: int = 0  # training images held out; the error on these counts, and the test set is not used
    name: str = field(init=False, compare=False)  # fit for a file: `resnet110-exclusive_gate_-6-cifar10`
    split: str = field(init=False, compare=False)  # the images whose error counts

    def __post_init__(self) -> None:
        words = [self.network, *(value.replace(":", "_") for _, value in self.changes), self.data]
        words += [self.recipe] * (self.recipe != "cifar-paper") + ["validation"] * (self.validation > 0)
        object.__setattr__(self, "name", "-".join(words))
        object.__setattr__(self, "split", "validation" if self.validation else "test")


@dataclass(frozen=True)
class Value:
    """What a paper reports, in per cent: the error, top-1 where there are two; all None where it only draws a curve."""

    error: float | None = None
    top5: float | None = None
    mean: float | None = None  # of five runs, where the paper gives it
    std: float | None = None
    fails: bool = False  # the paper's word for a test error above 20 %
    rank: float | None = field(init=False, compare=False)  # to sort by: a failure is worse than every error

    def __post_init__(self) -> None:
        object.__setattr__(self, "rank", math.inf if self.fails else self.error)

    def __str__(self) -> str:
        if self.fails:
            return "fails"
        if self.error is None:
            return "" if self.top5 is None else f"-/{self.top5:.2f}"
        if self.top5 is None:
            text = f"{self.error:.2f}"
        else:
            digits = 1 if all(round(value, 1) == value for value in (self.error, self.top5)) else 2
            text = f"{self.error:.{digits}f}/{self.top5:.{digits}f}"
        return text if self.mean is None else f"{text} ({self.mean:.2f} +- {self.std:.2f})"


@dataclass(frozen=True)
class Cell:
    """A value of a table or a curve of a figure. Without a row it is another system's, quoted."""

    label: str
    row: Row | None
    value: Value = Value()
    test: str = ""  # how ImageNet is tested, by one of `TESTS`
    full_label: str = field(init=False, compare=False)  # with the test

    def __post_init__(self) -> None:
        object.__setattr__(self, "full_label", f"{self.label}, {self.test}" if self.test else self.label)


@dataclass(frozen=True)
class Experiment:
    name: str  # as the command line takes it
    where: str  # which paper, which table
    title: str
    cells: tuple[Cell, ...]
    rows: tuple[Row, ...] = field(init=False)  # each once, in the order of the cells

    def __post_init__(self) -> None:
        rows = dict.fromkeys(cell.row for cell in self.cells if cell.row is not None)
        object.__setattr__(self, "rows", tuple(rows))
