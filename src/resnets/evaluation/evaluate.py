"""`evaluate`: the error of a network, or of several as an ensemble, on labelled images."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from resnets.data import open_labelled, parse_folder
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.data.test_pictures import MemoryPictures, TestPictures, open_pictures
from resnets.data.transform import transform_of
from resnets.engine.device import choose
from resnets.engine.inference import inference
from resnets.engine.threads import Threads
from resnets.errors import UserError
from resnets.evaluation.averages import Scores, average_mirrored, average_shifted, require_room
from resnets.evaluation.detection import evaluate_detectors
from resnets.evaluation.ensemble import Member, batches, probabilities
from resnets.evaluation.options import EvaluateOptions, PredictOptions
from resnets.evaluation.precise_bn import precise_bn
from resnets.evaluation.score import Score, Tally, score_images
from resnets.nn import Network
from resnets.options import takes
from resnets.progress import Progress, Silent
from resnets.runs import Run
from resnets.weights.detectors import is_detector
from resnets.weights.models import Model, open_model

Data = str | os.PathLike[str] | Images | Folder
BATCH = 500


def _ignore(sentence: str) -> None:
    pass


@takes(EvaluateOptions)
def evaluate(
    model: Model | Sequence[Model],
    data: Data | None = None,
    *,
    options: EvaluateOptions,
    changes: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
    warn: Callable[[str], None] = _ignore,
) -> Any:
    """The error of a network on test images: of a set such as `cifar10`, or of a folder of class folders.

    The result is a `Score`; of a detector, on pictures with boxes, a `DetectionScore`.

    `model` is what `load` takes, or a list of them: an ensemble, whose answers are averaged. Without `data` it is
    tested on the test images of the data that it was trained on. Folders are matched with the network's classes by
    name. `warn` is called with a sentence for each thing that a reader of the number should know.

    >>> score = resnets.evaluate("preresnet20.cifar10", "cifar10")
    >>> score.error, score.interval, score.per_class[3].error, score.mistakes[:5]
    """
    words: Sequence[Model] = [model] if isinstance(model, str | os.PathLike | Run | nn.Module) else model
    if any(map(is_detector, words)):
        if changes:
            raise UserError(f"a detector is tested as it is; leave out {', '.join(changes)}.")
        return evaluate_detectors(words, data, options, progress or Silent(), warn)
    options.refuse_for_classifiers()
    opened = [open_model(word, network=options.network, changes=changes, source=options.source) for word in words]
    nets = [copy.deepcopy(net) if net is word else net for net, word in zip(opened, words, strict=True)]
    require_same_classes(nets)
    images, name = _open_test_data(nets[0], data, options)
    for net in nets:
        if images is not None:
            _require_fitting(net, images, warn)
    whole = images is not None and len(nets) == 1 and not options.has_views
    if (options.mirror or options.shift) and not whole:
        name = "mirror" if options.mirror else "shift"
        raise UserError(f"--{name} goes with one network and whole images of a set in memory; see --ten-crop.")
    with Threads(options.threads):
        if images is not None and whole:
            score, found = _score_whole(nets[0], images, options), {"views": _name_views(options)}
        else:
            score, found = _score_views(nets, images, name, options=options, progress=progress or Silent(), warn=warn)
    specs = [net.spec.to_dict() for net in nets]
    context = {"network": specs[0], **({"networks": specs} if len(nets) > 1 else {}), "data": name, **score.context}
    return score.with_context({**context, **found, "average": options.average}, nets)


def _open_test_data(net: Network, data: Data | None, options: EvaluateOptions) -> tuple[Images | None, str]:
    """The images of a set in memory, or None and the folder with the pictures."""
    asked: Any = options.data if data is None else data
    what = asked if asked is not None else net.metadata.data or ("cifar10" if net.spec.is_small else None)
    if what is None:
        raise UserError(
            f"say what to test {net.metadata.origin} on: --data FOLDER, with a folder of pictures for each class."
        )
    if isinstance(what, Folder):
        what = what.name
    if isinstance(what, str | os.PathLike) and (folder := parse_folder(os.fspath(what))[0]) is not None:
        if options.normalize or options.precise_bn:
            raise UserError("--normalize and --precise-bn take statistics of training images, which a folder has not.")
        return None, folder
    images = open_labelled(what, options.data_dir)
    assert isinstance(images, Images)  # folders were seen to above
    return images, images.name


def require_same_classes(nets: Sequence[Network]) -> None:
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


def _require_fitting(net: Network, images: Images, warn: Callable[[str], None]) -> None:
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


def _score_whole(net: Network, images: Images, options: EvaluateOptions) -> Score:
    """One view of each image of a set in memory."""
    net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if options.precise_bn:
        _renew_statistics(net, images, options)
    runner = inference(net, options.engine, options.device)
    per, device = options.normalize, runner.device
    normalize = transform_of(net.metadata, net.spec, images=images, per=per, device=device).normalize
    tests, labels = torch.from_numpy(images.test_images), torch.from_numpy(images.test_labels)
    scores: Scores = partial(average_mirrored, runner) if options.mirror else runner
    if options.shift:
        require_room(options.shift, min(tests.shape[2:]))
        scores = partial(_average_with_shifted, scores, options.shift)
    score = score_images(scores, tests, labels, normalize, classes=images.classes, batch=BATCH, device=device)
    return score.with_context({"engine": runner.engine})


def _name_views(options: EvaluateOptions) -> str:
    views = "whole images" + " and their mirror images" * options.mirror
    pixels = f"{options.shift} pixel" + "s" * (options.shift > 1)
    return views + (f", in place and moved by {pixels} both ways" if options.shift else "")


def _average_with_shifted(scores: Scores, pixels: int, x: Tensor) -> Tensor:
    return (scores(x) + average_shifted(scores, x, pixels)) / 2


def _renew_statistics(net: Network, images: Images, options: EvaluateOptions) -> None:
    """BN's statistics from training images, on the device of the evaluation."""
    device = choose(options.device)
    normalize = transform_of(net.metadata, net.spec, images=images, per=options.normalize, device=device).normalize
    count = min(options.precise_bn, len(images.train_images))
    first = torch.from_numpy(images.train_images[:count])
    precise_bn(net.to(device), (normalize(first[i : i + BATCH].to(device)) for i in range(0, count, BATCH)))


def _score_views(
    nets: Sequence[Network],
    images: Images | None,
    folder: str,
    *,
    options: EvaluateOptions,
    progress: Progress,
    warn: Callable[[str], None],
) -> tuple[Score, dict[str, Any]]:
    """The views of each picture, by each network."""
    if options.precise_bn:
        raise UserError("--precise-bn goes with one network and whole images.")
    first = nets[0]
    pictures: TestPictures = (
        MemoryPictures(images)
        if images
        else open_pictures(folder, first.metadata, first.spec, options.bad_images, warn)
    )
    members = [make_member(net, options, images=images, per=options.normalize) for net in nets]
    with progress.task(f"testing on {pictures.name}", pictures.count) as advance:
        score = score_pictures(members, pictures, first, average=options.average, advance=advance)
    views = "; ".join(dict.fromkeys(member.transform.name for member in members))
    return score.with_context({"engine": members[0].scores.engine}), {
        "views": views,
        **({"skipped": len(pictures.bad.met)} if pictures.bad.met else {}),
    }


def make_member(net: Network, options: EvaluateOptions | PredictOptions, **normalization: Any) -> Member:
    """A network that is ready to see pictures; `options` say views, engine and device."""
    net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    runner = inference(net, options.engine, options.device)
    return Member(runner, transform_of(net.metadata, net.spec, views=options, device=runner.device, **normalization))


def score_pictures(
    members: Sequence[Member],
    pictures: TestPictures,
    net: Network,
    *,
    average: str = "softmax",
    advance: Callable[[int], None] = lambda steps: None,
) -> Score:
    """Top-1 and top-5 errors and the cross-entropy of the averaged probabilities; few pictures in memory at a time."""
    tally = Tally(net.spec.num_classes)
    stream = pictures.read_views([member.views for member in members])
    for batch in batches(stream, lambda item: item[0].bytes):
        labels = torch.tensor([label for _, label, _ in batch])
        found = probabilities(members, [seen for seen, _, _ in batch], average)
        loss = -float(found.gather(1, labels[:, None]).clamp_min(1e-300).log().sum())
        tally.add(found, labels, loss, [name for _, _, name in batch])
        advance(len(batch))
    if not tally.images:
        raise UserError(f"{pictures.name} has no picture that can be read.")
    return tally.score(net.metadata.classes)
