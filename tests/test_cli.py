"""The command line as a user meets it: what it prints, what it refuses, and how it ends."""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

import resnets
from resnets import cli
from resnets.cli import models as commands
from resnets.cli import options
from resnets.cli.parser import Parser
from resnets.other_systems import OTHERS
from resnets.spec import RESIZES, Spec
from resnets.unit_spec import ORDERS, SHORTCUTS
from resnets.zoo import NETWORKS, NetworkOptions


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]):
    """Run a command in this process; its exit code, standard output and standard error."""

    def run(*argv: str) -> SimpleNamespace:
        code = cli.main(argv)
        out, err = capsys.readouterr()
        return SimpleNamespace(code=code, out=out, err=err)

    return run


def shell(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a shell line in which `resnets` is this package's command."""
    line = f'resnets() {{ "{sys.executable}" -m resnets "$@"; }}; set -o pipefail; {command}'
    return subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=False, env={**os.environ, **environment}
    )


# --- starting ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "argv",
    [
        ["--help"],
        ["--version"],
        ["info", "--help"],
        ["modles"],
        ["models", "presnet*"],
        ["info", "resnet110", "--depth", "21"],
    ],
)
def test_help_and_refusals_import_neither_torch_nor_rich(argv: list[str]) -> None:
    code = f"import sys; from resnets.cli import main; main({argv}); print({{'torch', 'rich'}} & set(sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "set()"


def test_version_and_module_form() -> None:
    done = shell("resnets --version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"resnets {resnets.__version__}\n", "")


def test_no_command_shows_the_help(run) -> None:
    done = run()
    assert done.code == 2
    assert "models" in done.err
    assert "info" in done.err


def test_help_names_every_choice_of_the_tables(run) -> None:
    text = run("info", "--help-all").out
    for word in (*ORDERS, *SHORTCUTS, *RESIZES):
        assert word in text


def test_help_shows_the_common_options_first(run) -> None:
    short, every = run("train", "--help").out, run("train", "--help-all").out
    assert len(short.splitlines()) < len(every.splitlines()) / 2
    assert "--recipe" in short
    assert "--aux-fade" not in short
    assert "--aux-fade" in every
    hidden = int(re.search(r"(\d+) more options: resnets train --help-all\n$", short)[1])
    shown = [set(re.findall(r"^  (?:-\w, |-\w \w+, )?(--[a-z0-9-]+)", text, re.M)) for text in (short, every)]
    assert shown[0] < shown[1]
    assert len(shown[1] - shown[0]) == hidden
    assert "more options" not in every
    for command in ("eval", "info", "analyze", "export", "import"):
        assert "--bn-eps" not in run(command, "--help").out
        assert "--bn-eps" in run(command, "--help-all").out


# --- models -----------------------------------------------------------------------------------


def test_models_lists_every_network_in_full_width(run) -> None:
    done = run("models")
    header, *rows, _, detectors, trained, public, others = done.out.splitlines()
    assert detectors.startswith("detectors: faster_rcnn_resnet18, ")
    assert detectors.count("faster_rcnn_vgg16") == 1
    assert trained.startswith("trained, in the package: ")
    assert public.endswith("resnets models --pretrained lists them")
    assert others.endswith("resnets models --all")
    assert header.split() == ["name", "block", "units", "layers", "parameters", "multiply-adds", "input"]
    assert [row.split()[0] for row in rows] == list(NETWORKS)
    assert "resnet110            basic          54     110   1,727,962          253 M    32x32" in rows
    assert done.err == ""
    assert "\x1b" not in done.out


def test_models_all_lists_the_other_systems_by_family(run) -> None:
    done = run("models", "--all").out
    assert [line.split(":")[0] for line in done.splitlines() if ": " in line][:3] == ["residual", "plain", "others"]
    assert re.search(r"highway19 +19 +2,256,838 +331 M +32x32", done)
    assert done.count("faster_rcnn_vgg16") == 1
    assert not re.search("^vgg16", run("models").out, re.MULTILINE)
    assert f"{len(OTHERS)} other systems of the papers' tables: resnets models --all" in run("models").out
    found = json.loads(run("models", "--all", "--json").out)
    assert {row["family"] for row in found} == {"residual", "plain", "others"}
    assert [row["name"] for row in json.loads(run("models", "vgg*", "--json").out)] == ["vgg16", "vgg19"]


def test_info_of_another_system_says_what_is_uncertain_and_what_the_papers_report(run) -> None:
    done = run("info", "highway32").out
    assert "32 layers, 10 classes" in done
    assert "1,251,798 parameters" in done
    assert "v1 Table 6, Highway, 32 layers: 8.80 %" in done
    assert "the widths 24, 48, 96, and which layers are 3x3, are our choice." in done
    assert "resnets train highway32 --recipe highway-paper" in done
    assert "t h + (1 - t) x" in done  # what the words mean
    told = json.loads(run("info", "googlenet", "--no-aux", "--num-classes", "20", "--json").out)
    assert told["changed"] == {"num_classes": 20, "aux": False}
    assert told["uncertain"] and told["reported"]  # noqa: PT018
    assert told["spec"]["kind"] == "chain"
    assert sum(row["parameters"] for row in told["architecture"]) == told["parameters"]


def test_info_of_another_system_has_its_memory_and_engine(run) -> None:
    done = run("info", "allcnn", "--memory", "--engine", "--batch", "8").out
    assert "Memory of training with batches of 8" in done
    assert "PyTorch computes a network without residual units" in done


def test_models_json_is_measured(run) -> None:
    rows = json.loads(run("models", "preresnet1*", "--json").out)
    assert [row["name"] for row in rows] == resnets.list_models("preresnet1*")
    row = next(row for row in rows if row["name"] == "preresnet164")
    assert row == {
        "name": "preresnet164",
        "family": "residual",
        "block": "bottleneck",
        "units": 54,
        "layers": 164,
        "parameters": 1_703_258,
        "multiply_adds": resnets.complexity(resnets.spec_of("preresnet164")).multiply_adds,
        "input": [3, 32, 32],
        "pretrained": [],
    }


# --- info -------------------------------------------------------------------------------------


def test_info_has_layers_cost_switches_and_drawing(run) -> None:
    text = run("info", "preresnet1001").out
    assert "1,001 layers, 333 bottleneck units" in text
    assert "10,327,706 parameters, 1.49 G multiply-adds on images of 3 x 32x32 (at least 3x3)" in text
    assert "[1x1, 16; 3x3, 16; 1x1, 64] x 111" in text
    assert "conv1 of unit 111" in text
    for switch in (
        "stem",
        "stem_activation",
        "order",
        "shortcut",
        "resize",
        "projection_bn",
        "stride_on",
        "share_activation",
        "end_activation",
        "bn_eps",
        "bn_momentum",
        "init",
    ):
        assert any(line.split()[:1] == [switch] for line in text.splitlines()), switch
    assert "└──────(+)──────┘" in text


def test_info_json(run) -> None:
    data = json.loads(run("info", "resnet34", "--json").out)
    cost = resnets.complexity(resnets.spec_of("resnet34"))
    assert (data["parameters"], data["multiply_adds"]) == (cost.parameters, cost.multiply_adds)
    assert [row["output"] for row in data["architecture"]] == [list(stage.output) for stage in cost.stages]
    assert Spec.from_dict(data["spec"]) == NETWORKS["resnet34"]
    assert sorted(i for kind in data["kinds"] for i in kind["units"]) == list(range(16))
    assert data["changed"] == {}


def test_info_says_what_was_changed(run) -> None:
    text = run("info", "resnet110", "--order", "bn_after_add", "--shortcut", "exclusive_gate:-6").out
    assert "changed from resnet110: order=bn_after_add, shortcut=exclusive_gate:-6" in text
    assert "× ◄─ 1 - g ─┴───── g ───► ×" in text


@pytest.mark.parametrize(("size", "sides"), [("320", (320, 320)), ("320x256", (320, 256))])
def test_info_size(run, size: str, sides: tuple[int, int]) -> None:
    data = json.loads(run("info", "resnet50", "--size", size, "--json").out)
    assert data["input"] == [3, *sides]
    assert data["multiply_adds"] == resnets.complexity(resnets.spec_of("resnet50"), sides).multiply_adds


def test_info_names_idle_switches(run) -> None:
    switches = json.loads(run("info", "plain20", "--json").out)["switches"]
    idle = {name for name, switch in switches.items() if switch["meaning"].endswith("(the same net with any value)")}
    assert idle == {"resize", "stride_on", "share_activation"}
    switches = json.loads(run("info", "preresnet50", "--resize", "pad", "--json").out)["switches"]
    assert not any("any value" in switch["meaning"] for switch in switches.values())


def test_every_field_of_a_spec_has_an_option(run) -> None:
    options = {
        "stem": "imagenet",
        "blocks": "2,1,1",
        "widths": "8,16,24",
        "kernels": "1,3,1",
        "order": "relu_preact",
        "shortcut": "dropout:0.25:true",
        "resize": "project",
        "stride_on": "3x3",
        "stem_activation": False,
        "stem_width": "12",
        "share_activation": "resize",
        "num_classes": "7",
        "in_channels": "1",
        "bn_eps": "0.001",
        "bn_momentum": "0.2",
    }
    assert set(options) == {field.name for field in dataclasses.fields(Spec)} - {"name"}
    argv = []
    for field, value in options.items():
        option = field.replace("_", "-")
        argv += [f"--no-{option}"] if value is False else [f"--{option}", value]
    data = json.loads(run("info", "resnet20", *argv, "--json").out)
    wanted = resnets.spec_of(
        "resnet20",
        stem="imagenet",
        blocks=(2, 1, 1),
        widths=(8, 16, 24),
        kernels=(1, 3, 1),
        order="relu_preact",
        shortcut=resnets.Dropout(0.25, True),
        resize="project",
        stride_on="3x3",
        stem_activation=False,
        stem_width=12,
        share_activation="resize",
        num_classes=7,
        in_channels=1,
        bn_eps=0.001,
        bn_momentum=0.2,
    )
    assert Spec.from_dict(data["spec"]) == wanted


@pytest.mark.parametrize(
    ("argv", "changes"),
    [
        ([], {}),
        (["--blocks", "18"], {"blocks": 18}),
        (["--kernels", "one_layer", "--depth", "110"], {"kernels": "one_layer", "depth": 110}),
        (["--stem-activation"], {"stem_activation": True}),
    ],
)
def test_network_changes(argv: list[str], changes: dict[str, object]) -> None:
    commands = argparse.ArgumentParser().add_subparsers(parser_class=Parser)
    command = options.Command(commands, "verb", NetworkOptions)
    command.add_options()
    assert command.read(command.parser.parse_args(argv)) == [changes]


# --- weights ----------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    path = tmp_path / "net.safetensors"
    resnets.save_weights(resnets.create("resnet20", num_classes=7, seed=0), path)
    return path


def test_info_of_a_file(run, saved: Path) -> None:
    data = json.loads(run("info", str(saved), "--json").out)
    assert (data["name"], data["changed"]) == ("resnet20", {"num_classes": 7})
    assert "7 classes" in run("info", str(saved)).out
    done = run("info", str(saved), "--order", "full_preact")
    assert done.code == 2
    assert "leave out --order" in done.err


def test_info_of_a_file_reads_only_its_header(run, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resnets.weights.files, "read", None)
    assert run("info", str(saved)).code == 0


def test_info_loads_weights_and_tells_whose_they_are(run, saved: Path) -> None:
    done = run("info", "resnet20", "--num-classes", "7", "--weights", str(saved))
    assert done.code == 0
    assert done.out.splitlines()[-1].startswith("Loaded ")
    done = run("info", "resnet20", "--num-classes", "7", "--weights", str(saved), "--source", "resnets", "--json")
    assert json.loads(done.out)["weights"]["report"].startswith("Loaded ")


def test_a_name_from_a_file_cannot_command_the_terminal(run, tmp_path: Path) -> None:
    spec = dataclasses.replace(NETWORKS["resnet20"], name="\x1b[31mred\n[bold]x")
    path = tmp_path / "net.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"resnets.spec": json.dumps(spec.to_dict())})
    done = run("info", str(path))
    assert done.out.startswith("\\x1b[31mred\\n[bold]x: 20 layers")
    done = run("info", str(path), "--size", "1")
    assert done.code == 2
    assert "\x1b" not in done.err


@pytest.mark.parametrize("field", ["blocks", "widths"])
def test_a_file_may_not_claim_a_boundless_network(run, tmp_path: Path, field: str) -> None:
    spec = dataclasses.replace(NETWORKS["resnet20"], **{field: (2**31 - 1,) * 3})
    path = tmp_path / "net.safetensors"
    save_file({"x": torch.zeros(1)}, path, {"resnets.spec": json.dumps(spec.to_dict())})
    done = run("info", str(path))
    assert (done.code, done.err) == (2, "resnets: resnet20 is too large to describe.\n")


# --- mistakes ---------------------------------------------------------------------------------

MISTAKES = {
    "modles": "did you mean models?",
    "models presnet20": "preresnet20",
    "models resnet20 resnet32": "unexpected argument 'resnet32'",
    "--bogus": "unknown option '--bogus'",
    "info": "NETWORK",
    "info resnet21": "resnet20",
    "info resnet110 --depth 21": "20 and 26",
    "info resnet50 --depth 50": "give blocks",
    "info resnet20 --depth 20 --blocks 3": "not both",
    "info resnet20 --depth x": "--depth",
    "info resnet20 --widths 16,32": "one number for each stage",
    "info resnet20 --widths 16,,32": "whole numbers",
    "info resnet20 --kernels 2,2": "odd",
    "info resnet20 --kernels basik": "basic",
    "info resnet20 --shortcut plain --order full_preact": "plain net",
    "info resnet20 --order full_preactt": "full_preact",
    "info resnet20 --ordr original": "--order",
    "info resnet20 --ord original": "--order",
    "info resnet20 --shortcut gate": "exclusive_gate",
    "info resnet20 --shortcut exclusive_gate:low": "bias must be a number",
    "info resnet20 --no-stem-activation": "pre-activation",
    "info resnet20 --size 2": "at least 3x3",
    "info resnet20 --size 0": "at least 3x3",
    "info resnet20 --size 32x": "320x256",
    "info resnet20 --size -32": "320x256",
    "info resnet20 --widths 1000000000,1000000000,1000000000": "too large",
    "info resnet20 --num-classes 100000000000000000000": "num_classes must be at most 2,147,483,647",
    "info resnet20 --blocks 100000000": "too large",
    "info nothing.safetensors": "no file nothing.safetensors",
    "info resnet20 --weights nothing.safetensors": "no file nothing.safetensors",
    "info resnet20 --weights corrupt.safetensors": "corrupt.safetensors",
    "info corrupt.safetensors": "corrupt.safetensors",
    "info .": "folder",
    "info other.safetensors": "has names that no known library gives",
    "info resnet20 --weights other.safetensors": "other.safetensors",
    "info resnet20 --weights other.safetensors --source tim": "timm",
    "info resnet20 --source timm": "--weights",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_a_mistake_is_one_line_and_exit_2(run, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "corrupt.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{no json at all")
    save_file({"x": torch.zeros(1)}, tmp_path / "other.safetensors")
    done = run(*line.split())
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("resnets: ")
    assert len(done.err.splitlines()) == 1
    assert MISTAKES[line] in done.err
    assert "Traceback" not in done.err


def test_the_process_exits_with_the_code() -> None:
    done = shell("resnets info resnet110 --depth 21")
    assert (done.returncode, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr


# --- how it ends ------------------------------------------------------------------------------


def test_interrupt(run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(commands, "_print_models", interrupt)
    assert (done := run("models")).code == 130
    assert done.err == "resnets: stopped by Ctrl-C.\n"


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def bug(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(commands, "_print_models", bug)
    with pytest.raises(ZeroDivisionError):
        cli.main(["models"])


def test_a_closed_pipe_ends_silently() -> None:
    # A reader that has gone before anything is written, and one that leaves after a line.
    done = shell("resnets info resnet20 | true")
    assert (done.returncode, done.stderr) == (141, "")
    done = shell("resnets models 'resnet2*' | head -1")
    assert (done.stdout.split()[0], done.stderr) == ("name", "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is full")
def test_a_full_disk_is_told_in_one_line() -> None:
    done = shell("resnets models resnet20 > /dev/full")
    assert done.returncode == 2
    assert done.stderr.startswith("resnets: ")
    assert len(done.stderr.splitlines()) == 1


def test_ascii_where_the_encoding_has_no_lines() -> None:
    done = shell("resnets info resnet110 --shortcut exclusive_gate", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "x <- 1 - g -+----- g ---> x" in done.stdout


def test_a_terminal_gets_a_rich_table() -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    command = [sys.executable, "-m", "resnets", "info", "preresnet164"]
    with subprocess.Popen(command, stdout=theirs, env=environment) as process:
        os.close(theirs)
        text = b""
        try:
            while part := os.read(ours, 4096):
                text += part
        except OSError:  # how Linux tells that the other side has closed
            pass
        os.close(ours)
    assert process.returncode == 0
    assert b"\x1b[1m" in text
    shown = text.decode()
    assert "…" not in shown
    assert "[1x1, 16; 3x3, 16; 1x1, 64] x 18" in shown


def test_the_help_names_the_sets_that_there_are() -> None:
    """They are written out there, since reading them would import numpy."""
    from resnets.data.sets import DATASETS
    from resnets.options import SETS

    assert SETS.split(", ") == list(DATASETS)
