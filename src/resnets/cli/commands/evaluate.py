"""What `resnets eval` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from resnets.atomic import write_atomically
from resnets.data import Console
from resnets.data import load as load_data
from resnets.data.bad_images import BadImages
from resnets.data.images import Images
from resnets.engine.allocator import keep_freed_memory
from resnets.engine.device import choose
from resnets.engine.inference import chosen
from resnets.errors import UserError
from resnets.evaluation.evaluator import member, require_alike, score
from resnets.evaluation.labelled_images import InMemory, in_folder
from resnets.evaluation.protocol import Protocol, assess
from resnets.text import json_text, print_json, print_lines, say
from resnets.weights.loaded_model import LoadedModel, normalization, subject
from resnets.weights.pretrained import find_weights


def _require_fitting(given: LoadedModel, images: Images) -> None:
    spec, channels = given.net.spec, images.train_images.shape[1]
    if channels != spec.in_channels:
        raise UserError(f"{images.name} has {channels} channels and {spec.name} reads {spec.in_channels}.")
    if images.num_classes != spec.num_classes:
        raise UserError(
            f"{images.name} has {images.num_classes} classes and {spec.name} tells {spec.num_classes} apart; "
            "choose the data that it was trained on with --data."
        )
    if images.name == given.about.data and images.digest != given.about.digest:
        _warn(f"this {images.name} is not what {given.what} was trained on.")


def _warn(sentence: str) -> None:
    say(f"warning: {sentence}")


def eval_command(
    paths: Sequence[str],
    *,
    data: str | None,
    data_dir: str | None,
    network: str | None,
    changes: dict[str, Any],
    source: str,
    per: str | None,
    precise: int,
    protocol: Protocol,
    device: str,
    engine: str,
    out: str | None,
    as_json: bool,
    bad_images: str = "error",
) -> None:
    keep_freed_memory()
    bad = BadImages(bad_images, _warn)
    place = choose(device)
    means = chosen(engine, place)
    subjects = [subject(find_weights(path), network, changes, source) for path in paths]
    require_alike(subjects)
    first, spec = subjects[0], subjects[0].net.spec
    name = data or first.about.data or ("cifar10" if spec.stem == "cifar" else None)
    if name is None:
        raise UserError(f"say what to test {first.what} on: --data FOLDER, with a folder of pictures for each class.")
    name = name.removeprefix("imagenet:")  # training's word for a folder with ImageNet's classes
    images = None if Path(name).is_dir() else load_data(name, data_dir)
    if images is None and (per or precise):
        raise UserError("--normalize and --precise-bn take statistics of training images, which a folder has not.")
    for given in subjects:
        if images is not None:
            _require_fitting(given, images)
    if images is not None and len(subjects) == 1 and not protocol.asked:
        found, how = score(first, images, per=per, precise=precise, device=place, engine=means), "whole images"
    else:
        if precise:
            raise UserError("--precise-bn goes with one network and whole images.")
        pictures = (
            InMemory(images) if images else in_folder(Path(name), first.about, spec.num_classes, spec.in_channels, bad)
        )
        members = [member(given, protocol, means, place, normalization(given, images, per)) for given in subjects]
        with Console().task(f"testing on {pictures.name}", len(pictures)) as advance:
            found = assess(members, pictures, average=protocol.average, advance=advance)
        how = "; ".join(dict.fromkeys(str(member.views) for member in members))
    about = {
        "network": spec.to_dict(),
        **({"networks": [given.net.spec.to_dict() for given in subjects]} if len(subjects) > 1 else {}),
        "data": images.name if images else name,
        "engine": means,
        "views": how,
        "average": protocol.average,
        **({"skipped": len(bad.met)} if bad.met else {}),
    }
    result = {**about, **found.to_dict()}
    if out:
        _write(Path(out), {**result, "weights": [dict(given.about.provenance) for given in subjects]})
    if as_json:
        print_json(result)
        return
    for given in subjects:
        print_lines(given.what)
    print_lines(f"{' and '.join(given.net.spec.name for given in subjects)} on {about['data']}, {how}: {found}")
    if bad.met:
        seen = len(bad.met) + found.images
        print_lines(f"{len(bad.met)} of {seen} pictures could not be decoded and were passed over")
    right = f"that is {100 - found.error:.2f} % right"
    if five := found.top5:
        print_lines(f"the true class not among the first five: {five}")
        right += f", {100 - five.error:.2f} % among the first five"
    print_lines(right)


def _write(path: Path, result: dict[str, Any]) -> None:
    from resnets.runs import provenance

    write_atomically(path, (json_text({**result, **provenance()}, indent=1) + "\n").encode())
