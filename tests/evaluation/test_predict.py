"""`resnets predict`: what people and programs get, and the class-activation map."""

import csv
import io
import json

import numpy as np
import pytest
import torch
from PIL import Image

import resnets
from resnets.cli import main
from resnets.data.test_crops import Crop
from resnets.evaluation.activation_map import activation_map, overlay, resize_for_drawing
from resnets.metadata import Metadata, Preprocessing

NAMES = ("ant", "bee", "cat", "dog", "eel")
READ = Preprocessing((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), crop=32, resize=36)


def drawn(seed, size):
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), dtype=np.uint8))


@pytest.fixture(scope="module")
def net():
    return resnets.create("preresnet20", blocks=1, widths=(4, 8, 8), num_classes=5, seed=0).eval()


@pytest.fixture
def here(tmp_path, monkeypatch, net):
    monkeypatch.chdir(tmp_path)
    resnets.save_weights(net, "net.safetensors", metadata=Metadata(NAMES, preprocessing=READ).to_metadata())
    (tmp_path / "pictures" / "more").mkdir(parents=True)
    for i, (name, size) in enumerate({"b.png": (40, 36), "a.png": (36, 50), "more/c.png": (36, 36)}.items()):
        drawn(i, size).save(tmp_path / "pictures" / name)
    return tmp_path


def expected(net, path):
    """One picture, one view, by slices."""
    pixels = np.asarray(Image.open(path)).astype(np.float32)
    y, x = (round((side - 32) / 2) for side in pixels.shape[:2])
    seen = torch.from_numpy(pixels[y : y + 32, x : x + 32]).permute(2, 0, 1) / 255
    mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (READ.mean, READ.std))
    with torch.no_grad():
        return net(((seen - mean) / std)[None])[0].softmax(0)


@pytest.mark.parametrize("engine", ["plain", "frozen"])
def test_json_has_every_picture_in_order(here, net, capsys, engine):
    words = ["predict", "pictures", "--weights", "net.safetensors", "--json", "--top", "3", "--engine", engine]
    assert main(words) == 0
    found = json.loads(capsys.readouterr().out)
    assert [row["file"] for row in found] == ["pictures/a.png", "pictures/b.png", "pictures/more/c.png"]
    for row in found:
        wanted = expected(net, row["file"])
        best = wanted.argsort(descending=True)[:3].tolist()
        assert [c["label"] for c in row["classes"]] == best
        assert [c["name"] for c in row["classes"]] == [NAMES[i] for i in best]
        assert [c["probability"] for c in row["classes"]] == pytest.approx(wanted[best].tolist(), abs=1e-4)


def test_csv_and_table_say_the_same(here, capsys):
    assert main(["predict", "pictures/a.png", "--weights", "net.safetensors", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["rank"] for row in rows] == list("12345")
    assert sum(float(row["probability"]) for row in rows) == pytest.approx(1, abs=1e-4)
    assert main(["predict", "pictures/a.png", "--weights", "net.safetensors"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "pictures/a.png"
    for line, row in zip(shown[1:], rows, strict=True):
        name, share, _, *bar = line.split()
        assert (name, float(share)) == (row["class"], round(100 * float(row["probability"]), 1))
        assert len("".join(bar)) == round(30 * float(row["probability"]))


def test_what_cannot_be_read_is_listed_at_the_end_and_the_rest_is_told(here, capsys):
    (here / "pictures" / "aa.jpg").write_bytes(b"\xff\xd8\xff nothing more")
    words = ["predict", "pictures", "absent.png", "--weights", "net.safetensors"]
    assert main([*words, "--json"]) == 1
    told = capsys.readouterr()
    found = json.loads(told.out)
    assert ["classes" in row for row in found] == [True, False, True, True, False]
    assert "pictures/aa.jpg cannot be decoded" in found[1]["error"]
    assert told.err.splitlines()[-1] == "resnets: 2 of 5 pictures could not be read."
    assert main([*words, "--csv", "--top", "1"]) == 1
    assert len(capsys.readouterr().out.splitlines()) == 4


def test_many_pictures_are_never_in_memory_together(here, capsys, monkeypatch):
    """Of a picture only what the network sees is kept, as soon as it is decoded."""
    import resnets.evaluation.predict as module

    for i in range(90):
        drawn(i, (36, 36)).save(here / "pictures" / "more" / f"{i:03d}.png")
    alive, most, look = 0, 0, module.look_at_file

    class Counted(Image.Image):
        def __del__(self):
            nonlocal alive
            alive -= 1

    def counting(path, channels, see):
        def counted(picture):
            nonlocal alive, most
            picture.__class__ = Counted
            alive += 1
            most = max(most, alive)
            return see(picture)

        return look(path, channels, counted)

    monkeypatch.setattr(module, "look_at_file", counting)
    assert main(["predict", "pictures", "--weights", "net.safetensors", "--csv", "--top", "1"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 94
    assert 1 <= most <= 8 + 1  # one in each thread; what waits for the network are the views


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pictures", "--weights", "net.safetensors", "--cam", "cam.png"], "--cam draws over one picture, and 3"),
        (["pictures/a.png", "--weights", "net.safetensors", "--cam", "cam.gif"], "--cam writes .png or .jpg"),
        (["pictures/a.png", "--weights", "net.safetensors", "--cam", "c.png", "--ten-crop"], "map of one crop"),
        (["empty", "--weights", "net.safetensors"], "empty has no pictures in it"),
        (["pictures/a.png", "--weights", "absent.safetensors"], "there is no file absent.safetensors"),
        (["pictures/a.png", "--weights", "net.safetensors", "--top", "0"], "top must be at least 1, not 0"),
        (["pictures/a.png", "--json", "--csv"], "not allowed with argument"),
    ],
)
def test_mistakes_in_predict_get_one_sentence(here, capsys, words, message):
    (here / "empty").mkdir()
    assert main(["predict", *words]) == 2
    told = capsys.readouterr().err
    assert message in told.splitlines()[-1]
    assert not list(here.glob("*.png"))


# --- the class-activation map -----------------------------------------------------------------


@pytest.mark.parametrize("name", ["resnet20", "preresnet20"])
def test_the_mean_of_the_map_is_the_score(name):
    net = resnets.create(name, blocks=1, widths=(4, 8, 8), num_classes=5, seed=0, dtype=torch.float64)
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.3)
    x = torch.randn(2, 3, 32, 40, dtype=torch.float64)
    with torch.no_grad():
        scores = net.eval()(x)
    net.train()
    for label in range(5):
        found = activation_map(net, x, label)
        assert found.shape == (2, 8, 10)
        torch.testing.assert_close(found.mean((1, 2)), scores[:, label])
    assert net.training


def test_the_drawing_covers_what_was_seen_and_dims_the_rest():
    picture = Image.new("RGB", (512, 256), (100, 100, 100))
    evidence = torch.tensor([[-1.0, -1.0], [-1.0, 5.0]])
    crop = Crop(224, 256)
    found = np.asarray(overlay(resize_for_drawing(picture, crop), crop, evidence)).astype(int)
    assert found.shape == (256, 512, 3)
    assert (found[128, 20] == 35).all()  # outside the crop
    assert (found[30, 170] == 100).all()  # seen, and no evidence
    assert np.abs(found[220, 350] - 100).max() > 60  # where it is strongest
    small = overlay(resize_for_drawing(Image.new("RGB", (32, 32)), Crop(32, 32)), Crop(32, 32), evidence)
    assert small.size == (256, 256)


def test_cam_is_written_whole(here, capsys):
    assert main(["predict", "pictures/a.png", "--weights", "net.safetensors", "--cam", "cam.jpg"]) == 0
    assert "is drawn in cam.jpg" in capsys.readouterr().err
    with Image.open("cam.jpg") as picture:
        assert min(picture.size) >= 256
