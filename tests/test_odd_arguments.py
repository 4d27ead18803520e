"""Arguments that nobody means: each is refused in one sentence, and never in a traceback."""

import random

import pytest

from resnets import cli
from resnets.cli.parser import Parser
from resnets.errors import UserError
from resnets.spec import Spec
from resnets.weights.export import file_name
from resnets.zoo import spec_of

MANY = "9" * 5000


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["info", f"resnet{MANY}"], "unknown network 'resnet9999"),
        (["info", "resnet20", "--bn-eps=0"], "bn_eps must be above 0, as PyTorch's BN demands, not 0.0"),
        (["info", "resnet20", "--bn-eps=1e-320"], "bn_eps must be above 0"),
        (["train", "resnet20", "--seed", MANY], "is not a whole number of 64 bits"),
        (["train", "resnet20", "--seed", "18446744073709551616"], "is not a whole number of 64 bits"),
        (["train", "resnet20", "--runs", "0"], "runs must be between 1 and 10000"),
        (["train", "resnet20", "--length", f"{MANY}it"], "a span of training is written as 64000it or 164ep"),
        (["train", "resnet20", "--length", "9" * 21 + "it"], "a span of training is written as 64000it or 164ep"),
        (["train", "resnet20", "--sizes", f"{MANY}@0"], "sizes must look like 16@0,24@0.5,32@0.8"),
        (["train", "resnet20", "--lr", "nan"], "lr must be a finite number, not nan"),
        (["train", "resnet20", "--batch", "1e9"], "'1e9' is not a whole number"),
        (["train", "resnet20", "--batch", "-4"], "batch must be between 1 and 1048576, not -4"),
        (["train", "resnet20", "--data", f"synthetic:{MANY}"], "write synthetic:N"),
        (["train", "resnet20", "--log-every", "²"], "is not a whole number"),
        (["info", "vgg16", "--order", "original"], "vgg16 has no residual units, and so no order; leave it out."),
        (["info", "vgg16", "--depth", "20"], "vgg16 has no residual units, and so no depth"),
        (["info", "resnet20", "--no-aux"], "resnet20 is a residual network and has no aux"),
        (["info", "vgg16", "--input-size", "16"], "the map becomes too small for a layer; give a larger input_size"),
        (["info", "vgg16", "--input-size", MANY], "is not a whole number"),
        (["info", "vgg16", "--size", "100"], "vgg16 needs images of at least 224x224 pixels, not 100x100"),
        (["info", "vgg"], "unknown network 'vgg': did you mean vgg19 or vgg16?"),
        (["models", "vgg1"], "unknown network 'vgg1': did you mean vgg19 or vgg16?"),
        (["analyze", "nin"], "analyze measures residual units, and nin has none."),
        (["train", "nin", "--recipe", "cifar-quick", "--data", "synthetic:64"], "muon is for the filters of residual"),
        (["train", "nin", "--memory", "min", "--data", "synthetic:64"], "memory min runs residual units again"),
        (["train", "fitnet4", "--recipe", "fitnet-hints", "--data", "synthetic:64"], "name it by --teacher"),
        (["train", "nin", "--init", "normal:1"], "init must be gaussian:STD, uniform:BOUND, xavier, lsuv or empty"),
        (["train", "nin", "--max-norm", "x" * 5000], "max_norm must look like 0.9,1.9"),
        (["train", "nin", "--momentum-ramp", MANY], "momentum_ramp must look like 0.65@250ep"),
        (["export", "nin", "--fold"], "fold puts BN into the convolutions of residual units, and nin has none."),
        (["eval", "resnet20", "--precise-bn=-5"], "precise_bn must be at least 0, not -5"),
        (["reproduce", "table1", "--seeds", "999999999999"], "argument --seeds: seeds must be between 1 and 10000"),
        (["runs", "a" * 5000], "does not exist"),
        (["report", "--out=--"], "'--' cannot be the value of an option"),
        (["report", "-o--"], "'--' cannot be the value of an option"),
        (["data", "fetch", "cifar10", "--data-dir=--"], "'--' cannot be the value of an option"),
        (["report", "a" * 5000], "does not exist"),
        (["eval", "a" * 5000], "unknown network"),
        (
            ["train", "resnet20", "--data", "synthetic:64", "--num-classes", "9" * 12],
            "num_classes must be at most 2,147,483,647",
        ),
        (["train", "resnet20", "--data", "synthetic:64", "--kernels", "9" * 9], "memory ran out"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_an_odd_argument_is_one_sentence(tmp_path, monkeypatch, capsys, words, sentence):
    monkeypatch.chdir(tmp_path)
    assert cli.main(words) == 2
    told = capsys.readouterr().err
    assert sentence in told
    assert told.count("\n") == 1
    assert len(told) < 2100


@pytest.mark.parametrize("command", ["runs", "plot", "eval", "info", "report", "analyze", "predict", "train", "export"])
def test_a_null_byte_is_one_sentence_everywhere(capsys, command):
    assert cli.main([command, "a\0b"]) == 2
    assert "an argument holds a null byte" in capsys.readouterr().err


def test_a_network_of_a_foreign_file_does_not_choose_the_folder_that_is_written_to():
    assert file_name("../../etc/net", ".onnx") == "_.._etc_net.onnx"
    assert file_name("a\0/" + "b" * 5000, ".onnx") == "a_" + "b" * 98 + ".onnx"
    assert file_name("resnet110_1layer", ".onnx") == "resnet110_1layer.onnx"


def test_a_spec_from_python_is_held_to_the_same():
    with pytest.raises(UserError, match="bn_eps must be above 0"):
        spec_of("resnet20", bn_eps=0)
    assert isinstance(spec_of("resnet20", bn_eps=1e-3), Spec)


# --- any mix ----------------------------------------------------------------------------------

VALUES = [
    "", "0", "-1", "nan", "inf", "1e309", "x", "²", "9" * 30, MANY, "1,2", "-1,-1", ",,", "it", "0it", "16@", "@",
    "5/3", "0/0", "9@9", "9x9", "$$", "%s", "\udcff", "\ud800", "\x1b[0m", "a" * 300, "a" * 5000, "/dev/null", "/",
    "..", "cuda:99", "meta", "scale:nan:1", "dropout:2", "order=", "synthetic:0", "imagenet:", "nowhere.json",
]  # fmt: skip


def options():
    """The options of every command that take a value."""
    parser = Parser(prog="resnets")
    commands = parser.add_subparsers(parser_class=Parser)
    for add in cli.COMMANDS:
        add(commands)
    return {
        name: [action.option_strings[-1] for action in command._actions if action.option_strings and action.nargs != 0]
        for name, command in commands.choices.items()
    }


def test_no_mix_of_odd_arguments_ends_in_a_traceback(tmp_path, monkeypatch, capsys):
    """The first argument leads nowhere, so that nothing long begins."""
    monkeypatch.chdir(tmp_path)
    draw, known = random.Random(0), options()
    for _ in range(600):
        name = draw.choice([name for name in known if name not in ("models", "data")])
        words = [name, draw.choice(["nowhere", "nowhere.safetensors", *VALUES])]
        for option in draw.sample(known[name], min(len(known[name]), draw.choice([0, 1, 1, 2, 3]))):
            words.append(f"{option}={draw.choice(VALUES)}")
        assert cli.main(words) in (0, 1, 2), words
    assert not list(tmp_path.glob("*.part"))
