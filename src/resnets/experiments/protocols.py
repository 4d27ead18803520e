"""The papers' tests on ImageNet. Where a budget trains on smaller crops, these are scaled in proportion."""

from __future__ import annotations

import dataclasses
from typing import Any

from resnets.data.bad_images import BadImages
from resnets.data.folder import Folder
from resnets.data.test_crops import Crop, MultiScale, TenCrop, Views
from resnets.data.test_pictures import PictureFiles
from resnets.data.transform import transform_of
from resnets.engine.inference import inference
from resnets.evaluation.ensemble import Member
from resnets.evaluation.evaluate import score_pictures
from resnets.experiments.plan import IMAGENET_SIDE, Job
from resnets.progress import Progress
from resnets.runs import Run
from resnets.weights.models import open_model

PROTOCOLS: dict[str, Views] = {
    "224 crop": Crop(224, 256),
    "299 crop": Crop(299, 342),
    "320 crop": Crop(320, 320),
    "10 crops": TenCrop(224, 256),
    "5 scales": MultiScale(),
}
_WIDER = 4 / 3  # the usual longer side of a picture over its shorter one


def scale_views(test: str, side: int, own: int = IMAGENET_SIDE) -> Views:
    """The crops of a test, for a net that was trained on crops of `side` where its authors had `own`."""

    def scale(pixels: int) -> int:
        return round(pixels * side / own)

    paper = PROTOCOLS[test]
    if isinstance(paper, MultiScale):
        return MultiScale(tuple(map(scale, paper.sides)))
    return dataclasses.replace(paper, side=scale(paper.side), shorter=scale(paper.shorter))


def count_crops(test: str) -> float:
    """How many training crops have as many pixels as this test reads of a picture."""
    paper = PROTOCOLS[test]
    if isinstance(paper, MultiScale):
        return sum((side / IMAGENET_SIDE) ** 2 * _WIDER for side in paper.sides)
    return (10 if isinstance(paper, TenCrop) else 1) * (paper.side / IMAGENET_SIDE) ** 2


def test_run(
    run: Run, folder: Folder, job: Job, device: str, engine: str, *, bad: BadImages, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Test a finished run: its top-1 and top-5 errors on all test pictures, by test."""
    assert folder.test is not None
    pictures = PictureFiles(folder.test, folder.channels, bad)
    net, found = open_model(run), {}
    runner = inference(net, engine, device)
    usual = transform_of(net.metadata, net.spec, device=runner.device)
    for test in job.tests:
        member = Member(runner, dataclasses.replace(usual, views=scale_views(test, job.side, job.own_side)))
        with progress.task(f"testing by {member.views}", pictures.count) as advance:
            found[test] = score_pictures([member], pictures, net, advance=advance).to_dict()
    return found
