"""What a user does with the library: each verb is a function that returns a value."""

import inspect
import pydoc
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import resnets
from resnets.cli import main
from resnets.evaluation.options import EvaluateOptions

TINY = {"blocks": 1, "widths": (4, 8, 8)}


@pytest.fixture
def pictures(tmp_path):
    """A folder with train and val, three classes of small pictures."""
    draws = np.random.default_rng(0)
    for part, count in (("train", 8), ("val", 4)):
        for place, name in enumerate(("cat", "dog", "emu")):
            folder = tmp_path / "pictures" / part / name
            folder.mkdir(parents=True)
            for i in range(count):
                pixels = draws.integers(0, 80, (40, 44, 3), np.uint8)
                pixels[..., place] += 150
                Image.fromarray(pixels).save(folder / f"{i}.png")
    return tmp_path / "pictures"


@pytest.fixture
def weights(tmp_path):
    """A file of ours for the three classes."""
    from resnets.metadata import Metadata, Preprocessing

    net = resnets.create("preresnet20", num_classes=3, seed=0, **TINY)
    net.metadata = Metadata(classes=("cat", "dog", "emu"), preprocessing=Preprocessing((0.5,) * 3, (0.25,) * 3))
    resnets.save_weights(net, tmp_path / "net.safetensors")
    return tmp_path / "net.safetensors"


# --- evaluate ---------------------------------------------------------------------------------


def test_evaluate_returns_a_score(weights, pictures):
    model = resnets.load(weights)
    score = resnets.evaluate(model, pictures)
    assert score.images == 12
    assert score.confusion.shape == (3, 3)
    assert score.confusion.sum() == 12
    assert [c.name for c in score.per_class] == ["cat", "dog", "emu"]
    assert [c.images for c in score.per_class] == [4, 4, 4]
    assert sum(c.wrong for c in score.per_class) == score.wrong == len(score.mistakes)
    assert score.interval[0] <= score.error <= score.interval[1]
    for mistake in score.mistakes:
        assert model.classes[mistake.label] == Path(mistake.image).parent.name
    by_hand = 0
    for path in sorted((pictures / "val").rglob("*.png")):
        x = model.transform(Image.open(path))[None]
        by_hand += int(model.eval()(x).argmax()) != model.classes.index(path.parent.name)
    assert by_hand == score.wrong


def test_evaluate_takes_a_record_or_keywords(weights, pictures):
    record = EvaluateOptions(ten_crop=True, crop="24@32")
    one = resnets.evaluate(weights, str(pictures), options=record)
    two = resnets.evaluate(str(weights), pictures, ten_crop=True, crop="24@32")
    assert (one, one.context) == (two, two.context)
    assert "ten crops of 24 of 32" in one.context["views"]
    with pytest.raises(resnets.UserError, match=r"unknown option 'ten_crops': did you mean ten_crop"):
        resnets.evaluate(weights, pictures, ten_crops=True)
    with pytest.raises(resnets.UserError, match="average must be text"):
        resnets.evaluate(weights, pictures, average=3)


def test_evaluate_on_a_set_in_memory_names_wrong_images():
    net = resnets.create("preresnet20", seed=0, **TINY)
    images = resnets.open_data("synthetic:64")
    score = resnets.evaluate(net, images)
    assert score.images == 16
    first = score.mistakes[0]
    assert images.test_labels[first.image] == first.label
    assert score.top5.wrong <= score.wrong
    assert resnets.evaluate(net, "synthetic:64") == score


def test_five_classes_have_no_top_5(weights, pictures, capsys):
    assert resnets.evaluate(weights, pictures).top5 is None
    assert main(["eval", str(weights), "--data", str(pictures)]) == 0
    out = capsys.readouterr().out
    assert "top-5" not in out
    assert "top-1 accuracy" in out


def test_eval_prints_classes_and_mistakes(weights, pictures, capsys):
    assert main(["eval", str(weights), "--data", str(pictures), "--per-class", "--mistakes"]) == 0
    out = capsys.readouterr().out
    assert "class" in out
    assert "taken for" in out


# --- predict ----------------------------------------------------------------------------------


def test_predict_returns_predictions(weights, pictures, tmp_path):
    (tmp_path / "broken.png").write_bytes(b"no picture")
    picture = pictures / "val" / "cat" / "0.png"
    found = resnets.predict(weights, [picture, tmp_path / "broken.png", Image.open(picture)], top=2)
    assert [len(one.labels) for one in found] == [2, 0, 2]
    assert found[0].probabilities == pytest.approx(found[2].probabilities)
    assert found[0].classes[0] in ("cat", "dog", "emu")
    assert "broken.png" in found[1].fault
    assert len(resnets.predict(weights, pictures)) == 36


def test_a_web_address_is_no_picture(weights, capsys):
    with pytest.raises(resnets.UserError, match="is an address on the web: download the picture"):
        resnets.predict(weights, ["https://example.org/cat.jpg"])
    assert main(["predict", "https://example.org/cat.jpg", "--weights", str(weights)]) == 2


# --- analyze ----------------------------------------------------------------------------------


def test_analyze_returns_the_propagation(pictures):
    waves = resnets.analyze("preresnet20", data="synthetic:64", batch=8)
    assert (len(waves.rms), len(waves.factor)) == (10, 9)
    net = resnets.create("preresnet20", seed=0)
    again = resnets.analyze(net, data="synthetic:64", batch=8)
    assert again.rms == waves.rms


def test_analyze_takes_pretrained_names_and_folders_of_pictures(pictures, weights, capsys):
    found = resnets.analyze("preresnet20.cifar10", data="synthetic:64", batch=4)
    assert found.images == 4
    by_hand = resnets.analyze(weights, data=pictures, batch=4)
    assert by_hand.images == 4
    assert main(["analyze", "preresnet20", "--data", str(pictures), "--batch", "4"]) == 0
    assert "4 images of" in capsys.readouterr().out


# --- export and convert -----------------------------------------------------------------------


def test_export_returns_the_file(weights, tmp_path):
    pytest.importorskip("onnxruntime")
    import onnxruntime

    done = resnets.export(resnets.load(weights), tmp_path / "net.onnx")
    session = onnxruntime.InferenceSession(str(done.path), providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["scores"]
    x = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        wanted = resnets.load(weights).eval()(x)
    assert np.allclose(session.run(["scores"], {"images": x.numpy()})[0], wanted, atol=1e-4)


def test_the_ending_says_the_format(weights, tmp_path):
    assert torch.export.load(resnets.export(weights, tmp_path / "net.pt2").path) is not None


def test_convert_returns_the_network(tmp_path):
    from resnets.weights.networks import to_peer

    theirs = resnets.create("resnet18", widths=(4, 8, 8, 16), num_classes=3, seed=0)
    torch.save(to_peer(theirs, "torchvision"), tmp_path / "theirs.pth")
    (tmp_path / "classes.json").write_text('["cat", "dog", "emu"]')
    net = resnets.convert(tmp_path / "theirs.pth", tmp_path / "ours.safetensors", classes=tmp_path / "classes.json")
    assert resnets.load(tmp_path / "ours.safetensors").classes == net.classes == ("cat", "dog", "emu")


# --- train ------------------------------------------------------------------------------------


def test_train_on_a_folder_of_pictures_from_weights(pictures, weights, tmp_path):
    run = resnets.train(
        "preresnet20", data=pictures, recipe="finetune", weights=weights, epochs=1, out=tmp_path / "runs", quiet=True,
        **TINY,
    )  # fmt: skip
    assert run.model.classes == ("cat", "dog", "emu")
    assert run.result["test"]["images"] == 12
    assert set(run.curves) >= {"loss", "training", "test"}
    for word in (run, run.path, str(run.path)):
        assert resnets.load(word).classes == run.model.classes
    score = resnets.evaluate(run, pictures)
    assert (score.images, score.wrong) == (12, run.result["test"]["wrong"])


def test_train_any_module_on_any_dataset_with_a_callback(tmp_path):
    class Mine(resnets.Callback):
        def __init__(self):
            self.epochs = 0

        def on_epoch(self, training, means):
            self.epochs += 1

    draws = torch.Generator().manual_seed(0)
    x, y = torch.randn(24, 3, 8, 8, generator=draws), torch.randint(0, 4, (24,), generator=draws)
    data = [torch.utils.data.TensorDataset(x[part], y[part]) for part in (slice(16), slice(16, 24))]
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 4))
    mine = Mine()
    recipe = resnets.Recipe("mine", length="2ep", batch=8, lr=0.1, schedule="constant", milestones="", warmup="0it")
    run = resnets.train(
        module, data=tuple(data), recipe=recipe, callbacks=[mine], out=tmp_path, quiet=True, optimizer="AdamW"
    )
    assert mine.epochs == 2
    assert run.result["test"]["images"] == 8
    with torch.no_grad():
        wrong = int((run.model(x[16:]).argmax(1) != y[16:]).sum())
    assert wrong == run.result["test"]["wrong"]


# --- data -------------------------------------------------------------------------------------


def test_an_empty_class_folder_is_refused(pictures, capsys):
    (pictures / "train" / "fox").mkdir()
    with pytest.raises(
        resnets.UserError, match=r"the class folder .*fox has no image .* remove it if it is not a class"
    ):
        resnets.open_data(pictures)
    assert main(["train", "preresnet20", "--data", str(pictures)]) == 2
    assert "has no image" in capsys.readouterr().err


def test_a_mistyped_folder_is_answered_with_folders(pictures, monkeypatch):
    monkeypatch.chdir(pictures.parent)
    with pytest.raises(resnets.UserError, match="there is no data set or folder 'picturs': did you mean pictures"):
        resnets.open_data("picturs")
    with pytest.raises(resnets.UserError, match=r"give a folder with a subfolder for each class, or one of cifar10"):
        resnets.open_data("xyzzy")


# --- a shortcut from the user's own file ------------------------------------------------------


def test_the_command_line_imports_a_file_with_a_shortcut(tmp_path, capsys):
    (tmp_path / "halves.py").write_text(
        "import resnets\n"
        "@resnets.register_shortcut\n"
        "class Halves(resnets.Shortcut):\n"
        '    """0.5 x + r."""\n'
        '    kind, formula = "halves", "0.5 x + r"\n'
        "    def module(self, channels):\n"
        "        from torch import nn\n"
        "        class Sum(nn.Module):\n"
        "            def forward(self, x, r):\n"
        "                return 0.5 * x + r\n"
        "        return Sum()\n"
    )
    words = (
        "train preresnet20 --blocks 1 --widths 4,8,8 --data synthetic:64 --recipe cifar-quick --length 2it --batch 8"
    )
    words += " --shortcut halves --import halves.py --out runs --quiet"
    command = [sys.executable, "-m", "resnets", *words.split()]
    done = subprocess.run(command, check=False, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "test error" in done.stdout
    done = subprocess.run([*command, "--seeds", "0,1", "--jobs", "2"], check=False, cwd=tmp_path, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert main(["info", "preresnet20", "--shortcut", "halves"]) == 2
    assert "halves" in capsys.readouterr().err


# --- options ----------------------------------------------------------------------------------


def test_a_configuration_file_has_the_same_names(weights, pictures, tmp_path, capsys):
    (tmp_path / "eval.toml").write_text('ten-crop = true\ncrop = "24@32"\n[more]\naverage = "logits"\n')
    assert main(["eval", str(weights), "--data", str(pictures), "--config", str(tmp_path / "eval.toml"), "--json"]) == 0
    import json

    found = json.loads(capsys.readouterr().out)
    assert found["views"] == "ten crops of 24 of 32"
    assert found["average"] == "logits"
    (tmp_path / "eval.toml").write_text("ten-crops = true\n")
    assert main(["eval", str(weights), "--config", str(tmp_path / "eval.toml")]) == 2
    assert "did you mean ten_crop" in capsys.readouterr().err
    (tmp_path / "eval.toml").write_text("ten-crop\n")
    assert main(["eval", str(weights), "--config", str(tmp_path / "eval.toml")]) == 2
    assert "is not TOML" in capsys.readouterr().err


# --- the front door ---------------------------------------------------------------------------


def test_dir_and_help_show_the_public_names():
    shown = set(dir(resnets))
    assert set(resnets.__all__) <= shown
    assert not [name for name in shown if name.startswith("_") and name != "__version__"]
    text = pydoc.render_doc(resnets, renderer=pydoc.plaintext)
    for name in ("load", "evaluate", "predict", "analyze", "export", "train", "convert", "reproduce", "sweep"):
        assert f"    {name}(" in text
    assert "TYPE_CHECKING" not in shown


def test_every_room_is_reached_lazily():
    rooms = sorted(set(dir(resnets)) - set(resnets.__all__))
    code = f"import resnets, types; print(all(isinstance(getattr(resnets, r), types.ModuleType) for r in {rooms}))"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "True"


def test_every_public_function_has_a_docstring_with_an_example():
    for name in resnets.__all__:
        found = getattr(resnets, name)
        if inspect.isfunction(found):
            assert ">>>" in (found.__doc__ or ""), name
        elif inspect.isclass(found):
            assert found.__doc__, name


def test_the_signature_of_a_verb_has_its_options():
    parameters = inspect.signature(resnets.evaluate).parameters
    assert {"model", "data", "ten_crop", "engine", "normalize"} <= set(parameters)
    assert "ten_crop: average over centre and corners" in resnets.evaluate.__doc__


def test_evaluating_and_analysing_leave_the_network_as_it_was():
    net = resnets.create("preresnet20", seed=0, **TINY)
    before = {name: (tensor.clone(), tensor.stride()) for name, tensor in net.state_dict().items()}
    resnets.evaluate(net, "synthetic:64", precise_bn=16)
    resnets.evaluate([net, net], "synthetic:64", crop="28@32")
    resnets.analyze(net, "synthetic:64", batch=8)
    for name, tensor in net.state_dict().items():
        assert torch.equal(before[name][0], tensor), name
        assert before[name][1] == tensor.stride(), name
    with pytest.raises(resnets.UserError, match="a Linear is no network of this package"):
        resnets.evaluate(torch.nn.Linear(1, 1), "synthetic:64")


def test_a_run_is_evaluated_and_analysed_from_another_folder(pictures, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(pictures.parent)
    run = resnets.train("preresnet20", data="pictures", epochs=1, batch=8, quiet=True, **TINY)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    path = run.path.resolve()
    monkeypatch.chdir(elsewhere)
    assert resnets.evaluate(path).images == 12
    assert resnets.analyze(path, batch=4).images == 4
    assert main(["eval", str(path)]) == 0
    assert main(["analyze", str(path), "--batch", "4"]) == 0
