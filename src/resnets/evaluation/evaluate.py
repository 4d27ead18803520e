"""`evaluate`: the error of a network, or of several as an ensemble, on labelled images."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from resnets.data import open_data, parse_folder
from resnets.data.augment import Normalize
from resnets.data.bad_images import BadImages
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.test_crops import Crop, MultiScale, TenCrop, Views, parse_crop
from resnets.data.transform import normalization, preprocessing_of
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.inference import chosen, inference
from resnets.errors import UserError
from resnets.evaluation.ensemble import Member, batches, probabilities
from resnets.evaluation.labelled_images import InFiles, InMemory, Labelled, in_folder
from resnets.evaluation.options import EvaluateOptions, ViewOptions
from resnets.evaluation.precise_bn import precise_bn
from resnets.evaluation.score import Score, Tally, score_images
from resnets.nn import ResNet
from resnets.options import takes
from resnets.progress import Progress, Silent
from resnets.runs import Run
from resnets.weights.models import Model, open_model

BATCH = 500


def _ignore(sentence: str) -> None:
    pass


@takes(EvaluateOptions)
def evaluate(
    model: Model | Sequence[Model],
    data: str | os.PathLike[str] | Images | Folder | None = None,
    *,
    options: EvaluateOptions,
    progress: Progress | None = None,
    warn: Callable[[str], None] = _ignore,
) -> Score:
    """The error of a network on test images: of a set such as `cifar10`, or of a folder of class folders.

    `model` is what `load` takes, or a list of them: an ensemble, whose answers are averaged. Without `data` it is
    tested on the test images of the data that it was trained on. Folders are matched with the network's classes by
    name. `warn` is called with a sentence for each thing that a reader of the number should know.

    >>> score = resnets.evaluate("preresnet20.cifar10", "cifar10")
    >>> score.error, score.interval, score.per_class[3].error, score.mistakes[:5]
    """
    keep_freed_memory()
    device = choose(options.device)
    engine = chosen(options.engine, device)
    words: Sequence[Model] = [model] if isinstance(model, str | os.PathLike | Run | ResNet) else model
    nets = [open_model(word, network=options.network, source=options.source) for word in words]
    require_same_classes(nets)
    images, name = _open_test_data(nets[0], data, options)
    bad = BadImages(options.bad_images, warn)
    if images is not None:
        for net in nets:
            _require_fitting(net, images, warn)
    if images is not None and len(nets) == 1 and not options.has_views:
        score, views = _score_whole(nets[0], images, options, device, engine), "whole images"
    else:
        if options.precise_bn:
            raise UserError("--precise-bn goes with one network and whole images.")
        pictures = InMemory(images) if images else _open_pictures(name, nets[0], bad)
        per = options.normalize
        members = [make_member(net, options, engine, device, normalize_for(net, images, per)) for net in nets]
        with (progress or Silent()).task(f"testing on {pictures.name}", len(pictures)) as advance:
            score = score_pictures(members, pictures, nets[0], average=options.average, advance=advance)
        views = "; ".join(dict.fromkeys(str(member.views) for member in members))
    context = {
        "network": nets[0].spec.to_dict(),
        **({"networks": [net.spec.to_dict() for net in nets]} if len(nets) > 1 else {}),
        "data": images.name if images else name,
        "engine": engine,
        "views": views,
        "average": options.average,
        **({"skipped": len(bad.met)} if bad.met else {}),
    }
    return score.with_context(context)


def _open_test_data(
    net: ResNet, data: str | os.PathLike[str] | Images | Folder | None, options: EvaluateOptions
) -> tuple[Images | None, str]:
    """The images of a set in memory, or None and the folder with the pictures."""
    what = data if data is not None else net.metadata.data or ("cifar10" if net.spec.stem == "cifar" else None)
    if what is None:
        raise UserError(
            f"say what to test {net.metadata.origin} on: --data FOLDER, with a folder of pictures for each class."
        )
    if isinstance(what, Folder):
        what = what.name
    if isinstance(what, str | os.PathLike):
        folder, _ = parse_folder(os.fspath(what))
        if folder is not None:
            if options.normalize or options.precise_bn:
                raise UserError(
                    "--normalize and --precise-bn take statistics of training images, which a folder has not."
                )
            return None, folder
    images = open_data(what, options.data_dir)
    assert isinstance(images, Images)  # folders were seen to above
    return images, images.name


def _open_pictures(folder: str, net: ResNet, bad: BadImages) -> InFiles:
    return in_folder(Path(folder).expanduser(), net.metadata, net.spec.num_classes, net.spec.in_channels, bad)


def require_same_classes(nets: Sequence[ResNet]) -> None:
    """Refuse to average networks whose outputs mean different classes."""
    first = nets[0]
    for other in nets[1:]:
        counts = [net.spec.num_classes for net in (first, other)]
        what = [net.metadata.origin for net in (first, other)]
        if counts[0] != counts[1]:
            raise UserError(
                f"{what[0]} has {counts[0]} classes and {what[1]} has {counts[1]}: evaluate them separately."
            )
        if first.classes and other.classes and first.classes != other.classes:
            raise UserError(f"{what[0]} and {what[1]} have different classes or class order: evaluate them separately.")


def _require_fitting(net: ResNet, images: Images, warn: Callable[[str], None]) -> None:
    spec = net.spec
    if images.channels != spec.in_channels:
        raise UserError(f"{images.name} has {images.channels} channels and {spec.name} reads {spec.in_channels}.")
    if images.num_classes != spec.num_classes:
        raise UserError(
            f"{images.name} has {images.num_classes} classes and {spec.name} has {spec.num_classes}; "
            "choose the data that it was trained on with --data."
        )
    if images.name == net.metadata.data and images.digest != net.metadata.digest:
        warn(f"this {images.name} is not what {net.metadata.origin} was trained on.")


def normalize_for(net: ResNet, images: Images | None = None, per: str | None = None) -> Normalize:
    return normalization(net.metadata, net.spec, images, per)


# --- whole images in memory -----------------------------------------------------------------


def _score_whole(net: ResNet, images: Images, options: EvaluateOptions, device: torch.device, engine: str) -> Score:
    net, normalize = net.to(device), normalize_for(net, images, options.normalize).to(device)
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if options.precise_bn:
        count = min(options.precise_bn, len(images.train_images))
        first = torch.from_numpy(images.train_images[:count])
        precise_bn(net, (normalize(first[i : i + BATCH].to(device)) for i in range(0, count, BATCH)))
    return score_images(
        inference(net, engine, device),
        torch.from_numpy(images.test_images),
        torch.from_numpy(images.test_labels),
        normalize,
        classes=images.classes,
        batch=BATCH,
        device=device,
    )


# --- views of pictures ----------------------------------------------------------------------


def views_for(net: ResNet, options: ViewOptions) -> Views:
    """The views that were asked for; the network's own crop where none was."""
    if options.multi_scale:
        return MultiScale(options.multi_scale)
    usual = preprocessing_of(net.metadata, net.spec)
    crop = parse_crop(options.crop) if options.crop else Crop(usual.crop, usual.resize)
    return TenCrop(crop.side, crop.shorter) if options.ten_crop else crop


def make_member(
    net: ResNet, options: ViewOptions, engine: str, device: torch.device, normalize: Normalize | None = None
) -> Member:
    """A network that is ready to see pictures, by default as its file says."""
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    normalize = normalize or normalize_for(net)
    return Member(inference(net, engine, device), normalize.to(device), views_for(net, options), device)


def score_pictures(
    members: Sequence[Member],
    pictures: Labelled,
    net: ResNet,
    *,
    average: str = "softmax",
    advance: Callable[[int], None] = lambda steps: None,
) -> Score:
    """Top-1 and top-5 errors and the cross-entropy of the averaged probabilities; few pictures in memory at a time."""
    tally = Tally(net.spec.num_classes)
    stream = pictures.seen([member.views for member in members])
    for batch in batches(stream, lambda item: item[0].bytes):
        labels = torch.tensor([label for _, label, _ in batch])
        found = probabilities(members, [seen for seen, _, _ in batch], average)
        tally.add(found, labels, _cross_entropy(found, labels), [name for _, _, name in batch])
        advance(len(batch))
    if not tally.images:
        raise UserError(f"{pictures.name} has no picture that can be read.")
    return tally.score(net.classes)


def _cross_entropy(found: Tensor, labels: Tensor) -> float:
    return -float(found.gather(1, labels[:, None]).clamp_min(1e-300).log().sum())
