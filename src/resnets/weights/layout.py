"""A library's names for the tensors of a network, with the conventions behind them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from resnets.chain import Chain, NetworkSpec
from resnets.errors import UserError
from resnets.weights.compare import find_differing_fields, format_creation, format_fields

Floats = tuple[float, ...]
Pairs = Iterator[tuple[str, str]]  # our module, their module


@dataclass(frozen=True)
class Layout:
    """A library's names for our modules, with the conventions behind them."""

    title: str
    sources: tuple[str, ...]  # what `source` and `format` call it; the first is what a report says
    marks: tuple[str, ...]  # each begins some name in every file of this layout
    modules: Callable[[Any], Pairs] | None = None  # none where their names are ours
    conventions: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)  # field of a spec -> what it may be
    conv_classifier: bool = False  # the classifier is a 1x1 convolution
    mean_std: Callable[[NetworkSpec], tuple[Floats, Floats] | None] = lambda spec: (
        None
    )  # with which its nets were trained
    first: tuple[str, int] | None = (
        None  # the name of the first filters and their size, where names alone do not distinguish libraries
    )

    @property
    def is_ours(self) -> bool:
        return self.modules is None

    def names(self, spec: NetworkSpec, tensors: Collection[str]) -> dict[str, str]:
        """Map our tensors' names to theirs."""
        if self.modules is None:
            return {name: name for name in tensors}
        theirs = dict(self.modules(spec))
        split = {name: name.rpartition(".") for name in tensors}
        return {name: f"{theirs[module]}.{leaf}" for name, (module, _, leaf) in split.items()}

    def shape(self, name: str, ours: torch.Size) -> torch.Size:
        """Their shape of our tensor `name`; the numbers lie in memory in the same order."""
        return torch.Size([*ours, 1, 1]) if self.conv_classifier and name == "classifier.weight" else ours

    def adapt(self, spec: NetworkSpec) -> dict[str, Any]:
        """The fields in which a spec differs from the conventions, with the values that follow them."""
        return {k: may[0] for k, may in self.conventions.items() if getattr(spec, k, None) not in may}

    def require(self, spec: NetworkSpec, what: str) -> None:
        """Refuse a net that computes something else from the same tensors."""
        if isinstance(spec, Chain):
            raise UserError(
                f"{what} {self.title}, and {spec.name} has no residual units: build the network of the file."
            )
        fitted = self.adapt(spec)
        wanted = dataclasses.replace(spec, **fitted)
        if wrong := [name for name in find_differing_fields(spec, wanted) if name in fitted]:
            wanted = dataclasses.replace(spec, **{name: fitted[name] for name in wrong})
            raise UserError(
                f"{what} {self.title}, which means {format_fields(wanted, wrong)}, and the net has "
                f"{format_fields(spec, wrong)}: build it with {format_creation(wanted)}."
            )
