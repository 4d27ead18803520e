"""How a network is trained, as frozen data: a table of recipes, no torch here.

Every field is text or a number, so a recipe is a row of JSON, and each field is a keyword and an option of the command
line. Spans of training are text: `64000it` iterations, `164ep` epochs.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from resnets.errors import UserError, one_of, shown
from resnets.options import check, fields_of, option, split_keywords
from resnets.other_systems import SYSTEMS

SCHEDULES = ("multistep", "cosine", "onecycle", "linear", "constant")
_LARGEST_BATCH = 1 << 20  # images: larger batches are typing errors, and would take all memory


def _field(default: Any, help: str, later: bool = False, **more: Any) -> Any:
    """A field. `later` ones are newer than some runs, whose names must not change."""
    return option(default, help, group="recipe", later=later, show=False, **more)


@dataclass(frozen=True)
class Recipe:
    """How a network is trained. The defaults are the papers' recipe for CIFAR.

    >>> recipe = resnets.Recipe(lr=0.05, length="20ep")
    >>> recipe.momentum, recipe.weight_decay
    (0.9, 0.0001)
    """

    name: str = "custom"
    length: str = _field(
        "64000it",
        "length of the training: 64000it, 164ep, or auto: by the number of images",
        aliases={"epochs": "{}ep", "iterations": "{}it", "steps": "{}it"},
    )
    batch: int = _field(
        128, "images in a step, over all devices", least=1, most=_LARGEST_BATCH, aliases={"batch_size": "{}"}
    )
    micro_batch: int = _field(
        0,
        "images that a device sees at once; gradients are added up to a batch; 0: its whole share",
        least=0,
        most=_LARGEST_BATCH,
    )
    lr: float = _field(0.1, "learning rate; the largest of the schedule", least=0, aliases={"learning_rate": "{}"})
    schedule: str = _field("multistep", "how the learning rate changes", choices=SCHEDULES)
    milestones: str = _field(
        "32000it,48000it",
        "where multistep multiplies the learning rate by gamma, or by a factor of its own: 100000it:0.05",
    )
    gamma: float = _field(0.1, "factor at each milestone", least=0)
    warmup: str = _field("400it", "length of the warm-up")
    warmup_lr: float = _field(0.01, "constant learning rate during the warm-up", least=0)
    peak: float = _field(0.25, "share of the training at which onecycle has its peak", least=0, most=1)
    final_lr: float = _field(0.0, "learning rate at the end of cosine, onecycle and linear, as a share of lr", least=0)
    optimizer: str = _field(
        "sgd", "sgd, muon (for the filters of the units, and SGD for the rest) or a class of torch.optim, as AdamW"
    )
    muon_lr: float = _field(0.2, "Muon's learning rate; the schedule scales it as it does lr", least=0)
    muon_decay: float = _field(0.0, "Muon's weight decay, multiplied by its learning rate", least=0)
    momentum: float = _field(0.9, "momentum of sgd and muon", least=0, most=1)
    nesterov: bool = _field(False, "Nesterov momentum, for sgd and muon")
    weight_decay: float = _field(1e-4, "weight decay", least=0)
    decay_on: str = _field(
        "all", "decay all parameters, or only matrices and filters (weights)", choices=("all", "weights")
    )
    label_smoothing: float = _field(0.0, "share of the target spread over all classes", least=0, most=1)
    ema: float = _field(0.0, "decay of the averaged weights, which are then tested; 0: none", least=0, most=1)
    pad: int = _field(4, "pixels of zeros on each side from which a crop is drawn", least=0)
    flip: str = _field(
        "random", "mirror images at random, in every other epoch, or not", choices=("random", "alternate", "none")
    )
    normalize: str = _field(
        "channel",
        "by the mean and deviation of each channel, by the mean image (pixel), by the contrast of each image and then "
        "the mean image (gcn), or whitened after that (gcn-zca)",
        choices=("channel", "pixel", "gcn", "gcn-zca"),
    )  # fmt: skip
    sizes: str = _field("", "image sides during the training, as 16@0,24@0.5,32@0.8; empty: unchanged")
    validation: int = _field(0, "training images held out for validation", least=0)
    precise_bn: int = _field(0, "training images for new BN statistics after the training; 0: none", least=0)
    precision: str = _field(
        "float32", "precision of the arithmetic; weights stay float32", choices=("float32", "bf16", "fp16")
    )
    channels_last: bool = _field(True, "memory layout of the convolutions")
    sync_bn: bool = _field(False, "BN over the batch of all devices instead of each device's share")
    augment: str = _field(
        "pad",
        "crops of padded images; for files also crops of scaled images (scale) or of any scale and shape (aspect); "
        "auto: pad if the images or the network are small, else aspect",
        later=True,
        choices=("pad", "scale", "aspect", "auto"),
    )
    side: int = _field(
        0, "side of the images that the network sees, from files; 0: the network's own", later=True, least=0
    )
    shorter_side: str = _field(
        "256-480", "range of the shorter side for scale, for crops of 224; else in proportion", later=True
    )
    jitter: float = _field(
        0.0, "largest change of brightness, contrast and saturation, for files", later=True, least=0, most=1
    )
    lighting: float = _field(
        0.0, "deviation of the change along the axes of ImageNet's colours, for files", later=True, least=0
    )
    freeze: int = _field(0, "stages whose weights are not trained, the stem with the first", later=True, least=0)
    whiten: bool = _field(
        False, "filters of the first convolution: whitened patches of training images, not trained", later=True
    )
    mirror: bool = _field(
        False, "also score the mean of each test image and its mirror image, as a second number", later=True
    )
    shift: int = _field(
        0, "also score the mean of each test image and the same moved by N pixels both ways", later=True, least=0
    )
    optimizer_options: str = _field("", "keywords of a torch.optim class: betas=0.9,0.95,eps=1e-6", later=True)
    detect_side: str = _field(
        "600", "detection: shorter side of the pictures; several, as 480,600: one of them at random", later=True
    )
    detect_longest: int = _field(1000, "detection: longest side of the pictures", later=True, least=32, most=8192)
    anchor_sizes: str = _field(
        "128,256,512", "detection: sides of the square anchors, in pixels as the network sees them; auto: by the boxes",
        later=True,
    )  # fmt: skip
    pool_size: int = _field(14, "detection: a region is pooled to N x N", later=True, least=1, most=64)
    rpn_batch: int = _field(256, "detection: anchors of a picture that a step learns from", later=True, least=1)
    roi_batch: int = _field(128, "detection: regions of a picture that a step learns from", later=True, least=1)
    roi_positive: float = _field(
        0.25, "detection: largest share of these regions that hold an object", later=True, least=0, most=1
    )

    loss: str = _field(
        "cross-entropy",
        "cross-entropy, or the squared hinge of each class against the others (hinge)",
        later=True,
        choices=("cross-entropy", "hinge"),
    )
    init: str = _field(
        "", "first weights: gaussian:STD, uniform:BOUND, xavier or lsuv; empty: the network's own", later=True
    )
    bias_lr: float = _field(1.0, "learning rate of biases, as a factor", later=True, least=0)
    conv_lr: float = _field(1.0, "learning rate of convolutions, as a factor", later=True, least=0)
    classifier_lr: float = _field(
        1.0, "learning rate of the layer whose outputs are classes, as a factor", later=True, least=0
    )
    linear_decay: float = _field(1.0, "weight decay of fully connected layers, as a factor", later=True, least=0)
    max_norm: str = _field(
        "", "largest norms of the filters of each layer in turn: 0.9,1.9; one number: of all layers", later=True
    )
    clip_norm: float = _field(0.0, "largest norm of the whole gradient; 0: any", later=True, least=0)
    momentum_ramp: str = _field("", "momentum that is reached on a straight line: 0.65@250ep", later=True)
    aux_weight: float = _field(1.0, "weight of auxiliary losses, as a factor", later=True, least=0)
    aux_length: str = _field("", "span after which auxiliary losses no longer count; empty: never", later=True)
    aux_lr: float = _field(1.0, "learning rate of auxiliary heads, as a factor", later=True, least=0)
    aux_fade: float = _field(
        0.0, "how that falls: by (1 + X step) to the power of -0.75; 0: not at all", later=True, least=0
    )
    hint: str = _field(
        "", "train towards a row of the teacher instead of the classes: TEACHER_ROW:STUDENT_ROW", later=True
    )
    distill: str = _field(
        "", "weight of the teacher's scores in the loss, falling on a straight line: 4-1@500ep", later=True
    )
    temperature: float = _field(3.0, "by which both scores are divided for distill", later=True, least=0)

    def __post_init__(self) -> None:
        if isinstance(self.optimizer_options, Mapping):
            object.__setattr__(self, "optimizer_options", write_keywords(self.optimizer_options))
        if isinstance(self.optimizer, str) and self.optimizer.lower() in ("sgd", "muon"):
            object.__setattr__(self, "optimizer", self.optimizer.lower())
        for field in fields_of(Recipe).values():
            object.__setattr__(self, field.name, check(field, getattr(self, field.name)))
        if self.optimizer == "muon" and not (self.nesterov and self.lr):
            raise UserError(f"recipe {self.name}: muon needs nesterov and, for the rest of the net, an lr above 0.")
        if self.optimizer in ("sgd", "muon") and self.optimizer_options:
            raise UserError(
                f"optimizer_options {shown(self.optimizer_options)} are for classes of torch.optim, as AdamW; "
                f"{self.optimizer} has its own fields: momentum, nesterov, weight_decay."
            )
        if self.nesterov and not self.momentum:
            raise UserError(f"recipe {self.name}: nesterov needs a momentum above 0.")
        spans = self.warmup, *self.milestone_spans
        for span in spans if self.length == "auto" else (self.length, *spans):
            parse_span(span)
        if self.aux_length:
            parse_span(self.aux_length)
        # parsing checks them
        _ = self.size_steps, self.shorter, read_keywords(self.optimizer_options), self.detect_sides, self.anchor_sides
        _ = self.milestone_factors, self.norm_limits, self.momentum_goal, self.distill_line, self.hint_rows
        parse_init(self.init)
        if not self.temperature:
            raise UserError(f"recipe {self.name}: temperature must be above 0.")

    @property
    def milestone_spans(self) -> tuple[str, ...]:
        return tuple(part.partition(":")[0].strip() for part in self.milestones.split(",") if part.strip())

    @property
    def milestone_factors(self) -> tuple[float, ...]:
        """By what each milestone multiplies the learning rate."""
        words = [part.partition(":")[2].strip() for part in self.milestones.split(",") if part.strip()]
        try:
            found = tuple(float(word) if word else self.gamma for word in words)
        except ValueError:
            found = (math.nan,)
        if not all(math.isfinite(factor) and factor >= 0 for factor in found):
            raise UserError(
                f"recipe {self.name}: milestones must look like 32000it,48000it or 32000it:0.05, not "
                f"{shown(self.milestones)}."
            )
        return found

    @property
    def is_plain_multistep(self) -> bool:
        """Whether every milestone multiplies by gamma."""
        return ":" not in self.milestones

    @property
    def norm_limits(self) -> tuple[float, ...]:
        """`max_norm` as numbers."""
        try:
            found = tuple(float(word) for word in self.max_norm.split(",")) if self.max_norm.strip() else ()
        except ValueError:
            found = (math.nan,)
        if not all(math.isfinite(limit) and limit > 0 for limit in found):
            raise UserError(f"recipe {self.name}: max_norm must look like 0.9,1.9, not {shown(self.max_norm)}.")
        return found

    @property
    def momentum_goal(self) -> tuple[float, str] | None:
        """`momentum_ramp` as a number and a span."""
        if not self.momentum_ramp:
            return None
        number, _, span = self.momentum_ramp.partition("@")
        goal = _read_share(number)
        if goal is None or not span or self.optimizer != "sgd":
            raise UserError(
                f"recipe {self.name}: momentum_ramp must look like 0.65@250ep and is for sgd, not "
                f"{shown(self.momentum_ramp)}."
            )
        parse_span(span)
        return goal, span

    @property
    def distill_line(self) -> tuple[float, float, str] | None:
        """`distill` as its first and last weight and the span between them."""
        if not self.distill:
            return None
        match = re.fullmatch(r"(\d*\.?\d+)-(\d*\.?\d+)@(.+)", self.distill)
        if not match or self.hint:
            raise UserError(
                f"recipe {self.name}: distill must look like 4-1@500ep and goes without hint, not "
                f"{shown(self.distill)}."
            )
        parse_span(match[3])
        return float(match[1]), float(match[2]), match[3]

    @property
    def hint_rows(self) -> tuple[str, str] | None:
        """`hint` as the row of the teacher and that of the student."""
        if not self.hint:
            return None
        teacher, _, student = self.hint.partition(":")
        if not teacher or not student:
            raise UserError(f"recipe {self.name}: hint must look like hidden2:conv11, not {shown(self.hint)}.")
        return teacher, student

    @property
    def needs_teacher(self) -> bool:
        return bool(self.hint or self.distill)

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

    @property
    def detect_sides(self) -> tuple[int, ...]:
        """`detect_side` as numbers."""
        if not re.fullmatch(r"[0-9]{2,4}(,[0-9]{2,4}){0,15}", self.detect_side):
            raise UserError(
                f"recipe {self.name}: detect_side must look like 600 or 480,600, not {shown(self.detect_side)}."
            )
        return tuple(map(int, self.detect_side.split(",")))

    @property
    def anchor_sides(self) -> tuple[int, ...]:
        """`anchor_sizes` as numbers; () if they follow from the boxes."""
        if self.anchor_sizes == "auto":
            return ()
        if not re.fullmatch(r"[1-9][0-9]{0,3}(,[1-9][0-9]{0,3}){0,15}", self.anchor_sizes):
            raise UserError(
                f"recipe {self.name}: anchor_sizes must look like 128,256,512 or be auto, not "
                f"{shown(self.anchor_sizes)}."
            )
        return tuple(map(int, self.anchor_sizes.split(",")))

    @property
    def depends_on_length(self) -> str | None:
        """What makes earlier steps depend on the length of the training, if anything does."""
        if self.schedule in ("cosine", "onecycle", "linear"):
            return f"the learning rate of schedule {self.schedule}"
        return "the size of the images (sizes)" if len(self.size_steps) > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """All fields, but later ones only if they are set, so that the hashes of existing runs do not change."""
        return {k: v for k, v in dataclasses.asdict(self).items() if k not in LATER or v != LATER[k]}


LATER = {name: field.default for name, field in fields_of(Recipe).items() if field.metadata["later"]}


def read_keywords(text: str) -> dict[str, Any]:
    """`betas=0.9,0.95,eps=1e-6` as keywords: numbers, tuples of numbers, true, false and none."""
    found: dict[str, Any] = {}
    for part in re.split(r"[,;\s]+(?=[A-Za-z_]\w*=)", text.strip(" ,;")) if text.strip(" ,;") else []:
        name, equals, values = part.partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise UserError(f"optimizer_options are written as betas=0.9,0.95,eps=1e-6, not {shown(text)}.")
        numbers = tuple(_read_value(name, value) for value in values.split(","))
        found[name] = numbers if len(numbers) > 1 else numbers[0]
    return found


_WORDS = {"true": True, "false": False, "none": None}


def _read_value(name: str, text: str) -> Any:
    text = text.strip()
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UserError(f"optimizer_options: {name} must be numbers, true, false or none, not {shown(text)}.")
    return int(text) if re.fullmatch(r"[-+]?[0-9]{1,15}", text) else number


def write_keywords(keywords: Mapping[str, Any]) -> str:
    """Keywords as the text that `read_keywords` reads."""
    words = {name: value if isinstance(value, (tuple, list)) else (value,) for name, value in keywords.items()}
    return ",".join(f"{name}={','.join(str(value).lower() for value in values)}" for name, values in words.items())


def _read_share(text: str) -> float | None:
    """A number from 0 to 1."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0 <= number <= 1 else None


def parse_init(text: str) -> tuple[str, float]:
    """`gaussian:0.05` as a kind and its number; empty is the network's own."""
    kind, colon, number = text.partition(":")
    try:
        value = float(number) if colon else 0.0
    except ValueError:
        value = math.nan
    takes = kind in ("gaussian", "uniform")
    if kind not in ("", "gaussian", "uniform", "xavier", "lsuv") or takes != bool(colon) or not 0 <= value < 1e9:
        raise UserError(
            f"init must be gaussian:STD, uniform:BOUND, xavier, lsuv or empty, as in gaussian:0.05, not {shown(text)}."
        )
    return kind, value


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


@dataclass(frozen=True)
class Epochs:
    """`n` examples in batches of `size` that do not end with an epoch: which steps belong to which epoch."""

    n: int
    size: int  # of a batch, over all processes

    def __post_init__(self) -> None:
        if self.n < 1 or self.size < 1:
            raise UserError(f"{self.n} images cannot be split into batches of {self.size}.")

    def epoch(self, step: int) -> int:
        """The epoch in which a batch begins."""
        return step * self.size // self.n

    def first(self, epoch: int) -> int:
        """The first step that begins in an epoch, or after it where one batch spans more."""
        return -(-epoch * self.n // self.size)

    def steps(self, epoch: int) -> int:
        """How many batches begin in an epoch."""
        return self.first(epoch + 1) - self.first(epoch)

    def place(self, step: int) -> int:
        """The number of a batch within its epoch."""
        return step - self.first(self.epoch(step))


_PAPER = Recipe("cifar-paper")
_HOURS = dataclasses.replace(  # for hours of one core: docs/decisions/0011-cifar-hours.md
    _PAPER,
    name="cifar-hours",
    length="80ep",
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
    sizes="16@0,24@0.15,32@0.5",
)
_QUICK = dataclasses.replace(  # for minutes on two cores: docs/decisions/0004-cifar-quick.md
    _HOURS,
    name="cifar-quick",
    length="12ep",
    peak=0.1,
    pad=2,
    flip="alternate",
    sizes="16@0,24@0.47,32@0.85",  # 5.6, 4.6 and 1.8 epochs
    whiten=True,
    mirror=True,
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

_TUNE = dataclasses.replace(  # own images, from given weights
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

_VOC = dataclasses.replace(  # Faster R-CNN, which v1 follows; one picture a step, as in approximate joint training
    _PAPER,
    name="voc-paper",
    length="80000it",
    batch=1,
    lr=0.001,
    milestones="60000it",
    warmup="0it",
    weight_decay=5e-4,
    freeze=1,
    augment="scale",
)

# --- of the authors of other systems: docs/decisions/0021-other-systems.md ---------------------

_CAFFE = dataclasses.replace(  # what their recipes have in common: weights are decayed, biases learn twice as fast
    _PAPER, name="caffe", warmup="0it", decay_on="weights", bias_lr=2.0, normalize="gcn"
)
_PYLEARN = dataclasses.replace(
    _PAPER,
    name="pylearn2",
    warmup="0it",
    milestones="",
    conv_lr=0.05,
    weight_decay=0.0,
    pad=8,
    normalize="gcn-zca",
    init="uniform:0.005",
)
_FITNET = dataclasses.replace(
    _PYLEARN,
    name="fitnet-hints",
    length="288ep",
    schedule="constant",
    lr=0.005,
    optimizer="RMSprop",
    optimizer_options="alpha=0.9",
    max_norm=",".join(["0.9"] * 17),
    hint="hidden2:conv11",
)
_DSN = dataclasses.replace(  # s9xie's: 50,000 steps with companions, 150,000 without
    _CAFFE,
    name="dsn-paper",
    length="200000it",
    batch=100,
    lr=0.025,
    milestones="150001it:0.05,170001it:0.08",
    weight_decay=5e-4,
    loss="hinge",
    aux_length="50000it",
    aux_lr=0.001,
    aux_fade=1e-4,
    init="gaussian:0.05",
)
_LSUV = dataclasses.replace(
    _CAFFE,
    name="lsuv-paper",
    length="90000it",
    lr=0.01,
    milestones="40000it,60000it,80000it",
    weight_decay=5e-4,
    bias_lr=1.0,
    pad=8,
    init="lsuv",
)
_VGG = dataclasses.replace(
    _IMAGENET,
    name="vgg-paper",
    length="74ep",
    lr=0.01,
    milestones="25ep,50ep,65ep",
    weight_decay=5e-4,
    shorter_side="256-512",
)


def _every(span: int, unit: str, count: int) -> str:
    return ",".join(f"{span * i}{unit}" for i in range(1, count + 1))


_OTHERS = (
    dataclasses.replace(  # mavenlin's cuda-convnet files: rates of 1 and 2 on a loss of 0.1
        _CAFFE, name="nin-paper", length="260ep", milestones="200ep,230ep", classifier_lr=0.1, normalize="gcn-zca",
        init="gaussian:0.05",
    ),
    dataclasses.replace(  # the same author's for CIFAR-100: rates of 0.01 and 0.02 on a loss of 2
        _CAFFE, name="nin-cifar100", length="260ep", lr=0.02, milestones="200ep,230ep", weight_decay=5e-4,
        normalize="gcn-zca", init="gaussian:0.05",
    ),
    _DSN,
    dataclasses.replace(_DSN, name="dsn-softmax", loss="cross-entropy"),  # their CIFAR-100 network
    dataclasses.replace(  # pylearn2's: a line to 1 % after 500 epochs, of which 474 are trained
        _PYLEARN, name="maxout-paper", length="474ep", lr=0.17, schedule="linear",
        final_lr=round(1 - 0.99 * 474 / 500, 5), momentum=0.5, momentum_ramp="0.65@250ep",
        max_norm="0.9,1.9365,1.9365,1.9,1.9365",
    ),
    _FITNET,
    dataclasses.replace(_FITNET, name="fitnet-paper", hint="", distill="4-1@500ep"),
    dataclasses.replace(  # flukeskywalker's prototxts
        _CAFFE, name="highway-paper", length="200000it", batch=100, lr=0.025, milestones="100000it,150000it,175000it",
        nesterov=True, weight_decay=1e-3, linear_decay=10.0, pad=8, init="xavier",
    ),
    dataclasses.replace(
        _PAPER, name="allcnn-paper", length="350ep", lr=0.05, milestones="200ep,250ep,300ep", warmup="0it",
        weight_decay=1e-3, pad=5, normalize="gcn-zca",
    ),
    dataclasses.replace(
        _PAPER, name="elu-paper", length="125000it", batch=100, lr=0.01, milestones="35000it", warmup="0it",
        weight_decay=5e-4, normalize="gcn-zca",
    ),
    _LSUV,
    dataclasses.replace(
        _LSUV, name="lsuv-rmsprop", length="190000it", lr=5e-4, gamma=0.5, optimizer="RMSprop",
        optimizer_options="alpha=0.9", milestones="70000it,100000it,130000it,150000it,170000it,180000it",
    ),
    _VGG,
    dataclasses.replace(
        _VGG, name="prelunet-paper", length="80ep", batch=128, milestones="30ep,60ep", decay_on="weights"
    ),
    dataclasses.replace(  # Caffe's
        _IMAGENET, name="googlenet-paper", length="2400000it", batch=32, lr=0.01, milestones=_every(320_000, "it", 7),
        gamma=0.96, weight_decay=2e-4, augment="aspect", lighting=0.0, jitter=0.4,
    ),
    dataclasses.replace(
        _IMAGENET, name="bninception-paper", lr=0.045, milestones=_every(2, "ep", 44), gamma=0.94, weight_decay=2e-4,
        augment="aspect", lighting=0.0, jitter=0.4,
    ),
    dataclasses.replace(
        _IMAGENET, name="inception-paper", length="100ep", batch=1600, micro_batch=32, lr=0.045,
        milestones=_every(2, "ep", 49), gamma=0.94, optimizer="RMSprop", optimizer_options="alpha=0.9,eps=1",
        weight_decay=4e-5, label_smoothing=0.1, clip_norm=2.0, augment="aspect", lighting=0.0, jitter=0.4,
    ),
)  # fmt: skip

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
        dataclasses.replace(  # for less than half an hour on two cores: docs/decisions/0019-cifar-94.md
            _QUICK, name="cifar-94", length="18ep", sizes="16@0,24@0.4,32@0.75", shift=1
        ),
        _HOURS,
        _IMAGENET,
        dataclasses.replace(  # v2's last row of Table 5, which the Torch code trained
            _IMAGENET, name="imagenet-aspect", augment="aspect", jitter=0.4, nesterov=True
        ),
        _TUNE,
        dataclasses.replace(  # own images in files, without weights: docs/decisions/0016-default-recipe.md
            _TUNE, name="scratch", length="auto", lr=0.05, warmup="1ep", label_smoothing=0.1
        ),
        dataclasses.replace(  # from the weights of cifar-quick and cifar-hours: docs/decisions/0010-cifar-finetune.md
            _TUNE, name="cifar-finetune", optimizer="muon", lr=0.1, muon_lr=0.1, augment="pad"
        ),
        _VOC,
        dataclasses.replace(  # v1: 8 pictures a step, anchors of 64 pixels added
            _VOC, name="coco-paper", length="320000it", batch=8, micro_batch=1, milestones="240000it",
            anchor_sizes="64,128,256,512",
        ),
        dataclasses.replace(  # own pictures: docs/decisions/0024-detection-quick.md
            _VOC, name="detection-quick", length="12ep", lr=0.002, schedule="cosine", milestones="", warmup="50it",
            warmup_lr=0.0005, weight_decay=1e-4, freeze=2, detect_side="320", detect_longest=533,
            anchor_sizes="auto", pool_size=7, rpn_batch=128, roi_batch=48,
        ),
        *_OTHERS,
    )
}  # fmt: skip


def default_recipe(data: str, in_files: bool, weights: bool, network: str = "") -> tuple[str, str]:
    """The recipe for data and weights if the user names none, and why: docs/decisions/0016-default-recipe.md."""
    if is_boxed(data):
        return "detection-quick", "the default for pictures with boxes"
    if weights:
        return "finetune", "the default with weights"
    if (system := SYSTEMS.get(network)) and (system.chain.is_small != in_files):
        return system.recipe, f"its authors' recipe for {network}"
    if not in_files:
        return "cifar-paper", "the default for small images without weights"
    if data.startswith("imagenet:"):
        return "imagenet-paper", "the default for ImageNet"
    return "scratch", "the default for images of your own without weights"


BOX_FORMS = ("voc", "coco", "yolo", "csv")  # of pictures with boxes
DETECTION = ("voc-paper", "coco-paper", "detection-quick")


def is_boxed(data: str) -> bool:
    """Whether a word names pictures with boxes, as `voc:DIR`."""
    return ":" in data and data.partition(":")[0] in BOX_FORMS


NEED_WEIGHTS = ("finetune", "cifar-finetune", "fitnet-paper")
_SEEN = 300_000  # images that a training of length auto sees, where that is between these numbers of epochs
_EPOCHS = 30, 150


def resolve_augment(recipe: Recipe, small: bool) -> Recipe:
    """`augment auto`: pad for small images or networks, which see whole images or nearly so, else aspect."""
    return recipe if recipe.augment != "auto" else dataclasses.replace(recipe, augment="pad" if small else "aspect")


def resolve_length(recipe: Recipe, images: int) -> Recipe:
    """`length auto`: 300,000 images, but at least 30 and at most 150 epochs."""
    if recipe.length != "auto":
        return recipe
    epochs = min(max(math.ceil(_SEEN / images), _EPOCHS[0]), _EPOCHS[1])
    return dataclasses.replace(recipe, length=f"{epochs}ep")


def recipe_of(name: str | Recipe, /, **changes: Any) -> Recipe:
    """The named recipe with fields replaced."""
    if isinstance(name, str) and name not in RECIPES:
        raise one_of("recipe", name, RECIPES)
    base = RECIPES[name] if isinstance(name, str) else name
    (fields,) = split_keywords(changes, Recipe)
    return dataclasses.replace(base, **fields)
