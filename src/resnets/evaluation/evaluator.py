"""A loaded network on images: its error on a set in memory, and its form as a member of an ensemble."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from resnets.data.augment import Normalize
from resnets.data.images import Images
from resnets.engine.inference import inference
from resnets.errors import UserError
from resnets.evaluation.ensemble import Member
from resnets.evaluation.precise_bn import precise_bn
from resnets.evaluation.protocol import Protocol
from resnets.evaluation.score import Score, evaluate
from resnets.weights.loaded_model import LoadedModel, normalization

BATCH = 500


def score(
    given: LoadedModel,
    images: Images,
    *,
    per: str | None = None,
    precise: int = 0,
    device: torch.device | str = "cpu",
    engine: str = "auto",
) -> Score:
    """The error on the test images; `precise` takes BN's statistics from that many training images first."""
    net, normalize = given.net.to(device), normalization(given, images, per).to(device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if precise:
        count = min(precise, len(images.train_images))
        first = torch.from_numpy(images.train_images[:count])
        precise_bn(net, (normalize(first[i : i + BATCH].to(device)) for i in range(0, count, BATCH)))
    return evaluate(
        inference(net, engine, device),
        torch.from_numpy(images.test_images),
        torch.from_numpy(images.test_labels),
        normalize,
        batch=BATCH,
        device=device,
    )


def require_alike(subjects: Sequence[LoadedModel]) -> None:
    """Networks that answer together must mean the same by their outputs."""
    first = subjects[0]
    for other in subjects[1:]:
        counts = [given.net.spec.num_classes for given in (first, other)]
        names = [given.about.classes for given in (first, other)]
        if counts[0] != counts[1]:
            raise UserError(f"{first.what} has {counts[0]} classes and {other.what} has {counts[1]}: test them apart.")
        if all(names) and names[0] != names[1]:
            raise UserError(f"{first.what} and {other.what} have other classes, or in another order: test them apart.")


def member(
    given: LoadedModel, protocol: Protocol, engine: str, device: torch.device, normalize: Normalize | None = None
) -> Member:
    """A network that is ready to see pictures, by default as its file says."""
    net = given.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    normalize = normalize or normalization(given)
    return Member(inference(net, engine, device), normalize.to(device), protocol.views(given.preprocessing), device)
