"""From what a user asks for to what is trained: the data, the recipe and the task."""

from __future__ import annotations

import copy
import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from resnets.chain import Chain, NetworkSpec
from resnets.data import open_labelled, parse_folder
from resnets.data.annotations import open_annotated
from resnets.data.annotations.pictures import AnnotatedData
from resnets.data.datasets import Datasets
from resnets.data.folder import Folder
from resnets.data.images import Images
from resnets.detector_spec import DetectorOptions, DetectorSpec, detector_of, is_detector
from resnets.errors import UserError
from resnets.nn import Network
from resnets.nn.structure import find_change
from resnets.options import fields_of
from resnets.progress import Console, Silent
from resnets.recipe import (
    DETECTION,
    NEED_WEIGHTS,
    RECIPES,
    Recipe,
    default_recipe,
    is_boxed,
    recipe_of,
    resolve_augment,
    resolve_length,
)
from resnets.runs import ModuleKey, NetworkKey
from resnets.spec import Spec
from resnets.training.classification import Classification, Teacher
from resnets.training.detection import Detection, resolve_anchors
from resnets.training.hints import Hints
from resnets.training.init_weights import InitialState, begin_at
from resnets.training.optimizers import resolve_optimizer
from resnets.training.options import TrainOptions
from resnets.training.task import Task
from resnets.weights.detectors import begin_detector
from resnets.weights.models import find, hash_file, open_model
from resnets.zoo import NetworkOptions, spec_of


@dataclass(frozen=True)
class Job:
    """A training, resolved: all that decides its numbers."""

    task: Task
    recipe: Recipe
    options: TrainOptions
    why: str = ""  # this recipe, if the user named none
    begins: str = ""  # a sentence about the weights that it begins with
    folder: Path | None = None  # of the images, as an absolute path
    module: nn.Module | None = None  # of the user

    @property
    def spec(self) -> NetworkKey:
        return self.task.network


def resolve_job(
    model: str | NetworkSpec | DetectorSpec | nn.Module | Task,
    data: Any,
    recipe: Recipe | None,
    options: TrainOptions,
    *,
    network: Mapping[str, Any],
    changes: Mapping[str, Any],
    warn: Callable[[str], None],
) -> Job:
    """`data` and `recipe` are objects that stand for what `options` name; `changes` are fields of the recipe."""
    if isinstance(model, Task):
        if data is not None or network or options.weights is not None:
            raise UserError("a task brings its data and network: leave out data, weights and fields of the network.")
        return _resolve_task(model, recipe, options, changes)
    if isinstance(model, DetectorSpec) or is_detector(model):
        return _resolve_detector(model, data, recipe, options, network=network, changes=changes, warn=warn)  # type: ignore[arg-type]
    if set(network) & set(fields_of(DetectorOptions)):
        raise UserError(f"{', '.join(set(network) & set(fields_of(DetectorOptions)))}: only a detector has that.")
    if recipe is None and options.recipe in DETECTION:
        raise UserError(f"recipe {options.recipe} is for detectors, as faster_rcnn_resnet50.")
    if (
        recipe is None
        and options.recipe in NEED_WEIGHTS
        and options.weights is None
        and isinstance(model, str | Spec | Chain)
    ):
        raise UserError(
            f"recipe {options.recipe} fine-tunes given weights: name them by --weights, or leave --recipe out to "
            "train from scratch."
        )
    source = options.data if data is None else data
    named, why = (recipe, "") if recipe is not None else choose_recipe(source, options, model)
    chosen = resolve_optimizer(recipe_of(named, **changes))  # a mistake is refused before the data is read
    images = open_images(source, options)
    if options.test and isinstance(images, Folder) and images.test is None and not chosen.validation:
        raise UserError(
            f"{images.name} has no folder val to test on: hold out training images by --validation N, or leave testing "
            "out by --no-test."
        )
    if isinstance(model, nn.Module):
        start = _resolve_module(model, images, options, network)
    else:
        start = _resolve_network(model, images, options, network)
    if chosen.whiten and start.net is not None:
        raise _refuse_whitening(chosen)
    if isinstance(start.network, Chain):
        _require_plain(start.network, chosen, options)
    reading = {"bad_images": options.bad_images, "workers": options.decoders, "warn": warn}
    kind = Hints if chosen.hint else Classification
    teacher = _open_teacher(chosen, options, images)
    given = {"net": start.net, "weights": start.digest, "teacher": teacher, "reading": reading}
    task = kind(start.network, start.data, **given)  # type: ignore[arg-type]
    small = not isinstance(images, Folder) or getattr(task.network, "is_small", True)
    chosen = resolve_length(resolve_augment(chosen, small), task.count_examples(chosen))
    options = options if data is None else dataclasses.replace(options, data=task.data)
    module = start.net if isinstance(model, nn.Module) else None
    return Job(task, chosen, options, why, start.sentence, _folder_of(images), module)


def _require_plain(network: Chain, recipe: Recipe, options: TrainOptions) -> None:
    """Refuse what only makes sense for residual units."""
    name = network.name
    if recipe.optimizer == "muon":
        raise UserError(
            f"recipe {recipe.name}: muon is for the filters of residual units, and {name} has none; choose sgd."
        )
    if recipe.whiten:
        raise UserError(f"whiten computes the first filters of residual networks, and {name} is none; --no-whiten.")
    if options.memory in ("lean", "min"):
        raise UserError(f"memory {options.memory} runs residual units again, and {name} has none; choose fast.")
    if options.engine == "compiled":
        raise UserError(f"engine compiled compiles residual units, and {name} has none; choose plain.")


def _open_teacher(recipe: Recipe, options: TrainOptions, images: Images | Folder | Datasets) -> Teacher | None:
    """The network to learn from, if the recipe does so."""
    if not recipe.needs_teacher:
        if options.teacher is not None:
            raise UserError(f"recipe {recipe.name} does not learn from a teacher; leave out --teacher.")
        return None
    if options.teacher is None:
        raise UserError(
            f"recipe {recipe.name} learns from a teacher: name it by --teacher, with a finished run of maxout say."
        )
    net, file = open_model(options.teacher), find(options.teacher)
    seen = net.metadata.preprocessing
    if net.spec.num_classes != images.num_classes or seen is None or seen.normalize != recipe.normalize:
        how = seen.normalize if seen else "unknown"
        raise UserError(
            f"the teacher {options.teacher} has {net.spec.num_classes} classes and images normalised by {how}; recipe "
            f"{recipe.name} needs {images.num_classes} classes and {recipe.normalize}."
        )
    assert isinstance(file, Path)
    return Teacher(net, hash_file(file / "final.safetensors" if file.is_dir() else file))


def _folder_of(images: Images | Folder | Datasets) -> Path | None:
    """The absolute path of a folder, which its name may give relative to the working directory."""
    if not isinstance(images, Folder):
        return None
    path = Path(images.name.removeprefix("imagenet:")).expanduser().resolve()
    return path if path.exists() else None


def _resolve_task(task: Task, recipe: Recipe | None, options: TrainOptions, changes: Mapping[str, Any]) -> Job:
    if recipe is None and options.recipe == "auto":
        raise UserError("a task needs a recipe: give a name or a Recipe.")
    chosen = recipe_of(recipe or options.recipe, **changes)
    if chosen.whiten:
        raise _refuse_whitening(chosen)
    chosen = resolve_length(resolve_augment(chosen, small=True), task.count_examples(chosen))
    return Job(task, resolve_optimizer(chosen), dataclasses.replace(options, data=task.data))


def _resolve_detector(
    model: str | DetectorSpec,
    data: Any,
    recipe: Recipe | None,
    options: TrainOptions,
    *,
    network: Mapping[str, Any],
    changes: Mapping[str, Any],
    warn: Callable[[str], None],
) -> Job:
    source = options.data if data is None else data
    name = getattr(source, "name", source)
    if not is_boxed(str(name)):
        raise UserError(
            f"a detector learns from boxes: --data voc:DIR, coco:JSON:DIR, yolo:DIR or csv:FILE, not {name}."
        )
    named, why = (recipe, "") if recipe is not None else choose_recipe(str(name), options)
    if isinstance(named, str) and named in RECIPES and named not in DETECTION:
        raise UserError(f"recipe {named} is not for detectors; choose one of {', '.join(DETECTION)}.")
    # Stages without weights must learn, unless the user says otherwise.
    opened = {} if options.weights or isinstance(named, Recipe) else {"freeze": 0}
    chosen = resolve_optimizer(recipe_of(named, **{**opened, **changes}))
    if isinstance(model, DetectorSpec):
        spec = model
    else:
        fields = {key: value for key, value in network.items() if key in fields_of(DetectorOptions)}
        spec = detector_of(model, network=network, **fields)  # a mistake is refused before the data is read
    boxed = (
        source if isinstance(source, AnnotatedData) else open_annotated(source, bad_boxes=options.bad_boxes, warn=warn)
    )
    if options.test and boxed.test is None and not chosen.validation:
        raise UserError(
            f"{boxed.name} has no pictures to test on: name a list of them, hold out training pictures by "
            "--validation N, or leave testing out by --no-test."
        )
    chosen, spec = resolve_anchors(chosen, spec, boxed)
    start = begin_detector(options.weights, spec, boxed.classes, network) if options.weights else None
    task = Detection(
        start.spec if start else spec,
        boxed,
        start=start,
        reading={"bad_images": options.bad_images, "workers": options.decoders, "warn": warn},
        progress=Silent() if options.quiet else Console(),
    )
    options = options if data is None else dataclasses.replace(options, data=task.data)
    chosen = resolve_length(chosen, task.count_examples(chosen))
    return Job(task, chosen, options, why, start.sentence if start else "", Path(boxed.place))


def _refuse_whitening(recipe: Recipe) -> UserError:
    return UserError(
        f"recipe {recipe.name} computes the first filters of a new network from the images (whiten): with weights, "
        "modules or tasks of your own turn that off, by whiten=False or --no-whiten."
    )


def open_images(data: Any, options: TrainOptions) -> Images | Folder | Datasets:
    if isinstance(data, str | Path | Images | Folder):
        return open_labelled(data, options.data_dir)
    if isinstance(data, Datasets):
        return data
    if isinstance(data, (tuple, list)):
        if not 1 <= len(data) <= 2:
            raise UserError(f"data must be a training set and perhaps a test set, not {len(data)} of them.")
        return Datasets(*data)
    return Datasets(data)


def choose_recipe(data: Any, options: TrainOptions, model: object = None) -> tuple[str, str]:
    """The recipe that was named, or the default for this data and these weights, and why. No data is read."""
    if options.recipe != "auto":
        return options.recipe, ""
    in_files = parse_folder(data)[0] is not None if isinstance(data, str) else not isinstance(data, Images)
    name = data if isinstance(data, str) else getattr(data, "name", "")
    network = model if isinstance(model, str) else getattr(model, "name", "")
    return default_recipe(name, in_files, options.weights is not None, network)


# --- the network ------------------------------------------------------------------------------


def _resolve_network(
    model: str | NetworkSpec, images: Images | Folder | Datasets, options: TrainOptions, network: Mapping[str, Any]
) -> InitialState:
    """A named network has as many classes and channels as the images, unless `network` says otherwise."""
    if isinstance(model, Spec | Chain):
        if network:
            raise UserError("a network given as a Spec takes no changes by `network`; change the spec.")
        spec: NetworkSpec = model
    else:
        spec = spec_of(model, **{"num_classes": images.num_classes, "in_channels": images.channels, **network})
    if options.weights is None:
        return InitialState(spec, images)
    if isinstance(images, Datasets):
        raise UserError("--weights is for images of ours; load the weights into a module and train that.")
    decided = fields_of(NetworkOptions) if isinstance(model, Spec | Chain) else network
    return begin_at(options.weights, spec, images, options.seed, decided)


def _resolve_module(
    model: nn.Module, images: Images | Folder | Datasets, options: TrainOptions, network: Mapping[str, Any]
) -> InitialState:
    """A copy of the user's module is trained, so that the same call again finds the same run."""
    if network or options.weights is not None:
        raise UserError("a module is trained as it is: leave out weights and fields of the network.")
    net = copy.deepcopy(model.original if isinstance(model, Network) else model)
    if isinstance(net, Network) and find_change(net) is None:
        return InitialState(net.spec, images, net, hash_module(net))
    return InitialState(ModuleKey(type(model).__name__, hash_module(net)), images, net)


def hash_module(net: nn.Module) -> str:
    """The hash of a module's structure and weights."""
    digest = hashlib.sha256()
    for name, module in net.named_modules():
        digest.update(f"{name} {type(module).__qualname__} {module.extra_repr()}\n".encode())
    for name, tensor in net.state_dict().items():
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
        digest.update(values.view(-1).view(torch.uint8).numpy().tobytes() if values.numel() else b"")
    return digest.hexdigest()
