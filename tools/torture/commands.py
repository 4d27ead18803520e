"""Command lines with odd options and values, for every command."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from resnets.cli import COMMANDS
from resnets.cli.parser import Parser
from tools.torture.command import run
from tools.torture.pictures import encoded, smooth
from tools.torture.weights import our_file

# Words that are wrong nearly everywhere. None asks for a job that would only take long: a number is small or absurd.
ODD = (
    "", "-1", "0", "1", "2", "3", "0.5", "-0.5", "nan", "inf", "-inf", "1e999", "1e-320", "99999999999999999999", "x",
    "\x1b[31mred", "é", "\u202e", "１２", "1,2", ",", "1,,2", "1,2,3,4,5,6,7,8,9", "../..", "/nonexistent/x", ".", "--",
    "-", "=", " ", "\n", "0x10", "3it", "2ep", "0it", "-1it", "1.5it", "@", "16@0", "0@0", "32@16", "16@nan", ":",
    "a:b", "scale:", "scale:nan:inf", "scale:1:1:1", "dropout:2", "dropout:nan", "gate", "exclusive_gate:1e400",
    "identity", "true", "None", "cuda", "cuda:99", "mps", "meta", "cpu:3", "cpu", "onnxruntime", "frozen", "plain",
    "auto", "fp16", "bf16", "min", "lean", "fast", "*", "[", "resnet20", "preresnet20.cifar10", "order=original,x",
    "order=", "1/0", "0/0", "3/2", "1/2", "a" * 3000, "3x3", "1x1", "999999x999999", "pad", "project", "\udcff",
    "synthetic:40", "synthetic:0", "synthetic:-1", "synthetic:１２", "imagenet:", "imagenet:x", "cifar-quick", "muon",
    "skip", "hour",
)  # fmt: skip
NEVER = ("--runs", "--batches", "--seeds", "--jobs")  # numbers of jobs, which would be done
THIN = ["--widths", "4,8,8", "--blocks", "1"]
GOOD: dict[str, list[str]] = {
    "models": [],
    "info": ["preresnet20", *THIN],
    "train": [
        "preresnet20", *THIN, "--data", "synthetic:40", "--length", "1it", "--batch", "8", "--warmup", "0it",
        "--milestones", "", "--out", "runs", "--quiet",
    ],
    "eval": ["ours.safetensors", "--data", "synthetic:40"],
    "predict": ["p.jpg"],
    "import": ["ours.safetensors", "-o", "out.safetensors"],
    "export": ["ours.safetensors", "-o", "out.onnx"],
    "analyze": ["preresnet20", *THIN, "--data", "synthetic:40", "--batch", "4"],
    "runs": [],
    "compare": ["runs"],
    "plot": ["runs"],
    "results": ["runs", "-o", "out.json"],
    "reproduce": ["table1", "--budget", "smoke", "--dry-run"],
    "report": ["results", "-o", "out.html"],
    "doctor": [],
    "completion": ["bash"],
    "data fetch": ["cifar10"],
    "data check": ["pictures"],
    "data prepare": ["imagenet", "--devkit", "x.tar.gz", "--out", "out"],
}  # fmt: skip


def parsers() -> dict[str, argparse.ArgumentParser]:
    """Every command with its parser, as the command line makes them."""
    found: dict[str, argparse.ArgumentParser] = {}
    commands = Parser(prog="resnets").add_subparsers(parser_class=Parser)
    for add in COMMANDS:
        add(commands)
    for name, parser in commands.choices.items():
        inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        if inner:
            found |= {f"{name} {word}": one for word, one in inner[0].choices.items()}
        else:
            found[name] = parser
    return found


class Commands:
    """One command line: a good one with odd options added, words changed or gone."""

    def __init__(self, folder: Path) -> None:
        self.parsers = parsers()
        assert self.parsers.keys() == GOOD.keys(), "a command is not attacked: add it to GOOD"
        self.ours = our_file(folder)
        self.picture = encoded(smooth(40, 40))
        self._lay_out(folder)
        for name in ("eval", "predict", "export", "analyze", "train", "import", "plot", "reproduce"):
            run(name, *GOOD[name])

    def _lay_out(self, folder: Path) -> None:
        (folder / "ours.safetensors").write_bytes(self.ours)
        (folder / "p.jpg").write_bytes(self.picture)
        (folder / "pictures" / "cat").mkdir(parents=True)
        (folder / "pictures" / "cat" / "p.jpg").write_bytes(self.picture)

    def attack(self, draw: random.Random, folder: Path) -> None:
        self._lay_out(folder)
        name = draw.choice(sorted(GOOD))
        words = list(GOOD[name])
        for _ in range(draw.choice((1, 1, 2, 4))):
            self._change(words, name, draw)
        argv = [*name.split(), *words]
        if draw.random() < 0.05:
            argv = draw.sample(argv, len(argv))
        if name == "reproduce" or argv[0] == "reproduce":
            argv.append("--dry-run")
        if not {"compiled", *NEVER} & set(argv):
            run(*argv)

    def _change(self, words: list[str], name: str, draw: random.Random) -> None:
        kind = draw.random()
        if kind < 0.75:
            action = draw.choice([a for a in self.parsers[name]._actions if a.option_strings])
            option = draw.choice(action.option_strings)
            if action.nargs == 0:
                words.append(option)
            else:
                words += [option, draw.choice(ODD)] if draw.random() < 0.8 else [f"{option}={draw.choice(ODD)}"]
        elif words and kind < 0.9:
            words[draw.randrange(len(words))] = draw.choice(ODD)
        elif words and kind < 0.95:
            del words[draw.randrange(len(words))]
        else:
            words.insert(draw.randrange(len(words) + 1), draw.choice(ODD))
