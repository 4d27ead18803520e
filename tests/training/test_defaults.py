"""The recipe follows data and weights, and a run finds its data from any working directory."""

import json
import multiprocessing
import os
import signal

import pytest
import tiny

import resnets
from pictures import tree
from resnets.cli import main
from resnets.data import open_folder
from resnets.errors import UserError
from resnets.recipe import RECIPES, recipe_of, resolve_length
from resnets.runs import Run
from resnets.training.callbacks import Callback
from resnets.training.job import choose_recipe
from resnets.training.loop import Trainer
from resnets.training.options import TrainOptions
from resnets.training.session import train

THIN = {"widths": (4, 8, 8), "blocks": 1}


@pytest.fixture
def pictures(tmp_path):
    tree(tmp_path / "place" / "pictures" / "train", each=6)
    tree(tmp_path / "place" / "pictures" / "val", each=2)
    return tmp_path / "place" / "pictures"


def test_the_default_recipe_follows_data_and_weights(pictures, images):
    folder = open_folder(pictures)
    chosen = {name: choose_recipe(data, TrainOptions(**given)) for name, data, given in (
        ("small", images, {}),
        ("small with weights", images, {"weights": "w"}),
        ("folder", folder, {}),
        ("folder with weights", folder, {"weights": "w"}),
        ("folder by name", str(pictures), {}),
        ("ImageNet", "imagenet:somewhere", {}),
        ("small by name", "cifar10", {}),
        ("named", folder, {"recipe": "cifar-quick"}),
    )}  # fmt: skip
    assert chosen == {
        "small": ("cifar-paper", "the default for small images without weights"),
        "small with weights": ("finetune", "the default with weights"),
        "folder": ("scratch", "the default for images of your own without weights"),
        "folder with weights": ("finetune", "the default with weights"),
        "folder by name": ("scratch", "the default for images of your own without weights"),
        "ImageNet": ("imagenet-paper", "the default for ImageNet"),
        "small by name": ("cifar-paper", "the default for small images without weights"),
        "named": ("cifar-quick", ""),
    }


def test_a_folder_is_trained_by_scratch_and_the_plan_says_so_before_the_first_step(
    pictures, tmp_path, monkeypatch, capfd
):
    class EnoughError(Exception):
        pass

    def stop(self, step):
        raise EnoughError

    monkeypatch.setattr(Trainer, "step", stop)
    with pytest.raises(EnoughError):
        train("preresnet20", pictures, out=tmp_path / "runs", **THIN)
    assert (
        f"resnets: preresnet20 on {pictures}: recipe scratch (the default for images of your own without weights), "
        "43 steps of 64 (152.9 epochs of 18 images)."
    ) in capfd.readouterr().err
    weights = tmp_path / "w.safetensors"
    resnets.save_weights(resnets.create("preresnet20", **THIN), weights)
    with pytest.raises(EnoughError):
        train("preresnet20", pictures, weights=weights, out=tmp_path / "runs", **THIN)
    assert "recipe finetune (the default with weights), 3 steps of 64" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("images", "epochs"), [(18, 150), (2000, 150), (5000, 60), (7000, 43), (10_000, 30), (10**6, 30)]
)
def test_the_length_of_scratch_follows_the_number_of_images(images, epochs):
    assert resolve_length(RECIPES["scratch"], images).length == f"{epochs}ep"
    assert resolve_length(recipe_of("scratch", epochs=3), images).length == "3ep"


@pytest.mark.parametrize("recipe", ["finetune", "cifar-finetune"])
def test_fine_tuning_without_weights_is_refused(tmp_path, capsys, recipe):
    words = ["train", "preresnet20", "--data", "synthetic:64", "--recipe", recipe, "--out", str(tmp_path)]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        f"resnets: recipe {recipe} fine-tunes given weights: name them by --weights, or leave --recipe out to train "
        "from scratch.\n"
    )
    assert not list(tmp_path.iterdir())


# --- synonyms ---------------------------------------------------------------------------------


def test_synonyms_are_understood_in_python_on_the_command_line_and_in_a_file(tmp_path, capsys):
    options = {"data": "synthetic:64", "quiet": True, "warmup": "0it", "milestones": "", **THIN}
    asked = {"epochs": 2, "batch_size": 32, "learning_rate": 0.05, "signal_every": 3}
    run = train("preresnet20", out=tmp_path / "python", **options, **asked)
    assert (run.identity.recipe.length, run.identity.recipe.batch, run.identity.recipe.lr) == ("2ep", 32, 0.05)
    common = ["--data", "synthetic:64", "--quiet", "--warmup", "0it", "--milestones", "", "--widths", "4,8,8"]
    common += ["--blocks", "1", "--out", str(tmp_path / "words")]
    words = ["--epochs", "2", "--batch-size", "32", "--learning-rate", "0.05", "--every", "3"]
    assert main(["train", "preresnet20", *common, *words]) == 0
    (tmp_path / "mine.toml").write_text(
        "[recipe]\nepochs = 2\nbatch-size = 32\nlearning_rate = 0.05\n\n[log]\nevery = 3\n"
    )
    assert (
        main(["train", "preresnet20", *common[:-1], str(tmp_path / "file"), "--config", str(tmp_path / "mine.toml")])
        == 0
    )
    for folder in ("words", "file"):
        (found,) = (tmp_path / folder).iterdir()
        assert found.name == run.path.name
        tiny.assert_same(run, Run(found))
    assert run.config["options"] == {
        "data": "synthetic:64", "out": str(tmp_path / "python"), "signal_every": 3, "quiet": True,
    }  # fmt: skip


@pytest.mark.parametrize(("name", "words"), [("epoch", "epochs"), ("learning_rat", "learning_rate"), ("see", "seed")])
def test_an_unknown_keyword_is_answered_with_the_nearest(tmp_path, name, words):
    with pytest.raises(UserError, match=f"unknown option '{name}': did you mean .*{words}"):
        tiny.train_tiny(tmp_path, **{name: 1})


def test_the_command_line_knows_synonyms_when_it_guesses(capsys):
    assert main(["train", "preresnet20", "--epocks", "3"]) == 2
    assert "unknown option '--epocks': did you mean --epochs" in capsys.readouterr().err


# --- the place of the data --------------------------------------------------------------------


def test_a_run_is_resumed_and_its_data_found_from_another_working_directory(pictures, tmp_path, monkeypatch):
    options = {"recipe": "scratch", "length": "4it", "batch": 6, "quiet": True, "log_every": 1, "side": 16, **THIN}
    monkeypatch.chdir(tmp_path / "place")
    whole = train("preresnet20", "pictures", out=tmp_path / "whole", **options)
    with monkeypatch.context() as patch:
        step = Trainer.step

        def cut(self, i):
            if i == 2:
                raise ZeroDivisionError
            step(self, i)

        patch.setattr(Trainer, "step", cut)
        with pytest.raises(ZeroDivisionError):
            train("preresnet20", "pictures", out=tmp_path / "runs", checkpoint_every=0, **options)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    again = train("preresnet20", "../place/pictures", out=tmp_path / "runs", **options)
    assert again.path.name == whole.path.name, "the name of a run does not depend on where it goes on"
    tiny.assert_same(whole, again)
    assert train("preresnet20", pictures, out=tmp_path / "runs", **options).path == again.path
    assert again.config["data_path"] == again.data == str(pictures)
    assert again.identity.data == "pictures"
    assert len(list((tmp_path / "runs").iterdir())) == 1
    tree(tmp_path / "elsewhere" / "pictures" / "train", each=6)
    tree(tmp_path / "elsewhere" / "pictures" / "val", each=2)
    other = train("preresnet20", tmp_path / "elsewhere" / "pictures", out=tmp_path / "runs", **options)
    assert other.path != again.path, "another folder with the same names is another run"


def test_an_older_run_without_a_path_gets_one_when_it_is_resumed(pictures, tmp_path, monkeypatch):
    options = {"recipe": "scratch", "length": "2it", "batch": 6, "quiet": True, "side": 16, **THIN}
    monkeypatch.chdir(tmp_path / "place")
    run = train("preresnet20", "pictures", out=tmp_path / "runs", **options)
    config = {key: value for key, value in run.config.items() if key not in ("data_path", "options")}
    run.config_path.write_text(json.dumps(config))
    assert run.data == "pictures"
    for path in (run.result_path, run.weights):
        path.unlink()
    assert train("preresnet20", "pictures", out=tmp_path / "runs", **options).data == str(pictures)


# --- memory -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "where", ["resnets.training.classification.functional.cross_entropy", "torch.autograd.backward"]
)
def test_memory_that_runs_out_is_one_sentence_in_python_too(tmp_path, monkeypatch, where):
    def fail(*args, **kwargs):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 268435456 bytes.")

    monkeypatch.setattr(where, fail)
    with pytest.raises(
        UserError, match=r"memory ran out when 256 MiB more .*--batch or --micro-batch, or --memory min"
    ):
        tiny.train_tiny(tmp_path)


def test_a_killed_process_that_decodes_images_is_one_sentence(pictures, tmp_path):
    class Kill(Callback):
        def on_step(self, training):
            for child in multiprocessing.active_children():
                os.kill(child.pid, signal.SIGKILL)

    options = {"recipe": "scratch", "length": "9it", "batch": 6, "quiet": True, "side": 16, "decoders": 1, **THIN}
    with pytest.raises(UserError, match="a process that decodes images was killed, perhaps because memory ran out"):
        train("preresnet20", pictures, out=tmp_path / "runs", callbacks=[Kill()], **options)


def test_other_errors_of_torch_stay_as_they_are(tmp_path, monkeypatch):
    def fail(*args, **kwargs):
        raise RuntimeError("something else")

    monkeypatch.setattr("torch.autograd.backward", fail)
    with pytest.raises(RuntimeError, match="something else"):
        tiny.train_tiny(tmp_path)
