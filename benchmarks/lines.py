"""What is compared: the sections of the benchmark, as tables. Ratios are against the first contestant of a line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

STEP = ("timm", "plain", "fast", "roofline", "peak")
MEMORY = ("timm", "plain", "fast", "lean", "min")
INFERENCE = ("timm", "plain", "frozen", "onnxruntime", "openvino")
LATENCY = ("onnxruntime", "plain", "frozen", "openvino")
BUSY = ("fast, alone", "fast, busy", "plain, alone", "plain, busy")
DETECTION = ("torchvision", "plain", "fast")
STARTUP = {
    "import torch": ("-c", "import torch"),
    "import timm": ("-c", "from benchmarks.peers import import_timm; import_timm()"),
    "import resnets": ("-c", "import resnets"),
    "resnets --help": ("-m", "resnets", "--help"),
}
TRAIN = (
    "-m",
    "resnets",
    "train",
    "preresnet20",
    "--data",
    "cifar10",
    "--recipe",
    "cifar-paper",
    "--no-test",
    "--quiet",
)
JOBS = {
    "one after the other": (*TRAIN, "--length", "150it", "--runs", "2", "--jobs", "1"),
    "side by side": (*TRAIN, "--length", "150it", "--runs", "2", "--jobs", "2"),
}
FIRST = {"import torch": ("-c", "import torch"), "one step": (*TRAIN, "--length", "1it")}
GOAL = 20  # per cent of held-out images, the end of a race
RACE = {recipe: ("-m", "benchmarks.race", recipe) for recipe in ("cifar-paper", "cifar-quick")}
NET94 = "preresnet12_w48"  # which cifar-94 trains to 94 % of the test images
RACE94 = {"airbench94_muon": ("-m", "benchmarks.airbench"), "cifar-94": ("-m", "benchmarks.race", "cifar-94")}


_PROCESSES = {  # tasks of whole processes that train, and what their lines are called
    "race": f"to {GOAL} % error",
    "race94": "to the end of the recipe",
    "jobs": "two seeds",
    "first step": "a training of one step",
}


@dataclass(frozen=True)
class Line:
    """Contestants who do one thing, in rounds."""

    task: str
    contestants: tuple[str, ...]
    net: str = ""
    batch: int = 128
    way: str = "kept"  # a name of timing.WAYS
    effort: float = 4  # seconds of a contestant's round, roughly, with its share of the start: for the time left
    rounds: int | None = None  # where a section's number is too many
    needs: Mapping[str, float] = field(default_factory=dict)  # GiB without which a contestant is left out
    side: int | None = None  # of the images, where it is not what the papers feed the net
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        if self.task in _PROCESSES:
            return f"{self.net}, {_PROCESSES[self.task]}"
        if self.commands:
            return "a new process"
        if self.task.startswith("detection"):
            what = "test" if self.task == "detection" else "training step"
            return f"{self.net}, {what}, shorter side {self.side}"
        sides = f" of {self.side}x{self.side}" if self.side else ""
        return f"{self.net}, batch {self.batch}{sides}" if self.net else f"{self.batch} images"

    def job(self, contestant: str) -> dict[str, object]:
        """What a worker is told."""
        told = {"task": self.task, "contestant": contestant, "net": self.net, "batch": self.batch}
        return {**told, "side": self.side} if self.side else told


@dataclass(frozen=True)
class Section:
    lines: tuple[Line, ...]
    quick: tuple[Line, ...]  # for a look in passing
    rounds: int = 7
    on_request: bool = False  # measured only if --only names it


def _depth(*nets: str, rounds: int | None = None) -> tuple[Line, ...]:
    return tuple(Line("step", ("fast", "lean", "min"), net, 8, "fresh", 10, rounds) for net in nets)


def _startup(rounds: int | None = None) -> tuple[Line, ...]:
    return (Line("process", tuple(STARTUP), way="process", effort=2, rounds=rounds, commands=STARTUP),)


SECTIONS = {
    "step": Section(
        (
            Line("step", STEP, "preresnet20", effort=2),
            Line("step", STEP, "preresnet110"),
            Line("step", STEP, "resnet110"),
            Line("step", STEP, "preresnet164", effort=5),
            Line("step", STEP, "preresnet1001", 16, effort=5),
            Line("step", (*STEP, "keras"), "preresnet50", 8),
            Line("step", (*STEP, "torchvision", "keras"), "resnet50", 8),
        ),
        quick=(Line("step", STEP, "preresnet164", 16, effort=5),),
    ),
    "memory": Section(
        (
            Line("step", MEMORY, "preresnet1001", 64, "fresh", 40, needs={"timm": 12, "plain": 12, "fast": 12}),
            Line("step", ("timm", "lean", "min"), "preresnet1001", 128, "fresh", 70, 2, needs={"timm": 22, "lean": 12}),
            Line("step", ("min",), "resnet1202", 128, "fresh", 100, 2),
        ),
        quick=(Line("step", ("timm", "fast", "lean", "min"), "preresnet164", 16, "fresh", 10, 1),),
        rounds=3,
    ),
    "large": Section(  # the deepest net of the papers for ImageNet, at both of its sizes: does the forecast hold?
        (
            Line("step", ("fast", "min"), "preresnet200", 2, "fresh", 60, side=224),
            Line("step", ("fast", "min"), "preresnet200", 2, "fresh", 60, side=320),
        ),
        quick=(),
        rounds=1,
    ),
    "inference": Section(
        (
            Line("inference", INFERENCE, "preresnet110", effort=2),
            Line("inference", (*INFERENCE, "keras"), "preresnet50", 8, effort=2),
            Line("inference", (*INFERENCE, "torchvision", "keras"), "resnet50", 8, effort=2),
        ),
        quick=(Line("inference", INFERENCE, "preresnet110", 32, effort=2),),
        rounds=9,
    ),
    "latency": Section(  # one image at a time
        tuple(Line("inference", LATENCY, net, 1, effort=1) for net in ("preresnet20", "preresnet110", "resnet50")),
        quick=(Line("inference", LATENCY, "preresnet20", 1, effort=1),),
        rounds=9,
    ),
    "busy": Section(  # beside a process that keeps one core busy
        (
            Line("busy", BUSY, "preresnet20", effort=12),
            Line("busy", BUSY, "preresnet110", 64, effort=30),
        ),
        quick=(Line("busy", BUSY, "preresnet20", 32, effort=5),),
        rounds=3,
    ),
    "detection": Section(  # a training step and a test, beside torchvision's code with our operators in it
        tuple(
            Line(task, DETECTION, "faster_rcnn_resnet50", 1, effort=effort, side=600)
            for task, effort in (("detection-step", 40), ("detection", 20))
        ),
        quick=tuple(
            Line(task, DETECTION, "faster_rcnn_resnet18", 1, effort=5, side=224)
            for task in ("detection-step", "detection")
        ),
        rounds=5,
    ),
    "data": Section(*2 * ((Line("batch", ("PIL", "torchvision", "ours"), effort=1),),), rounds=9),
    "jpeg": Section(*2 * ((Line("jpeg", ("PIL", "only PIL", "ours"), batch=64, effort=1),),), rounds=9),
    "startup": Section(
        _startup(),
        quick=_startup(rounds=1),
    ),
    "first": Section(  # from the command to the first step
        (Line("first step", tuple(FIRST), "preresnet20", way="process", effort=6, commands=FIRST),),
        quick=(),
        rounds=5,
    ),
    "jobs": Section(  # two trainings on all cores, or each on its own
        (Line("jobs", tuple(JOBS), "preresnet20", way="process", effort=120, commands=JOBS),), quick=(), rounds=3
    ),
    "depth": Section(
        _depth(*(f"preresnet{n}" for n in (20, 56, 110, 164, 1001, 1202)), "resnet1202"),
        quick=_depth("preresnet20", "preresnet110", rounds=1),
        rounds=2,
    ),
    "race": Section((Line("race", tuple(RACE), "preresnet20", 128, "told", 300, commands=RACE),), quick=(), rounds=1),
    "race94": Section(  # hours: the record recipe, whose script the user names, and ours
        (Line("race94", tuple(RACE94), NET94, 128, "told", 3300, commands=RACE94),),
        quick=(),
        rounds=1,
        on_request=True,
    ),
}
QUICK_ROUNDS = 3
