"""How a network is trained, as frozen data: a table of recipes, no torch here.

Every field is a word or a number, so that a recipe is a row of JSON and each field an option of the
command line. Spans of training are text: `64000it` iterations, `164ep` epochs.
"""

from __future__ import annotations

import dataclasses
import math
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resnets.errors import UserError, one_of, shown

SCHEDULES = ("multistep", "cosine", "onecycle", "constant")
CHOICES = {
    "schedule": SCHEDULES,
    "optimizer": ("sgd", "muon"),
    "decay_on": ("all", "weights"),
    "augment": ("pad", "scale", "aspect", "auto"),
    "flip": ("random", "alternate", "none"),
    "normalize": ("channel", "pixel"),
    "precision": ("float32", "bf16", "fp16"),
}


def _field(default: Any, text: str, later: bool = False) -> Any:
    """A field and its help. `later` ones came after runs had been made, whose names must not change."""
    return dataclasses.field(default=default, metadata={"help": text, "later": later})


_LARGEST_BATCH = 1 << 20  # images: larger ones are a slip of the finger, and would take all memory


@dataclass(frozen=True)
class Recipe:
    """What is done to a network. The defaults are the papers' recipe for CIFAR."""

    name: str
    length: str = _field("64000it", "how long to train: 64000it or 164ep")
    batch: int = _field(128, "images in a step, over all devices")
    micro_batch: int = _field(0, "images a device sees at once, its gradients added up to a batch; 0: its whole share")
    lr: float = _field(0.1, "learning rate, at its peak where the schedule has one")
    schedule: str = _field("multistep", "how the learning rate goes")
    milestones: str = _field("32000it,48000it", "where multistep multiplies the rate by gamma")
    gamma: float = _field(0.1, "the factor at each milestone")
    warmup: str = _field("400it", "how long to start at warmup_lr")
    warmup_lr: float = _field(0.01, "the rate of the warm-up, constant, and then the schedule's at once")
    peak: float = _field(0.25, "the share of the training at which onecycle has its peak")
    final_lr: float = _field(0.0, "where cosine and onecycle end, as a share of lr")
    optimizer: str = _field("sgd", "SGD, or Muon for the filters of the units and SGD for the rest")
    muon_lr: float = _field(0.2, "Muon's learning rate at its peak; it goes as that of SGD does")
    muon_decay: float = _field(0.0, "share of the filters that Muon takes away a step, as a multiple of its rate")
    momentum: float = _field(0.9, "of the optimizer")
    nesterov: bool = _field(False, "Nesterov's form of momentum")
    weight_decay: float = _field(1e-4, "the factor of the weights in the gradient")
    decay_on: str = _field("all", "decay everything, or convolutions and the classifier's matrix only")
    label_smoothing: float = _field(0.0, "share of the target that is spread over all classes")
    ema: float = _field(0.0, "decay a step of the averaged weights that are then tested; 0: none")
    pad: int = _field(4, "pixels of zeros on each side from which a crop is drawn")
    flip: str = _field("random", "mirroring: drawn, in every other epoch, or none")
    normalize: str = _field("channel", "mean and deviation of each channel, or the mean image")
    sizes: str = _field("", "image sides along the training, as 16@0,24@0.5,32@0.8; empty: as they are")
    validation: int = _field(0, "training images held out")
    precise_bn: int = _field(0, "training images to take BN's statistics anew from after training; 0: none")
    precision: str = _field("float32", "of the arithmetic; master weights stay float32")
    channels_last: bool = _field(True, "memory layout of the convolutions")
    sync_bn: bool = _field(False, "BN over the batch of all devices instead of each one's")
    augment: str = _field(
        "pad",
        "crops of padded images; of files also of scaled ones, or of any scale and shape; auto: pad where images or "
        "the net are small, else aspect",
        True,
    )
    side: int = _field(0, "pixels across what the network sees of images in files; 0: what it is made for", True)
    shorter_side: str = _field(
        "256-480", "range of the shorter side for scale, for crops of 224; else in proportion", True
    )
    jitter: float = _field(0.0, "largest change of brightness, contrast and saturation, in files", True)
    lighting: float = _field(0.0, "deviation of the change along the axes of ImageNet's colours, in files", True)
    freeze: int = _field(0, "stages, the stem with the first, that keep the weights they began with", True)

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name in CHOICES and value not in CHOICES[field.name]:
                raise one_of(field.name, value, CHOICES[field.name])
            _check_type(field.name, field.type, value)
            if field.type == "float":  # 1 and 1.0 are one recipe
                object.__setattr__(self, field.name, float(value))
        for name, low, high in (
            ("batch", 1, _LARGEST_BATCH), ("micro_batch", 0, _LARGEST_BATCH), ("pad", 0, None), ("validation", 0, None),
            ("precise_bn", 0, None), ("lr", 0, None), ("warmup_lr", 0, None), ("weight_decay", 0, None),
            ("gamma", 0, None), ("muon_lr", 0, None), ("muon_decay", 0, None), ("final_lr", 0, None),
            ("momentum", 0, 1), ("label_smoothing", 0, 1),
            ("ema", 0, 1), ("peak", 0, 1), ("side", 0, None), ("jitter", 0, 1), ("lighting", 0, None),
            ("freeze", 0, None),
        ):  # fmt: skip
            value = getattr(self, name)
            if value < low or (high is not None and value > high):
                bounds = f"at least {low}" if high is None else f"between {low} and {high}"
                raise UserError(f"recipe {self.name}: {name} must be {bounds}, not {value}.")
        if self.optimizer == "muon" and not (self.nesterov and self.lr):
            raise UserError(f"recipe {self.name}: muon needs nesterov and, for the rest of the net, an lr above 0.")
        if self.nesterov and not self.momentum:
            raise UserError(f"recipe {self.name}: nesterov needs a momentum above 0.")
        for span in (self.length, self.warmup, *self.milestone_spans):
            parse_span(span)
        _ = self.size_steps, self.shorter  # parsing is checking

    @property
    def milestone_spans(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.milestones.split(",") if part.strip())

    @property
    def size_steps(self) -> tuple[tuple[int, float], ...]:
        """`sizes` as pairs of a side and the share of the training at which it begins."""
        steps = []
        for part in filter(None, (p.strip() for p in self.sizes.split(","))):
            match = re.fullmatch(r"(\d{1,6})@(\d*\.?\d+)", part)
            if not match or not 0 <= float(match[2]) < 1 or int(match[1]) < 1:
                raise UserError(
                    f"recipe {self.name}: sizes must look like 16@0,24@0.5,32@0.8, not {shown(self.sizes)}."
                )
            steps.append((int(match[1]), float(match[2])))
        if steps and (steps[0][1] != 0 or steps != sorted(steps, key=lambda s: s[1])):
            raise UserError(f"recipe {self.name}: sizes must begin at 0 and go up in time, not {self.sizes!r}.")
        return tuple(steps)

    @property
    def shorter(self) -> tuple[int, int]:
        """`shorter_side` as two numbers."""
        match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", self.shorter_side)
        if not match or not 224 <= int(match[1]) <= int(match[2]):
            raise UserError(
                f"recipe {self.name}: shorter_side must look like 256-480, from 224 up, not {self.shorter_side!r}."
            )
        return int(match[1]), int(match[2])

    def to_dict(self) -> dict[str, Any]:
        """All fields, but later ones only where they are set: a run of old has the name that it had."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in LATER or v != LATER[k]}


LATER = {f.name: f.default for f in dataclasses.fields(Recipe) if f.metadata.get("later")}
_TYPES: dict[str, type | tuple[type, ...]] = {"int": int, "float": (int, float), "str": str, "bool": bool}


def _check_type(name: str, wanted: Any, value: Any) -> None:
    wrong = not isinstance(value, _TYPES[wanted]) or (wanted != "bool" and isinstance(value, bool))
    if wrong or (isinstance(value, float) and not math.isfinite(value)):
        word = {"int": "a whole number", "float": "a finite number", "str": "text", "bool": "true or false"}[wanted]
        raise UserError(f"recipe field {name} must be {word}, not {value!r}.")


def parse_span(text: str) -> tuple[Fraction, str]:
    """`64000it` or `0.5ep` as a number and its unit."""
    match = re.fullmatch(r"(\d{1,12}|\d{0,12}\.\d{1,12})(it|ep)", text.strip())
    if not match or (match[2] == "it" and "." in match[1]):
        raise UserError(f"a span of training is written as 64000it or 164ep, not {shown(text)}.")
    return Fraction(match[1]), match[2]


def iterations(span: str, images: int, batch: int) -> int:
    """A span in steps of `batch` out of `images`; epochs are rounded up to whole steps, exactly."""
    number, unit = parse_span(span)
    return int(number) if unit == "it" else math.ceil(number * images / batch)


_PAPER = Recipe("cifar-paper")
_QUICK = dataclasses.replace(  # for minutes on two cores: docs/decisions/0004-cifar-quick.md
    _PAPER,
    name="cifar-quick",
    length="13.5ep",
    lr=0.3,
    schedule="onecycle",
    peak=0.2,
    milestones="",
    warmup="0it",
    optimizer="muon",
    muon_lr=0.4,
    muon_decay=0.005,
    nesterov=True,
    weight_decay=5e-4,
    label_smoothing=0.1,
    pad=2,
    sizes="16@0,24@0.472,32@0.849",  # 6.4, 5.1 and 2 epochs
)

_IMAGENET = dataclasses.replace(  # v1 and v2: shorter side from [256, 480], AlexNet's colours
    _PAPER,
    name="imagenet-paper",
    length="90ep",
    batch=256,
    milestones="30ep,60ep",
    warmup="0it",
    augment="scale",
    lighting=0.1,
)

_TUNE = dataclasses.replace(  # own images from given weights
    _PAPER,
    name="finetune",
    length="10ep",
    batch=64,
    lr=0.01,
    schedule="cosine",
    milestones="",
    warmup="0it",
    nesterov=True,
    augment="auto",
)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        _PAPER,
        dataclasses.replace(  # the second ResNet-1001 of v2, trained by Torch code on two devices: BN saw 32 images
            _PAPER, name="cifar-paper-b64", length="200ep", batch=64, micro_batch=32, warmup="0it",
            milestones="80ep,121ep", nesterov=True,
        ),
        dataclasses.replace(_PAPER, name="cifar-v1", validation=5000),
        _QUICK,
        dataclasses.replace(_QUICK, name="cifar-hours", length="80ep", pad=4, sizes="16@0,24@0.15,32@0.5"),
        _IMAGENET,
        dataclasses.replace(  # v2's last row of Table 5, which the Torch code trained
            _IMAGENET, name="imagenet-aspect", augment="aspect", jitter=0.4, nesterov=True
        ),
        _TUNE,
        dataclasses.replace(  # from the weights of cifar-quick and cifar-hours: docs/decisions/0010-cifar-finetune.md
            _TUNE, name="cifar-finetune", optimizer="muon", lr=0.1, muon_lr=0.1, augment="pad"
        ),
    )
}  # fmt: skip


def resolve_augment(recipe: Recipe, small: bool) -> Recipe:
    """`augment auto` decided: small images are seen whole or nearly so, of large ones parts of any scale and shape."""
    return recipe if recipe.augment != "auto" else dataclasses.replace(recipe, augment="pad" if small else "aspect")


def recipe_of(name: str | Recipe, /, **changes: Any) -> Recipe:
    """The named recipe with fields replaced."""
    if isinstance(name, str) and name not in RECIPES:
        raise one_of("recipe", name, RECIPES)
    base = RECIPES[name] if isinstance(name, str) else name
    fields = [f.name for f in dataclasses.fields(Recipe) if f.name != "name"]
    for key in changes:
        if key not in fields:
            raise one_of("recipe field", key, fields)
    return dataclasses.replace(base, **changes)
